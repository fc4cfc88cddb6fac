/* Bounds the memory that a hand-off may need, and the length of its stream, before it is granted. */
#include "decode-worker/receive/internal.h"
#include "packed/text_codes.h"

enum { PACKED_MOST = 4 /* sections of a packed layer */ };

uint64_t fv_import_most_visual(const fv_kv_shape *s, uint32_t n_visual) {
    uint64_t raw = (uint64_t)s->n_kv * n_visual * 2 * fv_import_row_bytes(s);
    /* Rows held twice, or two factors of full rank, take no more than twice the rows, apart from
     * padding and scales. */
    return n_visual ? (uint64_t)s->n_layer * (3 * raw + 4096) : 0;
}

/* Assumes the worst: every layer has blocks of one row, each with angles of its own. */
uint64_t fv_import_most_tables(const fv_kv_shape *s, const fv_hello *h) {
    uint64_t rows = 2 * ((uint64_t)h->n_visual + h->n_text), row = 80 + 4 * (uint64_t)s->d_head;
    return (uint64_t)s->n_layer * (rows * row + 2 * (FV_PACKED_BLOCK_FIXED + FV_PACKED_SET_FIXED) +
                                   2 * FV_PACKED_TILE * row);
}

static fv_text_width width_of(const fv_kv_shape *s) {
    return (fv_text_width){s->n_kv, s->d_head, s->dtype};
}

/* The most tokens after the prompt, and a block more: how much of the prompt is a resumed answer, and so when
 * its next block is due, is not known yet. */
static int32_t answer_most(const fv_hello *h, const fv_decode_plan *plan) {
    return (int32_t)h->max_tokens + plan->text.again;
}

int32_t fv_import_text_rows(const fv_kv_shape *s, const fv_decode_plan *plan, int64_t rows) {
    fv_text_width w = width_of(s);
    int32_t most = rows < INT32_MAX ? (int32_t)rows : INT32_MAX;
    return plan->text.bits ? fv_text_raw_most(&plan->text, most, &w) : most;
}

/* Bytes of a layer whose text is quantized: pages for rows that are in no block yet, and blocks; or, if less,
 * all text as rows, with the unused end of a page. */
static size_t coded_most(const fv_kv_shape *s, const fv_hello *h, const fv_decode_plan *plan,
                         bool own) {
    fv_text_width w = width_of(s);
    fv_kv_shape one = *s;
    one.n_layer = 1;
    int64_t n = (int64_t)h->n_text + h->max_tokens;
    uint64_t codes =
        fv_text_codes_most(&plan->text, (int32_t)h->n_text, answer_most(h, plan), &w, own);
    uint64_t pages = fv_kv_text_bytes(&one, fv_import_text_rows(s, plan, n), !own);
    uint64_t rows = fv_text_row_bytes(n + FV_KV_BLOCK - 1, &w, own);
    return (size_t)(pages + codes < rows ? pages + codes : rows);
}

/* Bytes of tables of blocks yet to come; the first may have rows of the prompt, which differ by layer. */
static uint64_t future_tables_bytes(const fv_kv_shape *s, const fv_hello *h,
                                    const fv_decode_plan *plan) {
    fv_text_width w = width_of(s);
    int32_t T = plan->text.again, n = answer_most(h, plan);
    if (plan->text.bits == 0 || T == 0 || fv_text_min_rows(&plan->text, &w) == INT32_MAX) return 0;
    return fv_text_tables(fv_text_min_rows(&plan->text, &w) + T, 1, s->n_layer, s->n_layer,
                          s->d_head) +
           fv_text_tables(n, n / T + 1, s->n_layer, 1, s->d_head);
}

/* The most bytes of a layer's text: pages for prompt and answer, with any number of the prompt's rows in a
 * compressed block instead. */
static size_t text_most(const fv_kv_shape *s, const fv_hello *h, const fv_decode_plan *plan,
                        bool own) {
    const fv_text_keys *keys = &plan->text_keys;
    fv_kv_shape one = *s;
    one.n_layer = 1;
    if (plan->text.bits) return coded_most(s, h, plan, own);
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
           (size_t)h->bytes_tables + (size_t)future_tables_bytes(s, h, plan) + fv_kv_state_bytes(s);
}

/* Bytes that blocks of text add to a stream. The tokens of a resumed answer are in blocks, too. */
static uint64_t text_wire_bytes(const fv_kv_shape *s, const fv_hello *h,
                                const fv_decode_plan *plan) {
    const fv_text_keys *keys = &plan->text_keys;
    if (plan->text.bits) {
        fv_text_width w = width_of(s);
        uint64_t blocks = 1 + (plan->text.again ? h->n_text / (uint32_t)plan->text.again : 0);
        return (uint64_t)s->n_layer *
               (fv_text_codes_most(&plan->text, (int32_t)h->n_text, 0, &w, true) +
                blocks * (fv_wire_packed_bytes(0, 1) + PACKED_MOST * FV_SECTION_HEADER) +
                fv_wire_packed_bytes(h->n_text, 1));
    }
    if (keys->rank == 0) return 0;
    return (uint64_t)s->n_layer *
           (fv_text_keys_bytes(keys, (int32_t)h->n_text, s->n_kv, s->d_head, s->dtype, true) +
            fv_wire_packed_bytes(h->n_text, h->n_text) + PACKED_MOST * FV_SECTION_HEADER);
}

uint64_t fv_import_wire_bytes(const fv_kv_shape *s, const fv_hello *h, const fv_decode_plan *plan,
                              int32_t n_group) {
    uint64_t accum = plan->accum.kind ? 4 * (uint64_t)n_group : 0; /* of a row */
    uint64_t heads = (uint64_t)s->n_layer * (uint64_t)s->n_kv, twice = (uint64_t)plan->dup_max;
    /* HELO, PRMT, GRDT, KEPT, TOKN, END. Per layer STAT, LEAD, RANK, MASK and ROWS, and per segment POSN, TALY
     * and at most a DATA for each head. */
    uint64_t sections = 6 + (uint64_t)s->n_layer * (5 + 2 * (2 + (uint64_t)s->n_kv) + PACKED_MOST);
    uint64_t packed = (uint64_t)s->n_layer *
                      (fv_wire_packed_bytes(h->n_visual, h->n_visual) + 4 * (uint64_t)h->n_visual);
    return sections * FV_SECTION_HEADER + fv_hello_bytes(h) +
           fv_wire_prompt_bytes(h->n_text + h->n_visual, FV_MAX_LOGIT_BIAS) +
           fv_wire_grids_bytes(h->n_visual) + heads * (1 + FV_N_SEG) * 4 +
           (uint64_t)s->n_layer * (FV_WIRE_LEAD_BYTES + 4) +
           heads * (h->n_text + twice) * 2 * fv_import_row_bytes(s) + text_wire_bytes(s, h, plan) +
           h->bytes_visual + fv_kv_state_bytes(s) +
           heads * (h->n_text + h->n_visual + 2 * twice) * (4 /* position */ + accum) + packed +
           FV_FIRST_TOKEN_BYTES + FV_WIRE_KEPT_BYTES + 32 + FV_IMPORT_SKIP_MAX;
}
