/* Maps token indices to RoPE positions. Any thread. */
#include "common/rope_map.h"

enum { TIME_MAX = 1 << 28 };

static int32_t tokens(const fv_rope_grid *g) { return g->t * g->h * g->w; }

/* Start of the text after a grid. */
static int32_t next_free(const fv_rope_grid *g) { return g->start + (g->h > g->w ? g->h : g->w); }

/* Position of frame i, computed in float as in transformers. */
static float time_of(const fv_rope_grid *g, int32_t i) {
    return g->step == 0 ? (float)i : (float)i * g->step;
}

int32_t fv_rope_grids(const fv_token_span *span, int32_t n_span, fv_rope_grid *grid) {
    int32_t n = 0;
    for (int32_t i = 0; i < n_span; i++) {
        const fv_token_span *s = &span[i];
        if (s->n > 0 && s->n == (int64_t)s->t * s->h * s->w)
            grid[n++] =
                (fv_rope_grid){.first = s->first, .t = s->t, .h = s->h, .w = s->w, .step = s->step};
    }
    return n;
}

/* Returns whether a grid is valid and fits into `left` tokens. */
static bool fits(const fv_rope_grid *g, int32_t left) {
    return g->t > 0 && g->h > 0 && g->w > 0 && g->t <= left && g->h <= left / g->t &&
           g->w <= left / g->t / g->h;
}

fv_status fv_rope_map_make(fv_rope_grid *grid, int32_t n_grid, int32_t n, fv_rope_map *out) {
    int32_t index = 0, next = 0, most = -1;
    for (int32_t i = 0; i < n_grid; i++) {
        fv_rope_grid *g = &grid[i];
        if (g->first < index || g->first > n || !fits(g, n - g->first))
            return FV_FAIL(FV_EINVAL,
                           "grid %d, %d x %d x %d tokens from %d on, overlaps the one before or "
                           "reaches past the prompt's %d tokens",
                           i, g->t, g->h, g->w, g->first, n);
        if (!(g->step >= 0 && time_of(g, g->t - 1) <= TIME_MAX))
            return FV_FAIL(FV_EINVAL, "grid %d: %d frames, %g positions from one to the next", i,
                           g->t, (double)g->step);
        g->start = next + g->first - index;
        index = g->first + tokens(g);
        next = next_free(g);
        const int32_t last = g->start + (int32_t)time_of(g, g->t - 1);
        if (last > most) most = last;
    }
    next += n - index; /* start of the token after the prompt's last one */
    if (next - 1 > most) most = next - 1;
    *out = (fv_rope_map){.n = n, .n_grid = n_grid, .grid = grid, .delta = most + 1 - n};
    return FV_OK;
}

/* The last grid that starts at or before `index`; NULL: none. */
static const fv_rope_grid *grid_at(const fv_rope_map *m, int32_t index) {
    int32_t low = 0, high = m->n_grid;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (m->grid[mid].first <= index)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 ? &m->grid[low - 1] : NULL;
}

fv_rope_pos fv_rope_map_at(const fv_rope_map *m, int32_t index) {
    const fv_rope_grid *g = grid_at(m, index);
    int32_t p = index;
    if (index >= m->n) {
        p = index + m->delta;
    } else if (g) {
        int32_t i = index - g->first, s = g->start;
        if (i < tokens(g))
            return (fv_rope_pos){s + (int32_t)time_of(g, i / (g->h * g->w)), s + i / g->w % g->h,
                                 s + i % g->w};
        p = next_free(g) + i - tokens(g);
    }
    return (fv_rope_pos){p, p, p};
}
