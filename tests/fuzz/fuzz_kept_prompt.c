/* A prompt is kept, then any bytes as the links of another one, and as its stream. The first byte says how the stream is
 * cut, and whether its checksums and counts are corrected on the way; the second how many links come. Either a request
 * arrives that begins with what was kept, bit for bit, or nothing is left behind; what was kept stays as it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tests/support/fuzzed_handoff.h"
#include "tests/support/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { POOL = 1 << 20, LINKS_MOST = 4, BEFORE = 1 /* text tokens before the image */ };

static uint8_t *stream; /* of the first prompt */
static size_t stream_n;

static void expect(bool holds) {
    if (!holds) abort();
}

static void read_stream(void) {
    char *bytes;
    if (stream) return;
    if (fv_file_read(FOVEA_TEST_DATA "/fuzz/corpus/kv_packet/exact", 1 << 16, &bytes, &stream_n) !=
        FV_OK) {
        fprintf(stderr, "%s\n", fv_last_error());
        abort();
    }
    stream_n--; /* its first byte is for fuzz_kv_packet */
    stream = (uint8_t *)bytes + 1;
    rig_put_right(stream, stream_n, fuzzed_hello().compat.hash);
}

typedef struct world {
    fv_kv_pool *pool;
    fv_prefixes *prefixes;
    fv_receiver *receiver;
} world;

static void open_world(world *w) {
    fv_kv_shape shape = fuzzed_shape();
    expect(fv_kv_pool_open(fv_device_host(), &shape, POOL, &w->pool) == FV_OK);
    expect(fv_prefixes_open(&(fv_prefixes_options){.pool = w->pool, .bytes_max = POOL},
                            &w->prefixes) == FV_OK);
    fv_receiver_options opt = {.pool = w->pool,
                               .prefixes = w->prefixes,
                               .model = "fuzz",
                               .n_vocab = 50,
                               .n_group = 2,
                               .max_position = 64,
                               .grants = fv_grants_options_default()};
    expect(fv_receiver_open(&opt, &w->receiver) == FV_OK);
}

/* Offers with these links, and sends bytes in frames of many sizes. */
static fv_status deliver(world *w, const fv_wire_link *link, uint32_t n_link, const uint8_t *bytes,
                         size_t n, size_t cut, fv_grant *grant, fv_received *got) {
    fv_sink *sink = fv_receiver_sink(w->receiver);
    fv_hello hello = fuzzed_hello();
    uint64_t seq = 0;
    /* The memory that the offer borrows is freed afterwards. */
    fv_wire_link *own_link = malloc(n_link * sizeof *link + 1);
    char *owner = strdup("tenant");
    expect(own_link && owner);
    if (n_link) memcpy(own_link, link, n_link * sizeof *link);
    hello.link = own_link;
    hello.n_link = n_link;
    hello.owner = owner;
    fv_status st = sink->ops->offer(sink, &hello, grant);
    free(own_link);
    free(owner);
    expect((st == FV_OK) == (fv_links_check(link, n_link, hello.n_text, hello.n_visual) == FV_OK));
    if (st != FV_OK) return st;
    while (n > 0 && st == FV_OK) {
        size_t part = cut < n ? cut : n;
        uint8_t *own = malloc(part); /* a block of its own, so that reading past it is detected */
        expect(own != NULL);
        memcpy(own, bytes, part);
        st = sink->ops->frame(sink, &grant->ticket, seq++, &(fv_piece){own, part}, 1);
        free(own);
        bytes += part;
        n -= part;
        cut = cut * 5 % 131 + 1;
    }
    if (st == FV_OK) st = sink->ops->commit(sink, &grant->ticket, seq);
    if (st == FV_OK) return fv_receiver_attach(w->receiver, &grant->ticket, got);
    sink->ops->abort(sink, &grant->ticket);
    return st;
}

/* Whether the first n rows of a segment are the same in two stores. */
static bool begin_alike(const fv_kv *a, const fv_kv *b, fv_kv_segment seg, int32_t n) {
    for (int32_t l = 0; l < FUZZED_N; l++)
        for (int32_t g = 0; g < FUZZED_HKV; g++)
            for (int32_t i = 0; i < 2 * n; i++) {
                void *x, *y;
                fv_kv_contiguous(a, l, g, seg, i % 2, i / 2, n, &x);
                fv_kv_contiguous(b, l, g, seg, i % 2, i / 2, n, &y);
                if (memcmp(x, y, FUZZED_D * 2) != 0 ||
                    fv_kv_positions(a, l, g, seg)[i / 2] != fv_kv_positions(b, l, g, seg)[i / 2])
                    return false;
            }
    return true;
}

/* Rows of a text and all visual tokens, which keys 1 and 2 name. */
static void keep_first(world *w, fv_received *got) {
    const fv_wire_link link[] = {{.key = {1}, .n_text = BEFORE},
                                 {.key = {2}, .n_text = BEFORE, .n_visual = FUZZED_VISUAL}};
    fv_grant grant;
    expect(deliver(w, link, 2, stream, stream_n, 500, &grant, got) == FV_OK);
    expect(grant.n_kept == 0 && fv_prefixes_count(w->prefixes).n_now == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 1 << 16) return 0;
    size_t n = (size_t)(data[1] % (LINKS_MOST + 1)) * FV_LINK_BYTES;
    if (size < 2 + n) return 0;
    world w;
    fv_grant grant;
    fv_received first, got;
    fv_wire_link link[FV_LINKS_MAX];
    uint32_t n_link;
    read_stream();
    open_world(&w);
    keep_first(&w, &first);
    expect(fv_links_get(data + 2, n, link, &n_link) == FV_OK);
    size_t rest = size - 2 - n;
    uint8_t *bytes = malloc(rest + 1);
    expect(bytes != NULL);
    memcpy(bytes, data + 2 + n, rest);
    if (data[0] & 1) rig_put_right(bytes, rest, fuzzed_hello().compat.hash);
    fv_status st = deliver(&w, link, n_link, bytes, rest, 1 + (size_t)(data[0] >> 1), &grant, &got);
    free(bytes);
    if (st == FV_OK) {
        if (grant.n_kept > 0) {
            const fv_wire_link *last = &link[grant.n_kept - 1];
            expect(begin_alike(first.kv, got.kv, FV_SEG_TEXT, (int32_t)last->n_text));
            expect(begin_alike(first.kv, got.kv, FV_SEG_VISUAL, (int32_t)last->n_visual));
        }
        fv_received_free(&got);
    }
    expect(fv_receiver_live(w.receiver) == 0);
    fv_received_free(&first);
    expect(fv_kv_pool_used(w.pool) == fv_kv_pool_idle(w.pool));
    fv_prefixes_drop(w.prefixes, false);
    expect(fv_kv_pool_used(w.pool) == 0);
    fv_receiver_close(w.receiver);
    fv_prefixes_close(w.prefixes);
    fv_kv_pool_close(w.pool);
    return 0;
}
