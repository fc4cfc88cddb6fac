#ifndef FOVEA_GATEWAY_RESPONSE_H
#define FOVEA_GATEWAY_RESPONSE_H

/* RESPONSES: the Responses API over the answers of generate.h. Loop thread.
 *
 *   response.c        what comes before the calls: the response that is continued; what is kept
 *   response_write.c  parts of the answer -> items, and the events of a stream
 *   response_logprobs.c  log-probabilities of the items
 *   responses.c       responses by their ids: shown, deleted, cancelled, their input listed
 */
#include "gateway/api/response.h"
#include "gateway/generate.h"
#include "gateway/response_store.h"

typedef enum fv_response_item {
    FV_RESPONSE_NO_ITEM,
    FV_RESPONSE_MESSAGE,
    FV_RESPONSE_REASONING
} fv_response_item;

/* A response that is being made; it belongs to its answer. */
typedef struct fv_responding {
    fv_answer *answer;
    fv_response_owner owner;
    fv_kept_response *kept; /* what will be stored; a reference; NULL: nothing */
    json_t *echo, *output;  /* output: items that are complete */
    uint32_t n_event;
    bool announced; /* the stream's first event is out */
    bool ending;    /* it is complete, and is being kept */
    fv_response_remote_op *putting;
    json_t *whole;     /* what will be answered then; owned */
    const char *event; /* with this event */
    /* the item that is being written */
    fv_response_item item;
    char item_id[64];
    char *text; /* [n] owned, terminated */
    size_t n, cap;
    json_t *logprobs; /* entries of its tokens; owned; NULL: none yet */
    json_t *waiting;  /* entries whose text has not come; owned; NULL: none */
    size_t n_logprob,
        n_waiting; /* entries of all items and of those that wait, with alternatives */
    struct fv_responding *next, **link; /* in the gateway's list; link: NULL: not listed */
} fv_responding;

/* response.c */
fv_status fv_responding_begin(fv_answer *a);
void fv_responding_free(fv_responding *r); /* NULL is fine */
/* Whether the responses before it must be loaded before it can begin; _load begins that, and then fv_answer_begin_calls
 * is called again. */
bool fv_responding_must_load(const fv_answer *a);
fv_status fv_responding_load(fv_answer *a);
/* Makes the response as it is now, and keeps it where it is complete. Gives *out. */
fv_status fv_responding_end(fv_responding *r, const char *status, json_t **out);

/* response_logprobs.c. _hold adds a part's entries to those that wait; FV_ENOMEM: too many. _take gives those
 * that wait, which are from now on the item's, too; _drop ends them. A list; NULL: out of memory. */
fv_status fv_responding_hold_logprobs(fv_responding *r, const json_t *logprobs);
json_t *fv_responding_take_logprobs(fv_responding *r);
void fv_responding_drop_logprobs(fv_responding *r);
/* Bytes of a response's entries as a tree that their text does not count. */
size_t fv_responding_logprob_bytes(const fv_responding *r);

/* response_write.c: _cancel ends a running response with what it has. Gives it as it then is; NULL: out
 * of memory. */
json_t *fv_responding_cancel(fv_responding *r);
json_t *fv_responding_json(const fv_responding *r, const char *status, json_t *error,
                           const fv_api_usage *usage);

#endif
