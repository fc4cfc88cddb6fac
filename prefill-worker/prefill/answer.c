/* Runs the tokens of a resumed answer after the prompt, as they ran the first time. For the
 * thread that owns the decoder. */
#include "prefill-worker/prefill/internal.h"

#include "model/net/accum.h"
#include "model/net/anneal.h"
#include "model/net/expand.h"
#include "model/net/step.h"
#include "model/net/text_codes.h"

/* Tokens of a resumed answer run after the prompt if they attended to other KV than the prompt's tokens
 * do: compressed KV, or fewer tokens from step to step. Otherwise they run with the prompt. */
int32_t fv_prefill_n_deferred(const fv_prefill_request *req) {
    return fv_plan_sees_less(req->plan) ? req->n_answer : 0;
}

/* Runs the answer's tokens one at a time. Before each, entries are evicted and quantized as on the decode
 * worker, so that the token attends to the same store. Eviction's t counts the first token, too. */
static fv_status run_answer(fv_decoder *dec, fv_model_runner *runner, const fv_prefill_request *req,
                            float *logits) {
    const fv_plan *plan = req->plan;
    int32_t n_prompt = req->n - req->n_answer;
    fv_text_codes text = {.rule = plan->pack.text, .n_prompt = n_prompt};
    bool observes = plan->pack.observed || plan->evict.accum.kind;
    if (plan->evict.keep_packed < 1) FV_TRY(fv_expand_keep(req->kv, plan->evict.keep_packed));
    for (int32_t i = 0; i < req->n_answer; i++) {
        fv_step_seq row = {.kv = req->kv,
                           .n = 1,
                           .ids = req->ids + n_prompt + i,
                           .pos = n_prompt + i,
                           .partial = !observes && i + 1 < req->n_answer};
        FV_TRY(fv_text_codes_step(&text, dec, req->kv, n_prompt + i));
        FV_TRY(fv_accum_evict(req->kv, &plan->evict.accum, false));
        if (plan->evict.share)
            FV_TRY(fv_anneal(req->kv, plan->evict.share(plan, i + 1),
                             plan->evict.by_importance ? FV_ANNEAL_IMPORTANCE : FV_ANNEAL_RANK));
        FV_TRY(fv_model_runner_run(runner, &row, 1, logits));
    }
    return FV_OK;
}

/* Drops the text token at position `last` from each head of a layer in which it is the last one. */
static fv_status drop_last(fv_kv *kv, int32_t layer, int32_t last, fv_arena *arena) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv, *n, *same;
    const int32_t **idx;
    if (fv_kv_borrows(kv, layer, FV_SEG_TEXT)) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, n_kv, n));
    FV_TRY(FV_ARENA_NEW(arena, n_kv, idx));
    for (int32_t g = 0; g < n_kv; g++) {
        n[g] = fv_kv_len(kv, layer, g, FV_SEG_TEXT);
        if (n[g] > 0 && fv_kv_positions(kv, layer, g, FV_SEG_TEXT)[n[g] - 1] == last) n[g]--;
        FV_TRY(FV_ARENA_NEW(arena, n[g], same));
        for (int32_t j = 0; j < n[g]; j++) same[j] = j;
        idx[g] = same;
    }
    return fv_kv_keep(kv, layer, FV_SEG_TEXT, idx, n);
}

static bool holds_last(const fv_kv *kv, int32_t layer, int32_t last) {
    int32_t n = fv_kv_len(kv, layer, 0, FV_SEG_TEXT);
    return n > 0 && fv_kv_positions(kv, layer, 0, FV_SEG_TEXT)[n - 1] == last;
}

/* Drops the prompt's last row from every layer and runs it again as a row of decoding, so that the
 * first token, too, is computed from compressed KV. Layers that had dropped the row drop it again. (With
 * compressed KV, heads hold the same rows.) */
static fv_status run_last_again(fv_model_runner *runner, const fv_prefill_request *req,
                                fv_arena *arena, float *logits) {
    int32_t n_layer = fv_kv_get_shape(req->kv)->n_layer, last = req->n - req->n_answer - 1;
    bool *had;
    FV_TRY(FV_ARENA_NEW(arena, n_layer, had));
    for (int32_t l = 0; l < n_layer; l++) {
        had[l] = holds_last(req->kv, l, last);
        FV_TRY(drop_last(req->kv, l, last, arena));
    }
    fv_step_seq row = {.kv = req->kv, .n = 1, .ids = req->ids + last, .pos = last};
    FV_TRY(fv_model_runner_run(runner, &row, 1, logits));
    for (int32_t l = 0; l < n_layer; l++)
        if (!had[l]) FV_TRY(drop_last(req->kv, l, last, arena));
    return FV_OK;
}

static bool packed_well(const fv_prefill_request *req) {
    return !req->packed || req->packed->status == FV_OK;
}

fv_status fv_prefill_run_answers(fv_prefill *p, float *logits) {
    size_t vocab = (size_t)fv_decoder_config(p->dec)->vocab;
    fv_model_runner *runner;
    fv_status st = FV_OK;
    FV_TRY(fv_model_runner_open(p->dec, &runner));
    for (int32_t b = 0; b < p->n_req && st == FV_OK; b++) {
        const fv_prefill_request *req = &p->req[b];
        if (!packed_well(req)) continue;
        if (req->plan->pack.first_packed)
            st = run_last_again(runner, req, &p->arena, logits + (size_t)b * vocab);
        if (st == FV_OK && fv_prefill_n_deferred(req))
            st = run_answer(p->dec, runner, req, logits + (size_t)b * vocab);
    }
    fv_model_runner_close(runner);
    return st;
}
