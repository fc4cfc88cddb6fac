/* Log-probabilities of a response: entries of the tokens of its messages, in each delta and in the whole part.
 * An entry comes with its token, whose text may follow later. That text may also turn out to be a call or reasoning, which have
 * no log-probabilities, or never come: so entries wait for text. Loop thread. */
#include "gateway/response.h"

/* All entries stay until the response is complete, as trees, and are printed in several events. */
enum { ENTRIES_MAX = 32768, ENTRY_BYTES = 512 };

static fv_status out_of_memory(void) {
    return FV_FAIL(FV_ENOMEM, "out of memory for log-probabilities");
}

fv_status fv_responding_hold_logprobs(fv_responding *r, const json_t *logprobs) {
    const json_t *list = json_object_get(logprobs, "content");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *entry = json_array_get(list, i);
        r->n_waiting += 1 + json_array_size(json_object_get(entry, "top_logprobs"));
        if (r->n_logprob + r->n_waiting > ENTRIES_MAX)
            return FV_FAIL(FV_ENOMEM,
                           "the response has more than %d log-probabilities: lower top_logprobs or "
                           "max_output_tokens, or use /v1/chat/completions",
                           ENTRIES_MAX);
        if (!r->waiting) r->waiting = json_array();
        if (json_array_append(r->waiting, entry) != 0) return out_of_memory();
    }
    return FV_OK;
}

json_t *fv_responding_take_logprobs(fv_responding *r) {
    json_t *taken = r->waiting;
    if (!taken) return json_array();
    if (!r->logprobs) r->logprobs = json_array();
    if (json_array_extend(r->logprobs, taken) != 0) return NULL;
    r->waiting = NULL;
    r->n_logprob += r->n_waiting;
    r->n_waiting = 0;
    return taken;
}

void fv_responding_drop_logprobs(fv_responding *r) {
    json_decref(r->waiting);
    r->waiting = NULL;
    r->n_waiting = 0;
}

size_t fv_responding_logprob_bytes(const fv_responding *r) { return r->n_logprob * ENTRY_BYTES; }
