#ifndef FOVEA_COMMON_TOKEN_SPAN_H
#define FOVEA_COMMON_TOKEN_SPAN_H

/* TOKEN SPAN: consecutive visual tokens of an image or a video in a prompt. An image has one span
 * or several (its tiles, with text between them); images follow one another, with or without text
 * between them. */
#include <stdint.h>

typedef struct fv_token_span {
    int32_t first; /* position of the first token */
    int32_t n;     /* number of tokens; 0: all were dropped */
    int32_t image; /* index of the image in the prompt, from 0; ascending from span to span */
    /* Grid: frames, rows and columns. The tokens are the grid in raster order, with `ahead` tokens
     * before it (a class token) and the rest after it (a newline). Condensed tokens are a selection
     * of these, or merged from several. */
    int32_t t, h, w, ahead;
    float step;      /* positions between the grid's frames (common/rope_map.h); 0: 1 */
    int32_t encoded; /* tokens before the condense stage; 0: the same number */
} fv_token_span;

#endif
