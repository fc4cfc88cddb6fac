/* The state of an answer, and the masks of its steps.
 *
 * A state is a number of the automaton, which all answers of a grammar share; so are the masks: a state that was
 * seen before, as that inside a string, costs a copy. An answer also keeps its tokens, because the automaton may
 * forget its states between two steps: then they are read again. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

enum { MASK_BYTES = 16 << 20, MASKS_MIN = 16, MASKS_MAX = 4096 };

/* The masks of states, in slots that are taken in turn. */
struct fv_mask_cache {
    const fv_token_trie *trie;
    uint64_t serial, generation; /* of the trie; of the automaton */
    size_t n_word, n_slot, hand;
    uint64_t *bits;   /* [n_slot][n_word] */
    int32_t *n_legal; /* [n_slot] */
    int32_t *owner;   /* [n_slot] state, 0: none */
    int32_t *slot;    /* [n_state] slot + 1 of a state, 0: none */
    size_t n_state, cap_state;
};

struct fv_matcher {
    fv_grammar *grammar;
    const fv_token_trie *trie;
    uint64_t generation;
    int32_t state;
    bool may_end, strips;
    const char *before; /* the text that the answer continues */
    int64_t spent;      /* steps of the answer's tokens and masks */
    int32_t *seen;      /* [n] */
    size_t n, cap;
    uint64_t *bits;
};

/* ---- masks of states ------------------------------------------------------------------------ */

void fv_mask_cache_free(struct fv_mask_cache *m) {
    if (!m) return;
    free(m->bits);
    free(m->n_legal);
    free(m->owner);
    free(m->slot);
    free(m);
}

static fv_status cache_make(const fv_token_trie *trie, struct fv_mask_cache **out) {
    struct fv_mask_cache *m = calloc(1, sizeof *m);
    if (!m) return FV_FAIL(FV_ENOMEM, "out of memory for masks");
    m->trie = trie;
    m->serial = trie->serial;
    m->n_word = ((size_t)trie->n_vocab + 63) / 64;
    m->n_slot = MASK_BYTES / (m->n_word * sizeof *m->bits + 1);
    if (m->n_slot < MASKS_MIN) m->n_slot = MASKS_MIN;
    if (m->n_slot > MASKS_MAX) m->n_slot = MASKS_MAX;
    m->bits = malloc((m->n_slot * m->n_word + 1) * sizeof *m->bits);
    m->n_legal = calloc(m->n_slot, sizeof *m->n_legal);
    m->owner = calloc(m->n_slot, sizeof *m->owner);
    if (!m->bits || !m->n_legal || !m->owner) {
        fv_mask_cache_free(m);
        return FV_FAIL(FV_ENOMEM, "out of memory for masks");
    }
    *out = m;
    return FV_OK;
}

/* Empties the cache if the automaton has forgotten its states, or the vocabulary is another one. */
static fv_status cache_of(fv_grammar *g, const fv_token_trie *trie, struct fv_mask_cache **out) {
    if (g->masks && g->masks->serial != trie->serial) {
        fv_mask_cache_free(g->masks);
        g->masks = NULL;
    }
    if (!g->masks) FV_TRY(cache_make(trie, &g->masks));
    struct fv_mask_cache *m = g->masks;
    if (m->generation != fv_automaton_generation(g->automaton)) {
        m->generation = fv_automaton_generation(g->automaton);
        memset(m->owner, 0, m->n_slot * sizeof *m->owner);
        m->n_state = 0;
    }
    *out = m;
    return FV_OK;
}

/* Sets the bits of all tokens of nodes [first, end) whose bytes, but for the first `skip`, lead from `state` to another
 * state. */
static fv_status walk(fv_automaton *a, const fv_token_trie *t, size_t first, size_t end,
                      int32_t skip, int32_t state, uint64_t *bits, int32_t *n_legal) {
    int32_t path[FV_TRIE_DEPTH_MAX + 1], n = 0;
    fv_auto_table table = fv_automaton_table(a);
    path[0] = path[skip] = state;
    for (size_t i = first; i < end;) {
        const fv_trie_node *x = &t->node[i];
        const int32_t from = path[x->depth];
        int32_t to = table.next[(size_t)from * (size_t)table.n_class + table.class_of[x->byte]];
        if (to == FV_AUTO_UNKNOWN) {
            FV_TRY(fv_automaton_next(a, from, x->byte, &to));
            table = fv_automaton_table(a);
        }
        if (to == FV_AUTO_DEAD) {
            i = x->skip;
            continue;
        }
        path[x->depth + 1] = to;
        for (int32_t id = x->token; id >= 0; id = t->same[id], n++)
            bits[id / 64] |= UINT64_C(1) << id % 64;
        i++;
    }
    *n_legal = n;
    return FV_OK;
}

static fv_status mask_of(struct fv_mask_cache *m, fv_automaton *a, int32_t state, size_t *slot) {
    if ((size_t)state >= m->n_state) {
        const size_t n = (size_t)state + 1;
        FV_TRY(fv_grow(&m->slot, &m->cap_state, n, sizeof *m->slot));
        memset(m->slot + m->n_state, 0, (n - m->n_state) * sizeof *m->slot);
        m->n_state = n;
    }
    if (m->slot[state]) {
        *slot = (size_t)m->slot[state] - 1;
        return FV_OK;
    }
    const size_t at = m->hand;
    if (m->owner[at]) m->slot[m->owner[at]] = 0;
    m->owner[at] = 0;
    memset(m->bits + at * m->n_word, 0, m->n_word * sizeof *m->bits);
    FV_TRY(
        walk(a, m->trie, 0, m->trie->n_node, 0, state, m->bits + at * m->n_word, &m->n_legal[at]));
    m->owner[at] = state;
    m->slot[state] = (int32_t)at + 1;
    m->hand = (at + 1) % m->n_slot;
    *slot = at;
    return FV_OK;
}

/* ---- an answer ------------------------------------------------------------------------------ */

fv_status fv_matcher_open(fv_grammar *g, const fv_token_trie *trie, bool strips, fv_matcher **out) {
    fv_matcher *m = calloc(1, sizeof *m);
    uint64_t *bits = malloc((((size_t)trie->n_vocab + 63) / 64 + 1) * sizeof *bits);
    if (!m || !bits) {
        free(m);
        free(bits);
        return FV_FAIL(FV_ENOMEM, "out of memory for an answer");
    }
    m->grammar = fv_grammar_ref(g);
    m->trie = trie;
    m->bits = bits;
    m->strips = strips;
    m->before = "";
    fv_status st = fv_matcher_seek(m, NULL, 0);
    if (st == FV_OK)
        *out = m;
    else
        fv_matcher_close(m);
    return st;
}

void fv_matcher_close(fv_matcher *m) {
    if (!m) return;
    fv_grammar_unref(m->grammar);
    free(m->seen);
    free(m->bits);
    free(m);
}

static void to_state(fv_matcher *m, int32_t state) {
    m->state = state;
    m->may_end = fv_automaton_accepts(m->grammar->automaton, state);
}

/* Charges the steps since the last refuelling to the answer. */
static fv_status charge(fv_matcher *m) {
    m->spent += fv_automaton_spent(m->grammar->automaton);
    fv_automaton_refuel(m->grammar->automaton);
    return m->spent <= m->grammar->answer_steps
               ? FV_OK
               : FV_FAIL(FV_EINVAL, "the legal tokens of the answer have taken too many steps: the "
                                    "grammar is too ambiguous; make it simpler");
}

static fv_status push_bytes(fv_matcher *m, const char *text, size_t n, int32_t *to) {
    fv_automaton *a = m->grammar->automaton;
    *to = m->state;
    for (size_t i = 0; i < n && *to != FV_AUTO_DEAD; i++)
        FV_TRY(fv_automaton_next(a, *to, (uint8_t)text[i], to));
    return FV_OK;
}

static fv_status rewind_to_start(fv_matcher *m) {
    fv_automaton *a = m->grammar->automaton;
    int32_t to;
    m->n = 0;
    m->generation = fv_automaton_generation(a);
    to_state(m, fv_automaton_start(a));
    fv_automaton_refuel(a);
    FV_TRY(push_bytes(m, m->before, strlen(m->before), &to));
    if (to == FV_AUTO_DEAD)
        return FV_FAIL(FV_EINVAL, "no text of the grammar begins with '%.64s'", m->before);
    to_state(m, to);
    return FV_OK;
}

static fv_status push_token(fv_matcher *m, int32_t id) {
    const fv_token_trie *t = m->trie;
    int32_t to = FV_AUTO_DEAD;
    fv_automaton_refuel(m->grammar->automaton);
    if (id >= 0 && id < t->n_vocab && t->at[id] < t->at[id + 1]) {
        const char *s = t->bytes + t->at[id];
        const bool skip = m->strips && m->n == 0 && *s == ' ';
        FV_TRY(push_bytes(m, s + skip, t->at[id + 1] - t->at[id] - skip, &to));
    }
    if (to == FV_AUTO_DEAD)
        return FV_FAIL(FV_EINVAL,
                       "token %zu of the answer, %d, is not legal under the request's grammar",
                       m->n, id);
    FV_TRY(fv_grow(&m->seen, &m->cap, m->n + 1, sizeof *m->seen));
    FV_TRY(charge(m));
    FV_TRY(fv_automaton_trim(m->grammar->automaton, &to));
    m->generation = fv_automaton_generation(m->grammar->automaton);
    m->seen[m->n++] = id;
    to_state(m, to);
    return FV_OK;
}

static fv_status seek(fv_matcher *m, const int32_t *answer, int32_t n) {
    fv_automaton *a = m->grammar->automaton;
    const bool same = m->generation == fv_automaton_generation(a) && m->n <= (size_t)n &&
                      (m->n == 0 || memcmp(m->seen, answer, m->n * sizeof *answer) == 0);
    if (!same || m->n == 0) FV_TRY(rewind_to_start(m));
    while (m->n < (size_t)n) FV_TRY(push_token(m, answer[m->n]));
    return FV_OK;
}

fv_status fv_matcher_seek(fv_matcher *m, const int32_t *answer, int32_t n) {
    pthread_mutex_lock(&m->grammar->lock);
    fv_status st = seek(m, answer, n);
    pthread_mutex_unlock(&m->grammar->lock);
    return st;
}

fv_status fv_matcher_continue(fv_matcher *m, const char *text) {
    m->before = text;
    return fv_matcher_seek(m, NULL, 0);
}

int32_t fv_matcher_vocab(const fv_matcher *m) { return m->trie->n_vocab; }
bool fv_matcher_may_end(const fv_matcher *m) { return m->may_end; }

/* The tokens are read again if the automaton has forgotten this state since the last call. */
static fv_status settle(fv_matcher *m) {
    if (m->generation == fv_automaton_generation(m->grammar->automaton)) return FV_OK;
    const size_t n = m->n;
    FV_TRY(rewind_to_start(m));
    while (m->n < n) FV_TRY(push_token(m, m->seen[m->n]));
    return FV_OK;
}

static void unset(const fv_token_trie *t, size_t first, size_t end, uint64_t *bits,
                  int32_t *n_legal) {
    for (size_t i = first; i < end; i++)
        for (int32_t id = t->node[i].token; id >= 0; id = t->same[id]) {
            *n_legal -= bits[id / 64] >> id % 64 & 1;
            bits[id / 64] &= ~(UINT64_C(1) << id % 64);
        }
}

/* The first token's mask where the decoder strips a space: tokens that begin with one are judged by the rest. */
static fv_status strip_first(fv_matcher *m, int32_t *n_legal) {
    const fv_token_trie *t = m->trie;
    size_t first = 0;
    int32_t n;
    while (first < t->n_node && t->node[first].byte != ' ') first = t->node[first].skip;
    if (first == t->n_node) return FV_OK;
    const size_t end = t->node[first].skip;
    unset(t, first, end, m->bits, n_legal);
    fv_automaton_refuel(m->grammar->automaton);
    FV_TRY(walk(m->grammar->automaton, t, first + 1, end, 1, m->state, m->bits, &n));
    for (int32_t id = t->node[first].token; id >= 0; id = t->same[id], n++)
        m->bits[id / 64] |= UINT64_C(1) << id % 64;
    *n_legal += n;
    return FV_OK;
}

static fv_status mask(fv_matcher *m, int32_t *n_legal) {
    struct fv_mask_cache *cache;
    size_t slot;
    FV_TRY(settle(m));
    fv_automaton_refuel(m->grammar->automaton);
    FV_TRY(cache_of(m->grammar, m->trie, &cache));
    FV_TRY(mask_of(cache, m->grammar->automaton, m->state, &slot));
    memcpy(m->bits, cache->bits + slot * cache->n_word, cache->n_word * sizeof *m->bits);
    FV_TRY(charge(m));
    *n_legal = cache->n_legal[slot];
    return m->strips && m->n == 0 ? strip_first(m, n_legal) : FV_OK;
}

fv_status fv_matcher_mask(fv_matcher *m, const uint64_t **bits, int32_t *n_legal) {
    pthread_mutex_lock(&m->grammar->lock);
    fv_status st = mask(m, n_legal);
    pthread_mutex_unlock(&m->grammar->lock);
    if (st == FV_OK) *bits = m->bits;
    return st;
}

fv_status fv_matcher_push_text(fv_matcher *m, const char *text, size_t n, bool *legal) {
    int32_t to;
    pthread_mutex_lock(&m->grammar->lock);
    fv_automaton_refuel(m->grammar->automaton);
    fv_status st = settle(m);
    if (st == FV_OK) st = push_bytes(m, text, n, &to);
    if (st == FV_OK && to != FV_AUTO_DEAD) to_state(m, to);
    pthread_mutex_unlock(&m->grammar->lock);
    if (st == FV_OK) *legal = to != FV_AUTO_DEAD;
    return st;
}
