/* The grammars that this process has compiled, so that all answers of a schema share one, and why others were refused,
 * so that a hostile spec costs once. A few dozen are kept, the least recently used goes first; those in use
 * live on by their references. Any thread. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "grammar/internal.h"

enum { KEPT_MAX = 48 };

typedef struct entry {
    XXH128_hash_t digest;
    fv_grammar *grammar; /* NULL: refused */
    fv_error fault;
    uint64_t used; /* 0: empty */
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry kept[KEPT_MAX];
static uint64_t clock_of_uses;

static XXH128_hash_t digest_of(const fv_grammar_spec *s) {
    XXH128_hash_t h = XXH3_128bits_withSeed(s->n_text ? s->text : "", s->n_text, (uint64_t)s->kind);
    for (size_t i = 0; i < s->n_choice;
         i++) { /* of the one before and the next text, where both end known */
        const XXH128_hash_t both[] = {h, XXH3_128bits(s->choice[i], strlen(s->choice[i]))};
        h = XXH3_128bits(both, sizeof both);
    }
    return h;
}

static entry *find(XXH128_hash_t digest) {
    for (int i = 0; i < KEPT_MAX; i++)
        if (kept[i].used && XXH128_isEqual(kept[i].digest, digest)) return &kept[i];
    return NULL;
}

static entry *oldest(void) {
    entry *e = &kept[0];
    for (int i = 1; i < KEPT_MAX; i++)
        if (kept[i].used < e->used) e = &kept[i];
    return e;
}

/* Gives the kept result, with a reference to its grammar; false: there is none. */
static bool take(XXH128_hash_t digest, fv_grammar **g, fv_error *fault) {
    pthread_mutex_lock(&lock);
    entry *e = find(digest);
    if (e) {
        *g = e->grammar ? fv_grammar_ref(e->grammar) : NULL;
        *fault = e->fault;
        e->used = ++clock_of_uses;
    }
    pthread_mutex_unlock(&lock);
    return e != NULL;
}

/* Keeps a result. */
static void keep(XXH128_hash_t digest, fv_grammar *g, const fv_error *fault) {
    fv_grammar *gone = NULL;
    pthread_mutex_lock(&lock);
    if (!find(digest)) {
        entry *e = oldest();
        gone = e->grammar;
        *e = (entry){digest, g ? fv_grammar_ref(g) : NULL, *fault, ++clock_of_uses};
    }
    pthread_mutex_unlock(&lock);
    fv_grammar_unref(gone);
}

fv_status fv_grammar_get(const fv_grammar_spec *spec, fv_grammar **out) {
    const XXH128_hash_t digest = digest_of(spec);
    fv_grammar *g = NULL;
    fv_error fault = {0};
    if (!take(digest, &g, &fault)) {
        fv_error_take(&fault, fv_grammar_compile(spec, NULL, &g));
        if (fault.status == FV_OK || fault.status == FV_EINVAL) keep(digest, g, &fault);
    }
    if (fault.status != FV_OK) return fv_error_raise(&fault);
    *out = g;
    return FV_OK;
}
