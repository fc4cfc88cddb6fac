/* Turns a store into sections. Rows in the host's memory are not copied here, only pointed at: a section
 * of rows holds as many heads as make about a frame, so that its checksum is taken just before its
 * bytes are copied or sent, while the cache still has them. Rows on a GPU are copied to the host
 * first, a section at a time. For the thread that owns the store. */
#include "prefill-worker/export/export.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "handoff/bytes.h"
#include "kv/packed.h"
#include "model/net/accum.h"
#include "model/net/adapter.h"
#include "prefill-worker/export/links.h"
#include "prefill-worker/export/out_of_band.h"

enum { OOB_MIN = 4096 }; /* bytes; a smaller payload is faster sent with its header */

struct fv_export {
    fv_export_request req;
    const fv_kv_shape *shape;
    size_t row_bytes;
    fv_wire_dtype dtype;
    fv_hello hello;
    char policy[FV_POLICY_TEXT_MAX];
    fv_transport *transport;
    fv_transfer *transfer;
    bool answered, started, committed; /* open answered; HELO, PRMT written; commit answered */
    fv_reply opened, closed;
    fv_packet_writer writer;
    uint64_t n_frame, rows;
    int32_t next_layer;
    fv_wire_link *link;     /* owned; hello's */
    int32_t kept[FV_N_SEG]; /* rows of every head that the other side has */
    fv_piece *piece;        /* scratch of one section */
    size_t cap_piece;
    void (*gone)(void *user);
    void *gone_user;
};

static void on_opened(void *user, const fv_reply *reply) {
    fv_export *s = user;
    s->opened = *reply;
    s->answered = true;
}

static void on_committed(void *user, const fv_reply *reply) {
    fv_export *s = user;
    s->closed = *reply;
    s->committed = true;
}

static fv_status status_of(const fv_reply *reply) {
    return reply->status == FV_OK ? FV_OK : FV_FAIL(reply->status, "%s", reply->text);
}

/* ---- begin ----------------------------------------------------------------------------- */

/* Points at the ids of the prompt's last tokens if they are text. */
static void add_tail(fv_export *s) {
    const fv_export_request *req = &s->req;
    uint32_t n = 0, most = req->n < FV_TAIL_MAX ? (uint32_t)req->n : FV_TAIL_MAX;
    if (s->hello.n_link == 0) return;
    while (n < most && req->seg[(uint32_t)req->n - 1 - n] == FV_SEG_TEXT) n++;
    s->hello.tail = req->ids + (uint32_t)req->n - n;
    s->hello.n_tail = n;
    s->hello.may_leave_rest = req->may_leave_rest;
}

static fv_status make_hello(fv_export *s) {
    const fv_plan *plan = s->req.plan;
    fv_compat_fields fields = {.model = s->req.model,
                               .n_layer = s->shape->n_layer,
                               .n_kv = s->shape->n_kv,
                               .d_head = s->shape->d_head,
                               .dtype = fv_dtype_name(s->shape->dtype),
                               .compute = s->req.sums ? s->req.sums : "f32",
                               .latent = s->shape->latent_sum};
    FV_TRY(fv_compat_make(&fields, &s->hello.compat));
    fv_policy_print(&plan->policy, s->policy);
    s->hello.policy = s->policy;
    const fv_adapter *adapter = fv_kv_get_sequence(s->req.kv)->adapter;
    s->hello.adapter = adapter ? adapter->digest : "";
    s->hello.n_text = (uint32_t)plan->shape.n_text;
    s->hello.n_visual = (uint32_t)plan->shape.n_visual;
    s->hello.max_tokens = (uint32_t)s->req.max_tokens;
    fv_plan_bytes bytes = fv_plan_count(plan);
    s->hello.bytes_visual = bytes.visual;
    s->hello.bytes_tables = bytes.tables;
    s->hello.n_reused_text = (uint32_t)fv_plan_reused_text(plan);
    FV_TRY(fv_export_links(s->req.chain, s->req.n_chain, &s->link, &s->hello.n_link));
    s->hello.link = s->link;
    add_tail(s);
    return FV_OK;
}

fv_status fv_export_begin(fv_transport *t, const fv_export_request *req, fv_export **out) {
    fv_status st;
    fv_export *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    s->req = *req;
    s->transport = t;
    s->shape = fv_kv_get_shape(req->kv);
    s->row_bytes = (size_t)s->shape->d_head * fv_dtype_bytes(s->shape->dtype);
    s->dtype = fv_wire_dtype_named(fv_dtype_name(s->shape->dtype));
    FV_TRY_GOTO(make_hello(s), st, fail);
    FV_TRY_GOTO(t->ops->open(t, &s->hello, &req->asking, on_opened, s, &s->transfer), st, fail);
    if (s->answered) FV_TRY_GOTO(status_of(&s->opened), st, fail);
    *out = s;
    return FV_OK;
fail:
    fv_export_close(s, false, NULL, NULL);
    return st;
}

static void on_gone(void *user) {
    fv_export *s = user;
    if (s->gone) s->gone(s->gone_user);
    fv_packet_writer_fini(&s->writer);
    free(s->piece);
    free(s->link);
    free(s);
}

void fv_export_close(fv_export *s, bool keep, void (*gone)(void *user), void *user) {
    if (!s) {
        if (gone) gone(user);
        return;
    }
    s->gone = gone;
    s->gone_user = user;
    if (s->transfer)
        s->transfer->ops->end(s->transfer, keep, on_gone, s);
    else
        on_gone(s);
}

/* ---- sections -------------------------------------------------------------------------- */

static fv_status emit(void *user, const fv_piece *piece, int32_t n, size_t bytes) {
    fv_export *s = user;
    (void)bytes;
    return s->transfer->ops->push(s->transfer, s->n_frame++, piece, n);
}

static fv_status send_hello(fv_export *s) {
    fv_piece p = {.bytes = fv_hello_bytes(&s->hello)};
    void *bytes;
    FV_TRY(fv_packet_alloc(&s->writer, p.bytes, &bytes));
    fv_hello_put(&s->hello, bytes);
    p.data = bytes;
    fv_section section = {.type = FV_SECTION_HELLO, .critical = true, .dtype = FV_WIRE_BYTES};
    return fv_packet_write(&s->writer, section, &p, 1);
}

static fv_status send_prompt(fv_export *s) {
    const fv_export_request *req = &s->req;
    fv_wire_prompt prompt = {.n = (uint32_t)req->n,
                             .next = req->n,
                             .sampling = req->sampling,
                             .ids = req->ids,
                             .seg = req->seg};
    fv_piece p = {.bytes = fv_wire_prompt_bytes(prompt.n, prompt.sampling.n_bias)};
    void *bytes;
    FV_TRY(fv_packet_alloc(&s->writer, p.bytes, &bytes));
    fv_wire_prompt_put(&prompt, bytes);
    p.data = bytes;
    fv_section section = {.type = FV_SECTION_PROMPT,
                          .critical = true,
                          .dtype = FV_WIRE_BYTES,
                          .dims = {prompt.n, (uint32_t)prompt.sampling.n_bias}};
    return fv_packet_write(&s->writer, section, &p, 1);
}

static fv_status send_grids(fv_export *s) {
    const fv_rope_map *map = fv_kv_rope_map(s->req.kv);
    fv_piece p = {.bytes = fv_wire_grids_bytes((uint32_t)map->n_grid)};
    void *bytes;
    if (map->n_grid == 0) return FV_OK;
    FV_TRY(fv_packet_alloc(&s->writer, p.bytes, &bytes));
    fv_wire_grids_put(map, bytes);
    p.data = bytes;
    fv_section section = {.type = FV_SECTION_GRIDS,
                          .critical = true,
                          .dtype = FV_WIRE_BYTES,
                          .layer1 = 1,
                          .dims = {(uint32_t)map->n_grid}};
    return fv_packet_write(&s->writer, section, &p, 1);
}

/* Tokens with which the prompt begins and that the other side has. FV_EDATA: the grant makes no sense. */
static fv_status kept_of(const fv_export *s, fv_wire_kept *out) {
    uint32_t n = s->opened.grant.n_kept, tail = s->opened.grant.n_kept_tail;
    *out = (fv_wire_kept){.n_link = n};
    if (n == 0) return FV_OK;
    if (n > s->hello.n_link)
        return FV_FAIL(FV_EDATA, "the decode worker has %u links of a prompt with %u", n,
                       s->hello.n_link);
    const fv_wire_link *last = &s->link[n - 1];
    if (tail > 0 && tail >= (uint32_t)s->req.n - last->n_text - last->n_visual)
        return FV_FAIL(FV_EDATA, "the decode worker has %u tokens after %u of a prompt of %d", tail,
                       last->n_text + last->n_visual, s->req.n);
    out->n_text = last->n_text + tail;
    out->n_visual = last->n_visual;
    return FV_OK;
}

/* Says what is left out, because the other side has it. */
static fv_status send_kept(fv_export *s) {
    fv_wire_kept kept;
    void *bytes;
    FV_TRY(kept_of(s, &kept));
    if (kept.n_link == 0) return FV_OK;
    s->kept[FV_SEG_TEXT] = (int32_t)kept.n_text;
    s->kept[FV_SEG_VISUAL] = (int32_t)kept.n_visual;
    FV_TRY(fv_packet_alloc(&s->writer, FV_WIRE_KEPT_BYTES, &bytes));
    fv_wire_kept_put(&kept, bytes);
    fv_section section = {
        .type = FV_SECTION_KEPT, .critical = true, .dtype = FV_WIRE_BYTES, .layer1 = 1};
    return fv_packet_write(&s->writer, section, &(fv_piece){bytes, FV_WIRE_KEPT_BYTES}, 1);
}

/* Sends the sections before the first layer, once there is a grant. */
static fv_status start(fv_export *s) {
    if (!s->answered) return FV_FAIL(FV_EBUSY, "the decode worker has not answered yet");
    FV_TRY(status_of(&s->opened));
    if (s->started) return FV_OK;
    size_t frame_max = s->opened.grant.frame_max;
    fv_packet_writer_init(&s->writer, frame_max < FV_FRAME_MAX ? frame_max : 0, emit, s);
    s->started = true;
    FV_TRY(send_hello(s));
    FV_TRY(send_prompt(s));
    FV_TRY(send_grids(s));
    return send_kept(s);
}

static fv_section rows_section(uint32_t type, int32_t layer, fv_kv_segment seg, int32_t head0,
                               int32_t head1) {
    return (fv_section){.type = type,
                        .critical = true,
                        .layer0 = (uint16_t)layer,
                        .layer1 = (uint16_t)(layer + 1),
                        .part0 = (uint16_t)head0,
                        .part1 = (uint16_t)head1,
                        .segment = (uint8_t)seg};
}

/* Sends a section of dims[0] dims[1] dims[2] numbers of one layer; dims end at the first 0. */
static fv_status send_numbers(fv_export *s, uint32_t type, int32_t layer, const uint32_t dims[3],
                              const uint32_t *x) {
    fv_section section = rows_section(type, layer, FV_SEG_VISUAL, 0, 0);
    size_t bytes = sizeof *x;
    section.dtype = FV_WIRE_I32;
    for (int i = 0; i < 3 && dims[i]; i++) bytes *= section.dims[i] = dims[i];
    return fv_packet_write(&s->writer, section, &(fv_piece){x, bytes}, 1);
}

static fv_status numbers_for(fv_export *s, int32_t n, uint32_t **x) {
    void *bytes;
    FV_TRY(fv_packet_alloc(&s->writer, (size_t)n * sizeof **x, &bytes));
    *x = bytes;
    return FV_OK;
}

/* Sends, for a ranked layer, how many rows each head had when it was ranked. */
static fv_status send_rank(fv_export *s, int32_t l) {
    int32_t n_kv = s->shape->n_kv, ranked = 0;
    uint32_t *x;
    for (int32_t g = 0; g < n_kv; g++) ranked += fv_kv_ranked(s->req.kv, l, g);
    if (ranked == 0) return FV_OK;
    FV_TRY(numbers_for(s, n_kv, &x));
    for (int32_t g = 0; g < n_kv; g++) x[g] = (uint32_t)fv_kv_ranked(s->req.kv, l, g);
    return send_numbers(s, FV_SECTION_RANK, l, (uint32_t[3]){(uint32_t)n_kv}, x);
}

/* Sends the number of masked tokens; the tokens themselves follow with the others. */
static fv_status send_mask(fv_export *s, int32_t l) {
    int32_t n = fv_kv_masked(s->req.kv, l);
    uint32_t *x;
    if (n == 0) return FV_OK;
    FV_TRY(numbers_for(s, 1, &x));
    *x = (uint32_t)n;
    return send_numbers(s, FV_SECTION_MASK, l, (uint32_t[3]){1}, x);
}

/* Sends lengths layer by layer, so that a stream's bytes do not depend on how layers were grouped. */
static fv_status send_rows(fv_export *s, int32_t l) {
    int32_t n_kv = s->shape->n_kv;
    uint32_t *x;
    FV_TRY(numbers_for(s, n_kv * FV_N_SEG, &x));
    for (int32_t i = 0; i < n_kv * FV_N_SEG; i++)
        x[i] = (uint32_t)fv_kv_held(s->req.kv, l, i / FV_N_SEG, (fv_kv_segment)(i % FV_N_SEG));
    return send_numbers(s, FV_SECTION_ROWS, l, (uint32_t[3]){1, (uint32_t)n_kv, FV_N_SEG}, x);
}

static fv_status pieces_for(fv_export *s, int32_t n) {
    return fv_grow(&s->piece, &s->cap_piece, (size_t)n, sizeof *s->piece);
}

/* Rows of a head that the other side does not have. */
static int32_t to_send(const fv_export *s, int32_t layer, int32_t head, fv_kv_segment seg) {
    return fv_kv_held(s->req.kv, layer, head, seg) - s->kept[seg];
}

/* Sends one list if all heads hold the same positions, as they do unless a method selects rows per head:
 * 4 bytes per row and head are worth saving, as a row may have only 64. */
static fv_status send_positions(fv_export *s, int32_t layer, fv_kv_segment seg) {
    const fv_kv *kv = s->req.kv;
    int32_t n_kv = s->shape->n_kv, len = to_send(s, layer, 0, seg);
    const int32_t *first = fv_kv_positions(kv, layer, 0, seg) + s->kept[seg];
    bool same = true;
    FV_TRY(pieces_for(s, n_kv));
    for (int32_t g = 0; g < n_kv; g++) {
        int32_t n = to_send(s, layer, g, seg);
        const int32_t *pos = fv_kv_positions(kv, layer, g, seg) + s->kept[seg];
        same = same && n == len && (n == 0 || memcmp(pos, first, (size_t)n * sizeof *pos) == 0);
        s->piece[g] = (fv_piece){pos, (size_t)n * sizeof *pos};
    }
    fv_section section = rows_section(FV_SECTION_POSITIONS, layer, seg, 0, n_kv);
    section.dtype = FV_WIRE_I32;
    section.dims[0] = same ? 1 : (uint32_t)n_kv;
    return fv_packet_write(&s->writer, section, s->piece, same ? 1 : n_kv);
}

/* Sends the accumulated attention scores of a segment's entries, head by head, if there are any. */
static fv_status send_accum(fv_export *s, int32_t layer, fv_kv_segment seg) {
    const fv_kv *kv = s->req.kv;
    uint32_t width = (uint32_t)fv_accum_width(kv), rows = 0;
    if (width == 0) return FV_OK;
    FV_TRY(pieces_for(s, s->shape->n_kv));
    for (int32_t g = 0; g < s->shape->n_kv; g++) {
        uint32_t n = (uint32_t)fv_kv_len(kv, layer, g, seg);
        s->piece[g] =
            (fv_piece){fv_accum_values(kv, layer, g, seg), (size_t)n * width * sizeof(float)};
        rows += n;
    }
    fv_section section = rows_section(FV_SECTION_ACCUM, layer, seg, 0, s->shape->n_kv);
    section.dtype = FV_WIRE_F32;
    section.dims[0] = rows;
    section.dims[1] = width;
    return fv_packet_write(&s->writer, section, s->piece, s->shape->n_kv);
}

/* Sends the layer whose keys a lazy layer uses. */
static fv_status send_lead(fv_export *s, int32_t layer) {
    int32_t source_layer = fv_kv_source_layer(s->req.kv, layer);
    if (source_layer == layer) return FV_OK;
    void *bytes;
    fv_wire_lead w = {(uint32_t)source_layer, fv_kv_borrows(s->req.kv, layer, FV_SEG_TEXT)};
    FV_TRY(fv_packet_alloc(&s->writer, FV_WIRE_LEAD_BYTES, &bytes));
    fv_wire_lead_put(&w, bytes);
    fv_section section = rows_section(FV_SECTION_LEAD, layer, FV_SEG_VISUAL, 0, s->shape->n_kv);
    section.dtype = FV_WIRE_I32;
    section.dims[0] = 2;
    return fv_packet_write(&s->writer, section, &(fv_piece){bytes, FV_WIRE_LEAD_BYTES}, 1);
}

/* 2: keys and values; 1: the keys are another layer's. */
static uint32_t n_kv_parts(const fv_export *s, int32_t layer, fv_kv_segment seg) {
    return fv_kv_borrows(s->req.kv, layer, seg) ? 1 : 2;
}

/* Copies pieces on a device to the host, into memory that lives as long as the writer. */
static fv_status copy_to_host(fv_export *s, fv_piece *piece, int32_t n) {
    fv_device *dev = fv_kv_get_device(s->req.kv);
    void *here;
    if (dev == fv_device_host()) return FV_OK;
    for (int32_t i = 0; i < n; i++) {
        FV_TRY(fv_packet_alloc(&s->writer, piece[i].bytes, &here));
        FV_TRY(dev->ops->copy_async(dev, here, piece[i].data, piece[i].bytes));
        piece[i].data = here;
    }
    return fv_device_wait(dev);
}

static size_t frame_max(const fv_export *s) {
    size_t granted = s->opened.grant.frame_max;
    return granted < FV_PEER_BYTES_MAX ? granted : FV_PEER_BYTES_MAX;
}

/* Sends a section's header in the stream, and its payload out of band, in frames of its own. */
static fv_status write_oob(fv_export *s, fv_section section, fv_oob *b) {
    fv_status st = fv_packet_write_oob(&s->writer, section, b->bytes, b->crc);
    for (int32_t i = 0; i < b->n && st == FV_OK; i++) {
        st = s->transfer->ops->push_oob(s->transfer, s->n_frame++, b->buf[i]);
        b->buf[i] = (fv_buf){0};
    }
    fv_oob_free(b);
    return st;
}

/* Sends a section whose payload is in the store's memory: from device to device if there is a link and
 * memory for copies, otherwise through the host. */
static fv_status write_stored(fv_export *s, fv_section section, fv_piece *piece, int32_t n) {
    const fv_transport_ops *ops = s->transfer->ops;
    const fv_peer_ops *pairs = ops->oob ? ops->oob(s->transfer) : NULL;
    fv_device *dev = fv_kv_get_device(s->req.kv);
    fv_oob b;
    if (pairs && dev != fv_device_host() && fv_pieces_bytes(piece, n) >= OOB_MIN) {
        fv_status st = fv_oob_gather(pairs, dev, piece, n, frame_max(s), &b);
        if (st == FV_OK) return write_oob(s, section, &b);
        if (st != FV_ENOMEM) return st;
    }
    FV_TRY(copy_to_host(s, piece, n));
    return fv_packet_write(&s->writer, section, piece, n);
}

/* Points at the rows of a head: keys, unless they are another layer's, then values. */
static fv_status add_head(fv_export *s, int32_t layer, fv_kv_segment seg, int32_t head,
                          int32_t *n) {
    int32_t len = fv_kv_held(s->req.kv, layer, head, seg);
    for (int value = n_kv_parts(s, layer, seg) == 1; value < 2; value++)
        for (int32_t row = s->kept[seg], rows; row < len; row += rows) {
            void *at;
            rows = fv_kv_contiguous(s->req.kv, layer, head, seg, value, row, len, &at);
            FV_TRY(pieces_for(s, *n + 1));
            s->piece[(*n)++] = (fv_piece){at, (size_t)rows * s->row_bytes};
        }
    s->rows += (uint64_t)(len - s->kept[seg]);
    return FV_OK;
}

static fv_status send_data(fv_export *s, int32_t layer, fv_kv_segment seg) {
    uint32_t parts = n_kv_parts(s, layer, seg);
    for (int32_t head = 0, end; head < s->shape->n_kv; head = end) {
        int32_t n = 0;
        uint64_t rows = s->rows;
        for (end = head; end < s->shape->n_kv; end++) {
            uint64_t more = (uint64_t)to_send(s, layer, end, seg);
            uint64_t bytes = parts * (s->rows - rows + more) * s->row_bytes;
            if (end > head && bytes > FV_FRAME_MAX) break;
            FV_TRY(add_head(s, layer, seg, end, &n));
        }
        fv_section section = rows_section(FV_SECTION_DATA, layer, seg, head, end);
        section.dtype = (uint8_t)s->dtype;
        section.dims[0] = (uint32_t)(s->rows - rows);
        section.dims[1] = parts;
        section.dims[2] = (uint32_t)s->shape->d_head;
        FV_TRY(write_stored(s, section, s->piece, n));
    }
    return FV_OK;
}

/* Whether anything of a segment is sent: rows, or values of accumulators, which the other side never has. */
static bool any_rows(const fv_export *s, int32_t layer, fv_kv_segment seg) {
    const bool all = fv_accum_width(s->req.kv) > 0;
    for (int32_t g = 0; g < s->shape->n_kv; g++)
        if (to_send(s, layer, g, seg) + (all ? s->kept[seg] : 0) > 0) return true;
    return false;
}

/* ---- a packed layer -------------------------------------------------------------------- */

/* Whether a layer reads another layer's coefficients; its tokens are then the first of that layer's. */
static bool follows(const fv_kv_packed *p, int32_t layer) {
    return fv_kv_packed_format_of(p)->nested && p->source_layer != layer;
}

static fv_wire_packed describe(const fv_kv_packed *p, int32_t layer) {
    fv_wire_packed w = {.n = (uint32_t)p->rows.n,
                        .n_anchor = (uint32_t)p->rows.n_anchor,
                        .source_layer = (uint32_t)p->source_layer,
                        .anchored = p->anchor != NULL,
                        .importance = p->observed,
                        .first = p->first,
                        .anchor = p->anchor,
                        .pos = p->pos,
                        .ranked = p->rank != NULL,
                        .rank = p->rank};
    for (int k = 0; k < 2; k++) {
        const fv_packed_shape *shape = &p->part[k].shape;
        fv_packed_numbers x;
        fv_packed_format_of(shape->form)->put_numbers(shape, &x);
        w.part[k].rank = x.rank;
        w.part[k].rank2 = x.rank2;
        w.part[k].bits = x.bits;
        w.part[k].n_outlier = x.n_outlier;
        w.exact = x.exact;
        w.latent = shape->form == FV_PACKED_LATENT;
        w.coded = shape->form == FV_PACKED_QUANTIZED;
        w.merged = shape->form == FV_PACKED_MERGED;
    }
    if (follows(p, layer)) {
        w.n_source = w.n;
        w.n = w.n_anchor = 0;
    }
    return w;
}

static fv_section packed_section(uint32_t type, int32_t layer, const fv_kv_packed *p) {
    fv_section section = rows_section(type, layer, p->seg, 0, 0);
    section.dims[0] = (uint32_t)p->rows.n;
    section.dims[1] = (uint32_t)p->rows.n_anchor;
    return section;
}

static fv_status send_factor(fv_export *s, int32_t layer, const fv_kv_packed *p, int kind) {
    fv_section section = packed_section(FV_SECTION_FACTOR, layer, p);
    section.part0 = (uint16_t)kind;
    section.part1 = (uint16_t)(kind + 1);
    section.dtype = FV_WIRE_BYTES;
    fv_piece piece = {p->part[kind].data, fv_packed_sent_bytes(&p->part[kind].shape)};
    if (piece.bytes == 0) return FV_OK;
    return write_stored(s, section, &piece, 1);
}

static fv_status send_packed(fv_export *s, int32_t layer, const fv_kv_packed *p) {
    void *bytes;
    fv_wire_packed w = describe(p, layer);
    size_t n = fv_wire_packed_bytes(w.n, w.n_anchor);
    FV_TRY(fv_packet_alloc(&s->writer, n, &bytes));
    fv_wire_packed_put(&w, bytes);
    fv_section section = packed_section(FV_SECTION_PACKED, layer, p);
    section.dims[0] = w.n;
    section.dims[1] = w.n_anchor;
    section.dtype = FV_WIRE_BYTES;
    FV_TRY(fv_packet_write(&s->writer, section, &(fv_piece){bytes, n}, 1));
    if (fv_kv_packed_owns_keys(p, layer)) FV_TRY(send_factor(s, layer, p, FV_PACKED_K));
    FV_TRY(send_factor(s, layer, p, FV_PACKED_V));
    s->rows += (uint32_t)p->rows.n;
    if (!p->observed) return FV_OK;
    section = packed_section(FV_SECTION_IMPORTANCE, layer, p);
    section.dtype = FV_WIRE_F32;
    fv_piece importance = {p->importance, (size_t)p->rows.n * sizeof *p->importance};
    return fv_packet_write(&s->writer, section, &importance, 1);
}

/* Sends the state of a layer's recurrent layers, if the model has any. */
static fv_status send_state(fv_export *s, int32_t layer) {
    size_t bytes = s->shape->state_bytes;
    fv_piece piece = {fv_kv_state(s->req.kv, layer), bytes};
    if (bytes == 0) return FV_OK;
    fv_section section = rows_section(FV_SECTION_STATE, layer, FV_SEG_VISUAL, 0, 0);
    section.dtype = FV_WIRE_F32;
    section.dims[0] = (uint32_t)(bytes / sizeof(float));
    return write_stored(s, section, &piece, 1);
}

static fv_status send_layer(fv_export *s, int32_t layer) {
    FV_TRY(send_state(s, layer));
    FV_TRY(send_lead(s, layer));
    FV_TRY(send_rank(s, layer));
    FV_TRY(send_mask(s, layer));
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        const fv_kv_packed *packed = fv_kv_packed_of(s->req.kv, layer, (fv_kv_segment)seg);
        for (; packed; packed = packed->next) FV_TRY(send_packed(s, layer, packed));
    }
    FV_TRY(send_rows(s, layer));
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        if (!any_rows(s, layer, (fv_kv_segment)seg)) continue;
        FV_TRY(send_positions(s, layer, (fv_kv_segment)seg));
        FV_TRY(send_accum(s, layer, (fv_kv_segment)seg));
        FV_TRY(send_data(s, layer, (fv_kv_segment)seg));
    }
    return FV_OK;
}

/* ---- the stream ------------------------------------------------------------------------ */

fv_status fv_export_layers(fv_export *s, int32_t n_layer) {
    assert(n_layer <= s->shape->n_layer);
    FV_TRY(start(s));
    for (; s->next_layer < n_layer; s->next_layer++) FV_TRY(send_layer(s, s->next_layer));
    return fv_packet_flush(&s->writer);
}

fv_status fv_export_end(fv_export *s, const fv_first_token *first) {
    assert(s->started && s->next_layer == s->shape->n_layer);
    void *bytes;
    FV_TRY(fv_packet_alloc(&s->writer, FV_FIRST_TOKEN_BYTES, &bytes));
    fv_first_token_put(first, bytes);
    fv_section section = {.type = FV_SECTION_TOKEN, .critical = true, .dtype = FV_WIRE_BYTES};
    FV_TRY(fv_packet_write(&s->writer, section, &(fv_piece){bytes, FV_FIRST_TOKEN_BYTES}, 1));
    FV_TRY(fv_packet_end(&s->writer, s->rows));
    s->transfer->ops->commit(s->transfer, s->n_frame, on_committed, s);
    return s->committed ? status_of(&s->closed) : FV_OK;
}

/* Says of all layers that they have the kept rows and no others. */
static fv_status send_no_rows(fv_export *s) {
    int32_t n = s->shape->n_layer * s->shape->n_kv * FV_N_SEG;
    uint32_t *x;
    FV_TRY(numbers_for(s, n, &x));
    for (int32_t i = 0; i < n; i++) x[i] = (uint32_t)s->kept[i % FV_N_SEG];
    fv_section section = rows_section(FV_SECTION_ROWS, 0, FV_SEG_VISUAL, 0, 0);
    section.layer1 = (uint16_t)s->shape->n_layer;
    section.dtype = FV_WIRE_I32;
    section.dims[0] = (uint32_t)s->shape->n_layer;
    section.dims[1] = (uint32_t)s->shape->n_kv;
    section.dims[2] = FV_N_SEG;
    return fv_packet_write(&s->writer, section, &(fv_piece){x, (size_t)n * sizeof *x}, 1);
}

fv_status fv_export_rest(const fv_export *s, int32_t *n_kept, int32_t *rest) {
    fv_wire_kept kept;
    *n_kept = *rest = 0;
    if (!s->answered || s->opened.status != FV_OK) return FV_OK;
    FV_TRY(kept_of(s, &kept));
    *n_kept = (int32_t)(kept.n_text + kept.n_visual);
    uint32_t left = (uint32_t)(s->req.n - *n_kept);
    bool all = kept.n_visual == s->hello.n_visual && kept.n_link > 0;
    if (s->hello.may_leave_rest && all && left <= s->opened.grant.rest_most) *rest = (int32_t)left;
    return FV_OK;
}

fv_status fv_export_leave_rest(fv_export *s) {
    static const fv_first_token none = {.step = 0};
    assert(s->next_layer == 0);
    FV_TRY(start(s));
    FV_TRY(send_no_rows(s));
    s->next_layer = s->shape->n_layer;
    return fv_export_end(s, &none);
}

fv_status fv_export_done(const fv_export *s, bool *done) {
    if (s->answered) FV_TRY(status_of(&s->opened));
    if (s->committed) FV_TRY(status_of(&s->closed));
    *done = s->committed;
    return FV_OK;
}

fv_status fv_export_granted(const fv_export *s, bool *granted) {
    if (s->answered) FV_TRY(status_of(&s->opened));
    *granted = s->answered;
    return FV_OK;
}

fv_refusal fv_export_refusal(const fv_export *s) {
    return s->committed ? s->closed.refusal : s->opened.refusal;
}

const fv_ticket *fv_export_ticket(const fv_export *s) { return &s->opened.grant.ticket; }

uint64_t fv_export_reserved(const fv_export *s) { return s->opened.grant.bytes_reserved; }

fv_export_report fv_export_get_report(const fv_export *s) {
    const fv_transport_ops *ops = s->transfer->ops;
    uint64_t kept = (uint64_t)s->kept[FV_SEG_TEXT] + (uint64_t)s->kept[FV_SEG_VISUAL];
    uint64_t heads = (uint64_t)s->shape->n_layer * (uint64_t)s->shape->n_kv;
    return (fv_export_report){.bytes = s->writer.totals.bytes,
                              .tokens_kept = kept,
                              .bytes_kept = 2 * kept * heads * s->row_bytes,
                              .ways = ops->ways ? ops->ways(s->transfer) : (fv_transfer_counts){0},
                              .sections = s->writer.totals.sections,
                              .frames = s->n_frame,
                              .rows = s->rows,
                              .granted_s = s->opened.at_s,
                              .committed_s = s->closed.at_s};
}
