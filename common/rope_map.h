#ifndef FOVEA_COMMON_ROPE_MAP_H
#define FOVEA_COMMON_ROPE_MAP_H

/* ROPE MAP: from a token's index in its sequence to the position that its queries and keys are rotated
 * by, which is a triple (frame, row, column).
 *
 * In most models the triple is the index three times over, and the map is empty, {0}. Models with
 * M-RoPE (Qwen2-VL, arXiv 2409.12191, section 2.1) number the tokens of an image by its grid
 * instead. As transformers' get_rope_index has it, with s the first number that is free:
 *
 *   text token            (s, s, s)             then s + 1 is free
 *   grid of t x h x w     (s + floor(i step), s + j, s + k)  then s + max(h, w) is
 *   generated token       (p, p, p), p = index + delta; delta = 1 + the greatest number - prompt tokens
 *
 * Whatever is pruned or evicted, the map stays that of the whole prompt. libc only; any thread. */
#include "common/status.h"
#include "common/token_span.h"

typedef struct fv_rope_pos {
    int32_t t, h, w;
} fv_rope_pos;

typedef struct fv_rope_grid {
    int32_t first;   /* index of its first token; the others follow in raster order */
    int32_t t, h, w; /* frames, rows, columns */
    float step;      /* positions from frame to frame (Qwen2.5-VL, of a video); 0: 1 */
    int32_t start;   /* its s; fv_rope_map_make sets it */
} fv_rope_grid;

typedef struct fv_rope_map {
    int32_t n; /* prompt tokens */
    int32_t n_grid;
    const fv_rope_grid *grid; /* [n_grid] borrowed */
    int32_t delta;            /* of tokens from index n on */
} fv_rope_map;

/* The grids of a prompt's spans, into grid[n_span]; returns how many. A span that is not a whole grid (a
 * class token, newlines, condensed tokens) has none: its tokens are numbered as text is. */
int32_t fv_rope_grids(const fv_token_span *span, int32_t n_span, fv_rope_grid *grid);

/* The map of a prompt of n tokens with these grids, which it borrows. FV_EINVAL where they overlap, do
 * not ascend, are empty, or reach past the prompt, or a step cannot be. */
fv_status fv_rope_map_make(fv_rope_grid *grid, int32_t n_grid, int32_t n, fv_rope_map *out);

fv_rope_pos fv_rope_map_at(const fv_rope_map *m, int32_t index);

#endif
