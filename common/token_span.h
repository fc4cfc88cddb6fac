#ifndef FOVEA_COMMON_TOKEN_SPAN_H
#define FOVEA_COMMON_TOKEN_SPAN_H

/* TOKEN SPAN: an image in a prompt. Images follow one another, with text or nothing between them. */
#include <stdint.h>

typedef struct fv_token_span {
    int32_t first; /* position of its first token */
    int32_t n;     /* tokens; 0: nothing is left of it */
    /* Its patches: frames, rows and columns. The tokens are the patches in raster order, a class
     * token ahead of them where the text model sees it; condensed, they are some of those, or made
     * of several. */
    int32_t t, h, w;
} fv_token_span;

#endif
