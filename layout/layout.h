#ifndef FOVEA_LAYOUT_LAYOUT_H
#define FOVEA_LAYOUT_LAYOUT_H

/* LAYOUT: from the width and height of an image, or of a video's frames, to its tiles, its visual
 * tokens and what stands around them in the prompt. No pixel is read, so whoever has an image's
 * header can compute what the image costs: a router and a gateway as well as a prefill worker.
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

/* What a family's layout depends on, from config.json and preprocessor_config.json. It travels in the
 * Model message. What a family does not read is 0. */
typedef struct fv_layout_config {
    fv_layout_family family;
    int32_t tile;  /* pixels of a side of what the vision tower reads; Mistral 3: of the largest */
    int32_t patch; /* pixels of a patch's side; what is left of a tile is not read */
    int32_t merge; /* patches of a token's side; divides tile / patch; 1: each patch is a token */
    /* The tower has a class token, whose attention the condense stage reads; and the text model sees
     * it, ahead of each tile's patches. */
    bool tower_class, class_token;
    /* LLaVA-1.5: pad to a square; the shorter side to shortest_edge, or, where that is 0, to resize,
     * or, where that is 0 x 0, nothing; then a crop of tile x tile pixels from the centre. Mistral 3:
     * scaled down to at most resize. */
    bool pad_square;
    int32_t shortest_edge;
    fv_layout_size resize;
    /* LLaVA-NeXT, LLaVA-OneVision: sizes, in the order of the file, that an image may be fitted to. */
    int32_t n_pinpoint;
    fv_layout_size pinpoint[FV_LAYOUT_PINPOINTS_MAX];
    /* InternVL: at least and at most so many tiles beside the whole image. LLaVA-OneVision's
     * anyres_max_N: more tokens than tiles_max tiles have are reduced. */
    int32_t tiles_min, tiles_max;
    /* Idefics3 */
    int32_t longest_edge; /* pixels, of the first resize */
    bool split;           /* tiles and the whole image; otherwise the whole image alone */
    /* Qwen-VL: an image is scaled to at least and at most so many pixels */
    int32_t pixels_min, pixels_max;
    /* Frames of a video likewise, each, and of Qwen3-VL all together; 0: the model reads videos as images only.
     * Qwen2.5-VL: positions that a second of a video takes; 0: one for two frames. */
    int32_t video_pixels_min, video_pixels_max, tokens_per_second;
    /* Video-LLaVA reads videos: a frame is as an image, with the tower's class token ahead of its patches. */
    bool video_class;
} fv_layout_config;

/* How the pixels of a view come about: [pad to a square,] resize one or more times, put on a canvas of
 * w x h black pixels with the upper left corner at (x, y), cut off what lies outside, and cut the
 * canvas into rows x cols tiles in raster order. */
typedef struct fv_layout_view {
    bool pad_square; /* in the middle of a square of the mean colour, first */
    int32_t n_resize;
    fv_layout_size resize[3]; /* in turn; each starts from the bytes that the one before made */
    int32_t x, y;             /* below 0: that much is cropped */
    int32_t w, h;
    int32_t cols, rows;
} fv_layout_view;

/* Visual tokens that follow one another: one tile's, or those of several tiles side by side, as one
 * grid. The grid of the tiles' tokens, rows * side by cols * side, is cropped to crop_h x crop_w tokens
 * from (crop_x, crop_y), scaled to h x (w - newline_column) where that differs (bilinear, as
 * torch.nn.functional.interpolate with align_corners=False), and read in raster order. A video's grids
 * follow one another, one of each tile. */
typedef struct fv_layout_span {
    int32_t n;          /* tokens: t * h * w, plus 1 for each of class_token and newline_end */
    int32_t t, h, w;    /* frames, rows, columns; w counts the newline */
    float step;         /* positions from frame to frame; 0: 1 (common/rope_map.h) */
    double seconds;     /* Qwen3-VL, of a video: when it is, in the text ahead of it */
    int32_t tile;       /* number of the first tile, of all the image's views in turn */
    int32_t cols, rows; /* of tiles */
    int32_t crop_x, crop_y, crop_w, crop_h; /* tokens */
    bool class_token;                       /* one ahead of the grid */
    bool newline_column;                    /* each row ends with the family's newline embedding */
    bool newline_end;                       /* the span does */
} fv_layout_span;

typedef struct fv_layout {
    int32_t image_w, image_h;
    fv_layout_size
        tile; /* pixels of each tile; of families whose tower reads any size, the image's */
    int32_t n_view, n_tile, n_span;
    bool video;
    int32_t
        frames; /* that a tile shows: 1; of a video 2, the last one twice where that is left over */
    int32_t n_visual; /* tokens of all spans */
    int32_t n_text;   /* tokens of the text around them: special tokens, and newlines, which are one
                       * token also where two follow one another; at least one of each time of Qwen3-VL's videos */
    fv_layout_view view[FV_LAYOUT_VIEWS_MAX];
    fv_layout_span span[FV_LAYOUT_SPANS_MAX];
} fv_layout;

/* FV_EINVAL names the number that no layout can be made with: sides that do not divide, too many
 * pinpoints. Run it on what came over the wire before anything else here. */
fv_status fv_layout_check(const fv_layout_config *c);

/* The layout of an image of w x h pixels, one of n_image in its prompt. FV_EINVAL with the image's
 * size and the limit where it would make no token, or more tiles or tokens than the limits above. */
fv_status fv_layout_image(const fv_layout_config *c, int32_t w, int32_t h, int32_t n_image,
                          fv_layout *out);

/* The frames of a video. */
typedef struct fv_layout_clip {
    int32_t n;
    double fps; /* of these frames */
    /* [n_seconds] the time of each in the video, which begins at 0; without them frame i is at i / fps. */
    const double *seconds;
    size_t n_seconds; /* 0 or n */
} fv_layout_clip;

/* The layout of a video with frames of w x h pixels. FV_EINVAL as above, and where fps or the times of the
 * frames cannot be; FV_EUNSUPPORTED unless fv_layout_reads_video. */
fv_status fv_layout_video(const fv_layout_config *c, int32_t w, int32_t h,
                          const fv_layout_clip *video, fv_layout *out);
bool fv_layout_reads_video(const fv_layout_config *c);

/* How the family's video processor takes frames of a file: the first and the last one and others at equal
 * distances, or the first of each of n equal parts; n is a multiple of this. */
typedef struct fv_layout_frames {
    bool ends;
    int32_t multiple;
} fv_layout_frames;
fv_layout_frames fv_layout_frames_of(const fv_layout_config *c);

/* The prompt's text for the image, in place of its image token: the family's special tokens, with
 * `mark` (the text of the image token) once for each span, NUL-terminated in out[FV_LAYOUT_TEXT_MAX].
 * It begins and ends with special tokens, so tokens before and after do not depend on it; but a video's of
 * Qwen3-VL begins with its first time, which follows a special token in the chat template. */
fv_status fv_layout_text(const fv_layout_config *c, const fv_layout *l, const char *mark,
                         char *out);

/* Whether the tokens are those of the tiles, as they are. */
bool fv_layout_is_of_tiles(const fv_layout *l);

/* The view that shows the span, and its part of the view's canvas: x, y, w, h of 1. */
typedef struct fv_layout_place {
    int32_t view;
    double x, y, w, h;
} fv_layout_place;
fv_layout_place fv_layout_place_of(const fv_layout_config *c, const fv_layout *l, int32_t span);

/* What a view shows, in the image's own pixels. Parts that are outside of the image are padding. */
typedef struct fv_layout_rect {
    double x, y, w, h;
} fv_layout_rect;
fv_layout_rect fv_layout_seen(const fv_layout *l, const fv_layout_view *v);

/* The row of the tiles' tokens that token (y, x) of a span's grid copies, ahead of scaling: rows of tile
 * after tile, each [class token, if the span has one; rows x cols tokens in raster order]. */
int32_t fv_layout_row(const fv_layout_span *s, int32_t rows, int32_t cols, int32_t y, int32_t x);

/* Why the condense stage, which goes by the attention of the tower's class token to patches, cannot act;
 * NULL: it can. */
const char *fv_layout_uncondensable(const fv_layout_config *c);

/* Whether images are cut into tiles. */
bool fv_layout_tiled(const fv_layout_config *c);

/* Pixels that preparing an image of w x h pixels may go over: those that it has, or those of the square
 * that it is padded to. */
int64_t fv_layout_pixels(const fv_layout_config *c, int32_t w, int32_t h);

/* At least as many visual tokens as any image of a prompt of n_image can have. */
int32_t fv_layout_tokens_max(const fv_layout_config *c, int32_t n_image);

const char *fv_layout_family_name(fv_layout_family f); /* "llava_next"; never NULL */

/* What stands for an image in a prompt's text, "<image>" in most families; never NULL. */
const char *fv_layout_image_token(fv_layout_family f);

/* A video's; NULL: the family has none. */
const char *fv_layout_video_token(fv_layout_family f);

/* What the text has in place of the image token before it is tokenised: text of the family, whose
 * ends may form tokens with their neighbours, and in it the image token; NULL: that word is the
 * image token. */
const char *fv_layout_written(fv_layout_family f);

#endif
