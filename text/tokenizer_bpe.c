/* Byte-pair encoding of one word.
 *
 *   symbols:  l o w e r      heap: (rank, position) of every pair that has a merge
 *   pop the lowest rank, leftmost first; join the pair; push the two pairs it is now part of
 *
 * The symbols are a list linked by index, so that joining is O(1), and every merge pushes at most
 * two entries: O(n log n) in all. A scan for the best pair per merge is quadratic, and the Llama-2
 * form has its whole text as one word. Entries of the heap become stale when an adjacent pair is
 * joined first, which is detected when they are popped. Any thread, each with its scratch. */
#include <stdlib.h>

#include "common/grow.h"
#include "text/tokenizer_internal.h"

typedef struct fv_tok_symbol {
    int32_t id; /* -1: joined into the symbol on the left */
    int32_t prev, next;
} symbol;

void fv_tok_bpe_scratch_fini(fv_tok_bpe_scratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (fv_tok_bpe_scratch){0};
}

/* An entry is rank << 32 | position: the order of the numbers is the order of the merges. */
static fv_status heap_push(fv_tok_bpe_scratch *b, uint64_t entry) {
    FV_TRY(fv_grow(&b->heap, &b->heap_cap, b->heap_n + 1, sizeof *b->heap));
    size_t i = b->heap_n++;
    for (; i > 0 && b->heap[(i - 1) / 2] > entry; i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = entry;
    return FV_OK;
}

static uint64_t heap_pop(fv_tok_bpe_scratch *b) {
    uint64_t top = b->heap[0], entry = b->heap[--b->heap_n];
    size_t i = 0, child;
    for (; (child = 2 * i + 1) < b->heap_n; i = child) {
        if (child + 1 < b->heap_n && b->heap[child + 1] < b->heap[child]) child++;
        if (b->heap[child] >= entry) break;
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = entry;
    return top;
}

static fv_status push_pair(const fv_tok_vocab *v, fv_tok_bpe_scratch *b, int32_t left) {
    if (left < 0 || b->symbols[left].next < 0) return FV_OK;
    int32_t rank = fv_tok_merge_rank(v, b->symbols[left].id, b->symbols[b->symbols[left].next].id);
    return rank < 0 ? FV_OK : heap_push(b, (uint64_t)rank << 32 | (uint32_t)left);
}

static fv_status merge_all(const fv_tok_vocab *v, fv_tok_bpe_scratch *b, int32_t n) {
    b->heap_n = 0;
    for (int32_t i = 0; i + 1 < n; i++) FV_TRY(push_pair(v, b, i));
    while (b->heap_n) {
        uint64_t top = heap_pop(b);
        int32_t at = (int32_t)(top & UINT32_MAX), made = v->merged[top >> 32];
        symbol *s = &b->symbols[at];
        if (s->id < 0 || s->next < 0) continue;
        symbol *right = &b->symbols[s->next];
        /* The entry is stale unless the pair that is there now makes the same token: the reference
         * compares the results, not the pairs. */
        int32_t rank = fv_tok_merge_rank(v, s->id, right->id);
        if (rank < 0 || v->merged[rank] != made) continue;
        s->id = made;
        s->next = right->next;
        right->id = -1;
        if (s->next >= 0) b->symbols[s->next].prev = at;
        FV_TRY(push_pair(v, b, s->prev));
        FV_TRY(push_pair(v, b, at));
    }
    return FV_OK;
}

static void append(fv_tok_bpe_scratch *b, int32_t *n, int32_t id) {
    b->symbols[*n] = (symbol){.id = id, .prev = *n - 1, .next = *n + 1};
    ++*n;
}

static bool append_bytes(const fv_tokenizer *tok, const char *s, size_t len, fv_tok_bpe_scratch *b,
                         int32_t *n) {
    for (size_t i = 0; i < len; i++)
        if (tok->byte_ids[(unsigned char)s[i]] < 0) return false;
    for (size_t i = 0; i < len; i++) append(b, n, tok->byte_ids[(unsigned char)s[i]]);
    return true;
}

/* Makes one symbol per character; a character that the model lacks becomes its bytes or, failing that,
 * unk. A pending unk is written when a known character follows; byte symbols do not count as one, so
 * they come before it, as in the reference. */
static fv_status spell(const fv_tokenizer *tok, const char *s, size_t n, fv_tok_bpe_scratch *b,
                       int32_t *n_symbol) {
    bool pending = false;
    int32_t k = 0;
    for (size_t at = 0, len; at < n; at += len) {
        int32_t cp;
        fv_utf8_next(s + at, n - at, &cp, &len);
        int32_t id = fv_tok_vocab_model(&tok->vocab, s + at, len);
        if (id >= 0) {
            if (pending) append(b, &k, tok->unk);
            pending = false;
            append(b, &k, id);
            continue;
        }
        if (tok->byte_fallback && append_bytes(tok, s + at, len, b, &k)) continue;
        if (tok->unk == -2)
            return FV_FAIL(FV_EDATA,
                           "the text has a character (U+%04X) that is not in the vocabulary, and "
                           "neither is the tokenizer's unk_token",
                           (unsigned)cp);
        if (tok->unk < 0) continue;
        if (pending && !tok->fuse_unk) append(b, &k, tok->unk);
        pending = true;
    }
    if (pending) append(b, &k, tok->unk);
    if (k) b->symbols[k - 1].next = -1;
    *n_symbol = k;
    return FV_OK;
}

fv_status fv_tok_bpe(const fv_tokenizer *tok, const char *s, size_t n, fv_tok_bpe_scratch *scratch,
                     fv_tok_ids *out) {
    if (tok->ignore_merges) {
        int32_t id = fv_tok_vocab_model(&tok->vocab, s, n);
        if (id >= 0) return fv_tok_put_id(out, id);
    }
    if (n > FV_TOK_TEXT_BYTES_MAX) return FV_FAIL(FV_EINVAL, "a word has %zu bytes", n);
    /* at most a symbol per byte */
    FV_TRY(fv_grow(&scratch->symbols, &scratch->cap, n, sizeof(symbol)));
    int32_t n_symbol;
    FV_TRY(spell(tok, s, n, scratch, &n_symbol));
    FV_TRY(merge_all(&tok->vocab, scratch, n_symbol));
    for (int32_t i = 0; i < n_symbol; i++)
        if (scratch->symbols[i].id >= 0) FV_TRY(fv_tok_put_id(out, scratch->symbols[i].id));
    return FV_OK;
}
