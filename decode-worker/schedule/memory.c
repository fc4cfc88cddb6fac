/* The rules of memory.h. The list has as many answers as a pool holds, so it is simply walked, and only when
 * an answer needs memory. */
#include "decode-worker/schedule/memory.h"

#include <string.h>

#include "decode-worker/schedule/shares.h"
#include "kv/share.h"

bool fv_answer_needs_memory(const fv_answer *x) {
    return (x->phase == FV_ANSWER_RUNNING || x->starved) && x->n_run >= x->rows_end;
}

/* ---- growth ------------------------------------------------------------------------------- */

fv_status fv_answer_grow(fv_answer *x) {
    int32_t n, n_prompt;
    fv_kv *kv = x->session->kv;
    fv_generation_ids(x->seq, &n, &n_prompt);
    int32_t rows = x->max_tokens - (n - n_prompt);
    if (rows > FV_KV_BLOCK) rows = FV_KV_BLOCK;
    FV_TRY(fv_text_codes_reserve(&x->session->text, kv, x->n_run, rows));
    size_t held = fv_kv_pool_owned(fv_kv_get_pool(kv), fv_kv_owner(kv));
    if (x->tenant_bytes && held > x->tenant_bytes) {
        fv_kv_release_unused(kv, 0);
        return FV_REFUSE(TENANT_FULL, "the tenant holds %zu of its %llu bytes of KV", held,
                         (unsigned long long)x->tenant_bytes);
    }
    x->rows_end = x->n_run + rows;
    return FV_OK;
}

/* ---- the choice ----------------------------------------------------------------------------- */

fv_answer *fv_answer_needy(fv_answer *first) {
    fv_answer *eldest = NULL;
    for (fv_answer *x = first; x; x = x->next)
        if (!x->asked && fv_answer_needs_memory(x) && (!eldest || x->arrived_s < eldest->arrived_s))
            eldest = x;
    return eldest;
}

static bool may_leave(const fv_answer *x) {
    return !x->whole && (x->phase == FV_ANSWER_READY || x->phase == FV_ANSWER_RUNNING ||
                         x->phase == FV_ANSWER_PAUSED);
}

/* Sums what the answers of each share hold. Prompts that are kept are in shares of KV (kv/share.h), not in the answers. */
static void weigh(const fv_answer *first) {
    for (const fv_answer *x = first; x; x = x->next)
        if (x->share) x->share->held = 0;
    for (const fv_answer *x = first; x; x = x->next)
        if (x->share && x->session) x->share->held += (double)fv_kv_bytes_with_part(x->session->kv);
}

static double load_of(const fv_share *s) { return s->held / s->weight; }

static bool same_owner(const fv_answer *x, const fv_answer *y) {
    return strcmp(fv_kv_owner(x->session->kv), fv_kv_owner(y->session->kv)) == 0;
}

bool fv_answer_is_alone(const fv_answer *first, const fv_answer *x, bool own) {
    const fv_answer *y = first;
    while (y && (y == x || !y->session || (own && !same_owner(x, y)))) y = y->next;
    return !y;
}

fv_status fv_answer_too_large(const fv_answer *x, bool own) {
    return FV_REFUSE(TOO_LARGE,
                     "after %d tokens the answer needs more than all of the %s: shorten the "
                     "prompt, or ask for fewer tokens",
                     x->n_run, own ? "KV that its tenant may have" : "worker's KV");
}

/* The later one in the list is the younger of two answers that arrived at the same moment. */
fv_answer *fv_answer_victim(fv_answer *first, const fv_answer *x, bool own) {
    fv_answer *best = NULL;
    const fv_answer *eldest = NULL;
    bool after = false;
    for (const fv_answer *y = first; y; y = y->next)
        if (may_leave(y) && (!eldest || y->arrived_s < eldest->arrived_s)) eldest = y;
    weigh(first);
    for (fv_answer *y = first; y; y = y->next) {
        after = after || y == x;
        if (y == x || y == eldest || !may_leave(y) || (own && !same_owner(x, y))) continue;
        bool younger = y->arrived_s > x->arrived_s || (y->arrived_s == x->arrived_s && after);
        bool holds_more = y->share != x->share && load_of(y->share) > load_of(x->share);
        if (!younger && (own || !holds_more)) continue;
        double load = load_of(y->share), most = best ? load_of(best->share) : 0;
        if (!best || load > most || (load == most && y->arrived_s >= best->arrived_s)) best = y;
    }
    return best;
}
