/* Runs a select method over every layer, segment and head, and shortens the store. The table of
 * methods is made from methods.def: a row without its file does not link. */
#include "prefill-worker/select.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/arena.h"
#include "policy/stage_rows.h"

#undef SELECT
#define SELECT(name) extern const fv_select_method fv_select_##name;
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"

static const fv_select_method *const methods[] = {
#undef SELECT
#define SELECT(name) &fv_select_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

static const fv_select_method *find(const char *name) {
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i]->name, name) == 0) return methods[i];
    assert(!"a select method without its file");
    return NULL;
}

bool fv_select_asks(const fv_plan *plan, int32_t layer) {
    if (!plan->select || plan->window.rows == 0) return false;
    int32_t rows = plan->visual[layer] + plan->shape.n_text;
    for (int32_t g = 0; g < plan->shape.n_kv; g++)
        if (plan->select(plan, layer, g) < rows) return true;
    return false;
}

/* One number of query heads [h0, h1), each at p + h * ld: in order, in double. */
static float reduce(const float *p, size_t ld, int32_t h0, int32_t h1, bool max) {
    double sum = 0, top = -HUGE_VAL;
    for (int32_t h = h0; h < h1; h++) {
        double x = (double)p[(size_t)h * ld];
        sum += x;
        top = x > top ? x : top;
    }
    return (float)(max ? top : sum / (h1 - h0));
}

static fv_status reduce_heads(const fv_plan *plan, const fv_select_sums *sums, fv_arena *arena,
                              fv_select_context *ctx) {
    int32_t group = sums->n_head / ctx->n_kv;
    int32_t h0 = plan->window.shared ? 0 : ctx->head * group;
    int32_t h1 = plan->window.shared ? sums->n_head : h0 + group;
    size_t line = (size_t)sums->n_key;
    for (int from = 0; from < FV_N_SEG; from++)
        for (int to = 0; to < FV_N_SEG; to++) {
            const float *p =
                sums->p + (size_t)from * line + (to == FV_SEG_TEXT ? (size_t)sums->text : 0);
            float *paid;
            FV_TRY(FV_ARENA_NEW(arena, ctx->n[to], paid));
            for (int32_t j = 0; j < ctx->n[to]; j++)
                paid[j] = reduce(p + j, FV_N_SEG * line, h0, h1, plan->window.max);
            ctx->paid[from][to] = paid;
        }
    return FV_OK;
}

/* One layer, whose heads are asked one after another. */
typedef struct layer_choice {
    int32_t **kept[FV_N_SEG], *n_kept[FV_N_SEG]; /* [Hkv] */
} layer_choice;

static fv_status select_head(const fv_select_method *method, const fv_plan *plan, fv_kv *kv,
                             fv_select_context *ctx, const fv_select_sums *sums, fv_arena *arena,
                             layer_choice *out) {
    int32_t *kept[FV_N_SEG], n_kept[FV_N_SEG];
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        ctx->n[seg] = fv_kv_len(kv, ctx->layer, ctx->head, (fv_kv_segment)seg);
        ctx->pos[seg] = fv_kv_positions(kv, ctx->layer, ctx->head, (fv_kv_segment)seg);
        FV_TRY(FV_ARENA_NEW(arena, ctx->n[seg] + plan->twice, kept[seg]));
    }
    if (fv_select_asks(plan, ctx->layer)) FV_TRY(reduce_heads(plan, sums, arena, ctx));
    FV_TRY(method->keep(ctx, kept, n_kept));
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        out->kept[seg][ctx->head] = kept[seg];
        out->n_kept[seg][ctx->head] = n_kept[seg];
    }
    return FV_OK;
}

static fv_status select_layer(const fv_select_method *method, const fv_plan *plan, fv_kv *kv,
                              int32_t layer, const fv_select_sums *sums, fv_arena *arena) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv;
    layer_choice choice;
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        FV_TRY(FV_ARENA_NEW(arena, n_kv, choice.kept[seg]));
        FV_TRY(FV_ARENA_NEW(arena, n_kv, choice.n_kept[seg]));
    }
    for (int32_t g = 0; g < n_kv; g++) {
        fv_select_context ctx = {.choice = &plan->policy.stage[FV_STAGE_SELECT],
                                 .layer = layer,
                                 .head = g,
                                 .n_kv = n_kv,
                                 .n_prompt = plan->shape.n_visual + plan->shape.n_text -
                                             plan->shape.n_answer};
        FV_TRY(select_head(method, plan, kv, &ctx, sums, arena, &choice));
    }
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        if (fv_kv_borrows(kv, layer, (fv_kv_segment)seg)) continue; /* went with its leader */
        FV_TRY(fv_kv_keep(kv, layer, (fv_kv_segment)seg, (const int32_t *const *)choice.kept[seg],
                          choice.n_kept[seg]));
    }
    return FV_OK;
}

fv_status fv_select_run(const fv_plan *plan, fv_kv *kv, int32_t l0, int32_t l1,
                        const fv_select_sums *sums) {
    if (!plan->select) return FV_OK;
    const fv_select_method *method = find(plan->policy.stage[FV_STAGE_SELECT].method->name);
    fv_arena arena = {0};
    fv_status st = FV_OK;
    for (int32_t l = l0; l < l1 && st == FV_OK; l++) {
        fv_arena_reset(&arena);
        st = select_layer(method, plan, kv, l, &sums[l], &arena);
    }
    fv_arena_fini(&arena);
    return st;
}
