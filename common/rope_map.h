#ifndef FOVEA_COMMON_ROPE_MAP_H
#define FOVEA_COMMON_ROPE_MAP_H

/* ROPE MAP: maps a token's index in its sequence to the position by which its queries and keys are
 * rotated, a triple (frame, row, column).
 *
 * In most models all three are the index, and the map is empty, {0}. Models with M-RoPE (Qwen2-VL,
 * arXiv 2409.12191, section 2.1) number the tokens of an image by its grid instead. As in
 * transformers' get_rope_index, with s the first free number:
 *
 *   text token            (s, s, s)                          next free: s + 1
 *   grid of t x h x w     (s + floor(i step), s + j, s + k)  next free: s + max(h, w)
 *   generated token       (p, p, p), p = index + delta; delta = 1 + greatest number - prompt tokens
 *
 * The map stays that of the whole prompt, whatever is pruned or evicted. libc only; any thread. */
#include "common/status.h"
#include "common/token_span.h"

typedef struct fv_rope_pos {
    int32_t t, h, w;
} fv_rope_pos;

typedef struct fv_rope_grid {
    int32_t first;   /* index of the first token; the others follow in raster order */
    int32_t t, h, w; /* frames, rows, columns */
    float step;      /* positions between frames (Qwen2.5-VL, in a video); 0: 1 */
    int32_t start;   /* s above; fv_rope_map_make sets it */
} fv_rope_grid;

typedef struct fv_rope_map {
    int32_t n; /* prompt tokens */
    int32_t n_grid;
    const fv_rope_grid *grid; /* [n_grid] borrowed */
    int32_t delta;            /* for tokens from index n on */
} fv_rope_map;

/* Makes the grids of a prompt's spans in grid[n_span]; returns their number. A span that is not a
 * whole grid (a class token, newlines, condensed tokens) has none: its tokens are numbered like
 * text. */
int32_t fv_rope_grids(const fv_token_span *span, int32_t n_span, fv_rope_grid *grid);

/* Makes the map of a prompt of n tokens with these grids, which it borrows. FV_EINVAL if they
 * overlap, do not ascend, are empty or reach past the prompt, or if a step is invalid. */
fv_status fv_rope_map_make(fv_rope_grid *grid, int32_t n_grid, int32_t n, fv_rope_map *out);

fv_rope_pos fv_rope_map_at(const fv_rope_map *m, int32_t index);

#endif
