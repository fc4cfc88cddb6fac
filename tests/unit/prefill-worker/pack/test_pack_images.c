/* pack=svd with unusual images: several of different sizes, images of one token, zeros, numbers of
 * all magnitudes, and non-finite numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kv/packed.h"
#include "tests/support/handoff.h"
#include "tests/support/packed_error.h"

enum { VISUAL = 70, TEXT = 20, LAYERS = 4, HEADS = 2, D = 24, STEPS = 3, MORE = 8 };

#define LOW "pack=svd,rank_k=9,rank_v=11,gain=0"

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* Images of these sizes, two text tokens before each and the others after the last. */
static void make_images(const tiny_net *net, tiny_prompt *p, const int32_t *tokens, int32_t n,
                        const char *policy) {
    int32_t visual = 0, at = 0;
    for (int32_t i = 0; i < n; i++) visual += tokens[i];
    tiny_prompt_make(net, p, 0, visual, TEXT, 11, policy);
    memset(p->seg, FV_SEG_TEXT, (size_t)p->n);
    for (int32_t i = 0; i < n; at += tokens[i++])
        memset(p->seg + 2 * (i + 1) + at, FV_SEG_VISUAL, (size_t)tokens[i]);
    p->plan.visual_runs = n;
}

static const int32_t sizes[] = {1, 36, 9, 1, 23}; /* 70 in all */

Test(pack_images, all_images_share_their_factors) {
    static const char *const policies[] = {LOW, LOW ",block=0", LOW ",block=8,bits=8",
                                           "lazy=vla,map=given,blocks=1-3;" LOW};
    for (int i = 0; i < 4; i++) {
        tiny_net net;
        tiny_prompt raw, p;
        char lazy[64] = "";
        if (i == 3) strcpy(lazy, "lazy=vla,map=given,blocks=1-3");
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        make_images(&net, &raw, sizes, 5, lazy);
        make_images(&net, &p, sizes, 5, policies[i]);
        ok(tiny_prefill(&net, &raw, 1, 0));
        ok(tiny_prefill(&net, &p, 1, 17));
        cr_assert(same_bits(raw.logits, p.logits, 97));
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            uint8_t seen[VISUAL + TEXT] = {0};
            cr_assert_eq(at->rows.n, VISUAL);
            for (int32_t j = 0; j < VISUAL; j++) {
                cr_assert_eq(p.seg[at->pos[j]], FV_SEG_VISUAL);
                cr_assert_eq(seen[at->pos[j]]++, 0);
            }
            for (int k = at->source_layer == l ? FV_PACKED_K : FV_PACKED_V; k < 2; k++) {
                double err = packed_error(raw.kv, at, l, k, &net.cfg.rope);
                double said = (double)p.packed.layer[l].error[k];
                cr_assert(err > 0.01 && err < 1, "%g", err);
                cr_assert_float_eq(err, said, i == 2 ? 2e-2 : 1e-3, "%s: %g and not %g",
                                   policies[i], err, said);
            }
        }
        tiny_prompt_free(&raw);
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

static float most_off(const float *a, const float *b, int32_t n) {
    float most = 0;
    for (int32_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= most)) most = fabsf(a[i] - b[i]);
    return most;
}

/* Several images, and images of one token each: full rank, so equal to exact, with the same bits
 * after a hand-off. */
Test(pack_images, several_images_answer_as_exact_does_here_and_there) {
    static const int32_t ones[] = {1, 1, 1};
    for (int i = 0; i < 3; i++) {
        handoff_rig rig;
        tiny_prompt raw, p, there, *both[2] = {&raw, &p}, *one = &there;
        fv_received got;
        float logits[97];
        const int32_t *tokens = i == 0 ? sizes : ones;
        int32_t n = i == 0 ? 5 : i == 1 ? 3 : 1;
        rig_open(&rig, &(rig_options){.dtype = FV_F32});
        make_images(&rig.net, &raw, tokens, n, "");
        make_images(&rig.net, &p, tokens, n,
                    "pack=svd,rank_k=48,rank_v=48,gain=0;expand=attention,rank=1");
        ok(tiny_prefill(&rig.net, &raw, 1, 0));
        ok(tiny_prefill(&rig.net, &p, 1, 5));
        cr_assert_not_null(fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL));
        cr_assert_eq(fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL)->part[0].shape.lowrank.rank,
                     i == 0 ? 48 : n);
        cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), fv_plan_count(&p.plan).visual);
        ok(rig_send(&rig, &p, MORE, 1, &got, NULL));
        there = p;
        there.kv = got.kv;
        there.logits = logits;
        for (int32_t t = 0; t < STEPS; t++) {
            int32_t id = 7 + t;
            ok(tiny_step(&rig.net, both, 2, &id, 1, t));
            ok(tiny_step(&rig.net, &one, 1, &id, 1, t));
            cr_assert(same_bits(p.logits, logits, 97), "%d images, step %d", n, t);
            cr_assert_lt(most_off(raw.logits, p.logits, 97), 2e-3f, "%d images, step %d", n, t);
        }
        fv_received_free(&got);
        tiny_prompt_free(&raw);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

Test(pack_images, an_image_of_one_token_stays_raw_where_packing_is_to_pay) {
    static const int32_t one[] = {1};
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_BF16, NULL, 1);
    make_images(&net, &p, one, 1, "pack=svd;expand=attention;evict=importance");
    cr_assert(strstr(p.plan.note[FV_STAGE_PACK], "no layer has enough visual tokens"));
    cr_assert(strstr(p.plan.note[FV_STAGE_EXPAND], "no layer is packed"));
    ok(tiny_prefill(&net, &p, 1, 0));
    cr_assert_null(fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL));
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* ---- KV written by the test ---------------------------------------------------------- */

typedef float (*number_fn)(int32_t row, int32_t column);

static void write_rows(fv_kv *kv, int32_t layer, bool value, fv_dtype dtype, number_fn number) {
    for (int32_t g = 0; g < HEADS; g++)
        for (int32_t j = 0; j < VISUAL; j++) {
            void *at;
            fv_kv_contiguous(kv, layer, g, FV_SEG_VISUAL, value, j, j + 1, &at);
            for (int32_t d = 0; d < D; d++) {
                float x = number(j, g * D + d);
                if (dtype == FV_F32)
                    ((float *)at)[d] = x;
                else
                    ((uint16_t *)at)[d] = x > 0 ? 0x7800 : 0xf800; /* F16: 32768 and less */
            }
        }
}

static float zero(int32_t row, int32_t column) {
    (void)row;
    (void)column;
    return 0;
}

/* Directions whose strengths fall by ten each, over the whole range of a float. */
static float steep(int32_t row, int32_t column) {
    double x = 0;
    for (int32_t r = 0; r < 40; r++)
        x += pow(10, 20 - r) * sin((row + 1) * (r + 1.3)) * cos((column + 1) * (r + 0.7));
    return (float)x;
}

static float sign(int32_t row, int32_t column) { return (row * 7 + column * 3) % 5 < 2 ? -1 : 1; }

/* A prompt whose layer `layer` holds what the test wrote, compressed. */
static fv_pack_report pack_written(tiny_net *net, tiny_prompt *p, int32_t layer, const char *policy,
                                   number_fn keys, number_fn values) {
    static fv_pack_report report;
    tiny_prompt planned;
    fv_rope rope;
    const float *attention[LAYERS] = {0};
    fv_dtype dtype = fv_kv_pool_shape(net->pool)->dtype;
    report = (fv_pack_report){0};
    tiny_prompt_make(net, p, 5, VISUAL, 9, 11, "");
    tiny_prompt_make(net, &planned, 5, VISUAL, 9, 11, policy);
    ok(tiny_prefill(net, p, 1, 0));
    if (keys) write_rows(p->kv, layer, false, dtype, keys);
    if (values) write_rows(p->kv, layer, true, dtype, values);
    fv_rope_init(&rope, &net->cfg.rope, D);
    ok(fv_pack_run(&planned.plan, &net->be, &rope, p->kv, LAYERS, attention, &report));
    tiny_prompt_free(&planned);
    return report;
}

Test(pack_images, zeros_and_numbers_of_all_sizes_have_factors) {
    static const number_fn numbers[] = {zero, steep};
    for (int i = 0; i < 2; i++) {
        tiny_net net;
        tiny_prompt p, *one = &p;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        fv_pack_report r = pack_written(&net, &p, 1, LOW ",block=0", numbers[i], numbers[i]);
        cr_assert_eq(r.status, FV_OK, "%s", r.text);
        const fv_kv_packed *at = fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL);
        for (int k = 0; k < 2; k++) {
            int32_t rank = at->part[k].shape.lowrank.rank;
            float u[VISUAL * 11], basis[11 * HEADS * D];
            int32_t most = i == 0 ? 1 : k == FV_PACKED_K ? 9 : 11;
            cr_assert(rank >= 1 && rank <= most, "no more directions than there are: %d", rank);
            cr_assert_lt(r.layer[1].error[k], 1e-3f);
            fv_packed_read_u(&at->part[k], 0, VISUAL, u);
            fv_packed_read_basis(&at->part[k], basis);
            for (int32_t j = 0; j < VISUAL * rank; j++)
                cr_assert(i == 0 ? u[j] == 0 : isfinite(u[j]));
            for (int32_t a = 0; a < rank; a++)
                for (int32_t b = 0; b <= a; b++) {
                    double dot = 0;
                    for (int32_t c = 0; c < HEADS * D; c++)
                        dot += (double)basis[a * HEADS * D + c] * (double)basis[b * HEADS * D + c];
                    cr_assert_float_eq(dot, a == b ? 1 : 0, 1e-5, "B B^T is not 1");
                }
        }
        int32_t id = 5;
        if (i == 0) {
            ok(tiny_step(&net, &one, 1, &id, 1, 0));
            for (int32_t j = 0; j < 97; j++) cr_assert(isfinite(p.logits[j]));
        }
        tiny_prompt_free(&p);
        tiny_net_close(&net);
    }
}

static float one_nan(int32_t row, int32_t column) {
    return row == 33 && column == 40 ? NAN : sign(row, column);
}

static float one_infinite(int32_t row, int32_t column) {
    return row == 33 && column == 2 ? -INFINITY : sign(row, column);
}

static void assert_refused(const char *policy, fv_dtype dtype, number_fn keys, number_fn values,
                           const char *what, const char *why) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), dtype, NULL, 1);
    fv_pack_report r = pack_written(&net, &p, 2, policy, keys, values);
    cr_assert_eq(r.status, FV_EINVAL, "%s", policy);
    cr_assert(strstr(r.text, what) && strstr(r.text, "layer 2") && strstr(r.text, why), "%s",
              r.text);
    tiny_prompt_free(&p);
    cr_assert_eq(fv_kv_pool_used(net.pool), 0);
    tiny_net_close(&net);
}

Test(pack_images, rows_that_cannot_be_packed_are_named) {
    assert_refused(LOW, FV_F32, one_nan, NULL, "visual keys", "row 33");
    assert_refused(LOW, FV_F32, one_infinite, NULL, "visual keys", "row 33");
    assert_refused(LOW, FV_F32, NULL, one_nan, "visual values", "row 33");
    assert_refused(LOW ",bits=4,block=0", FV_F32, NULL, one_infinite, "visual values", "row 33");
    assert_refused(LOW, FV_F16, NULL, sign, "visual values", "--kv-dtype bf16");
    assert_refused(LOW ",block=0", FV_F16, sign, NULL, "visual keys", "--kv-dtype bf16");
}
