/* Computes how much text is coded, and the bytes that it takes. */
#include "packed/text_codes.h"

fv_packed_shape fv_text_shape(const fv_text_rule *r, fv_packed_kind kind, int32_t n,
                              const fv_text_width *w) {
    fv_packed_shape s = {.n = n,
                         .n_kv = w->n_kv,
                         .d_head = w->d_head,
                         .dtype = w->dtype,
                         .kind = kind,
                         .form = FV_PACKED_QUANTIZED,
                         .codes.bits = r->bits};
    if (kind == FV_PACKED_V && !r->values) s.codes.bits = 16;
    return s;
}

uint64_t fv_text_block_bytes(const fv_text_rule *r, int32_t n, const fv_text_width *w, bool own) {
    fv_packed_shape k = fv_text_shape(r, FV_PACKED_K, n, w),
                    v = fv_text_shape(r, FV_PACKED_V, n, w);
    if (n <= 0) return 0;
    return fv_packed_bytes(&v) + (own ? fv_packed_bytes(&k) : 0);
}

/* A token's codes take at most 3/4 of its row's bytes and 8 more; a block adds at most 15 keys, 8 bytes per
 * channel and four alignments. From 8 channels on, 64 rows always take more than that. */
int32_t fv_text_min_rows(const fv_text_rule *r, const fv_text_width *w) {
    enum { ROWS = 64, CHANNELS = 8 };
    int64_t width = (int64_t)w->n_kv * w->d_head;
    int32_t least = 1;
    if (r->bits == 0 || width < CHANNELS || width > 1 << 16) return INT32_MAX;
    for (int32_t n = 1; n <= ROWS; n++)
        if (fv_text_block_bytes(r, n, w, true) >= fv_text_row_bytes(n, w, true)) least = n + 1;
    return least;
}

fv_text_cut fv_text_cut_blocks(const fv_text_rule *r, int32_t wait, int32_t times,
                               const fv_text_width *w) {
    int32_t least = fv_text_min_rows(r, w), T = r->again;
    fv_text_cut c = {.left = wait + times * T};
    if (least == INT32_MAX || T == 0) return c;
    int32_t begin =
        wait >= least ? 1 : (least - wait + T - 1) / T; /* times until the first block */
    if (times < begin) return c;
    int32_t every = (least + T - 1) / T;
    c.first = wait + begin * T;
    c.each = every * T;
    c.n_each = (times - begin) / every;
    c.left -= c.first + c.n_each * c.each;
    return c;
}

fv_text_held fv_text_storage(const fv_text_rule *r, int32_t n_prompt, int32_t n_answer,
                             int32_t times, const fv_text_width *w, bool own) {
    int32_t wait = n_prompt - FV_TEXT_SINK - FV_TEXT_LAST, prompt = 0;
    if (wait < 0) wait = 0;
    if (wait >= fv_text_min_rows(r, w)) {
        prompt = wait;
        wait = 0;
    }
    fv_text_cut c = fv_text_cut_blocks(r, wait, times, w);
    return (fv_text_held){.codes = fv_text_block_bytes(r, prompt, w, own) +
                                   fv_text_block_bytes(r, c.first, w, own) +
                                   (uint64_t)c.n_each * fv_text_block_bytes(r, c.each, w, own),
                          .n_block = (prompt > 0) + (c.first > 0) + c.n_each,
                          .raw = n_prompt + n_answer - prompt - c.first - c.n_each * c.each};
}

int32_t fv_text_raw_most(const fv_text_rule *r, int32_t n, const fv_text_width *w) {
    int32_t least = fv_text_min_rows(r, w);
    if (r->again == 0 || least == INT32_MAX) return n;
    int64_t most = (int64_t)FV_TEXT_SINK + FV_TEXT_LAST + least - 1 + r->again;
    return most < n ? (int32_t)most : n;
}

/* A resumed answer in the prompt has been cut into blocks, and B(i) + B(j) <= B(i + j) + B(16). */
uint64_t fv_text_codes_most(const fv_text_rule *r, int32_t n_prompt, int32_t n_answer,
                            const fv_text_width *w, bool own) {
    uint64_t codes = fv_text_block_bytes(r, n_prompt, w, own);
    if (r->again == 0) return codes;
    return codes + (uint64_t)(n_prompt / r->again) * fv_text_block_bytes(r, 16, w, own) +
           (uint64_t)(n_answer / r->again + 1) * fv_text_block_bytes(r, r->again, w, own);
}

/* A layer has, per block, the end of its rows, and groups; a set has positions, one anchor block, and angles
 * in whole tiles. */
uint64_t fv_text_tables(int64_t n, int64_t n_block, int32_t n_layer, int32_t n_set,
                        int32_t d_head) {
    uint64_t rows = (uint64_t)n, blocks = (uint64_t)n_block, tiles = rows / FV_PACKED_TILE + blocks;
    uint64_t layer = blocks * (FV_PACKED_BLOCK_FIXED + 8) + 2 * rows;
    uint64_t set = blocks * (FV_PACKED_SET_FIXED + 16) + 8 * rows +
                   4 * FV_PACKED_TILE * tiles * (uint64_t)d_head;
    return n_block > 0 ? (uint64_t)n_layer * layer + (uint64_t)n_set * set : 0;
}
