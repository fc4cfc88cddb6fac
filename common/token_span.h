#ifndef FOVEA_COMMON_TOKEN_SPAN_H
#define FOVEA_COMMON_TOKEN_SPAN_H

/* TOKEN SPAN: visual tokens of an image, or of a video, that follow one another in a prompt. An image
 * has one span or several (its tiles, with text between them), and images follow one another, with
 * text or nothing between them. */
#include <stdint.h>

typedef struct fv_token_span {
    int32_t first; /* position of its first token */
    int32_t n;     /* tokens; 0: nothing is left of it */
    int32_t image; /* of the prompt, from 0; ascending from span to span */
    /* Its grid: frames, rows and columns. The tokens are the grid in raster order, `ahead` others in
     * front of it (a class token) and the rest after it (a newline); condensed, they are some of
     * those, or made of several. */
    int32_t t, h, w, ahead;
    float step;      /* of the grid's frames (common/rope_map.h); 0: 1 */
    int32_t encoded; /* tokens before the condense stage; 0: as many as now */
} fv_token_span;

#endif
