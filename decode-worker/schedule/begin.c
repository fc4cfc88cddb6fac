/* Begins an answer: turns a hand-off or a kept conversation into a conversation in use, and opens the
 * generation that continues it. For the computing thread. */
#include "decode-worker/schedule/begin.h"

#include <stdlib.h>
#include <string.h>

#include "decode-worker/schedule/drafts.h"
#include "kv/packed.h"

static fv_status open_sequence(const fv_answer_sources *a, fv_answer *x, const int32_t *ids,
                               int32_t n, int32_t n_prompt) {
    fv_generation_options opt = fv_engine_generation_options(a->engine, x->ignore_eos);
    opt.sampling = x->sampling;
    opt.max_tokens = x->max_tokens;
    opt.n_stop = x->n_stop;
    opt.stop = x->stop;
    opt.rules = x->rules;
    opt.show_special = x->show_special;
    opt.include_stop = x->include_stop;
    opt.continue_text = x->continue_text;
    opt.n_forced = x->n_forced;
    opt.forced = x->forced;
    FV_TRY(fv_fail_caller(fv_generation_open(&opt, a->engine->tok, ids, n, n_prompt, &x->seq)));
    return fv_answer_begin_drafts(a->engine, a->draft_model, x);
}

/* Checks that the prompt ends with the replayed tokens and that the hand-off's token follows them. */
static fv_status check_replay(const fv_answer *x, const fv_received *got) {
    int32_t at = got->n - x->n_replay;
    uint64_t step = x->begins ? 0 : (uint64_t)x->n_replay + 1;
    bool same = at > 0 && got->first.step == step && !(x->begins && x->n_replay > 0);
    for (int32_t i = 0; same && i < x->n_replay; i++)
        same = got->ids[at + i] == (int32_t)x->replay[i];
    return same ? FV_OK
                : fv_fail_origin(
                      FV_FAIL(FV_EINVAL,
                              "the hand-off does not end with the %d tokens to be replayed",
                              x->n_replay),
                      FV_ORIGIN_HANDOFF);
}

/* Makes a conversation of the hand-off's KV and tokens, with the answer's first token at the end. */
static fv_status take_over(const fv_answer_sources *a, fv_answer *x, fv_received *got) {
    int32_t *ids = realloc(got->ids, ((size_t)got->n + 1) * sizeof *ids);
    if (!ids) return FV_FAIL(FV_ENOMEM, "out of memory for %d prompt tokens", got->n);
    got->ids = ids;
    FV_TRY(fv_conversations_begin(a->conversations, &x->session));
    ids[got->n] = got->first.id;
    x->session->kv = got->kv;
    x->session->ids = ids;
    x->session->n = got->n + !(x->first_held || x->begins);
    x->session->policy = got->policy;
    x->session->text_keys = got->plan.text_keys;
    x->session->text = got->text;
    x->session->text.n_prompt = got->n - x->n_replay;
    fv_evict_init(&x->session->evict, &got->plan, got->n - x->n_replay);
    got->kv = NULL;
    got->ids = NULL;
    got->policy = NULL;
    x->link = got->link;
    x->n_link = got->n_link;
    got->link = NULL;
    return FV_OK;
}

/* Takes the prompt's last token out of the store, so that it runs next, as the first row of decoding.
 * Eviction runs before it and counts it as a token. */
static fv_status begin_rerun(fv_answer *x) {
    x->n_held--;
    x->session->evict.before = 1;
    return fv_rerun_take_out(&x->rerun, x->session->kv, x->n_held);
}

fv_status fv_answer_begin(const fv_answer_sources *a, fv_answer *x, fv_received *got) {
    int32_t n_logprobs = x->sampling.n_logprobs;
    int32_t limit = got->max_tokens + x->n_replay;
    x->begins = got->n_held < got->n;
    FV_TRY(check_replay(x, got));
    FV_TRY(take_over(a, x, got));
    x->sampling = got->sampling;
    x->sampling.n_logprobs = n_logprobs;
    x->max_tokens = x->max_tokens < limit ? x->max_tokens : limit;
    x->n_held = got->n_held;
    x->rows_end = got->n + got->n_reserved;
    x->whole = got->whole;
    x->arrived_s = got->arrived_s;
    int32_t left = x->max_tokens - x->n_replay;
    if (x->session->text.rule.bits)
        FV_TRY(fv_text_codes_reserve(&x->session->text, x->session->kv, x->n_held,
                                     left < got->n_reserved ? left : got->n_reserved));
    if (x->first_held) FV_TRY(begin_rerun(x));
    return open_sequence(a, x, x->session->ids, x->session->n, got->n - x->n_replay);
}

/* Checks that the tenant's KV, with what was just reserved for this answer, is within its limit. */
static fv_status check_tenant(const fv_answer *x) {
    fv_kv *kv = x->session->kv;
    size_t held = fv_kv_pool_owned(fv_kv_get_pool(kv), fv_kv_owner(kv));
    if (x->tenant_bytes == 0 || held <= x->tenant_bytes) return FV_OK;
    fv_kv_release_unused(kv, 0);
    return FV_REFUSE(TENANT_FULL,
                     "with this answer the tenant would have %zu bytes of KV, and it may have %llu "
                     "on a decode worker; try again later",
                     held, (unsigned long long)x->tenant_bytes);
}

static bool is_compressed(const fv_kv *kv) {
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++)
        if (fv_kv_packed_of(kv, l, FV_SEG_VISUAL) || fv_kv_packed_of(kv, l, FV_SEG_TEXT))
            return true;
    return false;
}

/* Joins the held and the new ids, [n] in *all; caps max_tokens so that the answer fits the context. */
static fv_status join_ids(const fv_answer_sources *a, fv_answer *x, int32_t **all, int32_t *n) {
    const fv_conversation *session = x->session;
    const fv_text_config *text = &fv_checkpoint_config(a->engine->ck)->text;
    int32_t context = fv_text_context(text, is_compressed(session->kv)), n_new, *ids;
    FV_TRY(fv_follow_up_ids(a->engine, &x->prompt, session->ids[session->n - 1], &ids, &n_new,
                            &x->rules.reasoning));
    int64_t total = (int64_t)session->n + n_new;
    int32_t *joined = total > context ? NULL : malloc((size_t)total * sizeof *joined);
    if (!joined) {
        free(ids);
        return total > context ? FV_FAIL(FV_EINVAL,
                                         "the conversation has %d tokens and %d come with this "
                                         "prompt; the checkpoint's context%s is %d",
                                         session->n, n_new,
                                         context < text->max_position
                                             ? " with compressed tokens, its sliding window,"
                                             : "",
                                         context)
                               : FV_FAIL(FV_ENOMEM, "out of memory for a prompt");
    }
    memcpy(joined, session->ids, (size_t)session->n * sizeof *joined);
    memcpy(joined + session->n, ids, (size_t)n_new * sizeof *joined);
    free(ids);
    int32_t most = context - (int32_t)total + 1; /* the last token is chosen but never runs */
    x->max_tokens = x->max_tokens < most ? x->max_tokens : most;
    *all = joined;
    *n = (int32_t)total;
    return FV_OK;
}

/* Two names may stand for one adapter. */
static bool same_adapter(const fv_adapter *a, const fv_adapter *b) {
    return a == b || (a && b && strcmp(a->digest, b->digest) == 0);
}

/* Refuses to continue a conversation with another adapter than its KV was computed with. Without a name it goes on as
 * it was begun. */
static fv_status check_adapter(const fv_answer_sources *a, const fv_answer *x) {
    const fv_adapter *has = fv_kv_get_sequence(x->session->kv)->adapter;
    if (!x->model || !x->model[0] ||
        same_adapter(fv_adapters_named(&a->engine->adapters, x->model), has))
        return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "model '%.200s': the conversation was begun with %s%s, and continues with that "
                   "alone: name it, or begin another conversation",
                   x->model, has ? "the adapter " : "the base model", has ? has->name : "");
}

fv_status fv_answer_resume(const fv_answer_sources *a, fv_answer *x) {
    int32_t *ids, n;
    FV_TRY(fv_conversations_resume(a->conversations, x->conversation, x->tenant ? x->tenant : "",
                                   &x->session));
    FV_TRY(fv_fail_caller(check_adapter(a, x)));
    x->rows_gone = fv_evict_count(x->session->kv);
    FV_TRY(fv_fail_caller(join_ids(a, x, &ids, &n)));
    x->n_held = x->session->n - 1;
    fv_status st = open_sequence(a, x, ids, n, n);
    free(ids);
    FV_TRY(st);
    x->whole = true;
    x->rows_end = INT32_MAX;
    x->session->text.report = (fv_recompress_report){0};
    FV_TRY(fv_text_codes_reserve(&x->session->text, x->session->kv, x->n_held,
                                 n - x->n_held + x->max_tokens - 1)); /* the last never runs */
    return check_tenant(x);
}
