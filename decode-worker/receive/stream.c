/* Sections to KV entries. A packet lists its contents in a fixed order (handoff/kv_packet.h), so
 * one cursor knows the next section, its length, and the destination of its bytes; lengths are
 * compared with the grant before memory is taken. Entries are copied as they arrive, into a store
 * that is not read before END has been verified. The pool's thread. */
#include <stdlib.h>
#include <string.h>

#include "decode-worker/receive/internal.h"
#include "handoff/bytes.h"
#include "model/net/accum.h"

enum {
    SKIP_MAX = 64 << 10, /* bytes of sections that we do not know, in a stream */
    PACKED_MOST = 4      /* sections of a packed layer */
};

/* ---- bounds ---------------------------------------------------------------------------- */

static size_t row_bytes(const fv_kv_shape *s) {
    return (size_t)s->d_head * fv_dtype_bytes(s->dtype);
}

uint64_t fv_import_most_visual(const fv_kv_shape *s, uint32_t n_visual) {
    uint64_t raw = (uint64_t)s->n_kv * n_visual * 2 * row_bytes(s);
    /* Rows held twice, or two factors of full rank, are no more than twice the rows, but for
     * padding and scales. */
    return n_visual ? (uint64_t)s->n_layer * (3 * raw + 4096) : 0;
}

/* Every layer with blocks of one row, each with angles of its own. */
uint64_t fv_import_most_tables(const fv_kv_shape *s, const fv_hello *h) {
    uint64_t rows = 2 * ((uint64_t)h->n_visual + h->n_text), row = 80 + 4 * (uint64_t)s->d_head;
    return (uint64_t)s->n_layer * (rows * row + 2 * (FV_PACKED_BLOCK_FIXED + FV_PACKED_SET_FIXED) +
                                   2 * FV_PACKED_TILE * row);
}

/* Text of a layer: pages for prompt and answer, and however many of the prompt's rows a policy has
 * as a block instead. */
static size_t text_most(const fv_kv_shape *s, const fv_hello *h, const fv_decode_plan *plan,
                        bool own) {
    const fv_text_keys *keys = &plan->text_keys;
    fv_kv_shape one = *s;
    one.n_layer = 1;
    size_t most = 0, answer = (uint32_t)plan->dup_max + h->max_tokens;
    for (uint32_t packed = 0; packed <= (keys->rank ? h->n_text : 0); packed++) {
        size_t bytes =
            fv_kv_text_bytes(&one, (int32_t)(h->n_text - packed + answer), !own) +
            (size_t)fv_text_keys_bytes(keys, (int32_t)packed, s->n_kv, s->d_head, s->dtype, own);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t fv_import_pool_bytes(const fv_kv_shape *s, const fv_hello *h, const fv_decode_plan *plan) {
    return ((size_t)s->n_layer - h->n_reused_text) * text_most(s, h, plan, true) +
           h->n_reused_text * text_most(s, h, plan, false) + (size_t)h->bytes_visual +
           (size_t)h->bytes_tables;
}

/* What blocks of text keys add to a stream. */
static uint64_t text_wire_bytes(const fv_kv_shape *s, const fv_hello *h, const fv_text_keys *keys) {
    if (keys->rank == 0) return 0;
    return (uint64_t)s->n_layer *
           (fv_text_keys_bytes(keys, (int32_t)h->n_text, s->n_kv, s->d_head, s->dtype, true) +
            fv_wire_packed_bytes(h->n_text, h->n_text) + PACKED_MOST * FV_SECTION_HEADER);
}

uint64_t fv_import_wire_bytes(const fv_kv_shape *s, const fv_hello *h, const fv_decode_plan *plan,
                              int32_t n_group) {
    uint64_t accum = plan->accum.kind ? 4 * (uint64_t)n_group : 0; /* of a row */
    uint64_t heads = (uint64_t)s->n_layer * (uint64_t)s->n_kv, twice = (uint64_t)plan->dup_max;
    /* Per layer LEAD, RANK, MASK and ROWS, and per segment POSN, TALY and at most a DATA for each
     * head. */
    uint64_t sections = 5 + (uint64_t)s->n_layer * (4 + 2 * (2 + (uint64_t)s->n_kv) + PACKED_MOST);
    uint64_t packed = (uint64_t)s->n_layer *
                      (fv_wire_packed_bytes(h->n_visual, h->n_visual) + 4 * (uint64_t)h->n_visual);
    return sections * FV_SECTION_HEADER + fv_hello_bytes(h) +
           fv_wire_prompt_bytes(h->n_text + h->n_visual, FV_MAX_LOGIT_BIAS) +
           fv_wire_grids_bytes(h->n_visual) + heads * (1 + FV_N_SEG) * 4 +
           (uint64_t)s->n_layer * (FV_WIRE_LEAD_BYTES + 4) +
           heads * (h->n_text + twice) * 2 * row_bytes(s) +
           text_wire_bytes(s, h, &plan->text_keys) + h->bytes_visual +
           heads * (h->n_text + h->n_visual + 2 * twice) * (4 /* position */ + accum) + packed +
           FV_FIRST_TOKEN_BYTES + 32 + SKIP_MAX;
}

/* ---- the cursor ------------------------------------------------------------------------ */

static const uint32_t type_due[] = {
    [FV_DUE_HELLO] = FV_SECTION_HELLO,
    [FV_DUE_PROMPT] = FV_SECTION_PROMPT,
    [FV_DUE_ROWS] = FV_SECTION_ROWS,
    [FV_DUE_POSITIONS] = FV_SECTION_POSITIONS,
    [FV_DUE_ACCUM] = FV_SECTION_ACCUM,
    [FV_DUE_DATA] = FV_SECTION_DATA,
    [FV_DUE_TOKEN] = FV_SECTION_TOKEN,
    [FV_DUE_END] = FV_SECTION_END,
    [FV_DUE_NOTHING] = 0,
    [FV_DUE_LEAD] = FV_SECTION_LEAD,
    [FV_DUE_PACKED] = FV_SECTION_PACKED,
    [FV_DUE_FACTOR] = FV_SECTION_FACTOR,
    [FV_DUE_IMPORTANCE] = FV_SECTION_IMPORTANCE,
};

static uint32_t rows_of(const fv_import *l, int32_t layer, int32_t head, fv_kv_segment seg) {
    return l->rows[((size_t)layer * (size_t)l->shape->n_kv + (size_t)head) * FV_N_SEG + seg];
}

/* Rows of heads [h0, h1) of the layer and segment that are due. */
static uint64_t rows_due(const fv_import *l, int32_t h0, int32_t h1) {
    uint64_t rows = 0;
    for (int32_t g = h0; g < h1; g++) rows += rows_of(l, l->layer, g, l->seg);
    return rows;
}

/* 2: keys and values come; 1: the keys are another layer's. */
static uint64_t parts_of(const fv_import *l, int32_t layer, fv_kv_segment seg) {
    return fv_kv_borrows(l->got.kv, layer, seg) ? 1 : 2;
}

/* Stops at the next segment that has rows, from the current one on. */
static void seek_rows(fv_import *l) {
    while (l->layer < l->layer_end && rows_due(l, 0, l->shape->n_kv) == 0) {
        l->seg = l->seg == FV_SEG_VISUAL ? FV_SEG_TEXT : FV_SEG_VISUAL;
        if (l->seg == FV_SEG_VISUAL) l->layer++;
    }
    l->head = 0;
    l->due = l->layer < l->layer_end         ? FV_DUE_POSITIONS
             : l->layer == l->shape->n_layer ? FV_DUE_TOKEN
                                             : FV_DUE_ROWS;
}

static void next_segment(fv_import *l) {
    l->seg = l->seg == FV_SEG_VISUAL ? FV_SEG_TEXT : FV_SEG_VISUAL;
    if (l->seg == FV_SEG_VISUAL) l->layer++;
    seek_rows(l);
}

/* ---- headers --------------------------------------------------------------------------- */

static fv_status wrong_length(const fv_section *s, uint64_t want) {
    char name[5];
    fv_section_name(s->type, name);
    return FV_REFUSE(MALFORMED, "section %s of layer %d has %llu bytes where %llu were due", name,
                     s->layer0, (unsigned long long)s->length, (unsigned long long)want);
}

/* How long the due section must be; its place must be the one that is due. */
static fv_status check_section(const fv_import *l, const fv_section *s, uint64_t *want) {
    int32_t n_kv = l->shape->n_kv;
    bool placed = s->layer0 == l->layer && s->layer1 == l->layer + 1 && s->segment == l->seg;
    switch (l->due) {
    case FV_DUE_HELLO: *want = fv_hello_bytes(&l->hello); break;
    case FV_DUE_PROMPT:
        placed = s->dims[1] <= FV_MAX_LOGIT_BIAS;
        *want = fv_wire_prompt_bytes(l->hello.n_text + l->hello.n_visual, (int32_t)s->dims[1]);
        break;
    case FV_DUE_ROWS:
        placed = s->layer0 == l->layer && s->layer1 > s->layer0 && s->layer1 <= l->shape->n_layer;
        *want = (uint64_t)(s->layer1 - s->layer0) * (uint64_t)n_kv * FV_N_SEG * 4;
        break;
    case FV_DUE_POSITIONS:
        placed =
            placed && s->dtype == FV_WIRE_I32 && (s->dims[0] == 1 || s->dims[0] == (uint32_t)n_kv);
        *want = 4 * rows_due(l, 0, s->dims[0] == 1 ? 1 : n_kv);
        break;
    case FV_DUE_ACCUM:
        placed =
            placed && s->dtype == FV_WIRE_F32 && s->dims[1] == (uint32_t)fv_accum_width(l->got.kv);
        *want = 4 * rows_due(l, 0, n_kv) * (uint64_t)fv_accum_width(l->got.kv);
        break;
    case FV_DUE_DATA:
        placed = placed && s->dtype == l->dtype && s->part0 == l->head && s->part1 > s->part0 &&
                 s->part1 <= n_kv;
        *want = placed
                    ? parts_of(l, l->layer, l->seg) * rows_due(l, s->part0, s->part1) * l->row_bytes
                    : 0;
        break;
    case FV_DUE_LEAD:
        placed = s->layer0 == l->layer && s->layer1 == l->layer + 1;
        *want = FV_WIRE_LEAD_BYTES;
        break;
    case FV_DUE_PACKED:
    case FV_DUE_FACTOR:
    case FV_DUE_IMPORTANCE:
        placed = s->layer0 == l->layer && s->layer1 == l->layer + 1 &&
                 s->segment == l->packed_seg && (l->due != FV_DUE_FACTOR || s->part0 == l->kind);
        if (placed) FV_TRY(fv_import_packed_length(l, s, want));
        break;
    default: *want = FV_FIRST_TOKEN_BYTES; break;
    }
    bool anywhere = l->due == FV_DUE_HELLO || l->due == FV_DUE_PROMPT || l->due == FV_DUE_TOKEN;
    if (!placed && !anywhere)
        return FV_REFUSE(MALFORMED,
                         "a section is for layer %d, segment %d, head %d, and layer %d, "
                         "segment %d, head %d is due",
                         s->layer0, s->segment, s->part0, l->layer, (int)l->seg, l->head);
    return FV_OK;
}

static fv_status payload_for(fv_import *l, size_t n) {
    if (n <= l->cap_payload) return FV_OK;
    uint8_t *grown = realloc(l->payload, n);
    if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for a section of %zu bytes", n);
    l->payload = grown;
    l->cap_payload = n;
    return FV_OK;
}

/* RANK may come before the ROWS of its layer, and MASK too. */
static bool is_rank(const fv_import *l, const fv_section *s) {
    return l->due == FV_DUE_ROWS && s->type == FV_SECTION_RANK && !l->ranked;
}

static bool is_mask(const fv_import *l, const fv_section *s) {
    return l->due == FV_DUE_ROWS && s->type == FV_SECTION_MASK && l->mask[l->layer] == 0 &&
           !l->ranked;
}

/* GRDT may come after HELO and PRMT, and nowhere else. */
static bool is_grids(const fv_import *l, const fv_section *s) {
    return l->due == FV_DUE_ROWS && s->type == FV_SECTION_GRIDS && s->index == 2;
}

static fv_status begin_before_rows(fv_import *l, const fv_section *s, uint64_t want) {
    char name[5];
    fv_section_name(s->type, name);
    if (s->layer0 != l->layer || s->layer1 != l->layer + 1)
        return FV_REFUSE(MALFORMED, "%s is for layer %d, and layer %d is due", name, s->layer0,
                         l->layer);
    if (s->length != want) return wrong_length(s, want);
    return payload_for(l, (size_t)want);
}

static fv_status on_begin(void *user, const fv_section *s) {
    fv_import *l = user;
    uint64_t want = 0;
    if (is_rank(l, s)) return begin_before_rows(l, s, 4 * (uint64_t)l->shape->n_kv);
    if (is_mask(l, s)) return begin_before_rows(l, s, 4);
    if (is_grids(l, s)) {
        if (s->dims[0] == 0 || s->dims[0] > l->hello.n_visual)
            return FV_REFUSE(MALFORMED, "%u visual tokens are in %u grids", l->hello.n_visual,
                             s->dims[0]);
        return begin_before_rows(l, s, fv_wire_grids_bytes(s->dims[0]));
    }
    if (l->due == FV_DUE_ROWS && s->type == FV_SECTION_LEAD &&
        fv_kv_source_layer(l->got.kv, l->layer) == l->layer && !l->ranked &&
        !fv_kv_packed_at(l->got.kv, l->layer) && !fv_kv_packed_text(l->got.kv, l->layer))
        l->due = FV_DUE_LEAD;
    if (l->due == FV_DUE_ROWS && s->type == FV_SECTION_PACKED) FV_TRY(fv_import_begin_packed(l, s));
    if (s->type != type_due[l->due]) {
        char name[5], due[5];
        fv_section_name(s->type, name);
        fv_section_name(type_due[l->due], due);
        return FV_REFUSE(MALFORMED, "section %s came where %s was due", name, due);
    }
    FV_TRY(check_section(l, s, &want));
    if (s->length != want) return wrong_length(s, want);
    l->head_at = s->part0;
    l->head_off = 0;
    bool copied = l->due == FV_DUE_DATA || l->due == FV_DUE_FACTOR; /* to its place as it comes */
    return copied ? FV_OK : payload_for(l, (size_t)want);
}

/* ---- payloads -------------------------------------------------------------------------- */

/* Copies the next bytes of heads, each K [len, D] unless shared and then V [len, D], to their
 * entries. */
static fv_status fill_rows(fv_import *l, const uint8_t *p, size_t n) {
    fv_device *dev = fv_kv_get_device(l->got.kv);
    while (n > 0) {
        int32_t len = (int32_t)rows_of(l, l->layer, l->head_at, l->seg);
        size_t half = (size_t)len * l->row_bytes, parts = parts_of(l, l->layer, l->seg);
        if (l->head_off == parts * half) { /* this head is full, perhaps because it has no rows */
            l->head_at++;
            l->head_off = 0;
            continue;
        }
        bool value = parts == 1 || l->head_off >= half;
        size_t off = l->head_off % half, in_row = off % l->row_bytes;
        int32_t row = (int32_t)(off / l->row_bytes);
        void *at;
        int32_t rows =
            fv_kv_contiguous(l->got.kv, l->layer, l->head_at, l->seg, value, row, len, &at);
        size_t take = (size_t)rows * l->row_bytes - in_row;
        if (take > n) take = n;
        FV_TRY(dev->ops->copy_async(dev, (char *)at + in_row, p, take));
        l->head_off += take;
        p += take;
        n -= take;
    }
    return FV_OK;
}

static fv_status on_bytes(void *user, const fv_section *s, uint64_t offset, const void *p,
                          size_t n) {
    fv_import *l = user;
    (void)s;
    if (l->due == FV_DUE_DATA) return fill_rows(l, p, n);
    if (l->due == FV_DUE_FACTOR) return fv_import_fill_factor(l, offset, p, n);
    memcpy(l->payload + offset, p, n);
    return FV_OK;
}

/* Rows and factors are copied on the device itself; nothing else comes so. */
static fv_status on_oob(void *user, const fv_section *s, uint64_t offset, const void *p, size_t n) {
    fv_import *l = user;
    if (l->due == FV_DUE_DATA) return fill_rows(l, p, n);
    if (l->due == FV_DUE_FACTOR) return fv_import_fill_factor(l, offset, p, n);
    char name[5];
    fv_section_name(s->type, name);
    return FV_REFUSE(MALFORMED, "section %s came from device to device", name);
}

static fv_status take_hello(fv_import *l, const fv_section *s) {
    fv_hello h;
    size_t n_policy;
    FV_TRY(fv_hello_get(l->payload, (size_t)s->length, &h, &n_policy));
    if (h.compat.hash != l->hello.compat.hash || h.n_reused_text != l->hello.n_reused_text ||
        h.bytes_visual != l->hello.bytes_visual || h.bytes_tables != l->hello.bytes_tables ||
        h.n_text != l->hello.n_text || h.n_visual != l->hello.n_visual ||
        h.max_tokens != l->hello.max_tokens || memcmp(h.policy, l->hello.policy, n_policy) != 0)
        return FV_REFUSE(MALFORMED, "the stream is not the one that the grant was given for");
    return FV_OK;
}

static fv_status take_sampling(fv_import *l, const fv_wire_sampling *w) {
    if (w->n_bias > FV_MAX_LOGIT_BIAS) return FV_REFUSE(MALFORMED, "%d logit biases", w->n_bias);
    l->got.sampling = (fv_sampling){.repetition_penalty = w->repetition_penalty,
                                    .frequency_penalty = w->frequency_penalty,
                                    .presence_penalty = w->presence_penalty,
                                    .temperature = w->temperature,
                                    .min_p = w->min_p,
                                    .top_k = w->top_k,
                                    .top_p = w->top_p,
                                    .seed = w->seed,
                                    .n_logprobs = w->n_logprobs,
                                    .n_bias = w->n_bias};
    memcpy(l->got.sampling.bias, w->bias, (size_t)w->n_bias * sizeof *l->got.sampling.bias);
    return fv_sampling_check(&l->got.sampling);
}

static fv_status take_prompt(fv_import *l, const fv_section *s) {
    fv_wire_prompt w;
    FV_TRY(fv_wire_prompt_get(l->payload, (size_t)s->length, &w));
    FV_TRY(take_sampling(l, &w.sampling));
    if (w.next < (int32_t)w.n || (int64_t)w.next + l->hello.max_tokens > l->opt->max_position)
        return FV_REFUSE(MALFORMED, "the answer starts at position %d after %u tokens", w.next,
                         w.n);
    l->got.n = (int32_t)w.n;
    l->got.next = w.next;
    l->got.ids = malloc((size_t)w.n * 4);
    l->got.seg = malloc(w.n);
    if (!l->got.ids || !l->got.seg)
        return FV_FAIL(FV_ENOMEM, "out of memory for a prompt of %u tokens", w.n);
    memcpy(l->got.ids, w.ids, (size_t)w.n * 4);
    memcpy(l->got.seg, w.seg, w.n);
    uint32_t n[FV_N_SEG] = {0};
    for (uint32_t i = 0; i < w.n; i++) {
        if (w.seg[i] >= FV_N_SEG)
            return FV_REFUSE(MALFORMED, "prompt token %u is of segment %d", i, w.seg[i]);
        n[w.seg[i]]++;
        int32_t id = l->got.ids[i];
        if (w.seg[i] == FV_SEG_TEXT && (id < 0 || id >= l->opt->n_vocab))
            return FV_REFUSE(MALFORMED, "prompt token %u has the id %d, outside the vocabulary", i,
                             id);
    }
    if (n[FV_SEG_TEXT] != l->hello.n_text)
        return FV_REFUSE(MALFORMED, "the prompt has %u text tokens, but %u were announced",
                         n[FV_SEG_TEXT], l->hello.n_text);
    return FV_OK;
}

/* Tokens of a grid are visual ones. */
static fv_status check_grid(const fv_import *l, const fv_rope_grid *g) {
    for (int32_t i = 0; i < g->t * g->h * g->w; i++)
        if (l->got.seg[g->first + i] != FV_SEG_VISUAL)
            return FV_REFUSE(MALFORMED, "prompt token %d is text inside a grid", g->first + i);
    return FV_OK;
}

static fv_status take_grids(fv_import *l, const fv_section *s) {
    fv_rope_map map;
    fv_rope_grid *grid = malloc(s->dims[0] * sizeof *grid);
    if (!grid) return FV_FAIL(FV_ENOMEM, "out of memory for %u grids", s->dims[0]);
    fv_status st = fv_wire_grids_get(l->payload, s->dims[0], (uint32_t)l->got.n, grid, &map);
    for (uint32_t i = 0; i < s->dims[0] && st == FV_OK; i++) st = check_grid(l, &grid[i]);
    if (st == FV_OK) st = fv_kv_set_rope_map(l->got.kv, &map);
    free(grid);
    return st;
}

static fv_status take_rank(fv_import *l) {
    int32_t *rows = (int32_t *)(void *)l->payload;
    const uint8_t *at = l->payload;
    for (int32_t g = 0; g < l->shape->n_kv; g++) {
        uint32_t n = fv_get_u32(&at);
        if (n > l->hello.n_visual)
            return FV_REFUSE(MALFORMED, "head %d of layer %d ranked %u tokens of %u", g, l->layer,
                             n, l->hello.n_visual);
        rows[g] = (int32_t)n;
    }
    fv_kv_set_ranked(l->got.kv, l->layer, rows);
    l->ranked = true;
    return FV_OK;
}

static fv_status take_mask(fv_import *l) {
    const uint8_t *at = l->payload;
    uint32_t n = fv_get_u32(&at);
    if (n == 0 || n > l->hello.n_visual)
        return FV_REFUSE(MALFORMED, "layer %d masks %u visual tokens of %u", l->layer, n,
                         l->hello.n_visual);
    l->mask[l->layer] = (int32_t)n;
    return FV_OK;
}

/* Masked tokens are among those received, and none of them is ever evicted. */
static fv_status check_mask(const fv_import *l, int32_t layer) {
    bool leave = fv_accum_kind_of(l->got.kv) || l->ranked;
    for (int32_t g = 0; l->mask[layer] && g < l->shape->n_kv; g++)
        if (leave || rows_of(l, layer, g, FV_SEG_VISUAL) < (uint32_t)l->mask[layer])
            return FV_REFUSE(MALFORMED,
                             "layer %d masks %d visual tokens that it does not hold or may evict",
                             layer, l->mask[layer]);
    return FV_OK;
}

/* What is left of ranked rows is no more than there were. */
static fv_status check_ranked(const fv_import *l) {
    for (int32_t g = 0; l->ranked && g < l->shape->n_kv; g++)
        if (rows_of(l, l->layer, g, FV_SEG_VISUAL) > (uint32_t)fv_kv_ranked(l->got.kv, l->layer, g))
            return FV_REFUSE(MALFORMED,
                             "head %d of layer %d has more visual tokens than were ranked", g,
                             l->layer);
    return FV_OK;
}

static fv_status take_lead(fv_import *l) {
    fv_wire_lead w;
    fv_kv *kv = l->got.kv;
    FV_TRY(fv_wire_lead_get(l->payload, &w));
    if (w.source_layer >= (uint32_t)l->layer ||
        fv_kv_source_layer(kv, (int32_t)w.source_layer) != (int32_t)w.source_layer)
        return FV_REFUSE(MALFORMED, "layer %d cannot have the keys of layer %u", l->layer,
                         w.source_layer);
    fv_kv_borrow(kv, l->layer, (int32_t)w.source_layer, w.text);
    l->n_reused_text += w.text;
    return FV_OK;
}

/* Where keys are another layer's the rows must be that layer's, in number. */
static fv_status check_reused(const fv_import *l, int32_t layer) {
    int32_t source_layer = fv_kv_source_layer(l->got.kv, layer);
    for (int32_t g = 0; g < l->shape->n_kv; g++)
        for (int seg = 0; seg < FV_N_SEG; seg++)
            if (fv_kv_borrows(l->got.kv, layer, (fv_kv_segment)seg) &&
                rows_of(l, layer, g, (fv_kv_segment)seg) !=
                    rows_of(l, source_layer, g, (fv_kv_segment)seg))
                return FV_REFUSE(
                    MALFORMED,
                    "layer %d reuses the keys of layer %d but has a different number of tokens",
                    layer, source_layer);
    return FV_OK;
}

/* Text tokens of a layer that came as a block. */
static uint32_t text_packed(const fv_import *l, int32_t layer) {
    const fv_kv_packed *p = fv_kv_packed_text(l->got.kv, layer);
    return p ? (uint32_t)p->rows.n : 0;
}

/* Text pages of a layer, for prompt and answer. No more layers have their own than was said. */
static fv_status make_text(fv_import *l, int32_t layer) {
    int32_t own = layer + 1 - l->n_reused_text,
            most = l->shape->n_layer - (int32_t)l->hello.n_reused_text;
    if (own > most)
        return FV_REFUSE(OVER_BUDGET, "%d layers have text keys of their own and %d were announced",
                         own, most);
    int32_t rows = (int32_t)(l->hello.n_text - text_packed(l, layer) +
                             (uint32_t)l->got.plan.dup_max + l->hello.max_tokens);
    return fv_kv_reserve(l->got.kv, layer, rows);
}

/* Lengths of a layer group: checked against the grant, then its image tokens get their extents. */
static fv_status take_rows(fv_import *l, const fv_section *s) {
    const uint8_t *at = l->payload;
    int32_t n_kv = l->shape->n_kv;
    uint32_t *first = l->rows + (size_t)s->layer0 * (size_t)n_kv * FV_N_SEG;
    size_t n = (size_t)s->length / 4;
    for (size_t i = 0; i < n; i++) {
        bool visual = i % FV_N_SEG == FV_SEG_VISUAL;
        int32_t layer = s->layer0 + (int32_t)(i / FV_N_SEG) / n_kv;
        uint32_t most = visual ? l->hello.n_visual : l->hello.n_text - text_packed(l, layer);
        first[i] = fv_get_u32(&at);
        if (first[i] > most + (uint32_t)l->got.plan.dup_max)
            return FV_REFUSE(OVER_BUDGET,
                             "a head of layers %d to %d has %u tokens, more than the prompt",
                             s->layer0, s->layer1 - 1, first[i]);
        l->n_rows += first[i];
        if (visual && first[i] && fv_kv_packed_at(l->got.kv, layer))
            return FV_REFUSE(MALFORMED,
                             "a layer of %d to %d is compressed but also has raw visual tokens",
                             s->layer0, s->layer1 - 1);
        if (visual)
            l->bytes_visual +=
                (uint64_t)first[i] * l->row_bytes * parts_of(l, layer, FV_SEG_VISUAL);
    }
    if (l->bytes_visual > l->hello.bytes_visual)
        return FV_REFUSE(OVER_BUDGET,
                         "layers up to %d have %llu bytes of visual KV, but %llu were granted",
                         s->layer1 - 1, (unsigned long long)l->bytes_visual,
                         (unsigned long long)l->hello.bytes_visual);
    FV_TRY(check_ranked(l));
    FV_TRY(payload_for(l, (size_t)n_kv * sizeof(int32_t)));
    int32_t *each = (int32_t *)(void *)l->payload; /* what it held has been read */
    for (int32_t layer = s->layer0; layer < s->layer1; layer++) {
        FV_TRY(check_reused(l, layer));
        FV_TRY(check_mask(l, layer));
        FV_TRY(make_text(l, layer));
        for (int32_t g = 0; g < n_kv; g++) each[g] = (int32_t)rows_of(l, layer, g, FV_SEG_VISUAL);
        FV_TRY(fv_kv_extent_ragged(l->got.kv, layer, each));
    }
    l->layer_end = s->layer1;
    l->ranked = false;
    return FV_OK;
}

static fv_status allocate_seen(fv_import *l) {
    if (!l->seen && !(l->seen = calloc((size_t)l->got.n, 1)))
        return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    return FV_OK;
}

/* Inside the prompt, of the right segment, none more often than may be; ascending but in rank
 * order, where rows leave one by one, and where some are masked, which come last. */
static fv_status check_positions(fv_import *l, int32_t head, const int32_t *pos, int32_t n) {
    bool ranked = l->seg == FV_SEG_VISUAL && fv_kv_ranked(l->got.kv, l->layer, head) > 0;
    bool masked = l->seg == FV_SEG_VISUAL && l->mask[l->layer];
    bool any_order = ranked || masked || fv_accum_kind_of(l->got.kv);
    int32_t least = l->got.plan.dup_max ? 0 : 1; /* from one to the next */
    uint32_t before = l->seg == FV_SEG_TEXT ? text_packed(l, l->layer) : 0;
    if (before && n > 0 && pos[0] <= fv_kv_packed_text(l->got.kv, l->layer)->pos[before - 1])
        return FV_REFUSE(MALFORMED, "raw text tokens of layer %d precede the compressed ones",
                         l->layer);
    if (any_order) FV_TRY(allocate_seen(l));
    if (any_order) memset(l->seen, 0, (size_t)l->got.n);
    for (int32_t i = 0; i < n; i++) {
        bool good =
            pos[i] >= 0 && pos[i] < l->got.n && l->got.seg[pos[i]] == l->seg &&
            (any_order ? l->seen[pos[i]]++ <= 1 - least : i == 0 || pos[i] - pos[i - 1] >= least);
        if (!good)
            return FV_REFUSE(MALFORMED, "token %d of a head of layer %d has position %d", i,
                             l->layer, pos[i]);
    }
    return FV_OK;
}

static fv_status take_positions(fv_import *l, const fv_section *s) {
    const int32_t *pos = (const int32_t *)(const void *)l->payload;
    int32_t len0 = (int32_t)rows_of(l, l->layer, 0, l->seg);
    bool shared = s->dims[0] == 1;
    for (int32_t g = 0; g < l->shape->n_kv; g++) {
        int32_t n = (int32_t)rows_of(l, l->layer, g, l->seg);
        if (shared && n != len0)
            return FV_REFUSE(MALFORMED,
                             "the heads of layer %d differ in length and share "
                             "positions",
                             l->layer);
        if (!shared || g == 0) FV_TRY(check_positions(l, g, pos, n));
        FV_TRY(fv_kv_append_head(l->got.kv, l->layer, g, l->seg, pos, n));
        if (!shared) pos += n;
    }
    return FV_OK;
}

static void take_accum(fv_import *l) {
    const float *from = (const float *)(const void *)l->payload;
    for (int32_t g = 0; g < l->shape->n_kv; g++) {
        size_t n = rows_of(l, l->layer, g, l->seg) * (size_t)fv_accum_width(l->got.kv);
        if (n > 0) memcpy(fv_accum_values(l->got.kv, l->layer, g, l->seg), from, n * sizeof *from);
        from += n;
    }
}

static fv_status take_token(fv_import *l) {
    l->got.first = fv_first_token_get(l->payload);
    if (l->got.first.id < 0 || l->got.first.id >= l->opt->n_vocab)
        return FV_REFUSE(MALFORMED, "the first token's id is %d, outside the vocabulary",
                         l->got.first.id);
    return FV_OK;
}

static fv_status on_end(void *user, const fv_section *s) {
    fv_import *l = user;
    switch (l->due) {
    case FV_DUE_HELLO:
        FV_TRY(take_hello(l, s));
        l->due = FV_DUE_PROMPT;
        break;
    case FV_DUE_PROMPT:
        FV_TRY(take_prompt(l, s));
        l->due = FV_DUE_ROWS;
        break;
    case FV_DUE_ROWS:
        if (s->type == FV_SECTION_GRIDS) return take_grids(l, s);
        if (s->type == FV_SECTION_RANK) return take_rank(l);
        if (s->type == FV_SECTION_MASK) return take_mask(l);
        FV_TRY(take_rows(l, s));
        seek_rows(l);
        break;
    case FV_DUE_LEAD:
        FV_TRY(take_lead(l));
        l->due = FV_DUE_ROWS;
        break;
    case FV_DUE_PACKED: FV_TRY(fv_import_take_packed(l, s)); break;
    case FV_DUE_FACTOR:
        FV_TRY(fv_import_end_factor(l));
        fv_import_next_factor(l, (int)l->kind + 1);
        break;
    case FV_DUE_IMPORTANCE:
        FV_TRY(fv_import_take_importance(l));
        l->due = FV_DUE_ROWS;
        break;
    case FV_DUE_POSITIONS:
        FV_TRY(take_positions(l, s));
        l->due = fv_accum_kind_of(l->got.kv) ? FV_DUE_ACCUM : FV_DUE_DATA;
        break;
    case FV_DUE_ACCUM:
        take_accum(l);
        l->due = FV_DUE_DATA;
        break;
    case FV_DUE_DATA:
        l->head = s->part1;
        if (l->head == l->shape->n_kv) next_segment(l);
        break;
    default:
        FV_TRY(take_token(l));
        l->due = FV_DUE_END;
        break;
    }
    return FV_OK;
}

static fv_status on_finish(void *user, const fv_packet_totals *said) {
    fv_import *l = user;
    if (l->due != FV_DUE_END || said->rows != l->n_rows)
        return FV_REFUSE(MALFORMED, "END came after %llu tokens of %llu",
                         (unsigned long long)l->n_rows, (unsigned long long)said->rows);
    l->due = FV_DUE_NOTHING;
    return FV_OK;
}

/* ---- KV import ------------------------------------------------------------------------- */

/* Memory for entries is reserved when their layer arrives: whose keys it uses is not known
 * before. */
static fv_status reserve(fv_import *l) {
    const fv_decode_plan *plan = &l->got.plan;
    FV_TRY(fv_kv_open(l->opt->pool, &l->got.kv));
    if (l->hello.owner) FV_TRY(fv_kv_set_owner(l->got.kv, l->hello.owner));
    fv_kv_sequence *seq = fv_kv_get_sequence(l->got.kv);
    seq->n = plan->nsoftmax;
    seq->expand = (fv_expand_rule){plan->read.by_importance, plan->read.full, plan->read.alpha};
    fv_accum_init(l->got.kv, plan->accum.kind, l->opt->n_group);
    return fv_kv_reserve_bytes(l->got.kv, fv_import_pool_bytes(l->shape, &l->hello, plan));
}

fv_status fv_import_open(const fv_receiver_options *opt, const fv_hello *hello,
                         const fv_decode_plan *plan, fv_import **out) {
    const fv_kv_shape *s = fv_kv_pool_shape(opt->pool);
    fv_import *l = calloc(1, sizeof *l);
    if (l) l->rows = calloc((size_t)s->n_layer * (size_t)s->n_kv * FV_N_SEG, sizeof *l->rows);
    if (l) l->mask = calloc((size_t)s->n_layer, sizeof *l->mask);
    if (l) l->got.policy = malloc(strlen(hello->policy) + 1);
    if (!l || !l->rows || !l->mask || !l->got.policy) {
        fv_import_close(l);
        return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    }
    l->opt = opt;
    l->shape = s;
    l->row_bytes = row_bytes(s);
    l->dtype = fv_wire_dtype_named(fv_dtype_name(s->dtype));
    l->hello = *hello;
    l->hello.policy = strcpy(l->got.policy, hello->policy);
    l->got.plan = *plan;
    l->got.max_tokens = (int32_t)hello->max_tokens;
    fv_packet_hooks hooks = {.user = l,
                             .begin = on_begin,
                             .bytes = on_bytes,
                             .oob = on_oob,
                             .end = on_end,
                             .finish = on_finish};
    fv_packet_reader_init(&l->reader, &hooks, SKIP_MAX);
    fv_status st = reserve(l);
    if (st != FV_OK) {
        fv_import_close(l);
        return st;
    }
    *out = l;
    return FV_OK;
}

void fv_import_close(fv_import *l) {
    if (!l) return;
    fv_received_free(&l->got);
    free(l->rows);
    free(l->mask);
    free(l->seen);
    free(l->payload);
    free(l);
}

/* Copies may still be under way when they were issued; the frame may go when they are done. */
fv_status fv_import_read(fv_import *l, const fv_piece *piece, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        FV_TRY(fv_packet_read(&l->reader, piece[i].data, piece[i].bytes));
    return fv_device_wait(fv_kv_get_device(l->got.kv));
}

fv_status fv_import_read_oob(fv_import *l, const void *bytes, size_t n, uint32_t crc) {
    FV_TRY(fv_packet_read_oob(&l->reader, bytes, n, crc));
    return fv_device_wait(fv_kv_get_device(l->got.kv));
}

fv_status fv_import_finish(fv_import *l) {
    if (!l->reader.done)
        return FV_REFUSE(TRUNCATED, "the stream ended after %llu bytes, before END",
                         (unsigned long long)l->reader.totals.bytes);
    for (int32_t layer = 0; layer < l->shape->n_layer; layer++)
        if (l->mask[layer]) fv_kv_mask(l->got.kv, layer, l->mask[layer]);
    l->got.bytes_surplus = fv_kv_release_unused(l->got.kv, l->got.max_tokens);
    return FV_OK;
}
