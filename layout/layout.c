/* The families' table, and the functions common to all families. */
#include "layout/layout.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "layout/internal.h"

static const double FPS_MIN = 0.001, FPS_MAX = 1000, SECONDS_MAX = 1e6;

static const fv_layout_rules *const rules[FV_N_LAYOUT] = {
#define FV_LAYOUT(NAME, name) [FV_LAYOUT_##NAME] = &fv_layout_##name,
#include "layout/layouts.def"
};

static const fv_layout_rules *rules_of(fv_layout_family f) {
    return (unsigned)f < FV_N_LAYOUT ? rules[f] : NULL;
}

const char *fv_layout_family_name(fv_layout_family f) {
    const fv_layout_rules *r = rules_of(f);
    return r ? r->name : "none";
}

const char *fv_layout_image_token(fv_layout_family f) {
    const fv_layout_rules *r = rules_of(f);
    return r && r->token ? r->token : "<image>";
}

const char *fv_layout_video_token(fv_layout_family f) {
    const fv_layout_rules *r = rules_of(f);
    return r ? r->video_token : NULL;
}

const char *fv_layout_replacement_text(fv_layout_family f) {
    const fv_layout_rules *r = rules_of(f);
    return r ? r->written : NULL;
}

/* ---- numbers ---------------------------------------------------------------------------- */

static fv_status check_in(const char *what, int32_t v, int32_t least, int32_t most) {
    if (v >= least && v <= most) return FV_OK;
    return FV_FAIL(FV_EINVAL, "%s is %" PRId32 "; %" PRId32 "..%" PRId32 " are possible", what, v,
                   least, most);
}

fv_status fv_layout_check(const fv_layout_config *c) {
    const fv_layout_rules *r = rules_of(c->family);
    if (!r) return FV_FAIL(FV_EINVAL, "the model reads no images of a family known here");
    FV_TRY(check_in("the tower's image size", c->tile, 1, FV_LAYOUT_SIDE_MAX));
    FV_TRY(check_in("the patch size", c->patch, 1, c->tile));
    FV_TRY(check_in("the number of patches of a token's side", c->merge, 1, c->tile / c->patch));
    if (!r->any_size && c->tile / c->patch % c->merge != 0)
        return FV_FAIL(FV_EINVAL,
                       "the %" PRId32 " patches of a tile's side are not a multiple of the %" PRId32
                       " patches of a token's side",
                       c->tile / c->patch, c->merge);
    if (c->class_token && c->family != FV_LAYOUT_LLAVA)
        return FV_FAIL(FV_EINVAL, "images of %s have no class token in the prompt", r->name);
    if (c->video_class && (c->family != FV_LAYOUT_LLAVA || !c->tower_class))
        return FV_FAIL(FV_EINVAL, "frames of %s have no class token", r->name);
    if (c->video_pixels_max && (!r->video || c->family == FV_LAYOUT_LLAVA))
        return FV_FAIL(FV_EINVAL, "models of family %s read videos only as images", r->name);
    return r->check(c);
}

int32_t fv_layout_side(const fv_layout_config *c) { return c->tile / c->patch / c->merge; }

/* ---- an image ----------------------------------------------------------------------------- */

static fv_status refuse_tokens(const fv_layout *l, int64_t n) {
    return FV_FAIL(FV_EINVAL,
                   "an image of %" PRId32 " x %" PRId32 " pixels has %" PRId64
                   " visual tokens; 1..%d are possible: send it in another size",
                   l->image_w, l->image_h, n, FV_LAYOUT_TOKENS_MAX);
}

fv_status fv_layout_add_view(fv_layout *l, const fv_layout_view *view) {
    const int64_t n_tile = l->n_tile + (int64_t)view->cols * view->rows;
    if (n_tile > FV_LAYOUT_TILES_MAX)
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32 " pixels has %" PRId64
                       " tiles; at most %d are possible: send it in another size",
                       l->image_w, l->image_h, n_tile, FV_LAYOUT_TILES_MAX);
    l->view[l->n_view++] = *view;
    l->n_tile = (int32_t)n_tile;
    return FV_OK;
}

fv_status fv_layout_add_span(fv_layout *l, const fv_layout_span *span) {
    const int64_t n = (int64_t)span->t * span->h * span->w + span->class_token + span->newline_end;
    if (n < 1 || l->n_visual + n > FV_LAYOUT_TOKENS_MAX) return refuse_tokens(l, l->n_visual + n);
    if (l->n_span == FV_LAYOUT_SPANS_MAX)
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32
                       " pixels has more than %d rows of tokens: send it in another size",
                       l->image_w, l->image_h, FV_LAYOUT_SPANS_MAX);
    l->span[l->n_span] = *span;
    l->span[l->n_span++].n = (int32_t)n;
    l->n_visual += (int32_t)n;
    return FV_OK;
}

fv_layout_span fv_layout_tile_span(const fv_layout_config *c, int32_t tile) {
    const int32_t side = fv_layout_side(c);
    return (fv_layout_span){.t = 1,
                            .h = side,
                            .w = side,
                            .tile = tile,
                            .cols = 1,
                            .rows = 1,
                            .crop_w = side,
                            .crop_h = side,
                            .class_token = c->class_token};
}

fv_status fv_layout_add_tile(const fv_layout_config *c, fv_layout *l, int32_t tile) {
    const fv_layout_span span = fv_layout_tile_span(c, tile);
    return fv_layout_add_span(l, &span);
}

fv_status fv_layout_image(const fv_layout_config *c, int32_t w, int32_t h, int32_t n_image,
                          fv_layout *out) {
    const fv_layout_rules *r = rules_of(c->family);
    if (!r) return FV_FAIL(FV_EINVAL, "the model reads no images");
    if (w < 1 || h < 1) return FV_FAIL(FV_EINVAL, "the image is empty");
    *out = (fv_layout){.image_w = w, .image_h = h, .tile = {c->tile, c->tile}, .frames = 1};
    return r->image(c, n_image, out);
}

bool fv_layout_reads_video(const fv_layout_config *c) {
    return c->video_pixels_max > 0 || c->video_class;
}

static fv_status check_clip(const fv_layout_clip *v) {
    if (!(v->fps >= FPS_MIN && v->fps <= FPS_MAX))
        return FV_FAIL(FV_EINVAL, "%g frames per second; %g to %g are possible", v->fps, FPS_MIN,
                       FPS_MAX);
    if (v->n_seconds && v->n_seconds != (size_t)v->n)
        return FV_FAIL(FV_EINVAL,
                       "%" PRId32 " frames and the times of %zu: give each frame's, or none", v->n,
                       v->n_seconds);
    for (size_t i = 0; i < v->n_seconds; i++) {
        const double least = i ? v->seconds[i - 1] : 0;
        if (!(v->seconds[i] >= least && v->seconds[i] <= SECONDS_MAX))
            return FV_FAIL(FV_EINVAL,
                           "frame %zu is at %g seconds; its time must be from %g, that of the "
                           "frame before it, to %g",
                           i, v->seconds[i], least, SECONDS_MAX);
    }
    return FV_OK;
}

fv_status fv_layout_video(const fv_layout_config *c, int32_t w, int32_t h,
                          const fv_layout_clip *video, fv_layout *out) {
    if (!fv_layout_reads_video(c))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the model does not read videos: send the frames as images");
    if (w < 1 || h < 1 || video->n < 1) return FV_FAIL(FV_EINVAL, "the video is empty");
    FV_TRY(check_clip(video));
    *out = (fv_layout){.image_w = w, .image_h = h, .video = true, .frames = 1};
    return rules_of(c->family)->video(c, video, out);
}

fv_layout_frames fv_layout_frames_of(const fv_layout_config *c) {
    const fv_layout_rules *r = rules_of(c->family);
    return r && r->video ? r->frames : (fv_layout_frames){.multiple = 1};
}

int32_t fv_layout_tokens_max(const fv_layout_config *c, int32_t n_image) {
    const fv_layout_rules *r = rules_of(c->family);
    const int64_t n = r ? r->tokens_max(c, n_image) : 0;
    return n < FV_LAYOUT_TOKENS_MAX ? (int32_t)n : FV_LAYOUT_TOKENS_MAX;
}

/* ---- an image's text ---------------------------------------------------------------------- */

void fv_layout_write(fv_layout_writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t room = FV_LAYOUT_TEXT_MAX - w->n;
    const int n = w->full ? 0 : vsnprintf(w->out + w->n, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room)
        w->full = true;
    else
        w->n += (size_t)n;
}

fv_status fv_layout_text(const fv_layout_config *c, const fv_layout *l, const char *mark,
                         char *out) {
    const fv_layout_rules *r = rules_of(c->family);
    fv_layout_writer w = {.out = out};
    out[0] = '\0';
    if (r && r->text)
        r->text(l, mark, &w);
    else
        for (int32_t i = 0; i < l->n_span; i++) fv_layout_write(&w, "%s", mark);
    if (!w.full) return FV_OK;
    return FV_FAIL(FV_EINVAL, "an image's text in the prompt would have more than %d bytes",
                   FV_LAYOUT_TEXT_MAX - 1);
}

/* ---- places in the image ------------------------------------------------------------------ */

fv_layout_rect fv_layout_view_rect(const fv_layout *l, const fv_layout_view *v) {
    fv_layout_size base = {l->image_w, l->image_h}, left = {0, 0};
    if (v->pad_square) {
        const int32_t side = base.w > base.h ? base.w : base.h;
        left = (fv_layout_size){(side - base.w) / 2, (side - base.h) / 2};
        base = (fv_layout_size){side, side};
    }
    const fv_layout_size last = v->n_resize ? v->resize[v->n_resize - 1] : base;
    const double across = (double)base.w / last.w, down = (double)base.h / last.h;
    return (fv_layout_rect){across * -v->x - left.w, down * -v->y - left.h, across * v->w,
                            down * v->h};
}

int32_t fv_layout_tower_row(const fv_layout_span *s, int32_t rows, int32_t cols, int32_t y,
                            int32_t x) {
    y += s->crop_y, x += s->crop_x;
    const int32_t tile = s->tile + y / rows * s->cols + x / cols;
    return tile * (rows * cols + s->class_token) + s->class_token + y % rows * cols + x % cols;
}

bool fv_layout_is_of_tiles(const fv_layout *l) {
    const fv_layout_span *s = &l->span[0];
    return l->n_tile == s->t && l->n_span == 1 && !s->newline_column && !s->newline_end &&
           s->crop_w == s->w && s->crop_h == s->h;
}

fv_layout_place fv_layout_span_place(const fv_layout_config *c, const fv_layout *l, int32_t span) {
    const fv_layout_span *s = &l->span[span];
    int32_t view = 0, tile = l->video ? 0 : s->tile, token = c->patch * c->merge;
    while (tile >= l->view[view].cols * l->view[view].rows) {
        tile -= l->view[view].cols * l->view[view].rows;
        view++;
    }
    const fv_layout_view *v = &l->view[view];
    int32_t cols = l->tile.w / token, rows = l->tile.h / token; /* tokens of a tile */
    double across = v->cols * cols, down = v->rows * rows;
    return (fv_layout_place){view, (tile % v->cols * cols + s->crop_x) / across,
                             (tile / v->cols * rows + s->crop_y) / down, s->crop_w / across,
                             s->crop_h / down};
}

const char *fv_layout_uncondensable(const fv_layout_config *c) {
    if (c->family == FV_LAYOUT_NONE) return NULL;
    if (!c->tower_class)
        return "the condense stage needs a vision tower with a class token, and this model's has "
               "none";
    if (c->merge > 1)
        return "the condense stage needs one token per patch, and this model merges patches";
    return NULL;
}

static bool is_within(const fv_layout_config *c, uint32_t n) {
    return n == 0 || (n >= (uint32_t)c->pixels_min && n <= (uint32_t)c->pixels_max);
}

fv_status fv_layout_bound(fv_layout_config *c, uint32_t pixels_min, uint32_t pixels_max) {
    if (!c->pixels_max || (!pixels_min && !pixels_max)) return FV_OK;
    const bool beyond = !is_within(c, pixels_min) || !is_within(c, pixels_max);
    if (beyond || (pixels_max && pixels_min > pixels_max))
        return FV_FAIL(FV_EINVAL,
                       "min_pixels %" PRIu32 ", max_pixels %" PRIu32
                       ": the model's limits are %" PRId32 " to %" PRId32
                       ", and min_pixels must not exceed max_pixels",
                       pixels_min, pixels_max, c->pixels_min, c->pixels_max);
    if (pixels_min) c->pixels_min = (int32_t)pixels_min;
    if (pixels_max) c->pixels_max = (int32_t)pixels_max;
    return FV_OK;
}

int64_t fv_layout_pixels(const fv_layout_config *c, int32_t w, int32_t h) {
    const fv_layout_rules *r = rules_of(c->family);
    const int64_t longer = w > h ? w : h;
    return c->pad_square || (r && r->pads) ? longer * longer : (int64_t)w * h;
}

bool fv_layout_tiled(const fv_layout_config *c) {
    return c->family != FV_LAYOUT_NONE && c->family != FV_LAYOUT_LLAVA &&
           !rules_of(c->family)->any_size;
}
