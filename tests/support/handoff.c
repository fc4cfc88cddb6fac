/* A prefill side, a decode side, and ways to put bytes between them. */

#include "tests/support/handoff.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv/packed.h"
#include "kv/share.h"

enum { RIG_IMAGES = 16 };

static void need(fv_status st) {
    if (st == FV_OK) return;
    fprintf(stderr, "handoff: %s\n", fv_last_error());
    abort();
}

static double rig_clock(void *user) { return ((handoff_rig *)user)->now; }

static void rig_delay(void *user) { ((handoff_rig *)user)->now += 1e6; }

void rig_open(handoff_rig *rig, const rig_options *opt) {
    *rig = (handoff_rig){.now = 1};
    tiny_shape shape = opt->shape.n_layer ? opt->shape : tiny_shape_default();
    tiny_net_open(&rig->net, shape, opt->dtype, NULL, 1);
    need(fv_kv_pool_open(fv_device_host(), fv_kv_pool_shape(rig->net.pool), opt->pool_bytes,
                         &rig->pool));
    if (opt->keep_bytes) {
        fv_prefixes_options keep = {.pool = rig->pool, .bytes_max = opt->keep_bytes};
        need(fv_prefixes_open(&keep, &rig->prefixes));
        rig->chain = malloc(fv_chain_links_max(RIG_POSITIONS, RIG_IMAGES) * sizeof *rig->chain);
        if (!rig->chain) abort();
    }
    fv_receiver_options receiver = {.pool = rig->pool,
                                    .prefixes = rig->prefixes,
                                    .rest_most = RIG_REST,
                                    .model = "tiny",
                                    .n_vocab = shape.vocab,
                                    .n_group = shape.n_head / shape.n_kv,
                                    .max_position = RIG_POSITIONS,
                                    .grants = fv_grants_options_default()};
    receiver.grants.clock = rig_clock;
    receiver.grants.clock_user = rig;
    if (opt->frame_max) receiver.grants.frame_max = opt->frame_max;
    if (opt->capacity) receiver.grants.capacity = opt->capacity;
    need(fv_receiver_open(&receiver, &rig->receiver));
    need(fv_transport_inproc(fv_receiver_sink(rig->receiver), &rig->transport));
    if (!opt->fault) return;
    fv_fault_options fault = *opt->fault;
    fault.delay = rig_delay;
    fault.delay_user = rig;
    fault.fired = &rig->fired;
    need(fv_transport_fault(rig->transport, &fault, &rig->transport));
}

void rig_close(handoff_rig *rig) {
    fv_transport_close(rig->transport, NULL, NULL);
    fv_receiver_close(rig->receiver);
    fv_prefixes_close(rig->prefixes);
    free(rig->chain);
    fv_kv_pool_close(rig->pool);
    tiny_net_close(&rig->net);
}

/* Makes the prompt's chain; an image is known by its embeddings. */
static int32_t make_chain(const handoff_rig *rig, const tiny_prompt *p) {
    fv_chain_visual visual[RIG_IMAGES];
    const float *embeds = p->embeds;
    int32_t n;
    fv_chain_base base = {.compat = "tiny"};
    if (p->n_image > RIG_IMAGES) abort();
    for (int32_t i = 0; i < p->n_image; i++) {
        size_t bytes = (size_t)(p->image[i].n * rig->net.cfg.d_model) * sizeof *embeds;
        fv_digest d;
        visual[i] = (fv_chain_visual){.first = p->image[i].first, .n = p->image[i].n};
        fv_digest_begin(&d, "test image");
        fv_digest_bytes(&d, embeds, bytes);
        need(fv_digest_end(&d, visual[i].digest));
        embeds += bytes / sizeof *embeds;
    }
    fv_chain_prompt prompt = {.n = p->n,
                              .ids = p->ids,
                              .n_visual = p->n_image,
                              .visual = visual,
                              .rope_map = p->rope_map};
    need(fv_chain_make(&base, &prompt, rig->chain, &n));
    return n;
}

fv_export_request rig_request(const handoff_rig *rig, const tiny_prompt *p, int32_t max_tokens) {
    static const fv_logit_bias bias[] = {{7, -2.5f}, {96, 100}};
    bool raw = rig->prefixes && fv_kv_is_uniform(p->kv) &&
               fv_kv_len(p->kv, 0, 0, FV_SEG_TEXT) + fv_kv_len(p->kv, 0, 0, FV_SEG_VISUAL) == p->n;
    return (fv_export_request){.model = "tiny",
                               .n_chain = raw ? make_chain(rig, p) : 0,
                               .chain = rig->chain,
                               .kv = p->kv,
                               .plan = &p->plan,
                               .n = p->n,
                               .ids = p->ids,
                               .seg = p->seg,
                               .max_tokens = max_tokens,
                               .sampling = {.repetition_penalty = 1.25f,
                                            .presence_penalty = -0.5f,
                                            .frequency_penalty = 0.75f,
                                            .min_p = 0.125f,
                                            .top_p = 1,
                                            .seed = 99,
                                            .n_bias = 2,
                                            .bias = bias}};
}

static fv_status ship_all(fv_export *ship, int32_t n_layer, int32_t group, bool *done) {
    for (int32_t l = 0; l < n_layer; l += group) {
        int32_t end = l + group < n_layer ? l + group : n_layer;
        FV_TRY(fv_export_layers(ship, end));
    }
    FV_TRY(fv_export_end(ship, &(fv_first_token){.id = 3, .logprob = -1.5f, .step = 1}));
    return fv_export_done(ship, done);
}

fv_status rig_send(handoff_rig *rig, const tiny_prompt *p, int32_t max_tokens, int32_t group,
                   fv_received *out, fv_export_report *report) {
    fv_export_request req = rig_request(rig, p, max_tokens);
    fv_export *ship;
    bool done = false;
    int32_t n_layer = rig->net.cfg.n_layer;
    FV_TRY(fv_export_begin(rig->transport, &req, &ship));
    fv_status st = ship_all(ship, n_layer, group ? group : n_layer, &done);
    if (st == FV_OK && !done) st = FV_FAIL(FV_EIO, "the decode side never answered");
    if (st == FV_OK) st = fv_receiver_attach(rig->receiver, fv_export_ticket(ship), out);
    if (report) *report = fv_export_get_report(ship);
    fv_export_close(ship, true, NULL, NULL);
    return st;
}

uint64_t rig_refused(const handoff_rig *rig) {
    uint64_t n = 0;
    for (int i = 0; i < FV_N_REFUSAL; i++) n += fv_receiver_get_counters(rig->receiver)->refused[i];
    return n;
}

/* ---- streams as bytes ------------------------------------------------------------------ */

typedef struct tape {
    fv_sink base;
    rig_stream *stream;
} tape;

static fv_status tape_offer(fv_sink *sink, const fv_hello *hello, fv_grant *out) {
    rig_stream *s = ((tape *)sink)->stream;
    s->hello = *hello;
    snprintf(s->policy, sizeof s->policy, "%s", hello->policy);
    s->hello.policy = s->policy;
    s->hello.link = NULL; /* the stream is whole */
    s->hello.n_link = 0;
    s->hello.tail = NULL;
    s->hello.n_tail = 0;
    *out = (fv_grant){.bytes = UINT64_MAX, .frame_max = FV_FRAME_MAX, .credits = 1};
    return FV_OK;
}

static fv_status tape_frame(fv_sink *sink, const fv_ticket *ticket, uint64_t seq,
                            const fv_piece *piece, int32_t n) {
    rig_stream *s = ((tape *)sink)->stream;
    (void)ticket;
    (void)seq;
    s->bytes = realloc(s->bytes, s->n + fv_pieces_bytes(piece, n));
    if (!s->bytes) abort();
    for (int32_t i = 0; i < n; s->n += piece[i++].bytes)
        memcpy(s->bytes + s->n, piece[i].data, piece[i].bytes);
    return FV_OK;
}

static fv_status tape_commit(fv_sink *sink, const fv_ticket *ticket, uint64_t n_frame) {
    (void)sink;
    (void)ticket;
    (void)n_frame;
    return FV_OK;
}

static void tape_abort(fv_sink *sink, const fv_ticket *ticket) {
    (void)sink;
    (void)ticket;
}

void rig_capture(const handoff_rig *rig, const tiny_prompt *p, int32_t max_tokens, rig_stream *s) {
    static const fv_sink_ops ops = {
        .offer = tape_offer, .frame = tape_frame, .commit = tape_commit, .abort = tape_abort};
    tape t = {.base.ops = &ops, .stream = s};
    fv_transport *transport;
    fv_export *ship;
    bool done;
    memset(s, 0, sizeof *s);
    fv_export_request req = rig_request(rig, p, max_tokens);
    need(fv_transport_inproc(&t.base, &transport));
    need(fv_export_begin(transport, &req, &ship));
    need(ship_all(ship, rig->net.cfg.n_layer, 1, &done));
    fv_export_close(ship, true, NULL, NULL);
    fv_transport_close(transport, NULL, NULL);
}

size_t rig_room(const handoff_rig *rig, const rig_stream *s) {
    fv_decode_plan plan;
    if (fv_receiver_check(rig->receiver, &s->hello, &plan) != FV_OK) abort();
    return (size_t)fv_receiver_bytes(rig->receiver, &s->hello, &plan);
}

fv_status rig_deliver(fv_receiver *r, const fv_hello *hello, const uint8_t *bytes, size_t n,
                      size_t cut, fv_received *out) {
    fv_sink *sink = fv_receiver_sink(r);
    fv_grant grant;
    uint64_t seq = 0;
    FV_TRY(sink->ops->offer(sink, hello, &grant));
    fv_status st = FV_OK;
    for (size_t at = 0; at < n && st == FV_OK; at += cut) {
        fv_piece piece = {bytes + at, n - at < cut ? n - at : cut};
        st = sink->ops->frame(sink, &grant.ticket, seq++, &piece, 1);
    }
    if (st == FV_OK) st = sink->ops->commit(sink, &grant.ticket, seq);
    if (st == FV_OK) st = fv_receiver_attach(r, &grant.ticket, out);
    sink->ops->abort(sink, &grant.ticket);
    return st;
}

/* ---- stores ---------------------------------------------------------------------------- */

static bool same_rows(fv_kv *a, fv_kv *b, int32_t layer, int32_t head, fv_kv_segment seg) {
    const fv_kv_shape *s = fv_kv_get_shape(a);
    size_t row = (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    int32_t n = fv_kv_held(a, layer, head, seg);
    if (n != fv_kv_held(b, layer, head, seg)) return false;
    for (int value = 0; value < 2; value++)
        for (int32_t i = 0; i < n; i++) {
            void *x, *y;
            fv_kv_contiguous(a, layer, head, seg, value, i, n, &x);
            fv_kv_contiguous(b, layer, head, seg, value, i, n, &y);
            if (memcmp(x, y, row) != 0) return false;
        }
    return n == 0 || memcmp(fv_kv_positions(a, layer, head, seg),
                            fv_kv_positions(b, layer, head, seg), (size_t)n * 4) == 0;
}

static bool same_block(const fv_kv_packed *a, const fv_kv_packed *b) {
    const fv_packed_rows *x = &a->rows, *y = &b->rows;
    size_t n = (size_t)x->n, blocks = (size_t)x->n_anchor;
    if (x->n != y->n || x->n_anchor != y->n_anchor || a->source_layer != b->source_layer ||
        a->seg != b->seg || !a->anchor != !b->anchor || a->observed != b->observed)
        return false;
    for (int k = 0; k < 2; k++) {
        const fv_packed_shape *shape = &a->part[k].shape;
        bool made = a->coded && b->coded; /* derived, not sent */
        size_t bytes = made ? fv_packed_bytes(shape) : fv_packed_sent_bytes(shape);
        if (fv_packed_bytes(shape) != fv_packed_bytes(&b->part[k].shape) ||
            (bytes && memcmp(a->part[k].data, b->part[k].data, bytes) != 0)) /* borrowed: 0 */
            return false;
    }
    return memcmp(a->pos, b->pos, n * 4) == 0 && memcmp(a->first, b->first, blocks * 4 + 4) == 0 &&
           (!a->anchor || memcmp(a->anchor, b->anchor, blocks * 4) == 0) &&
           (!a->observed || memcmp(a->importance, b->importance, n * sizeof(float)) == 0);
}

/* Block by block. */
static bool same_packed(const fv_kv_packed *a, const fv_kv_packed *b) {
    for (; a && b; a = a->next, b = b->next)
        if (!same_block(a, b)) return false;
    return a == b;
}

static bool same_map(const fv_rope_map *a, const fv_rope_map *b) {
    size_t bytes = (size_t)a->n_grid * sizeof *a->grid;
    if (a->n_grid != b->n_grid) return false;
    return a->n_grid == 0 ||
           (a->n == b->n && a->delta == b->delta && memcmp(a->grid, b->grid, bytes) == 0);
}

bool same_store(fv_kv *a, fv_kv *b) {
    const fv_kv_shape *s = fv_kv_get_shape(a);
    if (!same_map(fv_kv_rope_map(a), fv_kv_rope_map(b))) return false;
    for (int32_t l = 0; l < s->n_layer && s->state_bytes; l++)
        if (memcmp(fv_kv_state(a, l), fv_kv_state(b, l), s->state_bytes) != 0) return false;
    for (int32_t l = 0; l < s->n_layer; l++)
        if (!same_packed(fv_kv_packed_of(a, l, FV_SEG_VISUAL),
                         fv_kv_packed_of(b, l, FV_SEG_VISUAL)) ||
            !same_packed(fv_kv_packed_of(a, l, FV_SEG_TEXT), fv_kv_packed_of(b, l, FV_SEG_TEXT)) ||
            fv_kv_source_layer(a, l) != fv_kv_source_layer(b, l) ||
            fv_kv_masked(a, l) != fv_kv_masked(b, l) ||
            fv_kv_borrows(a, l, FV_SEG_TEXT) != fv_kv_borrows(b, l, FV_SEG_TEXT))
            return false;
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int32_t g = 0; g < s->n_kv; g++)
            for (int seg = 0; seg < FV_N_SEG; seg++)
                if (!same_rows(a, b, l, g, (fv_kv_segment)seg)) return false;
    return true;
}

void rig_start(handoff_rig *rig, const rig_options *opt, tiny_prompt *p, const char *policy) {
    rig_open(rig, opt);
    tiny_prompt_make(&rig->net, p, 5, RIG_VISUAL, 9, 11, policy);
    cr_assert_eq(tiny_prefill(&rig->net, p, 1, 0), FV_OK, "%s", fv_last_error());
}

void rig_finish(handoff_rig *rig, tiny_prompt *p) {
    tiny_prompt_free(p);
    cr_assert_eq(fv_kv_pool_used(rig->net.pool), 0);
    rig_close(rig);
}

void rig_assert_baseline(const handoff_rig *rig, const char *what) {
    cr_assert_eq(fv_kv_pool_used(rig->pool), 0, "%s left bytes", what);
    cr_assert_eq(fv_receiver_live(rig->receiver), 0, "%s left a grant", what);
}
