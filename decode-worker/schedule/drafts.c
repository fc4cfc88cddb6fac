/* Opens the sources of an answer's drafts: the lookup, with the tokens of its prediction, and the draft model. For the
 * computing thread. */
#include "decode-worker/schedule/drafts.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "decode-worker/speculate/lookup.h"
#include "kernels/tier.h"

static bool has_image(const fv_engine *e, const int32_t *ids, int32_t n) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    for (int32_t i = 0; cfg->has_vision && i < n; i++)
        if (ids[i] == cfg->image_token) return true;
    return false;
}

static fv_status open_lookup(const fv_engine *engine, fv_answer *x, const int32_t *ids,
                             int32_t n_prompt) {
    int32_t *prediction = NULL, n = 0;
    if (x->n_prediction > 0)
        FV_TRY(fv_tokenizer_encode(engine->tok, x->prediction, x->n_prediction, false, &prediction,
                                   &n));
    fv_status st = fv_lookup_open(ids, n_prompt, prediction, n, &x->lookup);
    free(prediction);
    return st;
}

/* A failure of drafts ends them, and not the answer. */
static fv_status without(void) {
    FV_LOG(DEBUG, DECODE, "event=no-drafts reason=\"%s\"", fv_last_error());
    return FV_OK;
}

fv_status fv_answer_begin_drafts(const fv_engine *engine, fv_draft_model *model, fv_answer *x) {
    int32_t n, n_prompt;
    const int32_t *ids = fv_generation_ids(x->seq, &n, &n_prompt);
    if (!x->speculate || x->session->evict.method || !fv_speculation_fits(x->session->kv) ||
        fv_backend_tier(fv_decoder_backend(engine->dec)) == FV_TIER_FAST)
        return FV_OK;
    if (open_lookup(engine, x, ids, n_prompt) != FV_OK) return without();
    x->spec = (fv_speculation){.source = fv_lookup_source(x->lookup),
                               .n_vocab = fv_decoder_config(engine->dec)->vocab};
    if (!model || has_image(engine, ids, n)) return FV_OK;
    if (fv_drafter_open(model, &x->drafter) != FV_OK) return without();
    x->spec.model = fv_drafter_source(x->drafter);
    return FV_OK;
}

void fv_answer_end_drafts(fv_answer *x) {
    fv_lookup_close(x->lookup);
    fv_drafter_close(x->drafter);
    x->lookup = NULL;
    x->drafter = NULL;
}

/* Compares one token of both vocabularies. */
static fv_status check_token(const fv_engine *draft, const fv_engine *target, int32_t id,
                             fv_arena *arena) {
    char *a, *b;
    size_t n, m;
    FV_TRY(fv_tokenizer_token_text(draft->tok, id, arena, &a, &n));
    FV_TRY(fv_tokenizer_token_text(target->tok, id, arena, &b, &m));
    if (n == m && memcmp(a, b, n) == 0) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "token %d is another one than the checkpoint's: a draft model needs the same "
                   "vocabulary",
                   id);
}

fv_status fv_draft_check_vocabulary(const fv_engine *draft, const fv_engine *target) {
    int32_t n = draft->n_vocab < target->n_vocab ? draft->n_vocab : target->n_vocab;
    fv_arena arena = {0};
    fv_status st = FV_OK;
    for (int32_t id = 0; st == FV_OK && id < n; id++) {
        fv_arena_reset(&arena);
        st = check_token(draft, target, id, &arena);
    }
    fv_arena_fini(&arena);
    return st;
}
