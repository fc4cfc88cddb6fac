/* The vocabulary: tokens by id, ids by text, merges by pair.
 *
 * Both look-ups use open addressing with linear probing over tables twice as large as their
 * content, keyed by XXH64: encoding needs one per character and one or two per merge, so a
 * look-up must be one hash and about one cache line. Tables are sized when a file is opened and
 * never grow. Read-only afterwards, hence any thread. */
#include <string.h>
#include <xxhash.h>

#include "text/tokenizer_internal.h"

static size_t table_size(size_t n) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    return size;
}

fv_status fv_tok_vocab_init(fv_tok_vocab *v, fv_arena *arena, int32_t n, size_t n_merge) {
    size_t slots = table_size((size_t)n), merges = table_size(n_merge);
    FV_TRY(FV_ARENA_NEW(arena, n, v->tokens));
    FV_TRY(FV_ARENA_NEW(arena, slots, v->slots));
    FV_TRY(FV_ARENA_NEW(arena, merges, v->merges));
    FV_TRY(FV_ARENA_NEW(arena, n_merge, v->merged));
    v->n = n;
    v->mask = slots - 1;
    v->merge_mask = merges - 1;
    memset(v->slots, 0xFF, slots * sizeof *v->slots);
    for (size_t i = 0; i < merges; i++) v->merges[i].rank = -1;
    return FV_OK;
}

/* Finds the slot that holds the text, or the empty one for it. */
static size_t slot_of(const fv_tok_vocab *v, const char *text, size_t n) {
    size_t i = XXH64(text, n, 0) & v->mask;
    while (v->slots[i] >= 0) {
        const fv_tok_entry *t = &v->tokens[v->slots[i]];
        if (t->n == n && memcmp(t->text, text, n) == 0) break;
        i = (i + 1) & v->mask;
    }
    return i;
}

fv_status fv_tok_vocab_add(fv_tok_vocab *v, const char *text, size_t n, int32_t id, uint8_t flags) {
    fv_tok_entry *t = &v->tokens[id];
    if (t->flags & FV_TOK_USED)
        return FV_FAIL(FV_EDATA, "id %d belongs to two tokens, '%.60s' and '%.60s'", id, t->text,
                       text);
    size_t i = slot_of(v, text, n);
    if (v->slots[i] >= 0)
        return FV_FAIL(FV_EDATA, "token '%.60s' is listed twice, with ids %d and %d", text,
                       v->slots[i], id);
    v->slots[i] = id;
    *t = (fv_tok_entry){.text = text,
                        .shown = text,
                        .n = (uint32_t)n,
                        .n_shown = (uint32_t)n,
                        .flags = flags | FV_TOK_USED};
    return FV_OK;
}

int32_t fv_tok_vocab_find(const fv_tok_vocab *v, const char *text, size_t n) {
    return v->slots[slot_of(v, text, n)];
}

int32_t fv_tok_vocab_model(const fv_tok_vocab *v, const char *text, size_t n) {
    int32_t id = fv_tok_vocab_find(v, text, n);
    return id >= 0 && v->tokens[id].flags & FV_TOK_MODEL ? id : -1;
}

static fv_tok_merge *merge_of(const fv_tok_vocab *v, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = XXH64(&pair, sizeof pair, 0) & v->merge_mask;
    while (v->merges[i].rank >= 0 && v->merges[i].pair != pair) i = (i + 1) & v->merge_mask;
    return &v->merges[i];
}

void fv_tok_merge_put(fv_tok_vocab *v, int32_t left, int32_t right, int32_t rank, int32_t made) {
    fv_tok_merge *m = merge_of(v, left, right);
    m->pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    m->rank = rank;
    v->merged[rank] = made;
}

int32_t fv_tok_merge_rank(const fv_tok_vocab *v, int32_t left, int32_t right) {
    return merge_of(v, left, right)->rank;
}
