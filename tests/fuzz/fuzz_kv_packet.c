/* Any bytes, cut anywhere, through the receiving side of a hand-off. The first byte says how the
 * rest is cut, and whether checksums and counts are put right on the way: so both what a checksum
 * stops and what lies behind it is reached. Whatever comes, either a request with sound positions
 * arrives, or nothing is left behind. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "decode-worker/receive.h"
#include "wire/bytes.h"
#include "wire/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 2, HKV = 2, TEXT = 3, VISUAL = 4 };

static void put32(uint8_t *at, uint32_t x) { memcpy(at, &x, sizeof x); }
static void put64(uint8_t *at, uint64_t x) { memcpy(at, &x, sizeof x); }

/* Makes the bytes a stream whose every checksum, index and total is right, as far as whole
 * sections go. Offsets are those of wire/kv_packet.h. */
static void put_right(uint8_t *at, size_t n, uint64_t compat_hash) {
    uint64_t bytes = 0, digest = 0, length;
    for (uint32_t index = 0; n >= FV_SECTION_HEADER; index++) {
        uint8_t *payload = at + FV_SECTION_HEADER;
        uint32_t type;
        memcpy(&type, at + 4, sizeof type);
        memcpy(&length, at + 40, sizeof length);
        if (length > n - FV_SECTION_HEADER) length = n - FV_SECTION_HEADER;
        memcpy(at, "FV\x01", 3);
        at[3] &= 1;
        at[22] = at[23] = 0;
        put32(at + 8, index);
        put64(at + 40, length);
        if (type == FV_SECTION_HELLO && length >= 8) put64(payload, compat_hash);
        if (type == FV_SECTION_END && length == 32) {
            put64(payload, index);
            put64(payload + 8, bytes);
            put64(payload + 24, digest);
        }
        put32(at + 48, fv_crc32c(0, payload, (size_t)length));
        put32(at + 52, fv_crc32c(0, at, 52));
        digest = XXH64(at, FV_SECTION_HEADER, digest);
        bytes += FV_SECTION_HEADER + length;
        at = payload + length;
        n -= FV_SECTION_HEADER + (size_t)length;
    }
}

static void check_received(const fv_received *got) {
    for (int32_t l = 0; l < N; l++)
        for (int32_t g = 0; g < HKV; g++)
            for (int seg = 0; seg < FV_N_SEG; seg++) {
                int32_t n = fv_kv_len(got->kv, l, g, (fv_kv_segment)seg);
                const int32_t *pos = fv_kv_positions(got->kv, l, g, (fv_kv_segment)seg);
                for (int32_t i = 0; i < n; i++)
                    if (pos[i] < (i ? pos[i - 1] + 1 : 0) || pos[i] >= got->n ||
                        got->seg[pos[i]] != seg)
                        abort();
            }
    if (got->first.id < 0 || got->first.id >= 50 || fv_sampling_check(&got->sampling) != FV_OK)
        abort();
}

static void feed(fv_receiver *r, const fv_hello *hello, const uint8_t *bytes, size_t n,
                 size_t cut) {
    fv_sink *sink = fv_receiver_sink(r);
    fv_grant grant;
    fv_received got;
    uint64_t seq = 0;
    fv_refusal why = FV_REFUSED_NONE;
    if (sink->ops->offer(sink, hello, &grant) != FV_REFUSED_NONE) abort();
    while (n > 0 && why == FV_REFUSED_NONE) {
        size_t part = cut < n ? cut : n;
        uint8_t *own = malloc(part); /* a block of its own, so that reading past it is seen */
        if (!own) abort();
        memcpy(own, bytes, part);
        fv_piece piece = {own, part};
        why = sink->ops->frame(sink, &grant.ticket, seq++, &piece, 1);
        free(own);
        bytes += part;
        n -= part;
        cut = cut * 5 % 131 + 1; /* cuts of many sizes in one stream */
    }
    if (why == FV_REFUSED_NONE) why = sink->ops->commit(sink, &grant.ticket, seq);
    if (why == FV_REFUSED_NONE) {
        if (fv_receiver_claim(r, &grant.ticket, &got) != FV_REFUSED_NONE) abort();
        check_received(&got);
        fv_received_free(&got);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 1 << 16) return 0;
    fv_kv_shape shape = {.n_layer = N, .n_kv = HKV, .d_head = 4, .dtype = FV_F16};
    fv_kv_pool *pool;
    fv_receiver *r;
    fv_hello hello = {.n_text = TEXT,
                      .n_visual = VISUAL,
                      .max_tokens = 2,
                      .bytes_visual = N * HKV * VISUAL * 2 * 4 * 2,
                      .policy = ""};
    fv_compat_fields fields = {
        .model = "fuzz", .n_layer = N, .n_kv = HKV, .d_head = 4, .dtype = "f16"};
    if (fv_compat_make(&fields, &hello.compat) != FV_OK) abort();
    if (fv_kv_pool_open(fv_device_host(), &shape, 1 << 20, &pool) != FV_OK) abort();
    fv_receiver_options opt = {.pool = pool,
                               .model = "fuzz",
                               .n_vocab = 50,
                               .max_position = 64,
                               .grants = fv_grants_options_default()};
    opt.grants.capacity = 2;
    if (fv_receiver_open(&opt, &r) != FV_OK) abort();
    uint8_t *bytes = malloc(size);
    if (!bytes) abort();
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1) put_right(bytes, size - 1, hello.compat.hash);
    feed(r, &hello, bytes, size - 1, 1 + (size_t)(data[0] >> 1));
    free(bytes);
    if (fv_receiver_live(r) != 0 || fv_kv_pool_used(pool) != 0) abort();
    fv_receiver_close(r);
    fv_kv_pool_close(pool);
    return 0;
}
