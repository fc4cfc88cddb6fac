#ifndef FOVEA_GATEWAY_API_READER_H
#define FOVEA_GATEWAY_API_READER_H

/* Shared by the files that read JSON. A reader knows the path of the value that it is at, which is what
 * an error names. */
#include <jansson.h>

#include "gateway/api/cut.h"
#include "gateway/api/request.h"

typedef struct fv_api_reader {
    fv_arena *arena;
    fv_api_request *out;
    char *param;                      /* [FV_API_PARAM_MAX] the path */
    fv_api_cuts *cuts;                /* the body's data: URLs */
    const char *policy, *policy_from; /* text and where it was given; NULL: not yet */
} fv_api_reader;

/* Adds to the path, and takes it back: `size_t at = enter(...); ...; leave(r, at);`. A failure leaves the
 * path as it is, because it is the error's. */
size_t fv_api_enter(fv_api_reader *r, const char *key); /* ".key", or "key" at the front */
size_t fv_api_enter_index(fv_api_reader *r, size_t i);  /* "[i]" */
void fv_api_leave(fv_api_reader *r, size_t at);

/* FV_EINVAL unless it is of that type. A text may end with no NUL inside. */
fv_status fv_api_text(fv_api_reader *r, const json_t *v, char **out); /* copied into the arena */
fv_status fv_api_number(const json_t *v, double *out);                /* finite as a float */
fv_status fv_api_integer(const json_t *v, int64_t min, int64_t max, int64_t *out);
fv_status fv_api_bool(const json_t *v, bool *out);

fv_status fv_api_messages(fv_api_reader *r, const json_t *v); /* messages.c */

#endif
