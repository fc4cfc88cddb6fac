/* Corrupted hand-off streams: bits, ends, sections, and their fields. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/handoff.h"

enum { VISUAL = RIG_VISUAL, MORE = 40 };

/* The smallest stream with tokens in both segments. */
static void small_stream(handoff_rig *rig, tiny_prompt *p, rig_stream *s, int32_t recurrent) {
    tiny_shape tiny = {.n_layer = 1,
                       .n_head = 2,
                       .n_kv = 2,
                       .d_head = 8,
                       .d_ffn = 16,
                       .vocab = 97,
                       .recurrent = recurrent};
    rig_open(rig, &(rig_options){.shape = tiny, .dtype = FV_F16});
    tiny_prompt_make(&rig->net, p, 1, 2, 1, 1, "select=streaming,sink=1,recent=0.5,full_heads=0.5");
    cr_assert_eq(tiny_prefill(&rig->net, p, 1, 0), FV_OK, "%s", fv_last_error());
    rig_capture(rig, p, 1, s);
}

/* With recurrent layers, whose stream has a state too, only every `step`-th bit. */
static void flip_bits(int32_t recurrent, size_t step) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    fv_received got;
    small_stream(&rig, &p, &s, recurrent);
    cr_assert_eq(rig_deliver(rig.receiver, &s.hello, s.bytes, s.n, 100, &got), FV_OK);
    cr_assert(same_store(p.kv, got.kv));
    fv_received_free(&got);
    size_t n = 0;
    for (size_t bit = 0; bit < s.n * 8; bit += step, n++) {
        s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_neq(rig_deliver(rig.receiver, &s.hello, s.bytes, s.n, 100, &got), FV_OK,
                      "bit %zu of %zu bytes", bit, s.n);
        rig_assert_baseline(&rig, "a flipped bit");
        s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    cr_assert_eq(rig_refused(&rig), n);
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff_streams, every_flipped_bit_of_a_hand_off_is_refused, .timeout = 300) {
    flip_bits(0, 1);
    flip_bits(1, 5);
}

static void cut_short(int32_t recurrent, size_t step) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    fv_received got;
    small_stream(&rig, &p, &s, recurrent);
    for (size_t n = 1; n < s.n; n += step) {
        cr_assert_eq(fv_refusal_of(rig_deliver(rig.receiver, &s.hello, s.bytes, n, 64, &got)),
                     FV_REFUSED_TRUNCATED, "%zu of %zu bytes", n, s.n);
        rig_assert_baseline(&rig, "a short stream");
    }
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff_streams, a_hand_off_that_ends_at_any_byte_is_refused) {
    cut_short(0, 1);
    cut_short(1, 3);
}

/* The sections of a stream, to be rewritten with one change and correct checksums. */
typedef struct parts {
    int n;
    fv_section section[64];
    uint8_t *payload[64];
} parts;

static fv_status part_begin(void *user, const fv_section *s) {
    parts *p = user;
    cr_assert_lt(p->n, 64);
    p->section[p->n] = *s;
    p->payload[p->n++] = malloc(s->length + 8);
    return FV_OK;
}

static fv_status part_bytes(void *user, const fv_section *s, uint64_t offset, const void *bytes,
                            size_t n) {
    parts *p = user;
    (void)s;
    memcpy(p->payload[p->n - 1] + offset, bytes, n);
    return FV_OK;
}

static fv_status part_end(void *user, const fv_section *s) {
    (void)user;
    (void)s;
    return FV_OK;
}

static uint64_t part_rows;

static fv_status part_finish(void *user, const fv_packet_totals *totals) {
    (void)user;
    part_rows = totals->rows;
    return FV_OK;
}

static void take_apart(const rig_stream *s, parts *p) {
    fv_packet_reader r;
    fv_packet_hooks hooks = {.user = p,
                             .begin = part_begin,
                             .bytes = part_bytes,
                             .end = part_end,
                             .finish = part_finish};
    p->n = 0;
    fv_packet_reader_init(&r, &hooks, 0);
    cr_assert_eq(fv_packet_read(&r, s->bytes, s->n), FV_OK);
}

static void free_parts(parts *p) {
    for (int i = 0; i < p->n; i++) free(p->payload[i]);
}

static fv_status tape_write(void *user, const fv_piece *piece, int32_t n, size_t bytes) {
    rig_stream *s = user;
    s->bytes = realloc(s->bytes, s->n + bytes);
    for (int32_t i = 0; i < n; s->n += piece[i++].bytes)
        memcpy(s->bytes + s->n, piece[i].data, piece[i].bytes);
    return FV_OK;
}

/* Sections in the order of `list`; `rows` for END. */
static fv_status deliver_parts(handoff_rig *rig, const fv_hello *hello, const parts *p,
                               const int *list, int n, uint64_t rows) {
    rig_stream s = {0};
    fv_packet_writer w;
    fv_received got = {0};
    fv_packet_writer_init(&w, 0, tape_write, &s);
    for (int i = 0; i < n; i++) {
        fv_piece whole = {p->payload[list[i]], (size_t)p->section[list[i]].length};
        cr_assert_eq(fv_packet_write(&w, p->section[list[i]], &whole, 1), FV_OK);
    }
    cr_assert_eq(fv_packet_end(&w, rows), FV_OK);
    fv_status st = rig_deliver(rig->receiver, hello, s.bytes, s.n, 50, &got);
    fv_received_free(&got);
    fv_packet_writer_fini(&w);
    free(s.bytes);
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0);
    return st;
}

static void misplace_sections(int32_t recurrent) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    small_stream(&rig, &p, &s, recurrent);
    take_apart(&s, &all);
    int list[65];
    for (int i = 0; i < all.n; i++) list[i] = i;
    cr_assert_eq(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows), FV_OK);
    cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows + 1)),
                 FV_REFUSED_MALFORMED, "END counts other rows");
    for (int k = 0; k < all.n; k++) {
        int n = 0;
        for (int i = 0; i < all.n; i++)
            if (i != k) list[n++] = i;
        cr_assert_neq(deliver_parts(&rig, &s.hello, &all, list, n, part_rows), FV_OK,
                      "without section %d", k);
        n = 0;
        for (int i = 0; i < all.n; i++) {
            list[n++] = i;
            if (i == k) list[n++] = i;
        }
        cr_assert_neq(deliver_parts(&rig, &s.hello, &all, list, n, part_rows), FV_OK,
                      "section %d twice", k);
        for (int i = 0; i < all.n; i++) list[i] = i;
        if (k + 1 == all.n) continue;
        list[k] = k + 1;
        list[k + 1] = k;
        cr_assert_neq(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows), FV_OK,
                      "section %d after its successor", k);
    }
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff_streams, sections_left_out_repeated_or_swapped_are_refused) {
    misplace_sections(0);
    misplace_sections(2);
}

/* A stream whose STAT is changed: its type of numbers, its length, its layer. */
Test(handoff_streams, a_state_of_another_kind_size_or_layer_is_refused) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    small_stream(&rig, &p, &s, 1);
    take_apart(&s, &all);
    int list[64], at = 0;
    for (int i = 0; i < all.n; i++) list[i] = i;
    while (all.section[at].type != FV_SECTION_STATE) cr_assert_lt(++at, all.n);
    fv_section good = all.section[at], bad[4] = {good, good, good, good};
    cr_assert(at == 2 && good.length == fv_kv_pool_shape(rig.pool)->state_bytes);
    bad[0].dtype = FV_WIRE_F16;
    bad[1].length -= 4;
    bad[2].length += 4;
    bad[3].layer1 += 1;
    for (int k = 0; k < 4; k++) {
        all.section[at] = bad[k];
        cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows)),
                     FV_REFUSED_MALFORMED, "change %d", k);
        rig_assert_baseline(&rig, "a wrong state");
    }
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

/* A model without recurrent layers gets no state. */
Test(handoff_streams, a_state_where_none_is_due_is_refused) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    small_stream(&rig, &p, &s, 0);
    take_apart(&s, &all);
    int list[64];
    for (int i = 0; i < all.n; i++) list[i] = i;
    all.section[2].type = FV_SECTION_STATE;
    cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows)),
                 FV_REFUSED_MALFORMED);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

/* A stream of lazy layers, whose LEAD sections are changed. */
static fv_status with_lead(const char *policy, int32_t which, uint32_t source_layer,
                           uint32_t text) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    int list[64], seen = 0;
    rig_start(&rig, &(rig_options){.dtype = FV_F32}, &p, policy);
    rig_capture(&rig, &p, MORE, &s);
    take_apart(&s, &all);
    for (int i = 0; i < all.n; i++) {
        list[i] = i;
        if (all.section[i].type != FV_SECTION_LEAD || seen++ != which) continue;
        memcpy(all.payload[i], &source_layer, 4);
        memcpy(all.payload[i] + 4, &text, 4);
    }
    cr_assert_gt(seen, which);
    fv_status st = deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
    return st;
}

Test(handoff_streams, a_layer_can_only_have_the_keys_of_one_before_it_that_has_its_own) {
    static const char vla[] = "lazy=vla,map=given,blocks=1-3";
    static const char gla[] = "lazy=gla,map=given,blocks=1-3";
    cr_assert_eq(with_lead(vla, 1, 1, 0), FV_OK);
    cr_assert_eq(with_lead(gla, 1, 1, 1), FV_OK);
    static const uint32_t bad[] = {2, 3, 4, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(fv_refusal_of(with_lead(vla, 1, bad[i], 0)), FV_REFUSED_MALFORMED, "layer %u",
                     bad[i]);
    cr_assert_eq(fv_refusal_of(with_lead(vla, 0, 1, 2)), FV_REFUSED_MALFORMED);
    cr_assert_neq(with_lead(vla, 0, 1, 1), FV_OK, "its text keys come too");
    cr_assert_neq(with_lead(gla, 1, 1, 0), FV_OK, "there is no room for its text keys");
    cr_assert_eq(
        fv_refusal_of(with_lead("prune=vtw,layer=2;lazy=gla,map=given,blocks=2-3", 0, 1, 1)),
        FV_REFUSED_MALFORMED, "different number of tokens");
}

Test(handoff_streams, sections_for_other_tokens_than_expected_are_refused) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    small_stream(&rig, &p, &s, 0);
    take_apart(&s, &all);
    int list[64], tried = 0;
    for (int i = 0; i < all.n; i++) list[i] = i;
    for (int k = 0; k < all.n; k++)
        for (int what = 0; what < 8; what++) {
            fv_section *at = &all.section[k], was = *at;
            bool rows = at->type == FV_SECTION_POSITIONS || at->type == FV_SECTION_DATA;
            if (what == 0) at->length++;
            if (what == 1) at->length -= at->length > 0;
            if (what == 2 && rows) at->layer0++;
            if (what == 3 && (rows || at->type == FV_SECTION_ROWS)) at->layer1 += 1;
            if (what == 4 && rows) at->segment ^= 1;
            if (what == 5 && rows) at->dtype = FV_WIRE_BYTES;
            if (what == 6 && at->type == FV_SECTION_DATA) at->part1++;
            if (what == 7 && at->type == FV_SECTION_DATA) at->part0++;
            if (memcmp(at, &was, sizeof was) != 0) {
                tried++;
                cr_assert_neq(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows), FV_OK,
                              "section %d, change %d", k, what);
            }
            *at = was;
        }
    cr_assert_gt(tried, 30);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff_streams, positions_must_ascend_inside_the_prompt_and_their_segment) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    small_stream(&rig, &p, &s, 0);
    take_apart(&s, &all);
    int list[64], tried = 0;
    for (int i = 0; i < all.n; i++) list[i] = i;
    for (int k = 0; k < all.n; k++)
        for (uint64_t i = 0;
             all.section[k].type == FV_SECTION_POSITIONS && i < all.section[k].length / 4; i++) {
            int32_t *pos = (int32_t *)(void *)all.payload[k], was = pos[i];
            int32_t wrong[] = {-1, 4, INT32_MAX, was ? 0 : 1};
            for (int w = 0; w < 4; w++, tried++) {
                pos[i] = wrong[w];
                if (all.section[k].segment == FV_SEG_TEXT && wrong[w] == 0 && i == 0) continue;
                cr_assert_neq(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows), FV_OK,
                              "position %d in place of %d", wrong[w], was);
            }
            pos[i] = was;
        }
    cr_assert_gt(tried, 10);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

/* ---- masked tokens ----------------------------------------------------------------------- */

static fv_status deliver_all(handoff_rig *rig, const rig_stream *s, const parts *all);

Test(handoff_streams, a_mask_comes_once_before_the_tokens_that_it_covers) {
    static parts all;
    tiny_shape shape = {
        .n_layer = 2, .n_head = 2, .n_kv = 1, .d_head = 8, .d_ffn = 16, .vocab = 97};
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    int at = 0, list[65], n = 0;
    rig_open(&rig, &(rig_options){.shape = shape});
    tiny_prompt_make(&rig.net, &p, 1, 6, 2, 3, "prune=fastv,layer=1,keep=0.5,mode=mask");
    cr_assert_eq(tiny_prefill(&rig.net, &p, 1, 0), FV_OK, "%s", fv_last_error());
    rig_capture(&rig, &p, 2, &s);
    take_apart(&s, &all);
    while (all.section[at].type != FV_SECTION_MASK) at++;
    cr_assert_eq(all.section[at].layer0, 1);
    fv_section *mask = &all.section[at], was = *mask;
    uint32_t *rows = (uint32_t *)(void *)all.payload[at];
    cr_assert_eq(rows[0], 3);
    for (rows[0] = 0; rows[0] < 9; rows[0]++)
        cr_assert_eq(deliver_all(&rig, &s, &all) == FV_OK, rows[0] > 0 && rows[0] < 7,
                     "%u rows of 6 were masked", rows[0]);
    rows[0] = 3;
    for (int what = 0; what < 4; what++) {
        if (what == 0) mask->layer0 = 0;
        if (what == 1) mask->layer1 = 3;
        if (what == 2) mask->length = 0;
        if (what == 3) mask->length = 8;
        cr_assert_eq(fv_refusal_of(deliver_all(&rig, &s, &all)), FV_REFUSED_MALFORMED, "change %d",
                     what);
        *mask = was;
    }
    for (int i = 0; i < all.n; i++) {
        list[n++] = i;
        if (i == at) list[n++] = i;
    }
    cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, n, part_rows)),
                 FV_REFUSED_MALFORMED);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

/* ---- grids -------------------------------------------------------------------------------- */

/* The section's first field is the number of prompt tokens, which an answer may follow. */
Test(handoff_streams, grids_come_once_before_all_layers_and_hold_visual_tokens) {
    static parts all;
    tiny_shape shape = {.n_layer = 1,
                        .n_head = 2,
                        .n_kv = 2,
                        .d_head = 8,
                        .d_ffn = 16,
                        .vocab = 97,
                        .section = {1, 1, 2}};
    static const struct {
        int field;
        int32_t value;
    } wrong[] = {{0, 11},
                 {0, -1},
                 {0, 4},
                 {1, 0},
                 {1, 2},
                 {1, -1},
                 {2, 0},
                 {2, 2},
                 {3, 0},
                 {3, 3},
                 {4, 0},
                 {4, 4},
                 {6, 1},
                 {6, 9},
                 {9, 1 << 30},
                 {5, 0x7fc00000} /* a NaN step */,
                 {5, (int32_t)0xbf800000} /* -1 */};
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    int at = 0, list[65], n = 0;
    rig_open(&rig, &(rig_options){.shape = shape});
    tiny_prompt_lay(&rig.net, &p, "t1 v6 t1 v1 t1", 3, "");
    cr_assert_eq(tiny_prefill(&rig.net, &p, 1, 0), FV_OK, "%s", fv_last_error());
    rig_capture(&rig, &p, 2, &s);
    take_apart(&s, &all);
    while (all.section[at].type != FV_SECTION_GRIDS) at++;
    cr_assert_eq(all.section[at - 1].type, FV_SECTION_PROMPT);
    cr_assert_eq(all.section[at].length, 44);
    int32_t *x = (int32_t *)(void *)all.payload[at];
    cr_assert(x[0] == 10 && x[1] == 1 && x[3] == 2 && x[4] == 3 && x[6] == 8);
    cr_assert_eq(deliver_all(&rig, &s, &all), FV_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int32_t was = x[wrong[i].field];
        x[wrong[i].field] = wrong[i].value;
        cr_assert_eq(fv_refusal_of(deliver_all(&rig, &s, &all)), FV_REFUSED_MALFORMED,
                     "field %d is %d", wrong[i].field, wrong[i].value);
        x[wrong[i].field] = was;
    }
    for (uint32_t grids = 0; grids < 9; grids++) {
        all.section[at].dims[0] = grids;
        cr_assert_eq(deliver_all(&rig, &s, &all) == FV_OK, grids == 2);
    }
    all.section[at].dims[0] = 2;
    for (int i = 0; i < all.n; i++) {
        list[n++] = i;
        if (i == at) list[n++] = i;
    }
    cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, n, part_rows)),
                 FV_REFUSED_MALFORMED, "twice");
    for (int with = at - 1; with <= at + 1; with += 2) {
        for (int i = 0; i < all.n; i++) list[i] = i;
        list[at] = with;
        list[with] = at;
        cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows)),
                     FV_REFUSED_MALFORMED, "in the place of section %d", with);
    }
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

/* ---- ranked layers ----------------------------------------------------------------------- */

/* A stream whose layer 1 alone is ranked: RANK, ROWS, and the positions of its image tokens. */
static void ranked_stream(handoff_rig *rig, tiny_prompt *p, rig_stream *s, parts *all, int at[3]) {
    tiny_shape shape = {
        .n_layer = 2, .n_head = 2, .n_kv = 1, .d_head = 8, .d_ffn = 16, .vocab = 97};
    rig_open(rig, &(rig_options){.shape = shape});
    tiny_prompt_make(&rig->net, p, 1, 6, 2, 3, "evict=vta,layer=1");
    cr_assert_eq(tiny_prefill(&rig->net, p, 1, 0), FV_OK, "%s", fv_last_error());
    rig_capture(rig, p, 2, s);
    take_apart(s, all);
    at[0] = 0;
    while (all->section[at[0]].type != FV_SECTION_RANK) at[0]++;
    at[1] = at[0] + 1;
    at[2] = at[0] + 2;
    cr_assert_eq(all->section[at[0]].layer0, 1);
    cr_assert_eq(all->section[at[1]].type, FV_SECTION_ROWS);
    cr_assert_eq(all->section[at[2]].type, FV_SECTION_POSITIONS);
}

static fv_status deliver_all(handoff_rig *rig, const rig_stream *s, const parts *all) {
    int list[64];
    for (int i = 0; i < all->n; i++) list[i] = i;
    return deliver_parts(rig, &s->hello, all, list, all->n, part_rows);
}

Test(handoff_streams, a_layer_is_ranked_once_before_its_tokens) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    int at[3], list[65], n = 0;
    ranked_stream(&rig, &p, &s, &all, at);
    cr_assert_eq(deliver_all(&rig, &s, &all), FV_OK, "%s", fv_last_error());
    fv_section *rank = &all.section[at[0]], was = *rank;
    uint32_t *rows = (uint32_t *)(void *)all.payload[at[0]];
    for (rows[0] = 0; rows[0] < 8; rows[0]++)
        cr_assert_eq(deliver_all(&rig, &s, &all) == FV_OK, rows[0] == 6, "%u rows were ranked",
                     rows[0]);
    rows[0] = 6;
    for (int what = 0; what < 4; what++) {
        if (what == 0) rank->layer0 = 0;
        if (what == 1) rank->layer1 = 3;
        if (what == 2) rank->length = 0;
        if (what == 3) rank->length = 8;
        cr_assert_eq(fv_refusal_of(deliver_all(&rig, &s, &all)), FV_REFUSED_MALFORMED, "change %d",
                     what);
        *rank = was;
    }
    for (int i = 0; i < all.n; i++) {
        list[n++] = i;
        if (i == at[0]) list[n++] = i;
    }
    cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, n, part_rows)),
                 FV_REFUSED_MALFORMED);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff_streams, positions_in_rank_order_come_each_once_and_only_with_a_rank) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    int at[3], list[64], n = 0;
    ranked_stream(&rig, &p, &s, &all, at);
    int32_t *pos = (int32_t *)(void *)all.payload[at[2]], order[6] = {6, 1, 5, 2, 4, 3};
    memcpy(pos, order, sizeof order);
    cr_assert_eq(deliver_all(&rig, &s, &all), FV_OK, "%s", fv_last_error());
    for (int32_t i = 0; i < 6; i++) {
        int32_t wrong[] = {order[(i + 1) % 6], 0, 7, -1, INT32_MAX};
        for (int w = 0; w < 5; w++) {
            pos[i] = wrong[w];
            cr_assert_eq(fv_refusal_of(deliver_all(&rig, &s, &all)), FV_REFUSED_MALFORMED,
                         "%d for %d", wrong[w], order[i]);
        }
        pos[i] = order[i];
    }
    for (int i = 0; i < all.n; i++)
        if (i != at[0]) list[n++] = i;
    cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, n, part_rows)),
                 FV_REFUSED_MALFORMED);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff_streams, heads_of_different_lengths_cannot_share_positions) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    small_stream(&rig, &p, &s, 0);
    take_apart(&s, &all);
    int list[64], tried = 0;
    for (int i = 0; i < all.n; i++) list[i] = i;
    for (int k = 0; k < all.n; k++) {
        fv_section *at = &all.section[k], was = *at;
        if (at->type != FV_SECTION_POSITIONS || at->dims[0] == 1) continue;
        at->dims[0] = 1;
        at->length = 4 * (uint64_t)fv_kv_len(p.kv, 0, 0, (fv_kv_segment)at->segment);
        tried++;
        cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, all.n, part_rows)),
                     FV_REFUSED_MALFORMED);
        cr_assert(strstr(fv_last_error(), "share positions"), "%s", fv_last_error());
        *at = was;
    }
    cr_assert_gt(tried, 0);
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}

Test(handoff_streams, unknown_sections_are_skipped_or_refuse_by_name) {
    handoff_rig rig;
    tiny_prompt p;
    rig_stream s;
    static parts all;
    small_stream(&rig, &p, &s, 0);
    take_apart(&s, &all);
    int extra = all.n++, list[65];
    all.section[extra] = (fv_section){.type = FV_FOURCC('N', 'E', 'W', 'S'), .length = 1000};
    all.payload[extra] = calloc(1, 1000);
    for (int at = 0; at <= extra; at++)
        for (int critical = 0; critical < 2; critical++) {
            int n = 0;
            for (int i = 0; i <= extra; i++) {
                if (i == at) list[n++] = extra;
                if (i < extra) list[n++] = i;
            }
            all.section[extra].critical = critical;
            cr_assert_eq(fv_refusal_of(deliver_parts(&rig, &s.hello, &all, list, n, part_rows)),
                         critical ? FV_REFUSED_UNKNOWN_SECTION : FV_REFUSED_NONE, "%s",
                         fv_last_error());
            if (critical) cr_assert(strstr(fv_last_error(), "NEWS"), "%s", fv_last_error());
        }
    free_parts(&all);
    free(s.bytes);
    rig_finish(&rig, &p);
}
