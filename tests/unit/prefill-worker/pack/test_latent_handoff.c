/* Latents on their way to a decode worker: bytes, and sections that are refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kv/packed.h"
#include "tests/support/handoff.h"
#include "tests/support/stream.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, MORE = 12 };

static void prefill(tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

/* Bytes: planned, compressed, in the pool, on the wire, and on arrival. */
Test(latent_handoff, bytes_are_the_same_everywhere_and_as_planned) {
    static const char *const policies[] = {
        "pack=latent,budget=0.05",
        "prune=fastv,layer=2,keep=0.8;pack=latent,budget=0.1",
        "prune=fastv,layer=1,keep=0.8;pack=latent,budget=0.1",
        "pack=latent,budget=0.05;evict=vta",
        "pack=latent,budget=0.05,keys=codes",
        "prune=fastv,layer=1,keep=0.8;pack=latent,budget=0.1,keys=codes,residual=auto",
        "pack=latent,bits=3,budget=0.05",
        "prune=fastv,layer=1,keep=0.5;pack=latent,budget=0.2;expand=attention;"
        "evict=vta,shallow=rank_by_first_tap",
        "prune=fastv,layer=3,keep=0.5;pack=latent,budget=0.2;evict=importance"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        rig_open(&rig, &(rig_options){.dtype = FV_BF16});
        prefill(&rig.net, &p, policies[i]);
        size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL), parts = 0;
        for (int32_t l = 0; l < 4; l++) parts += fv_kv_packed_bytes(p.kv, l, FV_SEG_VISUAL);
        cr_assert_eq(visual, fv_plan_count(&p.plan).visual, "%s", policies[i]);
        cr_assert(parts > 0 && parts == p.packed.bytes);
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert_eq(visual, fv_kv_bytes(got.kv, FV_SEG_VISUAL));
        cr_assert(same_store(p.kv, got.kv));
        cr_assert_eq(fv_kv_bytes_held(got.kv), fv_kv_pool_used(rig.pool));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

/* Delivers a stream with a change in its i-th PACK and correct checksums. */
static fv_status deliver_changed(const handoff_rig *rig, const rig_stream *s, int i, size_t at,
                                 uint32_t x) {
    fv_status st = rig_deliver_changed(rig, s, FV_SECTION_PACKED, i, at, x);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0);
    return st;
}

/* Layers 0 and 1, of 70 and of 35 tokens, are a group, and all are ranked. */
Test(latent_handoff, sections_that_lie_about_shared_tokens_are_refused) {
    enum { SOURCE_LAYER_AT = 8, FLAGS_AT = 12, K_AT = 16, N_SOURCE_AT = 48, FIRST_AT = 52 };
    enum { LATENT = 32, RANKED = 4, RANK_AT = FIRST_AT + 4 * (2 + 1 + VISUAL) };
    static const struct {
        int pack;
        size_t at;
        uint32_t x;
    } lies[] = {{0, N_SOURCE_AT, 1},
                {0, RANK_AT, 1},
                {0, RANK_AT + 4, 5},
                {0, FLAGS_AT, LATENT | RANKED | 1},
                {1, N_SOURCE_AT, 0},
                {1, N_SOURCE_AT, VISUAL + 1},
                {1, N_SOURCE_AT, UINT32_MAX},
                {1, FLAGS_AT, LATENT},
                {1, FLAGS_AT, LATENT | RANKED | 1},
                {1, FLAGS_AT, RANKED},
                {1, SOURCE_LAYER_AT, 1},
                {1, SOURCE_LAYER_AT, 3},
                {1, K_AT, 1},
                {1, K_AT + 4, FV_LATENT_MOST + 1},
                {1, K_AT + 4, UINT32_MAX},
                {1, K_AT + 8, 3},
                {3, N_SOURCE_AT, VISUAL / 2 + 1},
                {3, SOURCE_LAYER_AT, 1}};
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    prefill(&rig.net, &p,
            "prune=fastv,layer=1,keep=0.5;pack=latent,budget=0.2;"
            "evict=vta,shallow=rank_by_first_tap");
    cr_assert(fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL)->rank &&
              fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL)->rank);
    rig_capture(&rig, &p, MORE, &s);
    cr_assert_eq(deliver_changed(&rig, &s, 1, N_SOURCE_AT, VISUAL / 2), FV_OK, "as it was: %s",
                 fv_last_error());
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        cr_assert_neq(deliver_changed(&rig, &s, lies[i].pack, lies[i].at, lies[i].x), FV_OK,
                      "lie %zu", i);
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* A group's first layer has the coefficients of its keys alone, so values cannot have others. */
Test(latent_handoff, values_with_other_coefficients_than_keys_are_refused_by_name) {
    enum { V_AT = 32, ROW_BITS = V_AT, BITS = V_AT + 8, OWN = V_AT + 12 };
    static const size_t at[] = {BITS, ROW_BITS, OWN};
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    prefill(&rig.net, &p, "pack=latent,bits=4,budget=0.2");
    const fv_packed_shape *v = &fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL)->part[FV_PACKED_V].shape;
    const uint32_t is[] = {v->latent.each_bits, (uint32_t)v->latent.row_bits,
                           (uint32_t)v->latent.n_own};
    const uint32_t other[] = {2, (uint32_t)v->latent.row_bits - 4, 1};
    rig_capture(&rig, &p, MORE, &s);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(deliver_changed(&rig, &s, 0, at[i], is[i]), FV_OK, "%d: %s", i,
                     fv_last_error());
        cr_assert_eq(deliver_changed(&rig, &s, 0, at[i], other[i]), FV_EDATA, "%d", i);
        cr_assert(strstr(fv_last_error(), "its keys and values have different coefficients"),
                  "%d: %s", i, fv_last_error());
    }
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* Offset of the payload of the first section of a type. */
static size_t payload_of(const rig_stream *s, const char *type) {
    size_t i = 0;
    while (i + 4 < s->n && memcmp(s->bytes + i, type, 4) != 0) i++;
    return i + FV_SECTION_HEADER - 4;
}

Test(latent_handoff, own_directions_arrive_and_those_that_nobody_sends_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    fv_received got;
    rig_stream s;
    rig_open(&rig, &(rig_options){.dtype = FV_BF16});
    prefill(&rig.net, &p, "pack=latent,budget=0.05,residual=auto,residual_rank=3");
    size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
    cr_assert_eq(visual, fv_plan_count(&p.plan).visual);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    cr_assert_eq(visual, fv_kv_bytes(got.kv, FV_SEG_VISUAL));
    cr_assert(same_store(p.kv, got.kv));
    fv_received_free(&got);
    rig_capture(&rig, &p, MORE, &s);
    for (int i = 0; i < 4; i++) {
        uint8_t *bytes = malloc(s.n);
        memcpy(bytes, s.bytes, s.n);
        size_t pack = payload_of(&s, "PACK"), fact = payload_of(&s, "FACT");
        static const uint32_t numbers[] = {9, UINT32_MAX, 2};
        float scale = INFINITY;
        if (i < 3) /* of keys, and of values */
            for (int k = 0; k < 2; k++) memcpy(bytes + pack + 28 + 16 * k, &numbers[i], 4);
        else
            memcpy(bytes + fact + 4, &scale, 4);
        rig_put_right(bytes, s.n, s.hello.compat.hash);
        cr_assert_eq(rig_deliver(rig.receiver, &s.hello, bytes, s.n, 500, &got), FV_EDATA, "%d: %s",
                     i, fv_last_error());
        free(bytes);
    }
    rig_assert_baseline(&rig, "refused");
    free(s.bytes);
    tiny_prompt_free(&p);
    rig_close(&rig);
}

/* Gives the codes of a layer's first n rows. */
static void codes_of(const fv_kv_packed *p, int32_t n, uint8_t *code) {
    const fv_packed_part *k = &p->part[FV_PACKED_K];
    for (int32_t j = 0; j < n; j++)
        for (size_t c = 0; c < fv_packed_width(&k->shape); c++) {
            size_t D = (size_t)k->shape.d_head;
            const uint8_t *line = fv_latent_coded(k, c / D, (size_t)j / 16) + c % D * 8;
            *code++ = line[j % 16 / 2] >> j % 2 * 4 & 15;
        }
}

static void make_codes(handoff_rig *rig, fv_kv *kv) {
    fv_rope rope;
    fv_rope_init(&rope, &rig->net.cfg.rope, rig->net.cfg.d_head);
    for (int32_t l = 0; l < 4; l++) {
        fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        cr_assert(p && p->part[FV_PACKED_K].shape.latent.coded &&
                  !p->part[FV_PACKED_V].shape.latent.coded);
        cr_assert_eq(fv_kv_packed_ready(kv, p, &rig->net.be, &rope), FV_OK, "%s", fv_last_error());
        cr_assert(p->coded);
    }
}

/* Codes are not sent but made on arrival; a token's codes do not depend on which others are
 * evicted. */
Test(latent_handoff, codes_of_keys_are_made_on_arrival_and_a_token_takes_its_own_along) {
    enum { KEPT = VISUAL / 2, W = 512 };
    static uint8_t before[VISUAL * W], kept[KEPT * W], again[KEPT * W];
    handoff_rig rig;
    tiny_prompt p, rebuilt;
    fv_received got;
    rig_stream with, without;
    int32_t idx[KEPT];
    rig_open(&rig, &(rig_options){.dtype = FV_BF16});
    prefill(&rig.net, &rebuilt, "pack=latent,budget=0.05");
    prefill(&rig.net, &p, "pack=latent,budget=0.05,keys=codes");
    rig_capture(&rig, &rebuilt, MORE, &without);
    rig_capture(&rig, &p, MORE, &with);
    cr_assert_eq(with.n - strlen(with.hello.policy), without.n - strlen(without.hello.policy));
    cr_assert_gt(with.hello.bytes_visual, without.hello.bytes_visual);
    cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
    make_codes(&rig, p.kv);
    make_codes(&rig, got.kv);
    cr_assert(same_store(p.kv, got.kv));
    for (int32_t j = 0; j < KEPT; j++) idx[j] = 2 * j + j % 2;
    codes_of(fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL), VISUAL, before);
    cr_assert_eq(fv_kv_packed_keep(got.kv, 0, idx, KEPT), FV_OK);
    fv_kv_packed *left = fv_kv_packed_of(got.kv, 1, FV_SEG_VISUAL);
    size_t width = fv_packed_width(&left->part[0].shape);
    cr_assert(left->rows.n == KEPT && left->coded && width <= W);
    codes_of(left, KEPT, kept);
    left->coded = false;
    make_codes(&rig, got.kv);
    codes_of(left, KEPT, again);
    cr_assert(memcmp(kept, again, KEPT * width) == 0);
    for (int32_t j = 0; j < KEPT; j++)
        cr_assert(memcmp(kept + (size_t)j * width, before + (size_t)idx[j] * width, width) == 0,
                  "row %d", j);
    fv_received_free(&got);
    free(with.bytes);
    free(without.bytes);
    tiny_prompt_free(&p);
    tiny_prompt_free(&rebuilt);
    rig_close(&rig);
}
