/* Cuts a word into ids by a model of type Unigram.
 *
 *   best[k] = the greatest sum of scores of pieces that make the first k bytes
 *   best[k + |p|] = max(best[k] + score(p))   for all pieces p that the text has at k
 *
 * from front to back (Viterbi); then the path is read from back to front. A character that is no piece by itself has
 * the score of the worst piece less 10, and a run of such characters is one unknown token. Of equal sums the first
 * found stays: the one whose last piece begins first. Pieces at a place are found in a sorted list that is narrowed byte
 * by byte; their length is bounded, and so is the time for each byte. Any thread, each with its scratch. */
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "text/tokenizer_internal.h"

typedef struct fv_tok_node {
    double sum;
    int32_t id, from; /* the last piece, and where it begins; -1: not reached */
} node;

enum { UNKNOWN = -1 }; /* as an id on the path */

void fv_tok_unigram_scratch_fini(fv_tok_unigram_scratch *scratch) {
    free(scratch->nodes);
    free(scratch->path);
    *scratch = (fv_tok_unigram_scratch){0};
}

/* Finds the first of pieces [lo, hi), which agree in `depth` bytes, whose next byte is >= c. */
static size_t lower(const fv_tokenizer *tok, size_t lo, size_t hi, size_t depth, int c) {
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if ((unsigned char)tok->vocab.tokens[tok->unigram->id[mid]].text[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void offer(const fv_tok_unigram *u, node *to, double sum, int32_t id, size_t from) {
    if (u->narrow) sum = (double)(float)sum;
    if (to->from >= 0 && sum <= to->sum) return;
    *to = (node){sum, id, (int32_t)from};
}

static void offer_pieces(const fv_tokenizer *tok, node *nodes, const char *s, size_t n, size_t at,
                         size_t len) {
    const fv_tok_unigram *u = tok->unigram;
    const unsigned char c = (unsigned char)s[at];
    size_t lo = u->first[c], hi = u->first[c + 1];
    bool single = false;
    for (size_t depth = 1; lo < hi; depth++) {
        const int32_t id = u->id[lo];
        if (tok->vocab.tokens[id].n == depth) { /* a prefix sorts first */
            offer(u, &nodes[at + depth], nodes[at].sum + u->score[id], id, at);
            single |= depth == len;
            lo++;
        }
        if (at + depth == n) break;
        const int next = (unsigned char)s[at + depth];
        lo = lower(tok, lo, hi, depth, next);
        hi = lower(tok, lo, hi, depth, next + 1);
    }
    if (single) return;
    offer(u, &nodes[at + len], nodes[at].sum + u->unk_score, UNKNOWN, at);
}

static fv_status put_bytes(const fv_tokenizer *tok, const char *s, size_t n, bool *done,
                           fv_tok_ids *out) {
    *done = tok->byte_fallback;
    for (size_t i = 0; i < n && *done; i++) *done = tok->byte_ids[(unsigned char)s[i]] >= 0;
    for (size_t i = 0; i < n && *done; i++)
        FV_TRY(fv_tok_put_id(out, tok->byte_ids[(unsigned char)s[i]]));
    return FV_OK;
}

/* Puts a run of unknown characters. The reference looks the whole run up before it gives up. */
static fv_status put_unknown(const fv_tokenizer *tok, const char *s, size_t n, fv_tok_ids *out) {
    bool done;
    const int32_t id = tok->unigram->narrow ? -1 : fv_tok_vocab_model(&tok->vocab, s, n);
    if (id >= 0) return fv_tok_put_id(out, id);
    FV_TRY(put_bytes(tok, s, n, &done, out));
    if (done) return FV_OK;
    if (tok->unk >= 0) return fv_tok_put_id(out, tok->unk);
    return FV_FAIL(FV_EDATA,
                   "the text has characters without a piece, '%.*s', and the tokenizer "
                   "names no token for unknown ones (unk_id)",
                   n < 32 ? (int)fv_utf8_valid(s, n) : (int)fv_utf8_valid(s, 32), s);
}

/* Reads the path from the end; scratch->path gets where its pieces begin, the last one first. */
static fv_status read_path(fv_tok_unigram_scratch *b, size_t n, size_t *n_path) {
    size_t k = 0;
    for (int32_t at = (int32_t)n; at > 0; at = b->nodes[at].from) {
        FV_TRY(fv_grow(&b->path, &b->path_cap, k + 1, sizeof *b->path));
        b->path[k++] = at;
    }
    *n_path = k;
    return FV_OK;
}

static fv_status put_path(const fv_tokenizer *tok, const char *s, const fv_tok_unigram_scratch *b,
                          size_t n_path, fv_tok_ids *out) {
    for (size_t k = n_path; k-- > 0;) {
        const node *piece = &b->nodes[b->path[k]];
        if (piece->id != UNKNOWN) {
            FV_TRY(fv_tok_put_id(out, piece->id));
            continue;
        }
        while (k > 0 && b->nodes[b->path[k - 1]].id == UNKNOWN) k--;
        FV_TRY(put_unknown(tok, s + piece->from, (size_t)(b->path[k] - piece->from), out));
    }
    return FV_OK;
}

fv_status fv_tok_unigram_encode(const fv_tokenizer *tok, const char *s, size_t n,
                                fv_tok_unigram_scratch *scratch, fv_tok_ids *out) {
    size_t n_path;
    int32_t cp;
    if (n > FV_TOK_TEXT_BYTES_MAX) return FV_FAIL(FV_EINVAL, "a word has %zu bytes", n);
    FV_TRY(fv_grow(&scratch->nodes, &scratch->cap, n + 1, sizeof(node)));
    for (size_t i = 0; i <= n; i++) scratch->nodes[i] = (node){.from = -1};
    scratch->nodes[0] = (node){0};
    for (size_t at = 0, len; at < n; at += len) {
        fv_utf8_next(s + at, n - at, &cp, &len);
        offer_pieces(tok, scratch->nodes, s, n, at, len);
    }
    FV_TRY(read_path(scratch, n, &n_path));
    return put_path(tok, s, scratch, n_path, out);
}
