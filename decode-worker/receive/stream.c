/* Reads the sections of a stream in order. A packet's contents have a fixed order (handoff/kv_packet.h), so
 * one cursor knows the next section, its length, and the destination of its bytes: the prompt (prompt.c),
 * the rows of a layer (rows.c), compressed layers (packed.c). Entries are copied as they arrive, into a
 * store that is not read before END has been verified. For the pool's thread. */
#include <stdlib.h>
#include <string.h>

#include "decode-worker/receive/internal.h"
#include "model/net/accum.h"

/* ---- the cursor ------------------------------------------------------------------------ */

static const uint32_t type_due[] = {
    [FV_DUE_HELLO] = FV_SECTION_HELLO,
    [FV_DUE_PROMPT] = FV_SECTION_PROMPT,
    [FV_DUE_STATE] = FV_SECTION_STATE,
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

/* The first section of a layer. */
static fv_import_due first_due(const fv_import *l) {
    return l->shape->state_bytes ? FV_DUE_STATE : FV_DUE_ROWS;
}

/* Advances to the next segment that has rows, from the current one on, and sets what is due. */
/* Whether nothing of the segment comes: no row, and no value of an accumulator. */
static bool nothing_due(const fv_import *l) {
    return fv_accum_kind_of(l->got.kv) ? fv_import_accum_due(l) == 0
                                       : fv_import_rows_due(l, 0, l->shape->n_kv) == 0;
}

static void seek_rows(fv_import *l) {
    while (l->layer < l->layer_end && nothing_due(l)) {
        l->seg = l->seg == FV_SEG_VISUAL ? FV_SEG_TEXT : FV_SEG_VISUAL;
        if (l->seg == FV_SEG_VISUAL) l->layer++;
    }
    l->head = 0;
    l->due = l->layer < l->layer_end         ? FV_DUE_POSITIONS
             : l->layer == l->shape->n_layer ? FV_DUE_TOKEN
                                             : first_due(l);
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

/* Sets *want to the length that the due section must have; refuses a section for another place. */
static fv_status check_section(const fv_import *l, const fv_section *s, uint64_t *want) {
    int32_t n_kv = l->shape->n_kv;
    bool placed = s->layer0 == l->layer && s->layer1 == l->layer + 1 && s->segment == l->seg;
    switch (l->due) {
    case FV_DUE_HELLO: *want = fv_hello_bytes(&l->hello); break;
    case FV_DUE_PROMPT:
        placed = s->dims[1] <= FV_MAX_LOGIT_BIAS;
        *want = fv_wire_prompt_bytes(l->hello.n_text + l->hello.n_visual, (int32_t)s->dims[1]);
        break;
    case FV_DUE_STATE:
        placed = s->layer0 == l->layer && s->layer1 == l->layer + 1 && s->dtype == FV_WIRE_F32;
        *want = l->shape->state_bytes;
        break;
    case FV_DUE_ROWS:
        placed = s->layer0 == l->layer && s->layer1 > s->layer0 && s->layer1 <= l->shape->n_layer;
        placed = placed && (!l->shape->state_bytes || s->layer1 == s->layer0 + 1);
        *want = (uint64_t)(s->layer1 - s->layer0) * (uint64_t)n_kv * FV_N_SEG * 4;
        break;
    case FV_DUE_POSITIONS:
        placed =
            placed && s->dtype == FV_WIRE_I32 && (s->dims[0] == 1 || s->dims[0] == (uint32_t)n_kv);
        *want = 4 * fv_import_rows_due(l, 0, s->dims[0] == 1 ? 1 : n_kv);
        break;
    case FV_DUE_ACCUM:
        placed =
            placed && s->dtype == FV_WIRE_F32 && s->dims[1] == (uint32_t)fv_accum_width(l->got.kv);
        *want = 4 * fv_import_accum_due(l) * (uint64_t)fv_accum_width(l->got.kv);
        break;
    case FV_DUE_DATA:
        placed = placed && s->dtype == l->dtype && s->part0 == l->head && s->part1 > s->part0 &&
                 s->part1 <= n_kv;
        *want = placed ? fv_import_parts(l, l->layer, l->seg) *
                             fv_import_rows_due(l, s->part0, s->part1) * l->row_bytes
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

fv_status fv_import_room(fv_import *l, size_t n) {
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
    return l->due == first_due(l) && s->type == FV_SECTION_GRIDS && s->index == 2;
}

/* KEPT must come before the first layer if the grant names rows, and must not if it names none. */
static bool is_kept(const fv_import *l, const fv_section *s) {
    return l->due == FV_DUE_ROWS && s->type == FV_SECTION_KEPT && l->n_kept > 0 && !l->adopted;
}

/* Sections of layers that cannot have kept rows; or KEPT is missing. */
static fv_status check_kept(const fv_import *l, const fv_section *s) {
    char name[5];
    if (l->n_kept == 0 || l->due != FV_DUE_ROWS || (l->adopted && s->type == FV_SECTION_ROWS))
        return FV_OK;
    fv_section_name(s->type, name);
    return FV_REFUSE(MALFORMED, "section %s of a prompt whose first tokens were kept here came %s",
                     name, l->adopted ? "where ROWS was due" : "before KEPT");
}

static fv_status begin_before_rows(fv_import *l, const fv_section *s, uint64_t want) {
    char name[5];
    fv_section_name(s->type, name);
    if (s->layer0 != l->layer || s->layer1 != l->layer + 1)
        return FV_REFUSE(MALFORMED, "section %s is for layer %d, but layer %d is due", name,
                         s->layer0, l->layer);
    if (s->length != want) return wrong_length(s, want);
    return fv_import_room(l, (size_t)want);
}

static fv_status on_begin(void *user, const fv_section *s) {
    fv_import *l = user;
    uint64_t want = 0;
    if (is_kept(l, s)) return begin_before_rows(l, s, FV_WIRE_KEPT_BYTES);
    if (!is_grids(l, s)) FV_TRY(check_kept(l, s));
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
        !fv_kv_packed_of(l->got.kv, l->layer, FV_SEG_VISUAL) &&
        !fv_kv_packed_of(l->got.kv, l->layer, FV_SEG_TEXT))
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
    bool copied = l->due == FV_DUE_DATA || l->due == FV_DUE_FACTOR ||
                  l->due == FV_DUE_STATE; /* straight to the store */
    return copied ? FV_OK : fv_import_room(l, (size_t)want);
}

/* ---- payloads -------------------------------------------------------------------------- */

static fv_status on_bytes(void *user, const fv_section *s, uint64_t offset, const void *p,
                          size_t n) {
    fv_import *l = user;
    if (l->due == FV_DUE_DATA) return fv_import_fill_rows(l, p, n);
    if (l->due == FV_DUE_FACTOR) return fv_import_fill_factor(l, offset, p, n);
    if (l->due == FV_DUE_STATE && s->type == FV_SECTION_STATE)
        return fv_import_fill_state(l, offset, p, n);
    memcpy(l->payload + offset, p, n);
    return FV_OK;
}

/* Copies rows and factors on the device itself; no other sections may come from device to device. */
static fv_status on_oob(void *user, const fv_section *s, uint64_t offset, const void *p, size_t n) {
    fv_import *l = user;
    if (l->due == FV_DUE_DATA) return fv_import_fill_rows(l, p, n);
    if (l->due == FV_DUE_FACTOR) return fv_import_fill_factor(l, offset, p, n);
    if (l->due == FV_DUE_STATE && s->type == FV_SECTION_STATE)
        return fv_import_fill_state(l, offset, p, n);
    char name[5];
    fv_section_name(s->type, name);
    return FV_REFUSE(MALFORMED, "section %s came from device to device", name);
}

static fv_status on_end(void *user, const fv_section *s) {
    fv_import *l = user;
    if (s->type == FV_SECTION_GRIDS) return fv_import_take_grids(l, s);
    switch (l->due) {
    case FV_DUE_HELLO:
        FV_TRY(fv_import_take_hello(l, s));
        l->due = FV_DUE_PROMPT;
        break;
    case FV_DUE_PROMPT:
        FV_TRY(fv_import_take_prompt(l, s));
        l->due = first_due(l);
        break;
    case FV_DUE_STATE: l->due = FV_DUE_ROWS; break;
    case FV_DUE_ROWS:
        if (s->type == FV_SECTION_KEPT) return fv_import_take_kept(l);
        if (s->type == FV_SECTION_RANK) return fv_import_take_rank(l);
        if (s->type == FV_SECTION_MASK) return fv_import_take_mask(l);
        FV_TRY(fv_import_take_rows(l, s));
        seek_rows(l);
        break;
    case FV_DUE_LEAD:
        FV_TRY(fv_import_take_lead(l));
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
        FV_TRY(fv_import_take_positions(l, s));
        l->due = fv_accum_kind_of(l->got.kv) ? FV_DUE_ACCUM : FV_DUE_DATA;
        break;
    case FV_DUE_ACCUM:
        fv_import_take_accum(l);
        l->due = FV_DUE_DATA;
        break;
    case FV_DUE_DATA:
        l->head = s->part1;
        if (l->head == l->shape->n_kv) next_segment(l);
        break;
    default:
        FV_TRY(fv_import_take_token(l));
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

/* Reserves the bytes of the whole request. Pages are reserved when their layer arrives, as only then its
 * source layer is known. */
static fv_status reserve(fv_import *l) {
    const fv_decode_plan *plan = &l->got.plan;
    FV_TRY(fv_kv_open(l->opt->pool, &l->got.kv));
    if (l->hello.owner) FV_TRY(fv_kv_set_owner(l->got.kv, l->hello.owner));
    fv_kv_sequence *seq = fv_kv_get_sequence(l->got.kv);
    if (l->hello.adapter && l->hello.adapter[0])
        seq->adapter = fv_adapters_with(l->opt->adapters, l->hello.adapter);
    seq->n = plan->nsoftmax;
    seq->expand = (fv_expand_rule){plan->read.by_importance, plan->read.full, plan->read.alpha};
    fv_accum_init(l->got.kv, plan->accum.kind, l->opt->n_group);
    FV_TRY(fv_import_find_kept(l));
    size_t bytes = fv_import_pool_bytes(l->shape, &l->hello, plan);
    size_t kept = fv_import_kept_bytes(l);
    fv_status st = fv_kv_reserve_bytes(l->got.kv, bytes - kept);
    if (st != FV_OK &&
        l->n_kept) { /* there may be room without it: it holds more than this prompt uses */
        fv_import_forgo_kept(l);
        st = fv_kv_reserve_bytes(l->got.kv, bytes);
    }
    FV_TRY(st);
    return fv_kv_take_state(l->got.kv);
}

uint32_t fv_import_answer_rows(const fv_hello *h) {
    uint32_t most = h->tokens_most ? h->tokens_most : h->max_tokens;
    return h->tokens_reserved && h->tokens_reserved < most ? h->tokens_reserved : most;
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
    l->row_bytes = fv_import_row_bytes(s);
    l->dtype = fv_wire_dtype_named(fv_dtype_name(s->dtype));
    l->hello = *hello;
    l->hello.policy = strcpy(l->got.policy, hello->policy);
    l->got.plan = *plan;
    l->max_tokens = hello->max_tokens;
    l->hello.max_tokens = fv_import_answer_rows(hello);
    l->got.max_tokens = (int32_t)(hello->tokens_most ? hello->tokens_most : hello->max_tokens);
    l->got.whole = hello->tokens_reserved == 0;
    l->got.n_reserved = (int32_t)l->hello.max_tokens;
    l->got.arrived_s = hello->arrived_s;
    fv_packet_hooks hooks = {.user = l,
                             .begin = on_begin,
                             .bytes = on_bytes,
                             .oob = on_oob,
                             .end = on_end,
                             .finish = on_finish};
    fv_packet_reader_init(&l->reader, &hooks, FV_IMPORT_SKIP_MAX);
    fv_status st = reserve(l);
    if (st != FV_OK) {
        fv_import_close(l);
        return st;
    }
    l->hello.owner = l->hello.adapter =
        NULL; /* the offer's strings and arrays were borrowed for the call */
    l->hello.link = l->link;
    l->hello.tail = NULL;
    *out = l;
    return FV_OK;
}

void fv_import_close(fv_import *l) {
    if (!l) return;
    fv_received_free(&l->got);
    fv_import_close_kept(l);
    free(l->rows);
    free(l->mask);
    free(l->seen);
    free(l->payload);
    free(l);
}

/* Waits for its copies, as the frame's memory is reused afterwards. */
fv_status fv_import_read(fv_import *l, const fv_piece *piece, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        FV_TRY(fv_packet_read(&l->reader, piece[i].data, piece[i].bytes));
    return fv_device_wait(fv_kv_get_device(l->got.kv));
}

fv_status fv_import_read_oob(fv_import *l, const void *bytes, size_t n, uint32_t crc) {
    FV_TRY(fv_packet_read_oob(&l->reader, bytes, n, crc));
    return fv_device_wait(fv_kv_get_device(l->got.kv));
}

/* Releases surplus memory, but keeps enough for quantized text whenever its blocks become due: that is known
 * only when the answer begins (fv_received.text). */
static fv_status release(fv_import *l) {
    fv_received *got = &l->got;
    size_t before = fv_kv_pool_used(l->opt->pool);
    if (got->plan.text.bits == 0) {
        got->bytes_surplus = fv_kv_release_unused(got->kv, got->n_reserved + got->n - got->n_held);
        return FV_OK;
    }
    got->text = (fv_text_codes){.rule = got->plan.text, .n_prompt = got->n};
    FV_TRY(
        fv_text_codes_reserve(&got->text, got->kv, got->n, got->n_reserved + got->plan.text.again));
    got->bytes_surplus = before - fv_kv_pool_used(l->opt->pool);
    return FV_OK;
}

fv_status fv_import_finish(fv_import *l) {
    if (!l->reader.done)
        return FV_REFUSE(TRUNCATED, "the stream ended after %llu bytes, before END",
                         (unsigned long long)l->reader.totals.bytes);
    for (int32_t layer = 0; layer < l->shape->n_layer; layer++)
        if (l->mask[layer]) fv_kv_mask(l->got.kv, layer, l->mask[layer]);
    FV_TRY(release(l));
    l->committed = true;
    fv_import_keep(l);
    return FV_OK;
}
