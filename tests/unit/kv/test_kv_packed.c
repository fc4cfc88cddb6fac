/* kv/packed.c and compressed layers over the wire: memory to the byte, pruned tokens,
 * refused sections. Factors here are arbitrary numbers; other tests check their quality. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "kv/packed.h"
#include "tests/support/handoff.h"
#include "tests/support/sanitized.h"
#include "tests/support/stream.h"

enum { VISUAL = 70, BLOCK = 16, BLOCKS = 5, RANK = 6, MORE = 4 };

typedef struct rows_form {
    int32_t pos[VISUAL], first[BLOCKS + 1], anchor[BLOCKS];
    fv_kv_packed_form form;
} rows_form;

/* Tokens of a layer in blocks of 16, each in reverse order. */
static void make_form(const fv_kv *kv, int32_t layer, int32_t source_layer, bool anchored,
                      uint8_t bits, rows_form *f) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    for (int32_t a = 0; a <= BLOCKS; a++) f->first[a] = a < BLOCKS ? a * BLOCK : VISUAL;
    for (int32_t a = 0; a < BLOCKS; a++) {
        f->anchor[a] = 5 + f->first[a];
        for (int32_t j = f->first[a]; j < f->first[a + 1]; j++)
            f->pos[j] = 5 + f->first[a] + f->first[a + 1] - 1 - j;
    }
    fv_packed_shape shape = {.n = VISUAL,
                             .lowrank.rank = RANK,
                             .lowrank.rank2 = 2,
                             .n_kv = s->n_kv,
                             .d_head = s->d_head,
                             .dtype = s->dtype,
                             .kind = FV_PACKED_K,
                             .lowrank.bits = bits};
    f->form = (fv_kv_packed_form){.part = {shape, shape},
                                  .n = VISUAL,
                                  .n_anchor = BLOCKS,
                                  .pos = f->pos,
                                  .first = f->first,
                                  .anchor = anchored ? f->anchor : NULL,
                                  .source_layer = source_layer};
    f->form.part[FV_PACKED_V].kind = FV_PACKED_V;
    (void)layer;
}

static float number(int i) { return (float)((i * 37 + 11) % 64) / 32 - 1; }

static fv_kv_packed *pack(fv_kv *kv, int32_t layer, int32_t source_layer, bool anchored,
                          uint8_t bits) {
    rows_form f;
    fv_kv_packed *p;
    make_form(kv, layer, source_layer, anchored, bits, &f);
    cr_assert_eq(fv_kv_pack(kv, layer, &f.form, &p), FV_OK, "%s", fv_last_error());
    size_t width = fv_packed_width(&f.form.part[0]);
    float *u = malloc(VISUAL * RANK * sizeof *u), *basis = malloc(RANK * width * sizeof *basis);
    for (int i = 0; i < VISUAL * RANK; i++) u[i] = number(i + layer);
    for (size_t i = 0; i < RANK * width; i++) basis[i] = number((int)i * 3 + layer);
    for (int k = 0; k < 2; k++)
        if (k == FV_PACKED_V || source_layer == layer)
            fv_packed_write(&p->part[k].shape, u, basis, p->part[k].data);
    free(u);
    free(basis);
    return p;
}

/* A prefilled prompt with layers 1 and 2 compressed, 2 with the keys of 1. */
static void start(handoff_rig *rig, tiny_prompt *p, fv_dtype dtype, uint8_t bits) {
    rig_open(rig, &(rig_options){.dtype = dtype, .frame_max = bits == 8 ? 7 : 0});
    tiny_prompt_make(&rig->net, p, 5, VISUAL, 9, 11, "");
    cr_assert_eq(tiny_prefill(&rig->net, p, 1, 0), FV_OK, "%s", fv_last_error());
    pack(p->kv, 1, 1, true, bits);
    pack(p->kv, 2, 1, true, bits);
}

static void finish(handoff_rig *rig, tiny_prompt *p) {
    tiny_prompt_free(p);
    cr_assert_eq(fv_kv_pool_used(rig->net.pool), 0);
    rig_close(rig);
}

static size_t part_bytes(const fv_kv_packed *p, int kind) {
    return fv_packed_bytes(&p->part[kind].shape);
}

Test(kv_packed, a_packed_layer_holds_its_factors_to_the_byte_and_no_tokens) {
    handoff_rig rig;
    tiny_prompt p;
    start(&rig, &p, FV_BF16, 16);
    const fv_kv_packed *one = fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL),
                       *two = fv_kv_packed_of(p.kv, 2, FV_SEG_VISUAL);
    size_t raw = VISUAL * 2 * 2 * 24 * 2, used = fv_kv_pool_used(rig.net.pool);
    cr_assert_eq(fv_kv_bytes(p.kv, FV_SEG_VISUAL),
                 2 * raw + part_bytes(one, 0) + part_bytes(one, 1) + part_bytes(two, 1));
    cr_assert_eq(fv_kv_bytes_held(p.kv), used);
    cr_assert_eq(fv_kv_len(p.kv, 1, 0, FV_SEG_VISUAL), 0);
    cr_assert_eq(two->part[0].data, one->part[0].data, "keys are shared");
    cr_assert_null(fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL));
    finish(&rig, &p);
}

Test(kv_packed, removed_tokens_free_their_bytes_and_the_others_keep_their_bits) {
    static const uint8_t bits[] = {16, 8, 4};
    for (int b = 0; b < 3; b++) {
        handoff_rig rig;
        tiny_prompt p;
        float before[VISUAL * RANK], after[VISUAL * RANK];
        start(&rig, &p, FV_F32, bits[b]);
        fv_kv_packed *two = fv_kv_packed_of(p.kv, 2, FV_SEG_VISUAL);
        cr_assert_eq(fv_kv_packed_observe(p.kv, two), FV_OK);
        for (int32_t j = 0; j < VISUAL; j++) two->importance[j] = (float)two->pos[j];
        fv_packed_read_u(&two->part[1], 0, VISUAL, before);
        int32_t idx[VISUAL], n = 0; /* none of block 0, the best three of block 1, all of block 4 */
        for (int32_t j = 0; j < VISUAL; j++)
            if ((j >= 16 && j < 19) || j >= 64) idx[n++] = j;
        cr_assert_eq(fv_kv_packed_keep(p.kv, 1, idx, n), FV_OK, "%s", fv_last_error());
        for (int32_t l = 1; l < 3; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert(at->rows.n == n && at->n_alive == n && at->rows.n_anchor == 2);
            cr_assert(at->first[1] == 3 && at->first[2] == n);
            cr_assert(at->anchor[0] == 21 && at->anchor[1] == 69);
            cr_assert_eq(at->part[1].shape.n, n);
            cr_assert_eq(at->part[0].data, fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL)->part[0].data);
        }
        fv_packed_read_u(&two->part[1], 0, n, after);
        for (int32_t j = 0; j < n; j++) {
            cr_assert_eq(memcmp(after + j * RANK, before + idx[j] * RANK, RANK * 4), 0);
            cr_assert_eq(two->importance[j], (float)two->pos[j]);
        }
        cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_pool_used(rig.net.pool));
        cr_assert_eq(fv_kv_packed_keep(p.kv, 1, NULL, 0), FV_OK);
        cr_assert(!fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL) &&
                  !fv_kv_packed_of(p.kv, 2, FV_SEG_VISUAL));
        cr_assert_eq(fv_kv_bytes_held(p.kv), fv_kv_pool_used(rig.net.pool));
        finish(&rig, &p);
    }
}

Test(kv_packed, tokens_can_be_removed_without_moving_others) {
    handoff_rig rig;
    tiny_prompt p;
    start(&rig, &p, FV_F32, 16);
    int32_t alive[BLOCKS] = {16, 0, 3, 16, 1};
    cr_assert_null(fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL)->rows.valid);
    cr_assert_eq(fv_kv_packed_shorten(p.kv, 1, alive), FV_OK);
    for (int32_t l = 1; l < 3; l++) {
        cr_assert_eq(fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL)->n_alive, 36);
        cr_assert_eq(
            memcmp(fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL)->rows.valid, alive, sizeof alive), 0);
    }
    finish(&rig, &p);
}

Test(kv_packed, tokens_can_be_removed_in_a_full_pool) {
    handoff_rig rig;
    tiny_prompt p;
    fv_kv_pool *pool;
    fv_kv *kv;
    rows_form f;
    rig_open(&rig, &(rig_options){.dtype = FV_F16});
    tiny_prompt_make(&rig.net, &p, 5, VISUAL, 9, 11, "");
    cr_assert_eq(tiny_prefill(&rig.net, &p, 1, 0), FV_OK);
    make_form(p.kv, 0, 0, true, 16, &f);
    size_t bytes = fv_packed_bytes(&f.form.part[0]) + fv_packed_bytes(&f.form.part[1]) +
                   fv_kv_packed_cost(p.kv, &f.form, true);
    cr_assert_eq(fv_kv_pool_open(fv_device_host(), fv_kv_pool_shape(rig.net.pool), bytes, &pool),
                 FV_OK);
    cr_assert_eq(fv_kv_open(pool, &kv), FV_OK);
    pack(kv, 0, 0, true, 16);
    int32_t idx[8] = {0, 1, 2, 3, 20, 21, 40, 69};
    cr_assert_eq(fv_kv_packed_keep(kv, 0, idx, 8), FV_OK, "%s", fv_last_error());
    cr_assert_lt(fv_kv_pool_used(pool), bytes);
    cr_assert_eq(fv_kv_pool_used(pool), fv_kv_bytes_held(kv));
    f.form.source_layer = 1;
    cr_assert_eq(fv_kv_pack(kv, 1, &f.form, NULL), FV_EBUSY, "and says when there is no room");
    fv_kv_close(kv);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_pool_close(pool);
    finish(&rig, &p);
}

/* ---- over the wire ----------------------------------------------------------------------- */

Test(kv_packed, packed_layers_arrive_bit_for_bit_and_as_large_as_they_were) {
    static const fv_dtype dtypes[] = {FV_F32, FV_BF16, FV_F16};
    static const uint8_t bits[] = {16, 8, 4};
    for (int i = 0; i < 9; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        start(&rig, &p, dtypes[i % 3], bits[i / 3]);
        fv_kv_packed *one = fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL);
        cr_assert_eq(fv_kv_packed_observe(p.kv, one), FV_OK);
        for (int32_t j = 0; j < VISUAL; j++) one->importance[j] = number(j);
        one->observed = true;
        pack(p.kv, 3, 3, false, bits[i / 3]);
        for (int32_t group = 0; group < 3; group++) {
            cr_assert_eq(rig_send(&rig, &p, MORE, group, &got, NULL), FV_OK, "%s", fv_last_error());
            cr_assert(same_store(p.kv, got.kv), "%d, groups of %d", i, group);
            cr_assert_eq(fv_kv_bytes(got.kv, FV_SEG_VISUAL), fv_kv_bytes(p.kv, FV_SEG_VISUAL));
            cr_assert_eq(fv_kv_pool_used(rig.pool), fv_kv_bytes_held(got.kv));
            fv_received_free(&got);
        }
        finish(&rig, &p);
    }
}

static fv_status deliver(const handoff_rig *rig, const rig_stream *s) {
    fv_received got;
    fv_status st = rig_deliver(rig->receiver, &s->hello, s->bytes, s->n, 500, &got);
    if (st == FV_OK) fv_received_free(&got);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0);
    return st;
}

Test(kv_packed, every_flipped_byte_of_a_packed_hand_off_is_refused, .timeout = 300) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    start(&rig, &p, FV_F16, 4);
    rig_capture(&rig, &p, MORE, &s);
    cr_assert_eq(deliver(&rig, &s), FV_OK);
    for (size_t i = 0; i < s.n; i += 3) {
        s.bytes[i] ^= 0x10;
        cr_assert_neq(deliver(&rig, &s), FV_OK, "byte %zu", i);
        s.bytes[i] ^= 0x10;
    }
    free(s.bytes);
    finish(&rig, &p);
}

Test(kv_packed, factors_beyond_the_grant_are_refused_before_allocation) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    start(&rig, &p, FV_F32, 16);
    for (int32_t l = 0; l < 4; l++) p.plan.visual[l] = l == 0 ? VISUAL : 0;
    rig_capture(&rig, &p, MORE, &s); /* its grant is for the first layer's tokens */
    cr_assert_eq(fv_refusal_of(deliver(&rig, &s)), FV_REFUSED_OVER_BUDGET, "%s", fv_last_error());
    free(s.bytes);
    finish(&rig, &p);
}

/* Delivers a stream with a change in the first compressed layer's PACK and correct checksums. */
static fv_status deliver_changed(handoff_rig *rig, const rig_stream *s, size_t at, uint32_t x) {
    fv_status st = rig_deliver_changed(rig, s, FV_SECTION_PACKED, 0, at, x);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0);
    return st;
}

Test(kv_packed, sections_with_wrong_factors_are_refused) {
    enum { N_AT = 0, ANCHORS_AT = 4, SOURCE_LAYER_AT = 8, FLAGS_AT = 12, K_AT = 16, V_AT = 32 };
    enum {
        SOURCE_AT = 48,
        FIRST_AT = 52,
        ANCHOR_AT = FIRST_AT + 4 * (BLOCKS + 1),
        POS_AT = ANCHOR_AT + 4 * BLOCKS
    };
    static const struct {
        size_t at;
        uint32_t x;
    } lies[] = {
        {N_AT, VISUAL - 1},
        {N_AT, VISUAL + 1},
        {ANCHORS_AT, BLOCKS + 1},
        {SOURCE_LAYER_AT, 0},
        {SOURCE_LAYER_AT, 2},
        {SOURCE_LAYER_AT, UINT32_MAX},
        {FLAGS_AT, 8},  /* codes have no rank */
        {FLAGS_AT, 16}, /* neither do directions */
        {FLAGS_AT, 24},
        {FLAGS_AT, 32},
        {K_AT + 12, 1}, /* nor do factors have outliers */
        {V_AT + 12, UINT32_MAX},
        {FLAGS_AT, 3},
        {K_AT, 0},
        {K_AT, VISUAL + 1},
        {K_AT, UINT32_MAX},
        {K_AT + 4, RANK + 1},
        {K_AT + 4, 0},
        {K_AT + 8, 7},
        {K_AT + 8, 16 + 256},
        {V_AT, 2 * RANK},
        {V_AT + 4, UINT32_MAX},
        {SOURCE_AT, 1}, /* it has tokens of its own */
        {FIRST_AT, 1},
        {FIRST_AT + 4, 0},
        {FIRST_AT + 4, 33},
        {FIRST_AT + 4 * BLOCKS, VISUAL - 1},
        {ANCHOR_AT, UINT32_MAX},
        {ANCHOR_AT, RIG_POSITIONS},
        {POS_AT, 0},
        {POS_AT, 5 + VISUAL},
        {POS_AT, 6},
        {POS_AT, UINT32_MAX},
    };
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    start(&rig, &p, FV_F16, 16);
    rig_capture(&rig, &p, MORE, &s);
    cr_assert_eq(deliver_changed(&rig, &s, POS_AT, 5 + 15), FV_OK, "as it was");
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fv_refusal why = fv_refusal_of(deliver_changed(&rig, &s, lies[i].at, lies[i].x));
        cr_assert(why == FV_REFUSED_MALFORMED || why == FV_REFUSED_OVER_BUDGET, "%zu at %zu: %s", i,
                  lies[i].at, fv_refusal_name(why));
    }
    free(s.bytes);
    finish(&rig, &p);
}

Test(kv_packed, a_layer_has_no_more_tokens_than_were_ranked) {
    static const struct {
        int32_t rows[2];
        bool good;
    } said[] = {
        {{VISUAL, VISUAL}, true}, {{VISUAL - 1, VISUAL - 1}, false}, {{VISUAL, VISUAL - 1}, false}};
    for (int i = 0; i < 3; i++) {
        handoff_rig rig;
        tiny_prompt p;
        rig_stream s;
        start(&rig, &p, FV_F16, 16);
        fv_kv_set_ranked(p.kv, 1, said[i].rows);
        rig_capture(&rig, &p, MORE, &s);
        cr_assert_eq(fv_refusal_of(deliver(&rig, &s)),
                     said[i].good ? FV_REFUSED_NONE : FV_REFUSED_MALFORMED);
        free(s.bytes);
        finish(&rig, &p);
    }
}

/* ---- tables ------------------------------------------------------------------------------- */

static void prefilled(tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt *one = p;
    int32_t id = 13;
    tiny_prompt_make(net, p, 5, VISUAL, 9, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(tiny_step(net, &one, 1, &id, 1, 0), FV_OK, "%s", fv_last_error());
}

/* Rotating keys that are compressed before rotation needs the angles of every token. */
Test(kv_packed, layers_with_the_same_tokens_share_one_table_of_angles) {
    static const struct {
        const char *policy;
        int32_t other; /* the first layer with tokens other than layer 0's */
    } list[] = {
        {"pack=svd,rank_k=12,rank_v=9,gain=0,block=1", 4},
        {"pack=svd,rank_k=12,rank_v=9,gain=0,block=16;expand=attention", 4},
        {"pack=quant", 4},
        {"lazy=vla,map=given,blocks=0-2;pack=quant", 4},
        {"pack=minicache,start=0", 4},
        {"lazy=vla,map=given,blocks=0-2;pack=svd,rank_k=12,rank_v=9,gain=0,block=1", 4},
        {"prune=random,layer=2,keep=0.5;pack=svd,rank_k=12,rank_v=9,gain=0,block=1", 2},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        tiny_net net;
        tiny_prompt p;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        prefilled(&net, &p, list[i].policy);
        const float *angles = fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL)->rows.cos;
        cr_assert_not_null(angles, "%s", list[i].policy);
        for (int32_t l = 1; l < 4; l++)
            cr_assert_eq(fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL)->rows.cos == angles,
                         l < list[i].other, "%s: layer %d", list[i].policy, l);
        tiny_prompt_free(&p);
        cr_assert_eq(fv_kv_pool_used(net.pool), 0);
        tiny_net_close(&net);
    }
}

/* Bytes that the allocator handed out and got back while `watched`. Its own statistics (mallinfo2)
 * count what a thread has just freed as in use. */
static _Thread_local bool watched;
static _Thread_local size_t came_back;

#if !SANITIZED
void __libc_free(void *p); /* NOLINT: the C library's own, which is not to be replaced */
void free(void *p) {
    if (watched && p) came_back += malloc_usable_size(p);
    __libc_free(p);
}
#endif

Test(kv_packed, tables_are_what_the_allocator_gave_for_them) {
    static const char *const policies[] = {
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=1",
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=64",
        "pack=svd,rank_k=12,rank_v=9,gain=0,block=1;expand=attention;evict=vta",
        "lazy=vla,map=given,blocks=0-2;pack=svd,rank_k=12,rank_v=9,gain=0,block=4;expand=attention",
        "prune=random,layer=2,keep=0.5;pack=quant",
        "pack=minicache,start=0"};
    /* EACH: header and alignment loss of an allocation; a table has 5 allocations, a token set 3. */
    enum { EACH = 96, ALLOCATIONS = 4 * 5 + 4 * 3 };
    if (SANITIZED) cr_skip("a sanitizer's allocator does not say what it has handed out");
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        tiny_net net;
        tiny_prompt p;
        tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
        for (int round = 0; round < 2; round++) { /* the first makes the pool's own lists long */
            prefilled(&net, &p, policies[i]);
            size_t tables = fv_kv_packed_tables(p.kv), pool = fv_kv_pool_memory(net.pool);
            cr_assert_gt(tables, 0);
            came_back = 0;
            watched = true;
            for (int32_t l = 0; l < 4; l++) {
                const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
                if (at && at->source_layer == l) fv_kv_packed_keep(p.kv, l, NULL, 0);
            }
            watched = false;
            size_t freed = came_back - (pool - tables - fv_kv_pool_memory(net.pool));
            cr_assert_eq(fv_kv_packed_tables(p.kv), 0);
            if (round) {
                cr_assert_geq(freed, tables, "%s", policies[i]);
                cr_assert_leq(freed, tables + EACH * ALLOCATIONS, "%s: %zu of %zu", policies[i],
                              freed, tables);
            }
            tiny_prompt_free(&p);
        }
        tiny_net_close(&net);
    }
}
