/* Makes the links of an answer. Hashing a page of ids takes a microsecond, so all of them are made, not only those that are
 * new. For the pool's thread. */
#include "decode-worker/keep/answer.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "kv/cache/chain.h"

/* Number of leading links up to the last one that longer prompts have, too; 0: none is behind all images. */
static uint32_t last_common(const fv_wire_link *link, uint32_t n, int32_t n_visual) {
    for (; n > 0; n--) {
        const fv_wire_link *last = &link[n - 1];
        uint32_t before = n > 1 ? link[n - 2].n_visual : 0;
        if (last->n_visual != (uint32_t)n_visual) return 0;
        if (last->n_visual > before || last->n_text % FV_KV_BLOCK == 0) return n;
    }
    return 0;
}

/* Whether a uniform store has all rows up to its last one. */
static bool is_whole(const fv_kv *kv, int32_t rows) {
    int32_t last = -1;
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        int32_t n = fv_kv_len(kv, 0, 0, (fv_kv_segment)seg);
        const int32_t *pos = fv_kv_positions(kv, 0, 0, (fv_kv_segment)seg);
        if (n > 0 && pos[n - 1] > last) last = pos[n - 1];
    }
    return last == rows - 1;
}

/* Appends the links of the text after the first n; *end: rows before the tail. */
static fv_status continue_links(const fv_kv *kv, const int32_t *ids, int32_t rows,
                                fv_wire_link *link, uint32_t *n, int32_t *end) {
    const fv_wire_link *last = &link[*n - 1];
    fv_chain_link from = {.end = (int32_t)(last->n_text + last->n_visual),
                          .n_text = (int32_t)last->n_text,
                          .n_visual = (int32_t)last->n_visual};
    const fv_chain_prompt text = {.n = rows, .ids = ids, .rope_map = *fv_kv_rope_map(kv)};
    int32_t n_more = 0;
    fv_chain_link *more = malloc((size_t)fv_chain_links_max(rows - from.end, 0) * sizeof *more);
    if (!more) return FV_FAIL(FV_ENOMEM, "out of memory for the links of an answer");
    memcpy(from.key.bytes, last->key, sizeof last->key);
    fv_status st = fv_chain_continue(&text, &from, more, &n_more);
    *end = from.end;
    for (int32_t i = 0; i < n_more && more[i].n_text % FV_KV_BLOCK == 0; i++) {
        fv_wire_link *to = &link[(*n)++];
        memcpy(to->key, more[i].key.bytes, sizeof to->key);
        to->n_text = (uint32_t)more[i].n_text;
        to->n_visual = (uint32_t)more[i].n_visual;
        to->name = 0; /* routers have none for an answer's */
        *end = more[i].end;
    }
    free(more);
    return st;
}

void fv_prefixes_keep_answer(fv_prefixes *p, const fv_wire_link *link, uint32_t n_link,
                             const int32_t *ids, int32_t n, fv_kv *kv) {
    int32_t n_visual = fv_kv_len(kv, 0, 0, FV_SEG_VISUAL), end;
    int32_t rows = n_visual + fv_kv_len(kv, 0, 0, FV_SEG_TEXT);
    n_link = last_common(link, n_link, n_visual);
    bool whole = is_whole(kv, rows);
    if (rows > n - 1) rows = n - 1; /* the others are drafts that were wrong */
    if (n_link == 0 || !whole ||
        (int64_t)link[n_link - 1].n_text + link[n_link - 1].n_visual > rows)
        return;
    fv_wire_link *all = malloc((n_link + (size_t)fv_chain_links_max(rows, 0)) * sizeof *all);
    fv_status st = all ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the links of an answer");
    if (all) memcpy(all, link, n_link * sizeof *all);
    if (st == FV_OK) st = continue_links(kv, ids, rows, all, &n_link, &end);
    if (st == FV_OK)
        fv_prefixes_extend(p, fv_kv_owner(kv), all, n_link, ids + end, (uint32_t)(rows - end), kv);
    else
        FV_LOG(DEBUG, DECODE, "event=answer-not-kept reason=\"%s\"", fv_last_error());
    free(all);
}
