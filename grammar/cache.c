/* The grammars that this process has compiled, so that all answers of a schema share one, and why others were refused,
 * so that a hostile spec costs once. A few dozen are kept, the least recently used goes first; those in use
 * live on by their references. Any thread. */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

enum { KEPT_MAX = 48 };

typedef struct digest {
    uint8_t bytes[32];
} digest;

typedef struct entry {
    digest digest;
    fv_grammar *grammar; /* NULL: refused */
    fv_error fault;
    uint64_t used; /* 0: empty */
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry kept[KEPT_MAX];
static uint64_t clock_of_uses;

static bool add(EVP_MD_CTX *c, const void *bytes, size_t n) {
    const uint64_t length = n; /* so that no two specs give the same bytes */
    return EVP_DigestUpdate(c, &length, sizeof length) && EVP_DigestUpdate(c, bytes, n);
}

/* A cryptographic digest: callers choose specs, and one must not find another's grammar. */
static fv_status digest_of(const fv_grammar_spec *s, digest *out) {
    const uint64_t counts[] = {(uint64_t)s->kind, s->n_choice};
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool done = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) && add(c, counts, sizeof counts) &&
                add(c, s->n_text ? s->text : "", s->n_text);
    for (size_t i = 0; done && i < s->n_choice; i++)
        done = add(c, s->choice[i], strlen(s->choice[i]));
    if (done && s->opens)
        done = add(c, s->opens, strlen(s->opens)) && add(c, s->closes, strlen(s->closes));
    done = done && EVP_DigestFinal_ex(c, out->bytes, NULL);
    EVP_MD_CTX_free(c);
    return done ? FV_OK : FV_FAIL(FV_ENOMEM, "libcrypto computed no digest of a grammar");
}

static entry *find(const digest *d) {
    for (int i = 0; i < KEPT_MAX; i++)
        if (kept[i].used && memcmp(&kept[i].digest, d, sizeof *d) == 0) return &kept[i];
    return NULL;
}

static entry *oldest(void) {
    entry *e = &kept[0];
    for (int i = 1; i < KEPT_MAX; i++)
        if (kept[i].used < e->used) e = &kept[i];
    return e;
}

/* Gives the kept result, with a reference to its grammar; false: there is none. */
static bool take(const digest *d, fv_grammar **g, fv_error *fault) {
    pthread_mutex_lock(&lock);
    entry *e = find(d);
    if (e) {
        *g = e->grammar ? fv_grammar_ref(e->grammar) : NULL;
        *fault = e->fault;
        e->used = ++clock_of_uses;
    }
    pthread_mutex_unlock(&lock);
    return e != NULL;
}

/* Keeps a result. */
static void keep(const digest *d, fv_grammar *g, const fv_error *fault) {
    fv_grammar *gone = NULL;
    pthread_mutex_lock(&lock);
    if (!find(d)) {
        entry *e = oldest();
        gone = e->grammar;
        *e = (entry){*d, g ? fv_grammar_ref(g) : NULL, *fault, ++clock_of_uses};
    }
    pthread_mutex_unlock(&lock);
    fv_grammar_unref(gone);
}

fv_status fv_grammar_get(const fv_grammar_spec *spec, fv_grammar **out) {
    return fv_grammar_get_within(spec, 0, out);
}

fv_status fv_grammar_get_within(const fv_grammar_spec *spec, int64_t steps, fv_grammar **out) {
    const fv_grammar_limits limits = {.compile_steps = steps, .tries = steps > 0};
    digest d;
    FV_TRY(digest_of(spec, &d));
    fv_grammar *g = NULL;
    fv_error fault = {0};
    if (!take(&d, &g, &fault)) {
        fv_error_take(&fault, fv_grammar_compile(spec, &limits, &g));
        if (fault.status == FV_OK || fault.status == FV_EINVAL) keep(&d, g, &fault);
    }
    if (fault.status != FV_OK) return fv_error_raise(&fault);
    *out = g;
    return FV_OK;
}
