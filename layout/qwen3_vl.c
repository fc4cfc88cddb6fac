/* Qwen3-VL (arXiv 2511.21631): images like Qwen2-VL's; videos as in transformers' Qwen3VLVideoProcessor and
 * Qwen3VLProcessor: two frames per tile, each tile preceded by its time, the mean of its frames' times, and
 * enclosed in special tokens; the limits apply to the pixels of all frames together. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

/* smart_resize in transformers. */
fv_layout_size fv_layout_qwen_resize(double side, double least, double most, double n, double w,
                                     double h) {
    if (h < side || w < side) {
        const double scale = fmax(side / h, side / w);
        h = floor(h * scale), w = floor(w * scale);
    }
    double rows = rint(h / side), cols = rint(w / side);
    const double area = rint(n / 2) * 2 * (rows * side) * (cols * side);
    if (area > most) {
        const double beta = sqrt(n * h * w / most);
        rows = fmax(1, floor(h / beta / side)), cols = fmax(1, floor(w / beta / side));
    } else if (area < least) {
        const double beta = sqrt(least / (n * h * w));
        rows = ceil(h * beta / side), cols = ceil(w * beta / side);
    }
    return (fv_layout_size){(int32_t)(cols * side), (int32_t)(rows * side)};
}

static double time_of(const fv_layout_clip *v, int32_t i) {
    if (i >= v->n) i = v->n - 1; /* the last frame is repeated */
    return v->n_seconds ? v->seconds[i] : i / v->fps;
}

/* Lays out a video. A single frame counts twice; transformers refuses it. */
static fv_status video(const fv_layout_config *c, const fv_layout_clip *v, fv_layout *l) {
    fv_layout_span span;
    int32_t n_tile;
    FV_TRY(fv_layout_qwen_frames(v->n, &n_tile));
    FV_TRY(fv_layout_qwen_aspect(l));
    l->tile = fv_layout_qwen_resize(c->patch * c->merge, c->video_pixels_min, c->video_pixels_max,
                                    v->n > 1 ? v->n : 2, l->image_w, l->image_h);
    FV_TRY(fv_layout_qwen_view(c, l, &span));
    for (int32_t i = 0; i < n_tile; i++) {
        span.tile = i;
        span.seconds = (time_of(v, 2 * i) + time_of(v, 2 * i + 1)) / 2;
        FV_TRY(fv_layout_add_span(l, &span));
    }
    l->frames = 2;
    l->n_tile = n_tile;
    l->n_text = 3 * n_tile; /* at least: the time is one token or more */
    return FV_OK;
}

static void text(const fv_layout *l, const char *mark, fv_layout_writer *w) {
    if (!l->video) fv_layout_write(w, "%s", mark);
    for (int32_t i = 0; l->video && i < l->n_span; i++)
        fv_layout_write(w, "<%.1f seconds><|vision_start|>%s<|vision_end|>", l->span[i].seconds,
                        mark);
}

const fv_layout_rules fv_layout_qwen3_vl = {.name = "qwen3_vl",
                                            .token = "<|image_pad|>",
                                            .video_token = "<|video_pad|>",
                                            .any_size = true,
                                            .check = fv_layout_qwen_check,
                                            .image = fv_layout_qwen_image,
                                            .video = video,
                                            .frames = {.ends = true, .multiple = 1},
                                            .tokens_max = fv_layout_qwen_tokens_max,
                                            .text = text};
