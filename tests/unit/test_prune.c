/* The rules by which prune methods choose, against what NumPy chose: tests/parity/prune_golden.py
 * says what a line of golden/prune holds, and wrote it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "prefill-worker/prune.h"

#define FOLDER FOVEA_TEST_DATA "/golden/prune/"

enum { ROWS_MAX = 2048, TEXT_MAX = 1 << 16 };

/* ---- the highest ----------------------------------------------------------------------- */

static void keeps(const float *score, int32_t n, int32_t keep, const char *want) {
    int32_t kept[16];
    char got[64] = "";
    fv_prune_top(score, n, keep, kept);
    for (int32_t k = 0; k < keep; k++) snprintf(got + strlen(got), 8, "%d ", kept[k]);
    cr_assert_str_eq(got, want, "%d of %d: %s", keep, n, got);
}

Test(prune, the_highest_scores_stay_in_their_order) {
    static const float score[] = {0.1f, 0.5f, -2, 0.5f, 7, 0.05f};
    keeps(score, 6, 0, "");
    keeps(score, 6, 1, "4 ");
    keeps(score, 6, 3, "1 3 4 ");
    keeps(score, 6, 5, "0 1 3 4 5 ");
    keeps(score, 6, 6, "0 1 2 3 4 5 ");
    keeps(NULL, 0, 0, "");
}

Test(prune, among_equals_the_lower_index_stays) {
    static const float score[] = {1, 2, 2, 2, 0.0f, -0.0f};
    keeps(score, 6, 2, "1 2 ");
    keeps(score, 6, 5, "0 1 2 3 4 ");
    keeps((float[]){-0.0f, 0.0f}, 2, 1, "0 ");
}

Test(prune, a_nan_is_lower_than_any_number) {
    static const float score[] = {NAN, -INFINITY, 3, -NAN, INFINITY};
    keeps(score, 5, 3, "1 2 4 ");
    keeps(score, 5, 4, "0 1 2 4 ");
    keeps((float[]){NAN, NAN}, 2, 2, "0 1 ");
}

Test(prune, heads_count_alike_and_text_columns_do_not_count) {
    static const float p[] = {0.5f, 0.25f, 0.25f, 0, 0.75f, 0.25f};
    float mean[2];
    fv_prune_head_mean(p, 2, 3, 2, mean);
    cr_assert_eq(mean[0], 0.25f);
    cr_assert_eq(mean[1], 0.5f);
}

/* ---- goldens --------------------------------------------------------------------------- */

/* The plan's number and the method's choice. */
static int32_t choose(const char *policy, int32_t n_visual, int32_t n_image, const float *attention,
                      int32_t *kept) {
    fv_policy p;
    fv_plan plan;
    fv_plan_shape shape = {
        .n_layer = 8, .n_kv = 1, .n_visual = n_visual, .n_text = 3, .n_image = n_image};
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_plan_make(&p, &shape, &plan), FV_OK, "%s", fv_last_error());
    int32_t pos[ROWS_MAX];
    for (int32_t i = 0; i < n_visual; i++) pos[i] = 2 + i;
    fv_prune_context ctx = {.choice = &p.stage[FV_STAGE_PRUNE],
                            .layer = 4,
                            .n_visual = n_visual,
                            .pos = pos,
                            .keep = plan.visual[4],
                            .n_image = n_image,
                            .attention = attention};
    cr_assert_eq(fv_prune_find(ctx.choice->method->name)->keep(&ctx, kept), FV_OK);
    return ctx.keep;
}

/* What stands behind the colon of a line: the rows that stay. */
static void assert_kept(const char *line, const int32_t *kept, int32_t n) {
    char *at = strchr(line, ':') + 1;
    for (int32_t k = 0; k < n; k++)
        cr_assert_eq(strtol(at, &at, 10), kept[k], "row %d of %s", k, line);
    cr_assert_eq(strspn(at, " \n"), strlen(at), "more than %d rows: %s", n, line);
}

static int each_line(const char *name, void (*check)(const char *line)) {
    static char line[TEXT_MAX];
    int n = 0;
    FILE *f = fopen(name, "r");
    cr_assert_not_null(f, "%s", name);
    for (; fgets(line, sizeof line, f); n++) check(line);
    fclose(f);
    return n;
}

static void check_grid(const char *line) {
    int32_t n_image, n_rows, kept[ROWS_MAX];
    char share[32], policy[64];
    cr_assert_eq(sscanf(line, "%d %d %31s", &n_image, &n_rows, share), 3);
    snprintf(policy, sizeof policy, "prune=grid,layer=4,keep=%s", share);
    assert_kept(line, kept, choose(policy, n_image * n_rows, n_image, NULL, kept));
}

Test(prune, grid_spreads_rows_as_the_reference_does) {
    cr_assert_geq(each_line(FOLDER "grid.txt", check_grid), 13);
}

/* Numbers of the reference, exact in every type that a KV cache has. */
static float draw(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((int32_t)((z ^ (z >> 31)) >> 53) - 1024) / 512;
}

static float *numbers(size_t n, uint64_t *state) {
    float *x = malloc(n * sizeof *x);
    cr_assert_not_null(x);
    for (size_t i = 0; i < n; i++) x[i] = draw(state);
    return x;
}

/* Points the runs of one head at n_visual and n_text rows of k that follow one another. Values do
 * not matter here: the keys stand in for them. */
static void lay_runs(fv_kv_run *run, fv_kv_block *block, float *k, int32_t d, const int32_t *n) {
    for (int seg = 0; seg < 2; seg++) {
        run[seg] = (fv_kv_run){.block = block, .len = n[seg]};
        for (int32_t j = 0; j < n[seg]; j += FV_KV_BLOCK, block++)
            block->k = block->v = k + (size_t)j * (size_t)d;
        k += (size_t)n[seg] * (size_t)d;
    }
}

static void check_fastv(const char *line) {
    int32_t H, Hkv, d, n[2], kept[ROWS_MAX];
    uint64_t state;
    char share[32], policy[64];
    cr_assert_eq(sscanf(line, "%lu %d %d %d %d %d %31s", &state, &H, &Hkv, &d, &n[0], &n[1], share),
                 7);
    int32_t n_key = n[0] + n[1], blocks = n_key / FV_KV_BLOCK + 2;
    float *q = numbers((size_t)(H * d), &state), *k = numbers((size_t)(Hkv * n_key * d), &state);
    float *o = calloc((size_t)(H * d), sizeof *o), *tap = calloc((size_t)(H * n_key), sizeof *tap);
    float *mean = calloc((size_t)n_key, sizeof *mean);
    fv_kv_run *runs = calloc((size_t)Hkv * 2, sizeof *runs);
    fv_kv_block *block = calloc((size_t)(Hkv * blocks), sizeof *block);
    cr_assert(o && tap && mean && runs && block);
    for (int32_t g = 0; g < Hkv; g++)
        lay_runs(&runs[2 * g], &block[g * blocks], k + (size_t)g * (size_t)(n_key * d), d, n);
    float *lse = calloc((size_t)H, sizeof *lse);
    fv_attn_seq seq = {.n_rows = 1, .n_seg = 2, .runs = runs};
    fv_attn_args a = {.q = fv_tensor_of(q, FV_F32, 1, H * d),
                      .o = fv_tensor_of(o, FV_F32, 1, H * d),
                      .lse = fv_tensor_of(lse, FV_F32, 1, H),
                      .kv_dtype = FV_F32,
                      .n_head = H,
                      .n_kv = Hkv,
                      .d_head = d,
                      .n_seq = 1,
                      .scale = 1 / sqrtf((float)d),
                      .seqs = &seq};
    fv_backend be;
    cr_assert_eq(fv_backend_open(&be, "cpu", &(fv_backend_options){.n_threads = 1}), FV_OK);
    cr_assert_eq(be.ops->attention(&be, &a), FV_OK);
    fv_attn_sum sum = {.n_row = 1, .n_kind = 1, .ld = n_key, .column = {0, n[0]}, .sum = tap};
    cr_assert_eq(be.ops->attention_sums(&be, &(fv_attn_sums_args){&a, 1, &sum}), FV_OK);
    fv_prune_head_mean(tap, H, n_key, n[0], mean);
    snprintf(policy, sizeof policy, "prune=fastv,layer=4,keep=%s", share);
    assert_kept(line, kept, choose(policy, n[0], 1, mean, kept));
    fv_backend_close(&be);
    free(block);
    free(runs);
    free(mean);
    free(tap);
    free(lse);
    free(o);
    free(k);
    free(q);
}

Test(prune, fastv_ranks_rows_as_the_reference_does) {
    cr_assert_geq(each_line(FOLDER "fastv.txt", check_fastv), 12);
}
