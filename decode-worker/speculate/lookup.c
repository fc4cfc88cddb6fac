/* A hash of pairs of tokens, with a chain of the places of each. Positions count through both parts of what is
 * searched: first `before`, then the answer's ids, which belong to the caller. */
#include "decode-worker/speculate/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

enum {
    TAIL =
        16, /* tokens of the prompt's end ahead of the prediction; the longest match that counts */
    CANDIDATES = 32 /* places to compare for a draft */
};

/* A grade for each number of tokens that are the same. */
static const int32_t grade_from[FV_DRAFT_MODEL_GRADE] = {2, 3, 4, 6, 10};

struct fv_lookup {
    int32_t n_before, *before; /* ends with -1, which is no token, if it is not empty */
    int32_t n;                 /* places in the hash are below this position */
    int32_t *head;             /* [mask + 1] the latest place of a hash, or -1 */
    uint32_t mask;
    int32_t *prev; /* [n] the place before it in the chain, or -1 */
    size_t cap;
};

fv_status fv_lookup_open(const int32_t *ids, int32_t n_prompt, const int32_t *prediction, int32_t n,
                         fv_lookup **out) {
    fv_lookup *k = calloc(1, sizeof *k);
    if (!k) return FV_FAIL(FV_ENOMEM, "out of memory for drafts");
    if (n > 0) {
        int32_t tail = n_prompt < TAIL ? n_prompt : TAIL;
        k->before = malloc(((size_t)tail + (size_t)n + 1) * sizeof *k->before);
        if (!k->before) {
            free(k);
            return FV_FAIL(FV_ENOMEM, "out of memory for a prediction of %d tokens", n);
        }
        memcpy(k->before, ids + n_prompt - tail, (size_t)tail * sizeof *ids);
        memcpy(k->before + tail, prediction, (size_t)n * sizeof *ids);
        k->before[tail + n] = -1;
        k->n_before = tail + n + 1;
    }
    *out = k;
    return FV_OK;
}

void fv_lookup_close(fv_lookup *k) {
    if (!k) return;
    free(k->before);
    free(k->head);
    free(k->prev);
    free(k);
}

static inline int32_t token_at(const fv_lookup *k, const int32_t *ids, int32_t at) {
    return at < k->n_before ? k->before[at] : ids[at - k->n_before];
}

static uint32_t hash(int32_t a, int32_t b) {
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(h >> 32);
}

/* Enters the place whose pair ends at `at`. Places that no pair ends at have no chain. */
static void enter(fv_lookup *k, const int32_t *ids, int32_t at) {
    int32_t a = at > 0 ? token_at(k, ids, at - 1) : -1, b = token_at(k, ids, at);
    k->prev[at] = -1;
    if (a < 0 || b < 0) return;
    int32_t *head = &k->head[hash(a, b) & k->mask];
    k->prev[at] = *head;
    *head = at;
}

/* Makes room for places below `end`; false: there is none. */
static bool make_room(fv_lookup *k, const int32_t *ids, int32_t end) {
    if (fv_grow(&k->prev, &k->cap, (size_t)end, sizeof *k->prev) != FV_OK) return false;
    if (k->head && (uint32_t)end <= k->mask + 1) return true;
    uint32_t size = 1024;
    while (size < (uint32_t)end) size *= 2;
    int32_t *head = malloc(size * sizeof *head);
    if (!head) return false;
    memset(head, 0xFF, size * sizeof *head);
    free(k->head);
    k->head = head;
    k->mask = size - 1;
    for (int32_t at = 0; at < k->n; at++) enter(k, ids, at);
    return true;
}

/* How many tokens before and at two places are the same. */
static int32_t same(const fv_lookup *k, const int32_t *ids, int32_t a, int32_t b) {
    int32_t n = 0;
    while (n < TAIL && n <= a && token_at(k, ids, a - n) == token_at(k, ids, b - n)) n++;
    return n;
}

/* Finds the place that is most like the end; returns how many tokens are the same. */
static int32_t find(const fv_lookup *k, const int32_t *ids, int32_t end, int32_t *place) {
    int32_t a = token_at(k, ids, end - 1), b = token_at(k, ids, end), best = 0;
    int32_t at = a < 0 || b < 0 ? -1 : k->head[hash(a, b) & k->mask];
    for (int32_t i = 0; at >= 0 && i < CANDIDATES && best < TAIL; i++, at = k->prev[at]) {
        int32_t n = same(k, ids, at, end);
        if (n > best) *place = at, best = n;
    }
    return best;
}

static int32_t grade_of(int32_t n) {
    int32_t grade = FV_DRAFT_MODEL_GRADE - 1;
    while (grade > 0 && n < grade_from[grade]) grade--;
    return grade;
}

static void draft(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out) {
    fv_lookup *k = user;
    int32_t total = k->n_before + n, place = 0;
    if (n < 2 || !make_room(k, ids, total)) return;
    while (k->n < total - 1) enter(k, ids, k->n), k->n++;
    int32_t matched = find(k, ids, total - 1, &place);
    if (matched < grade_from[0]) return;
    out->grade = grade_of(matched);
    while (out->n < most) {
        int32_t at = place + 1 + out->n;
        int32_t id = at < total ? token_at(k, ids, at) : out->id[at - total];
        if (id < 0) break;
        out->id[out->n++] = id;
    }
}

fv_draft_source fv_lookup_source(fv_lookup *k) { return (fv_draft_source){draft, k}; }
