#ifndef FOVEA_EVAL_SCENES_BACKGROUND_H
#define FOVEA_EVAL_SCENES_BACKGROUND_H

/* THE BACKGROUND of an image, and other parts of its look that carry no facts.
 *
 * Three textures over a dim colour: soft clouds of another hue in each channel, finer clouds
 * without hue, and stripes. Value noise: random numbers on a lattice, blended smoothly.
 *
 * Over that a rich scene has a patchwork: areas around random points, each with a pattern of its own
 * (stripes, checks, dots or grain) in a dim tint. */
#include "eval/scenes/render.h"

enum { FV_CLOUD_COARSE = 9, FV_CLOUD_FINE = 23 }; /* lattice cells along a side */
enum { FV_AREAS = 9 };

/* Lattice cell of a pixel in a row, and the pixel's smoothed position in it. */
typedef struct fv_cloud_step {
    int32_t cell;
    float weight;
} fv_cloud_step;

typedef enum fv_pattern { FV_STRIPES = 0, FV_CHECKS, FV_DOTS, FV_GRAIN, FV_N_PATTERN } fv_pattern;

typedef struct fv_area {
    fv_pattern pattern;
    float x, y;       /* the area's point, in sides; a pixel belongs to the nearest point */
    float wave[2][2]; /* waves per side in x and y, for both directions of the pattern */
    float tint[3];    /* multiplied by the pattern's height */
    int32_t grain;    /* pixels per grain */
} fv_area;

typedef struct fv_background {
    int32_t n_area; /* 0: plain */
    fv_area area[FV_AREAS];
    int32_t side;
    float base[3];
    float coarse[3][FV_CLOUD_COARSE + 1][FV_CLOUD_COARSE + 1];
    float fine[FV_CLOUD_FINE + 1][FV_CLOUD_FINE + 1];
    float stripe, stripe_x, stripe_y; /* amplitude; waves per side in x and y */
    float light;                      /* strength of shading on objects */
    float noise;                      /* amplitude of the noise per pixel */
    uint32_t noise_seed;
    fv_cloud_step in_coarse[FV_RENDER_SIDE_MAX], in_fine[FV_RENDER_SIDE_MAX]; /* [side] used */
} fv_background;

/* Draws the background `look` of a plain or rich image of `side` pixels (render.h has the range). */
void fv_background_init(fv_background *b, uint64_t look, bool rich, int32_t side);

/* Writes row `y` of the background: channel[3] of [side] floats, about 0 to 1. */
void fv_background_row(const fv_background *b, int32_t y, float *const channel[3]);

#endif
