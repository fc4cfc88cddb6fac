/* Opens the lookup of an answer, with the tokens of its prediction. For the computing thread. */
#include "decode-worker/schedule/drafts.h"

#include <stdlib.h>

#include "decode-worker/speculate/lookup.h"

fv_status fv_answer_begin_drafts(const fv_engine *engine, fv_answer *x) {
    int32_t n, n_prompt, *prediction = NULL, n_prediction = 0;
    const int32_t *ids = fv_generation_ids(x->seq, &n, &n_prompt);
    if (!x->speculate || x->session->evict.method || !fv_speculation_fits(x->session->kv))
        return FV_OK;
    if (x->n_prediction > 0)
        FV_TRY(fv_fail_caller(fv_tokenizer_encode(engine->tok, x->prediction, x->n_prediction,
                                                  false, &prediction, &n_prediction)));
    fv_status st = fv_lookup_open(ids, n_prompt, prediction, n_prediction, &x->lookup);
    free(prediction);
    FV_TRY(st);
    x->spec = (fv_speculation){.source = fv_lookup_source(x->lookup),
                               .n_vocab = fv_decoder_config(engine->dec)->vocab};
    return FV_OK;
}

void fv_answer_end_drafts(fv_answer *x) {
    fv_lookup_close(x->lookup);
    x->lookup = NULL;
}
