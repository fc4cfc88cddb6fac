/* Any bytes, cut anywhere, through the receiving side of a hand-off. The first byte says how the
 * rest is cut, whether text is in codes, whether layers have a state, and whether checksums and counts are corrected on the way, so
 * that the code after the checksums is reached too. Either a request with valid positions arrives, or nothing is left
 * behind. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/receive/receive.h"
#include "kv/packed.h"
#include "model/net/anneal.h"
#include "packed/lowrank.h"
#include "tests/support/fuzzed_handoff.h"
#include "tests/support/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A layer that borrows another layer's coefficients has the first ones of its tokens. */
static void check_nested(const fv_received *got, const fv_kv_packed *p) {
    const fv_kv_packed *lead = fv_kv_packed_of(got->kv, p->source_layer, FV_SEG_VISUAL);
    if (p->rows.n > lead->rows.n || p->n_first > lead->n_first || (lead->rank && !p->rank)) abort();
    for (int32_t i = 0; i < p->rows.n; i++)
        if (p->pos[i] != lead->pos[i] || (p->rank && p->rank[i] != i)) abort();
}

/* Evicts tokens as an answer would. */
static void anneal(const fv_received *got) {
    static const double share[] = {0.9, 0.5, 0.1};
    for (size_t i = 0; i < sizeof share / sizeof *share; i++)
        if (fv_anneal(got->kv, share[i], i % 2 ? FV_ANNEAL_IMPORTANCE : FV_ANNEAL_RANK) != FV_OK)
            abort();
}

static void check_packed(const fv_received *got, int32_t layer, fv_kv_segment seg) {
    const fv_kv_packed *p = fv_kv_packed_of(got->kv, layer, seg);
    if (p && p->part[FV_PACKED_V].shape.form == FV_PACKED_LATENT) check_nested(got, p);
    for (int32_t i = 0; p && i < p->rows.n; i++)
        if (p->pos[i] < 0 || p->pos[i] >= got->n || got->seg[p->pos[i]] != seg) abort();
    float m[FUZZED_VISUAL * FUZZED_HKV * FUZZED_D];
    for (int k = 0; p && k < 2; k++) {
        const fv_packed_format *format = fv_packed_format_of(p->part[k].shape.form);
        (format->read ? format->read : fv_packed_read_u)(&p->part[k], 0, p->rows.n, m);
    }
}

/* Rotary positions must not exceed indices, which an empty map gives. */
static void check_map(const fv_received *got) {
    for (int32_t i = 0; i < got->n + 2; i++) {
        fv_rope_pos p = fv_rope_map_at(fv_kv_rope_map(got->kv), i);
        if (p.t < 0 || p.h < 0 || p.w < 0 || p.t > i || p.h > i || p.w > i) abort();
    }
}

static void check_received(const fv_received *got) {
    check_map(got);
    for (int32_t l = 0; l < FUZZED_N; l++)
        for (int seg = 0; seg < FV_N_SEG; seg++) check_packed(got, l, (fv_kv_segment)seg);
    for (int32_t l = 0; l < FUZZED_N; l++)
        for (int32_t g = 0; g < FUZZED_HKV; g++)
            for (int seg = 0; seg < FV_N_SEG; seg++) {
                int32_t n = fv_kv_len(got->kv, l, g, (fv_kv_segment)seg);
                const int32_t *pos = fv_kv_positions(got->kv, l, g, (fv_kv_segment)seg);
                for (int32_t i = 0; i < n; i++)
                    if (pos[i] < (i ? pos[i - 1] + 1 : 0) || pos[i] >= got->n ||
                        got->seg[pos[i]] != seg)
                        abort();
            }
    if (fv_kv_get_shape(got->kv)->state_bytes && !fv_kv_state(got->kv, FUZZED_N - 1)) abort();
    anneal(got);
    if (got->first.id < 0 || got->first.id >= 50 || fv_sampling_check(&got->sampling) != FV_OK)
        abort();
}

static void feed(fv_receiver *r, const fv_hello *hello, const uint8_t *bytes, size_t n,
                 size_t cut) {
    fv_sink *sink = fv_receiver_sink(r);
    fv_grant grant;
    fv_received got;
    uint64_t seq = 0;
    fv_status st = FV_OK;
    if (sink->ops->offer(sink, hello, &grant) != FV_OK) abort();
    while (n > 0 && st == FV_OK) {
        size_t part = cut < n ? cut : n;
        uint8_t *own = malloc(part); /* a block of its own, so that reading past it is detected */
        if (!own) abort();
        memcpy(own, bytes, part);
        fv_piece piece = {own, part};
        st = sink->ops->frame(sink, &grant.ticket, seq++, &piece, 1);
        free(own);
        bytes += part;
        n -= part;
        cut = cut * 5 % 131 + 1; /* cuts of many sizes in one stream */
    }
    if (st == FV_OK) st = sink->ops->commit(sink, &grant.ticket, seq);
    if (st == FV_OK) {
        if (fv_receiver_attach(r, &grant.ticket, &got) != FV_OK) abort();
        check_received(&got);
        fv_received_free(&got);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 1 << 16) return 0;
    fv_kv_pool *pool;
    fv_receiver *r;
    fv_hello hello = fuzzed_hello_of(data[0]);
    fuzzed_open(data[0], &pool, &r);
    uint8_t *bytes = malloc(size);
    if (!bytes) abort();
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1) rig_put_right(bytes, size - 1, hello.compat.hash);
    feed(r, &hello, bytes, size - 1, 1 + (size_t)((data[0] & ~FUZZED_TEXT_CODES) >> 1));
    free(bytes);
    if (fv_receiver_live(r) != 0 || fv_kv_pool_used(pool) != 0) abort();
    fv_receiver_close(r);
    fv_kv_pool_close(pool);
    return 0;
}
