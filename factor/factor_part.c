/* Checks factors and writes them as a packed part: see factor_part.h. */
#include "factor/factor_part.h"

#include <math.h>

/* Refuses numbers of U that F16 cannot hold: a row of U has the length of its row of M over all heads, so it may
 * have larger numbers than M. With fewer than 16 bits numbers are relative. */
static fv_status check_range(const fv_packed_shape *s, const fv_factor *f) {
    const float most = 65504;
    if (s->dtype != FV_F16 || s->lowrank.bits != 16) return FV_OK;
    for (size_t i = 0; i < (size_t)s->n * (size_t)f->rank; i++)
        if (!(fabsf(f->u[i]) <= most))
            return FV_FAIL(FV_EINVAL,
                           "a factor holds %g, more than f16 can: start both workers with "
                           "--kv-dtype bf16, or ask for pack=svd,bits=8",
                           (double)f->u[i]);
    return FV_OK;
}

static fv_factor_goal goal_of(const fv_factor_part *what, const fv_packed_shape *s) {
    return (fv_factor_goal){.rank = s->lowrank.rank,
                            .energy = what->energy,
                            .seed = ((uint64_t)what->segment << 32) + 2 * (uint64_t)what->layer +
                                    (uint64_t)s->kind};
}

static fv_status put(const fv_factor *f, fv_packed_shape *s, void *data, double *error) {
    FV_TRY(check_range(s, f));
    s->lowrank.rank = f->rank;
    if (s->lowrank.rank2 > f->rank) s->lowrank.rank2 = f->rank;
    fv_packed_write(s, f->u, f->basis, data);
    *error = f->error;
    return FV_OK;
}

fv_status fv_factor_write(fv_backend *be, fv_arena *scratch, const fv_tensor *m,
                          const fv_factor_part *what, fv_packed_shape *s, void *data,
                          double *error) {
    fv_factor f;
    fv_factor_goal goal = goal_of(what, s);
    FV_TRY(fv_factorise(be, scratch, m, &goal, &f));
    return put(&f, s, data, error);
}

fv_status fv_factor_write_all(fv_backend *be, fv_arena *scratch, fv_factor_job *job, int32_t n,
                              int32_t *bad) {
    fv_tensor *m;
    fv_factor_goal *goal;
    fv_factor *f;
    FV_TRY(FV_ARENA_NEW(scratch, n, m));
    FV_TRY(FV_ARENA_NEW(scratch, n, goal));
    FV_TRY(FV_ARENA_NEW(scratch, n, f));
    for (int32_t i = 0; i < n; i++) {
        m[i] = job[i].m;
        goal[i] = goal_of(&job[i].what, job[i].s);
    }
    FV_TRY(fv_factorise_all(be, scratch, m, goal, n, f, bad));
    for (*bad = 0; *bad < n; ++*bad) {
        fv_factor_job *j = &job[*bad];
        FV_TRY(put(&f[*bad], j->s, j->data, &j->error));
    }
    return FV_OK;
}
