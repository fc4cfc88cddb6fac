/* Results that wait for their use. The process keeps a few dozen grammars (cache.c), so a request that waits for a slot
 * could find that others have pushed out its own, and the computing thread would compile it again. A result therefore
 * holds a reference, and the memory of all that are held has a limit; grammars that several wait for count once. */
#include "grammar/result_internal.h"

#include "grammar/internal.h"

size_t fv_grammar_waiting_max = (size_t)512 << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t n_waiting; /* bytes */

/* Counts a grammar for one more result; false: it does not fit. */
static bool hold(fv_grammar *g) {
    bool fits = true;
    pthread_mutex_lock(&g->lock);
    const size_t n = fv_automaton_bytes(g->automaton); /* it grows as it learns */
    pthread_mutex_unlock(&g->lock);
    pthread_mutex_lock(&lock);
    if (g->n_result == 0) {
        fits = n <= fv_grammar_waiting_max && n_waiting <= fv_grammar_waiting_max - n;
        g->n_byte = fits ? n : 0;
        n_waiting += g->n_byte;
    }
    g->n_result += fits;
    pthread_mutex_unlock(&lock);
    return fits;
}

static void let_go(fv_grammar *g) {
    pthread_mutex_lock(&lock);
    if (--g->n_result == 0) n_waiting -= g->n_byte;
    pthread_mutex_unlock(&lock);
}

size_t fv_grammar_waiting(void) {
    pthread_mutex_lock(&lock);
    const size_t n = n_waiting;
    pthread_mutex_unlock(&lock);
    return n;
}

fv_status fv_grammar_prepare(const fv_grammar_spec *spec, int64_t steps, fv_grammar_result *r) {
    fv_grammar *g = NULL;
    fv_status st = fv_grammar_get_within(spec, steps, &g);
    if (st == FV_EBUSY) return st;
    if (st == FV_OK && !hold(g)) {
        fv_grammar_unref(g);
        g = NULL;
        st = FV_FAIL(FV_ENOMEM,
                     "the grammars of requests that wait take %zu MiB already: ask again later",
                     fv_grammar_waiting_max >> 20);
    }
    fv_error_take(&r->fault, st);
    r->grammar = g;
    return FV_OK;
}

fv_status fv_grammar_take(const fv_grammar_result *r, const fv_grammar_spec *spec,
                          fv_grammar **out) {
    if (r && r->fault.status != FV_OK) return fv_error_raise(&r->fault);
    if (!r || !r->grammar) return fv_grammar_get(spec, out);
    *out = fv_grammar_ref(r->grammar);
    return FV_OK;
}

void fv_grammar_result_fini(fv_grammar_result *r) {
    if (r->grammar) {
        let_go(r->grammar);
        fv_grammar_unref(r->grammar);
    }
    *r = (fv_grammar_result){0};
}
