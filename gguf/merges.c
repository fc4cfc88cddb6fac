/* Makes merges from scores. */
#include "gguf/merges.h"

#include <stdlib.h>

#include "gguf/internal.h"

/* The most bytes of a token that takes part in merges: SentencePiece makes pieces of up to 512 characters.
 * Looking up a token's parts takes time quadratic in its length. */
enum { PIECE_MAX = 4 * 512 };

typedef struct merge {
    double score;
    size_t left, right, order; /* characters of the two parts */
    json_int_t left_id, right_id;
    fv_gguf_string a, b;
} merge;

typedef struct list {
    merge *merge;
    size_t n, cap;
} list;

static int by_id(const void *a, const void *b) {
    const merge *x = a, *y = b;
    if (x->left_id != y->left_id) return x->left_id < y->left_id ? -1 : 1;
    return (x->right_id > y->right_id) - (x->right_id < y->right_id);
}

static int by_score(const void *a, const void *b) {
    const merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->left != y->left) return x->left > y->left ? -1 : 1;
    if (x->right != y->right) return x->right > y->right ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static bool starts_character(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

static size_t characters(fv_gguf_string s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += starts_character(s.s[i]);
    return n;
}

/* The index of a token that takes part in merges; -1 if the string is none. */
static json_int_t index_of(const fv_merge_source *v, const json_t *ids, fv_gguf_string s) {
    const json_t *id = json_object_getn(ids, s.s, s.n);
    json_int_t i = id ? json_integer_value(id) - v->first : -1;
    if (i < 0 || i >= (json_int_t)v->n) return -1;
    return !v->takes || v->takes(v->user, (size_t)i) ? i : -1;
}

static bool put(list *l, merge m) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 1024;
        merge *grown = realloc(l->merge, cap * sizeof *grown);
        if (!grown) return false;
        l->merge = grown;
        l->cap = cap;
    }
    l->merge[l->n++] = m;
    return true;
}

static bool cuts_of(const fv_merge_source *v, const json_t *ids, size_t token, list *l) {
    const fv_gguf_string t = v->token[token];
    size_t first = l->n;
    for (size_t i = 1; i < t.n; i++) {
        if (!starts_character(t.s[i])) continue;
        merge m = {.score = v->score[token], .a = {t.s, i}, .b = {t.s + i, t.n - i}};
        m.left_id = index_of(v, ids, m.a);
        m.right_id = m.left_id < 0 ? -1 : index_of(v, ids, m.b);
        if (m.right_id < 0) continue;
        m.left = v->longest_first ? characters(m.a) : 0;
        m.right = v->longest_first ? characters(m.b) : 0;
        if (!put(l, m)) return false;
    }
    if (l->n > first) qsort(l->merge + first, l->n - first, sizeof *l->merge, by_id);
    for (size_t i = first; i < l->n; i++) l->merge[i].order = i;
    return true;
}

static bool collect(const fv_merge_source *v, const json_t *ids, list *l) {
    for (size_t i = 0; i < v->n; i++)
        if (index_of(v, ids, v->token[i]) == (json_int_t)i && !cuts_of(v, ids, i, l)) return false;
    if (l->n > 0) qsort(l->merge, l->n, sizeof *l->merge, by_score);
    return true;
}

fv_status fv_merges_make(const fv_merge_source *v, const json_t *ids, json_t *merges) {
    list l = {0};
    for (size_t i = 0; i < v->n; i++) {
        if (v->score[i] != v->score[i])
            return FV_FAIL(FV_EDATA, "%s: the score of token %zu is no number", v->where, i);
        if ((!v->takes || v->takes(v->user, i)) && v->token[i].n > PIECE_MAX)
            return FV_FAIL(FV_EDATA, "%s: token %zu has %zu bytes; at most %d are possible",
                           v->where, i, v->token[i].n, PIECE_MAX);
    }
    bool whole = collect(v, ids, &l);
    for (size_t i = 0; i < l.n && whole; i++)
        whole = json_array_append_new(merges, json_pack("[s%, s%]", l.merge[i].a.s, l.merge[i].a.n,
                                                        l.merge[i].b.s, l.merge[i].b.n)) == 0;
    free(l.merge);
    return whole ? FV_OK : FV_FAIL(FV_ENOMEM, "%s: out of memory for merges", v->where);
}

static bool is_normal(const void *vocab, size_t i) {
    return (int)((const fv_gguf_vocab *)vocab)->type[i] == FV_GGUF_NORMAL;
}

fv_status fv_gguf_merges(const fv_gguf *g, const fv_gguf_vocab *v, const json_t *ids,
                         json_t *merges) {
    double *score = NULL;
    size_t n = 0;
    FV_TRY(fv_gguf_numbers(g, "tokenizer.ggml.scores", &score, &n));
    const fv_merge_source s = {.where = fv_gguf_where(g),
                               .token = v->token,
                               .score = score,
                               .n = n,
                               .takes = is_normal,
                               .user = v,
                               .longest_first = true};
    fv_status st =
        n == v->n
            ? fv_merges_make(&s, ids, merges)
            : FV_FAIL(FV_EDATA, "%s: key 'tokenizer.ggml.scores' must have a number for each token",
                      fv_gguf_where(g));
    free(score);
    return st;
}
