#ifndef FOVEA_LAYOUT_LAYOUT_H
#define FOVEA_LAYOUT_LAYOUT_H

/* LAYOUT: from the width and height of an image, or of a video's frames, to its tiles, its visual
 * tokens and the text around them in the prompt. No pixel is read, so a router and a gateway can
 * compute an image's cost from its header, like a prefill worker.
 *
 *   w, h --views--> resized, padded or cropped, cut into tiles of the tower's size
 *        --spans--> tokens in the order of the prompt, each span a grid of t x h x w
 *
 * A family is one file of this folder. Pure functions; any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef enum fv_layout_family {
    FV_LAYOUT_NONE = 0, /* the model reads text only */
#define FV_LAYOUT(NAME, name) FV_LAYOUT_##NAME,
#include "layout/layouts.def"
    FV_N_LAYOUT
} fv_layout_family;

enum {
    FV_LAYOUT_PINPOINTS_MAX = 64,
    FV_LAYOUT_VIEWS_MAX = 2,
    FV_LAYOUT_TILES_MAX = 256, /* of an image, all views together */
    FV_LAYOUT_SPANS_MAX = FV_LAYOUT_TILES_MAX,
    FV_LAYOUT_TOKENS_MAX = 100000,                /* of an image */
    FV_LAYOUT_SIDE_MAX = 8192,                    /* pixels of a tile's side */
    FV_LAYOUT_TEXT_MAX = 64 * FV_LAYOUT_TILES_MAX /* bytes of an image's text in the prompt */
};

typedef struct fv_layout_size {
    int32_t w, h; /* pixels */
} fv_layout_size;

/* The parameters of a family's layout, from config.json and preprocessor_config.json; sent in the Model
 * message. Fields that a family does not read are 0. */
typedef struct fv_layout_config {
    fv_layout_family family;
    int32_t tile;  /* pixels of a side of the vision tower's input; Mistral 3: of the largest */
    int32_t patch; /* pixels of a patch's side; the rest of a tile is not read */
    int32_t merge; /* patches of a token's side; divides tile / patch; 1: each patch is a token */
    /* tower_class: the tower has a class token, whose attention the condense stage reads. class_token: the
     * text model sees it too, ahead of each tile's patches. */
    bool tower_class, class_token;
    /* LLaVA-1.5: pads to a square; scales the shorter side to shortest_edge, or if that is 0, the image to
     * resize, unless that is 0 x 0; then crops tile x tile pixels from the centre. Mistral 3: scales down
     * to at most resize. LightOnOCR: the same; sides are multiples of shortest_edge. */
    bool pad_square;
    int32_t shortest_edge;
    fv_layout_size resize;
    /* LLaVA-NeXT, LLaVA-OneVision: sizes that an image may be fitted to, in the order of the file. */
    int32_t n_pinpoint;
    fv_layout_size pinpoint[FV_LAYOUT_PINPOINTS_MAX];
    /* InternVL: limits of the number of tiles, without the whole image. LLaVA-OneVision's anyres_max_N: a
     * grid with more tokens than tiles_max tiles is scaled down. */
    int32_t tiles_min, tiles_max;
    /* Idefics3 */
    int32_t longest_edge; /* pixels, of the first resize */
    bool split;           /* tiles and the whole image; otherwise only the whole image */
    /* Qwen-VL: limits of an image's pixels after scaling */
    int32_t pixels_min, pixels_max;
    /* The same limits for each frame of a video, for Qwen3-VL for all frames together; 0: the model reads videos
     * as images only. Qwen2.5-VL: positions that a second of a video takes; 0: one for two frames. */
    int32_t video_pixels_min, video_pixels_max, tokens_per_second;
    /* Video-LLaVA reads videos: a frame is laid out like an image, with the tower's class token ahead of its
     * patches. */
    bool video_class;
} fv_layout_config;

/* The steps that make the pixels of a view: [pad to a square,] resize one or more times, place on a canvas
 * of w x h black pixels with the upper left corner at (x, y), clip, and cut the canvas into rows x cols
 * tiles in raster order. */
typedef struct fv_layout_view {
    bool pad_square; /* first centres the image on a square of the mean colour */
    int32_t n_resize;
    fv_layout_size resize[3]; /* in turn; each starts from the 8-bit pixels of the one before */
    int32_t x, y;             /* below 0: that many pixels are cropped */
    int32_t w, h;
    int32_t cols, rows;
} fv_layout_view;

/* Consecutive visual tokens: those of one tile, or of several tiles side by side, as one grid. The grid of
 * the tiles' tokens, rows * side by cols * side, is cropped to crop_h x crop_w tokens from (crop_x, crop_y),
 * scaled to h x (w - newline_column) if that differs (bilinear, as torch.nn.functional.interpolate with
 * align_corners=False), and read in raster order. A video's span has a grid for each of t tiles, in turn. */
typedef struct fv_layout_span {
    int32_t n;          /* tokens: t * h * w, plus 1 for each of class_token and newline_end */
    int32_t t, h, w;    /* frames, rows, columns; w counts the newline */
    float step;         /* positions from frame to frame; 0: 1 (common/rope_map.h) */
    double seconds;     /* Qwen3-VL's videos: the time written in the text ahead of the span */
    int32_t tile;       /* index of the first tile, over all the image's views in turn */
    int32_t cols, rows; /* number of columns and rows of tiles */
    int32_t crop_x, crop_y, crop_w, crop_h; /* tokens */
    bool class_token;                       /* a class token precedes the grid */
    bool newline_column;                    /* each row ends with the family's newline embedding */
    bool newline_end;                       /* the span ends with it */
} fv_layout_span;

typedef struct fv_layout {
    int32_t image_w, image_h;
    fv_layout_size tile; /* pixels of each tile; the resized image if the tower reads any size */
    int32_t n_view, n_tile, n_span;
    bool video;
    int32_t frames;   /* frames per tile: 1; Qwen-VL's videos 2, an odd last frame counts twice */
    int32_t n_visual; /* tokens of all spans */
    /* Tokens of the text around them: special tokens, and newlines, of which two in a row are one token; a lower
     * bound for the times in Qwen3-VL's videos */
    int32_t n_text;
    fv_layout_view view[FV_LAYOUT_VIEWS_MAX];
    fv_layout_span span[FV_LAYOUT_SPANS_MAX];
} fv_layout;

/* FV_EINVAL names the number with which no layout can be made: sides that do not divide, too many
 * pinpoints. Call it first on a config that came over the wire. */
fv_status fv_layout_check(const fv_layout_config *c);

/* Computes the layout of an image of w x h pixels, one of n_image in its prompt. FV_EINVAL, with the
 * image's size and the limit, if it would have no token, or more tiles or tokens than the limits above. */
fv_status fv_layout_image(const fv_layout_config *c, int32_t w, int32_t h, int32_t n_image,
                          fv_layout *out);

/* Narrows the limits of an image's area in c to those of a request, in pixels; 0: c's own. Without
 * effect where the family has no such limits. FV_EINVAL: beyond c's limits, or the least above the most. */
fv_status fv_layout_bound(fv_layout_config *c, uint32_t pixels_min, uint32_t pixels_max);

/* The frames of a video. */
typedef struct fv_layout_clip {
    int32_t n;
    double fps; /* of these frames */
    /* [n_seconds] the time of each frame in the video, which begins at 0; without times frame i is at i / fps. */
    const double *seconds;
    size_t n_seconds; /* 0 or n */
} fv_layout_clip;

/* Computes the layout of a video with frames of w x h pixels. FV_EINVAL as above, and if fps or the times of
 * the frames are impossible; FV_EUNSUPPORTED unless fv_layout_reads_video. */
fv_status fv_layout_video(const fv_layout_config *c, int32_t w, int32_t h,
                          const fv_layout_clip *video, fv_layout *out);
bool fv_layout_reads_video(const fv_layout_config *c);

/* How the family's video processor chooses n frames of a file: with `ends` the first and the last one and
 * others at equal distances, otherwise the first of each of n equal parts; n is a multiple of `multiple`. */
typedef struct fv_layout_frames {
    bool ends;
    int32_t multiple;
} fv_layout_frames;
fv_layout_frames fv_layout_frames_of(const fv_layout_config *c);

/* The prompt's text for the image, in place of its image token: the family's special tokens, with
 * `mark` (the text of the image token) once for each span, NUL-terminated in out[FV_LAYOUT_TEXT_MAX].
 * The text begins and ends with special tokens, so tokens before and after do not depend on it; except that
 * the text of Qwen3-VL's videos begins with the first time, after a special token of the chat template. */
fv_status fv_layout_text(const fv_layout_config *c, const fv_layout *l, const char *mark,
                         char *out);

/* Whether the visual tokens are exactly the tiles' tokens, without crops, scaling and newlines. */
bool fv_layout_is_of_tiles(const fv_layout *l);

/* The view that shows a span, and the span's part of the view's canvas: x, y, w, h as fractions of 1. */
typedef struct fv_layout_place {
    int32_t view;
    double x, y, w, h;
} fv_layout_place;
fv_layout_place fv_layout_span_place(const fv_layout_config *c, const fv_layout *l, int32_t span);

/* The part of the image that a view shows, in the image's own pixels. Parts outside the image are padding. */
typedef struct fv_layout_rect {
    double x, y, w, h;
} fv_layout_rect;
fv_layout_rect fv_layout_view_rect(const fv_layout *l, const fv_layout_view *v);

/* The row, in the tower's output, of token (y, x) of a span's grid before scaling: rows are tile after tile,
 * each [class token, if the span has one; rows x cols tokens in raster order]. */
int32_t fv_layout_tower_row(const fv_layout_span *s, int32_t rows, int32_t cols, int32_t y,
                            int32_t x);

/* Why the condense stage, which uses the attention of the tower's class token to patches, cannot work; NULL:
 * it can. */
const char *fv_layout_uncondensable(const fv_layout_config *c);

/* Whether images are cut into tiles. */
bool fv_layout_tiled(const fv_layout_config *c);

/* Pixels that preparing an image of w x h pixels goes over at most: its own, or those of the square
 * that it is padded to. */
int64_t fv_layout_pixels(const fv_layout_config *c, int32_t w, int32_t h);

/* Upper bound on the visual tokens of an image in a prompt of n_image. */
int32_t fv_layout_tokens_max(const fv_layout_config *c, int32_t n_image);

const char *fv_layout_family_name(fv_layout_family f); /* "llava_next"; never NULL */

/* The text that marks an image in a prompt, "<image>" in most families; never NULL. */
const char *fv_layout_image_token(fv_layout_family f);

/* The text that marks a video; NULL: the family has none. */
const char *fv_layout_video_token(fv_layout_family f);

/* The text that replaces the image token before the prompt is tokenized: it contains the image token, and
 * its ends may form tokens with their neighbours; NULL: the image token itself. */
const char *fv_layout_replacement_text(fv_layout_family f);

#endif
