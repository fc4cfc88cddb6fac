/* A vocabulary as a trie: its tokens, sorted by their bytes, in one array of nodes. A walk goes through the array
 * from the first to the last, and leaves out the nodes below one whose byte is not legal. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

typedef struct entry {
    const char *s;
    size_t n;
    int32_t id;
} entry;

static int by_bytes(const void *x, const void *y) {
    const entry *a = x, *b = y;
    const size_t n = a->n < b->n ? a->n : b->n;
    const int order = n ? memcmp(a->s, b->s, n) : 0;
    if (order) return order;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static size_t common(const entry *a, const entry *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->s[n] == b->s[n]) n++;
    return n;
}

/* Adds the nodes of sorted entries. `open` are those on the path to the last one. */
static fv_status add_nodes(fv_token_trie *t, const entry *e, size_t n, size_t n_node) {
    size_t open[FV_TRIE_DEPTH_MAX], depth = 0;
    t->node = malloc((n_node + 1) * sizeof *t->node);
    if (!t->node) return FV_FAIL(FV_ENOMEM, "out of memory for a vocabulary");
    for (size_t i = 0; i < n; i++) {
        const size_t same = i ? common(&e[i - 1], &e[i]) : 0;
        for (; depth > same; depth--) t->node[open[depth - 1]].skip = (uint32_t)t->n_node;
        for (; depth < e[i].n; depth++) {
            open[depth] = t->n_node;
            t->node[t->n_node++] = (fv_trie_node){
                .token = -1, .byte = (uint8_t)e[i].s[depth], .depth = (uint8_t)depth};
        }
        fv_trie_node *last = &t->node[open[depth - 1]];
        t->same[e[i].id] = last->token;
        last->token = e[i].id;
    }
    for (; depth > 0; depth--) t->node[open[depth - 1]].skip = (uint32_t)t->n_node;
    return FV_OK;
}

static fv_status fill(fv_token_trie *t, const char *const *text, const size_t *bytes, entry *e) {
    size_t n = 0, total = 0, n_node = 0;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        t->at[i] = total;
        t->same[i] = -1;
        total += bytes[i];
    }
    t->at[t->n_vocab] = total;
    t->bytes = malloc(total + 1);
    if (!t->bytes) return FV_FAIL(FV_ENOMEM, "out of memory for a vocabulary");
    for (int32_t i = 0; i < t->n_vocab; i++) {
        if (bytes[i]) memcpy(t->bytes + t->at[i], text[i], bytes[i]);
        if (bytes[i] && bytes[i] < FV_TRIE_DEPTH_MAX)
            e[n++] = (entry){t->bytes + t->at[i], bytes[i], i};
    }
    qsort(e, n, sizeof *e, by_bytes);
    for (size_t i = 0; i < n; i++) n_node += e[i].n - (i ? common(&e[i - 1], &e[i]) : 0);
    return add_nodes(t, e, n, n_node);
}

static atomic_ullong n_made;

fv_status fv_token_trie_make(const char *const *text, const size_t *bytes, int32_t n_vocab,
                             fv_token_trie **out) {
    fv_token_trie *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for a vocabulary");
    t->serial = atomic_fetch_add(&n_made, 1) + 1;
    t->n_vocab = n_vocab;
    t->same = malloc(((size_t)n_vocab + 1) * sizeof *t->same);
    t->at = malloc(((size_t)n_vocab + 1) * sizeof *t->at);
    entry *e = malloc(((size_t)n_vocab + 1) * sizeof *e);
    fv_status st = t->same && t->at && e ? fill(t, text, bytes, e)
                                         : FV_FAIL(FV_ENOMEM, "out of memory for a vocabulary");
    free(e);
    if (st == FV_OK)
        *out = t;
    else
        fv_token_trie_free(t);
    return st;
}

void fv_token_trie_free(fv_token_trie *t) {
    if (!t) return;
    free(t->node);
    free(t->same);
    free(t->bytes);
    free(t->at);
    free(t);
}

int32_t fv_token_trie_vocab(const fv_token_trie *t) { return t->n_vocab; }
