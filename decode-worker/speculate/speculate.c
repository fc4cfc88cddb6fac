/* Acceptance of drafts, and the choice of those that run. */
#include "decode-worker/speculate/speculate.h"

#include <stdlib.h>

/* The acceptance that a grade is expected to have before anything was tried, and for how many tokens that counts. */
static const float expected[FV_DRAFT_GRADES] = {0.3F, 0.4F, 0.55F, 0.7F, 0.8F, 0.6F};
static const float EXPECTED_WEIGHT = 1;
static const float KEEP = 0.9F, /* of what was tried remains with every draft of the grade, */
    RECOVER = 0.995F, /* and with every other step, so that a grade is tried again some day */
    LEAST = 0.02F;    /* chance of a token below which it is not drafted */

bool fv_speculation_fits(const fv_kv *kv) {
    const fv_kv_sequence *q = fv_kv_get_sequence(kv);
    return fv_kv_get_shape(kv)->state_bytes == 0 && q->accum == FV_ACCUM_NONE && !q->expand.on;
}

static float chance(const fv_speculation *s) {
    int32_t g = s->draft.grade;
    return (EXPECTED_WEIGHT * expected[g] + s->kept[g]) / (EXPECTED_WEIGHT + s->tried[g]);
}

/* Ends the draft before an id that no token has. */
static void cut_at_unknown(fv_speculation *s) {
    int32_t ok = 0;
    while (ok < s->draft.n && s->draft.id[ok] >= 0 && s->draft.id[ok] < s->n_vocab) ok++;
    s->draft.n = ok;
}

void fv_speculation_propose(fv_speculation *s, const int32_t *ids, int32_t n, int32_t most) {
    s->draft = (fv_draft){0};
    s->is_open = false;
    if (most < 1) return;
    if (most > FV_DRAFT_MOST) most = FV_DRAFT_MOST;
    s->source.draft(s->source.user, ids, n, most, &s->draft);
    cut_at_unknown(s);
    if (s->draft.n > 0 || !s->model.draft) return;
    s->draft = (fv_draft){.n = most, .grade = FV_DRAFT_MODEL_GRADE};
    s->is_open = true;
}

void fv_speculation_fill(fv_speculation *s, const int32_t *ids, int32_t n) {
    int32_t most = s->draft.n;
    if (!s->is_open || most == 0) return;
    s->draft = (fv_draft){0};
    s->model.draft(s->model.user, ids, n, most, &s->draft);
    s->draft.grade = FV_DRAFT_MODEL_GRADE;
    cut_at_unknown(s);
}

static int by_gain(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Adds a chance to those listed, or puts it in the place of the least if there are FV_DRAFT_ROWS_MOST. */
static void list_gain(float gain[FV_DRAFT_ROWS_MOST], int32_t *n, float p) {
    int32_t at = 0;
    if (*n < FV_DRAFT_ROWS_MOST) {
        gain[(*n)++] = p;
        return;
    }
    for (int32_t i = 1; i < *n; i++)
        if (gain[i] < gain[at]) at = i;
    if (p > gain[at]) gain[at] = p;
}

/* Lists the chances of the likeliest drafted tokens, the highest first. Returns how many. */
static int32_t list_gains(fv_speculation *const *spec, int32_t n_spec,
                          float gain[FV_DRAFT_ROWS_MOST]) {
    int32_t n = 0;
    for (int32_t i = 0; i < n_spec; i++) {
        float p = chance(spec[i]), all = p;
        for (int32_t j = 0; j < spec[i]->draft.n && all >= LEAST; j++, all *= p)
            list_gain(gain, &n, all);
    }
    qsort(gain, (size_t)n, sizeof *gain, by_gain);
    return n;
}

/* Leaves the `rows` likeliest tokens, the least of which has the chance `least`. */
static void shorten(fv_speculation *const *spec, int32_t n_spec, int32_t rows, float least) {
    for (int32_t i = 0; i < n_spec; i++) {
        float p = chance(spec[i]), all = p;
        int32_t n = 0;
        while (n < spec[i]->draft.n && n < rows && all >= least) n++, all *= p;
        spec[i]->draft.n = n;
        rows -= n;
    }
}

int32_t fv_speculation_trim(fv_speculation *const *spec, int32_t n_spec, int32_t n_answer,
                            const fv_step_costs *costs) {
    float gain[FV_DRAFT_ROWS_MOST];
    int32_t total = 0, rows = FV_DRAFT_ROWS_MOST;
    float least = 0;
    if (costs) {
        int32_t n = list_gains(spec, n_spec, gain);
        rows = fv_step_costs_choose(costs, n_answer, gain, n);
        if (rows > 0) least = gain[rows - 1];
    }
    shorten(spec, n_spec, rows, least);
    for (int32_t i = 0; i < n_spec; i++) total += spec[i]->draft.n;
    return total;
}

void fv_speculation_note(fv_speculation *s, int32_t kept, bool rejected, double seconds,
                         double plain) {
    int32_t grade = s->draft.n > 0 ? s->draft.grade : -1;
    for (int32_t g = 0; g < FV_DRAFT_GRADES; g++) {
        float f = g == grade ? KEEP : RECOVER;
        s->kept[g] *= f;
        s->tried[g] *= f;
    }
    if (grade < 0) return;
    s->kept[grade] += (float)kept;
    s->tried[grade] += (float)kept + (rejected ? 1.0F : 0.0F);
    s->n_drafted += (uint64_t)s->draft.n;
    s->n_kept += (uint64_t)kept;
    if (plain > 0) s->s_saved += kept * plain - (seconds - plain);
}
