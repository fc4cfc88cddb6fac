/* The stage: the tower with a capture, the method image by image on the host, the projector on the
 * remaining features. Methods merge features, so the projector runs after them; its rows are
 * independent, so a token that was only selected has the bits that it has in `exact`. */
#include "prefill-worker/condense/condense.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "policy/stage_rows.h"

static const fv_condense_method *const methods[] = {
#undef CONDENSE
#define CONDENSE(name) [FV_METHOD_CONDENSE_##name] = &fv_condense_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

const fv_condense_method *fv_condense_method_of(fv_method_id id) { return methods[id]; }

/* ---- what methods share ----------------------------------------------------------------- */

/* p[j] = exp(s_j - max s), s_j = scale q k_j; gives their sum. */
static double exponents(const float *q, const float *k, int32_t n, int32_t d, int32_t ld,
                        double *p) {
    double most = -INFINITY, sum = 0, scale = 1 / sqrt((double)d);
    for (int32_t j = 0; j < n; j++) {
        double dot = 0;
        for (int32_t c = 0; c < d; c++)
            dot += (double)q[c] * (double)k[(size_t)j * (size_t)ld + (size_t)c];
        p[j] = scale * dot;
        if (p[j] > most) most = p[j];
    }
    for (int32_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - most);
    return sum;
}

fv_status fv_condense_score(const float *q, const float *k, int32_t n, int32_t d, int32_t n_head,
                            fv_arena *arena, float *score) {
    double *p, *total;
    int32_t d_head = d / n_head;
    FV_TRY(FV_ARENA_NEW(arena, n, p));
    FV_TRY(FV_ARENA_NEW(arena, n, total));
    for (int32_t h = 0; h < n_head; h++) {
        double sum =
            exponents(q + (ptrdiff_t)h * d_head, k + (ptrdiff_t)h * d_head, n, d_head, d, p);
        for (int32_t j = 0; j < n; j++) total[j] += p[j] / sum;
    }
    for (int32_t j = 0; j < n; j++) score[j] = (float)total[j];
    return FV_OK;
}

fv_status fv_condense_select(const fv_condense_context *ctx, const int32_t *source, int32_t n,
                             fv_condensed *out) {
    float *feature;
    size_t width = (size_t)ctx->width;
    FV_TRY(FV_ARENA_NEW(ctx->arena, (size_t)n * width, feature));
    for (int32_t i = 0; i < n; i++)
        memcpy(feature + (size_t)i * width, ctx->feature + (size_t)source[i] * width,
               width * sizeof *feature);
    *out = (fv_condensed){.n = n, .feature = feature, .source = source};
    return FV_OK;
}

/* ---- the tower's outputs ---------------------------------------------------------------- */

/* Outputs of the tower, on the host. A tile has n_key rows in the tower, the class token first, of which
 * the last n_row are features. */
typedef struct seen {
    int32_t n_tile, n_key, n_row, d;
    fv_vision_capture capture, first; /* `first` is empty unless the method wants it */
    float *feature;                   /* [n_tile, n_row, width] */
} seen;

static fv_status make_capture(const seen *s, int32_t layer, fv_arena *arena, fv_vision_capture *c) {
    size_t tiles = (size_t)s->n_tile, d = (size_t)s->d;
    c->layer = layer;
    FV_TRY(FV_ARENA_NEW(arena, tiles * d, c->q));
    return FV_ARENA_NEW(arena, tiles * (size_t)s->n_key * d, c->k);
}

static fv_status run_tower(fv_vision *v, const fv_vision_config *cfg,
                           const fv_condense_method *method, const float *pixels, int32_t n_tile,
                           fv_device *dev, fv_arena *arena, seen *s) {
    int32_t side = cfg->image / cfg->patch, width = fv_vision_feature_width(cfg);
    int32_t last = fv_vision_layers(v) - (method->after ? 0 : 1);
    bool first = method->first && n_tile > 1;
    fv_vision_capture both[2];
    fv_buf features;
    if (last >= cfg->n_layer) last = cfg->n_layer - 1;
    *s = (seen){n_tile, 1 + side * side, fv_vision_tokens(cfg), cfg->d_model, {0}, {0}, NULL};
    FV_TRY(make_capture(s, last > 0 ? last : 0, arena, &s->capture));
    if (first) FV_TRY(make_capture(s, 0, arena, &s->first));
    both[0] = s->capture, both[1] = s->first;
    int32_t rows = n_tile * s->n_row;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)rows * (size_t)width, s->feature));
    size_t bytes = (size_t)rows * (size_t)width * sizeof *s->feature;
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &features));
    fv_vision_out to = {.features = fv_tensor_of(features.data, FV_F32, rows, width),
                        .n_capture = first ? 2 : 1,
                        .capture = both};
    fv_status st = fv_vision_encode(v, pixels, n_tile, &to);
    if (st == FV_OK) st = fv_device_copy(dev, s->feature, features.data, bytes);
    fv_buf_free(&features);
    return st;
}

/* score[n_row]: attention of a tile's class token to the rows that the tile gives. */
static fv_status score_tile(const seen *s, const fv_vision_capture *c, int32_t tile, int32_t n_head,
                            fv_arena *arena, float *score) {
    const float *key = c->k + (size_t)tile * (size_t)s->n_key * (size_t)s->d;
    float *all;
    FV_TRY(FV_ARENA_NEW(arena, s->n_key, all));
    FV_TRY(fv_condense_score(c->q + (size_t)tile * (size_t)s->d, key, s->n_key, s->d, n_head, arena,
                             all));
    memcpy(score, all + (s->n_key - s->n_row), (size_t)s->n_row * sizeof *score);
    return FV_OK;
}

/* ---- an image's tokens ------------------------------------------------------------------ */

/* The n tokens that the tower makes: `token` counts all of the image's tokens, `row` the tiles' features. */
typedef struct made {
    int32_t n;
    int32_t *token, *row;
} made;

/* Appends the tokens of a span, whose first token is `at`. */
static void add_span(const fv_layout_span *s, int32_t side, int32_t at, made *m) {
    int32_t w = s->w - s->newline_column;
    assert(s->crop_h == s->h && s->crop_w == w);
    if (s->class_token) {
        m->token[m->n] = at++;
        m->row[m->n++] = s->tile * (side * side + 1);
    }
    for (int32_t y = 0; y < s->h; y++)
        for (int32_t x = 0; x < w; x++) {
            m->token[m->n] = at + y * s->w + x;
            m->row[m->n++] = fv_layout_tower_row(s, side, side, y, x);
        }
}

static fv_status list_tokens(const fv_layout *l, int32_t side, fv_arena *arena, made *m) {
    *m = (made){0};
    FV_TRY(FV_ARENA_NEW(arena, l->n_visual, m->token));
    FV_TRY(FV_ARENA_NEW(arena, l->n_visual, m->row));
    for (int32_t i = 0, at = 0; i < l->n_span; at += l->span[i++].n)
        add_span(&l->span[i], side, at, m);
    return FV_OK;
}

static int32_t within(int32_t i, int32_t n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* The tile of the second view that shows the middle of patch i of the first view, which is one tile of
 * side x side patches. */
static int32_t shown_by(const fv_layout *l, int32_t side, int32_t i) {
    const fv_layout_view *view = &l->view[1];
    const fv_layout_rect whole = fv_layout_view_rect(l, &l->view[0]),
                         cut = fv_layout_view_rect(l, view);
    double x = whole.x + whole.w * (i % side + 0.5) / side,
           y = whole.y + whole.h * (i / side + 0.5) / side;
    int32_t col = within((int32_t)floor((x - cut.x) / cut.w * view->cols), view->cols),
            row = within((int32_t)floor((y - cut.y) / cut.h * view->rows), view->rows);
    return 1 + row * view->cols + col;
}

/* Adds what methods read of images of several tiles. */
static fv_status add_tiles(const fv_vision_config *cfg, const fv_layout *l, const seen *s,
                           const made *m, fv_arena *arena, fv_condense_context *ctx) {
    int32_t *tile, *by, side = cfg->image / cfg->patch;
    float *first;
    assert(s->n_row == side * side && l->n_view == 2 && l->view[0].cols * l->view[0].rows == 1);
    FV_TRY(FV_ARENA_NEW(arena, m->n, tile));
    FV_TRY(FV_ARENA_NEW(arena, s->n_row, by));
    FV_TRY(FV_ARENA_NEW(arena, s->n_row, first));
    for (int32_t i = 0; i < m->n; i++) tile[i] = m->row[i] / s->n_row;
    for (int32_t i = 0; i < s->n_row; i++) by[i] = shown_by(l, side, i);
    if (s->first.k) FV_TRY(score_tile(s, &s->first, 0, cfg->n_head, arena, first));
    ctx->tile = tile;
    ctx->n_whole = s->n_row;
    ctx->first_score = first;
    ctx->shown_by = by;
    return FV_OK;
}

static fv_status make_context(const fv_vision_config *cfg, const fv_condense_method *method,
                              const fv_layout *l, const seen *s, const made *m, fv_arena *arena,
                              fv_condense_context *ctx) {
    size_t d = (size_t)s->d, width = (size_t)fv_vision_feature_width(cfg), n = (size_t)m->n;
    float *of_tiles, *score, *feature, *key;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)s->n_tile * (size_t)s->n_row, of_tiles));
    FV_TRY(FV_ARENA_NEW(arena, n, score));
    FV_TRY(FV_ARENA_NEW(arena, n * width, feature));
    FV_TRY(FV_ARENA_NEW(arena, n * d, key));
    for (int32_t t = 0; t < s->n_tile; t++)
        FV_TRY(score_tile(s, &s->capture, t, method->whole ? 1 : cfg->n_head, arena,
                          of_tiles + (size_t)t * (size_t)s->n_row));
    for (size_t i = 0; i < n; i++) {
        int32_t row = m->row[i], tile = row / s->n_row;
        int32_t of_keys = tile * s->n_key + (s->n_key - s->n_row) + row % s->n_row;
        score[i] = of_tiles[row];
        memcpy(feature + i * width, s->feature + (size_t)row * width, width * sizeof *feature);
        memcpy(key + i * d, s->capture.k + (size_t)of_keys * d, d * sizeof *key);
    }
    ctx->n = m->n;
    ctx->width = (int32_t)width;
    ctx->feature = feature;
    ctx->score = score;
    ctx->d_key = s->d;
    ctx->key = key;
    ctx->n_tile = s->n_tile;
    ctx->arena = arena;
    return s->n_tile > 1 ? add_tiles(cfg, l, s, m, arena, ctx) : FV_OK;
}

/* ---- the stage -------------------------------------------------------------------------- */

static fv_status project(fv_vision *v, const float *feature, int32_t n, int32_t width,
                         fv_device *dev, fv_tensor embeds) {
    fv_buf features;
    size_t bytes = (size_t)n * (size_t)width * sizeof *feature;
    if (n == 0) return FV_OK;
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &features));
    fv_status st = fv_device_copy(dev, features.data, feature, bytes);
    if (st == FV_OK)
        st = fv_vision_project(v, fv_tensor_of(features.data, FV_F32, n, width), embeds);
    fv_buf_free(&features);
    return st;
}

fv_status fv_condense_run(fv_vision *v, const fv_vision_config *cfg, const fv_choice *choice,
                          const fv_layout *l, const float *pixels, fv_device *dev, fv_arena *arena,
                          fv_condensed_image *out) {
    const fv_condense_method *method = methods[choice->method->id];
    int32_t width = fv_vision_feature_width(cfg), d = cfg->d_text;
    fv_params params;
    fv_condense_context ctx = {.params = &params};
    fv_condensed_image image = {0};
    fv_condensed left;
    seen s;
    made m;
    fv_choice_params(choice, 32, &params); /* any number of layers: no parameter names one */
    FV_TRY(run_tower(v, cfg, method, pixels, l->n_tile, dev, arena, &s));
    FV_TRY(list_tokens(l, cfg->image / cfg->patch, arena, &m));
    FV_TRY(make_context(cfg, method, l, &s, &m, arena, &ctx));
    FV_TRY(method->run(&ctx, &left));
    image.n = left.n;
    FV_TRY(FV_ARENA_NEW(arena, left.n, image.source));
    for (int32_t i = 0; i < left.n; i++)
        image.source[i] = left.source[i] < 0 ? -1 : m.token[left.source[i]];
    size_t bytes = (size_t)left.n * (size_t)d * sizeof(float);
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &image.embeds));
    fv_status st = project(v, left.feature, left.n, width, dev,
                           fv_tensor_of(image.embeds.data, FV_F32, left.n, d));
    if (st == FV_OK)
        *out = image;
    else
        fv_buf_free(&image.embeds);
    return st;
}
