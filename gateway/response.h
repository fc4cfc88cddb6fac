#ifndef FOVEA_GATEWAY_RESPONSE_H
#define FOVEA_GATEWAY_RESPONSE_H

/* RESPONSES: the Responses API over the answers of generate.h. Loop thread.
 *
 *   response.c        what comes before the calls: the response that is continued; what is kept
 *   response_write.c  parts of the answer -> items, and the events of a stream
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

/* response_write.c: _cancel ends a running response with what it has. Gives it as it then is; NULL: out
 * of memory. */
json_t *fv_responding_cancel(fv_responding *r);
json_t *fv_responding_json(const fv_responding *r, const char *status, json_t *error,
                           const fv_api_usage *usage);

#endif
