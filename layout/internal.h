#ifndef FOVEA_LAYOUT_INTERNAL_H
#define FOVEA_LAYOUT_INTERNAL_H

/* Declarations for the families' files. No other folder includes this. */
#include "layout/layout.h"

/* Text that grows in out[FV_LAYOUT_TEXT_MAX]; `full` once something did not fit. */
typedef struct fv_layout_writer {
    char *out;
    size_t n;
    bool full;
} fv_layout_writer;

__attribute__((format(printf, 2, 3))) void fv_layout_write(fv_layout_writer *w, const char *format,
                                                           ...);

/* A family: a row of layout.c's table. Configs are checked before `image` and `tokens_max`. */
typedef struct fv_layout_rules {
    const char *name;
    const char *token; /* of an image in a prompt's text; NULL: "<image>" */
    const char *video_token;
    const char *written; /* fv_layout_replacement_text */
    bool any_size;       /* the image is one tile, with the image's aspect ratio */
    bool pads;           /* pads to a square, even if the config does not say pad_square */
    /* Checks the fields that the family reads beyond tile, patch and merge. */
    fv_status (*check)(const fv_layout_config *c);
    /* Adds views and spans to *l, which has the image's size. */
    fv_status (*image)(const fv_layout_config *c, int32_t n_image, fv_layout *l);
    /* Adds views and spans of a video; NULL: no model of the family reads videos. */
    fv_status (*video)(const fv_layout_config *c, const fv_layout_clip *video, fv_layout *l);
    fv_layout_frames frames; /* how frames of a video are chosen */
    int64_t (*tokens_max)(const fv_layout_config *c, int32_t n_image);
    /* Writes the image's text in the prompt; NULL: only the marks. */
    void (*text)(const fv_layout *l, const char *mark, fv_layout_writer *w);
} fv_layout_rules;

#define FV_LAYOUT(NAME, name) extern const fv_layout_rules fv_layout_##name;
#include "layout/layouts.def"

/* Tokens along a side of a tile. */
int32_t fv_layout_side(const fv_layout_config *c);

/* Both return FV_EINVAL if the image then has too many tiles or tokens. add_span sets n. */
fv_status fv_layout_add_view(fv_layout *l, const fv_layout_view *view);
fv_status fv_layout_add_span(fv_layout *l, const fv_layout_span *span);

/* A span of all tokens of a tile; n is not set. */
fv_layout_span fv_layout_tile_span(const fv_layout_config *c, int32_t tile);
fv_status fv_layout_add_tile(const fv_layout_config *c, fv_layout *l, int32_t tile);

/* ---- LLaVA-NeXT and LLaVA-OneVision --------------------------------------------------------- */

fv_status fv_layout_check_pinpoints(const fv_layout_config *c);

/* Adds two views, the whole image and its tiles, and the first one's span; *mosaic is the span of the
 * tiles, without padding and with newlines, for fv_layout_add_mosaic, which adds nothing if the image is
 * so narrow that no row is left. */
fv_status fv_layout_add_anyres(const fv_layout_config *c, fv_layout *l, fv_layout_span *mosaic);
fv_status fv_layout_add_mosaic(fv_layout *l, const fv_layout_span *mosaic);

/* Upper bound on the tokens of an image whose tiles have at most area_max tokens, without newlines. */
int64_t fv_layout_anyres_max(const fv_layout_config *c, double area_max);

/* ---- Mistral 3 and LightOnOCR --------------------------------------------------------------- */

/* Checks c->resize, to which images are scaled down at most. */
fv_status fv_layout_fit_check(const fv_layout_config *c);

/* Sets the tile: the image's size, scaled down to c->resize if it is larger, with sides rounded up to
 * multiples of `unit` pixels. FV_EINVAL: the image is so narrow that no pixels are left. */
fv_status fv_layout_fit(const fv_layout_config *c, int32_t unit, fv_layout *l);

/* ---- Qwen-VL ------------------------------------------------------------------------------- */

fv_status fv_layout_qwen_check(const fv_layout_config *c);
fv_status fv_layout_qwen_image(const fv_layout_config *c, int32_t n_image, fv_layout *l);
int64_t fv_layout_qwen_tokens_max(const fv_layout_config *c, int32_t n_image);

/* Checks the aspect ratio. FV_EINVAL: the image is too narrow. */
fv_status fv_layout_qwen_aspect(const fv_layout *l);

/* The size of n frames of w x h pixels in whole tokens of `side` pixels, with `least` to `most` pixels
 * in all. Quotients are in double, rounded half to even; a frame smaller than a token is first enlarged
 * to one. */
fv_layout_size fv_layout_qwen_resize(double side, double least, double most, double n, double w,
                                     double h);

/* Adds one view of the tile's size; *span is its whole grid, of one frame. */
fv_status fv_layout_qwen_view(const fv_layout_config *c, fv_layout *l, fv_layout_span *span);

/* Sets *n_tile to the tiles of n frames, two frames each. */
fv_status fv_layout_qwen_frames(int32_t n, int32_t *n_tile);

#endif
