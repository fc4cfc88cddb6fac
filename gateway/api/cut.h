#ifndef FOVEA_GATEWAY_API_CUT_H
#define FOVEA_GATEWAY_API_CUT_H

/* CUT: data: URLs are taken out of a body before it is parsed, because jansson reads a byte at a time, which for
 * a photograph takes longer than all else that the gateway does for its request:
 *
 *     {"url": "data:image/png;base64,iVBO..."}  ->  {"url": "data:0"}, and the URL stays where it is
 *
 * Only values of a key "url" without a backslash are cut, and all of those, so that no text changes and a "data:0"
 * of the client's is cut itself. Any thread. */
#include "common/arena.h"

enum { FV_API_CUTS_MAX = 512 }; /* more URLs than a request may have */

typedef struct fv_api_cuts {
    struct {
        const char *url; /* [n] in the body */
        size_t n;
    } of[FV_API_CUTS_MAX];
    size_t n;
} fv_api_cuts;

/* *body [*n] becomes the body without its URLs, in the arena; it stays what it was if it has none. */
fv_status fv_api_cut(fv_api_cuts *cuts, const char **body, size_t *n, fv_arena *arena);

/* The URL that *url [*n] stands for, if it does. Each is found once: a name in the place of a copy would make a
 * small body large. */
void fv_api_cut_find(fv_api_cuts *cuts, const char **url, size_t *n);

#endif
