#ifndef FOVEA_EVAL_SCENES_SCENE_H
#define FOVEA_EVAL_SCENES_SCENE_H

/* SCENES: the facts that an image of the evaluation shows.
 *
 *   key (split, stream, index, ...) -> seed -> [fv_scene] -> render.h: pixels
 *                                                        -> tasks.h: questions, answers
 *                                                        -> patches.h: labels per patch
 *
 * A scene has no resolution: it is FV_SCENE_UNIT units wide and high, x grows to the right, y
 * downwards. The facts are integers, drawn by integer arithmetic only, so they are the same on
 * every machine.
 *
 * The test split differs from the training split:
 *   - the split is part of the key, and a key becomes a seed by a bijection: no two splits share
 *     a seed;
 *   - six pairs of a colour and a shape (fv_peer_held_back) occur only in the test split;
 *   - so do the digits of the second half of the handwriting (handwriting.h).
 *
 * Scenes are plain or rich. Plain scenes have few things on a calm background. In rich scenes
 * things have half the size, so there are more of them, and the background is a patchwork of strong
 * patterns: on an image with twice the side, things have the same number of pixels but there is
 * more to see. A rich scene differs from the plain scene of the same key.
 *
 * Questions rely on properties of every scene: centres keep a distance from the lines between the
 * nine cells, things overlap little (their circles do not; a corner of a square may touch), and
 * things of one kind in one row of cells differ in x, so raster order is clear.
 *
 * Pure functions: any thread. */
#include "common/status.h"

enum {
    FV_SCENE_UNIT = 16384,
    FV_SCENE_OBJECTS = 16, /* in a rich scene */
    FV_SCENE_NUMBERS = 6,
    FV_PLAIN_OBJECTS = 9,
    FV_PLAIN_NUMBERS = 3,
    FV_NUMBER_DIGITS = 3,
};

typedef enum fv_split {
    FV_SPLIT_TRAIN = 0,
    FV_SPLIT_CHECK, /* validation during training: like TRAIN, with other seeds */
    FV_SPLIT_TEST,  /* never used to make a model */
    FV_N_SPLIT
} fv_split;

typedef enum fv_shape {
    FV_SHAPE_CIRCLE = 0,
    FV_SHAPE_SQUARE,
    FV_SHAPE_TRIANGLE,
    FV_SHAPE_DIAMOND,
    FV_SHAPE_CROSS,
    FV_SHAPE_RING,
    FV_N_SHAPE
} fv_shape;

typedef enum fv_color {
    FV_COLOR_RED = 0,
    FV_COLOR_GREEN,
    FV_COLOR_BLUE,
    FV_COLOR_YELLOW,
    FV_COLOR_PURPLE,
    FV_COLOR_ORANGE,
    FV_COLOR_CYAN,
    FV_COLOR_WHITE,
    FV_N_COLOR
} fv_color;

typedef enum fv_size { FV_SIZE_SMALL = 0, FV_SIZE_MEDIUM, FV_SIZE_LARGE, FV_N_SIZE } fv_size;

/* Words: "circle", "red", "small". */
const char *fv_shape_word(int32_t shape);
const char *fv_color_word(int32_t color);
const char *fv_size_word(int32_t size);

/* Pairs that occur only in the test split: one per shape, with different colours. */
static inline bool fv_peer_held_back(int32_t shape, int32_t color) {
    return color == (3 * shape + 1) % FV_N_COLOR;
}

typedef struct fv_scene_object {
    int32_t shape, color, size; /* fv_shape, fv_color, fv_size */
    int32_t x, y, radius;       /* centre; the radius of the circle around it */
    uint8_t rgb[4];             /* painted colour, which varies slightly; [3] is 0 */
} fv_scene_object;

/* A printed number on a plate. */
typedef struct fv_scene_number {
    int32_t x, y, cell; /* centre; side of one dot of the 5 x 7 font */
    int32_t n_digit;
    uint8_t digit[FV_NUMBER_DIGITS];
    bool dark; /* dark ink on a light plate, or the other way round */
} fv_scene_number;

/* A handwritten digit. */
typedef struct fv_scene_written {
    int32_t x, y, cell;    /* centre; side of one of its 8 x 8 pixels */
    int32_t sample, digit; /* handwriting.h */
    uint8_t rgb[4];        /* its ink; [3] is 0 */
} fv_scene_written;

/* Plain data without pointers: may be copied, and two scenes of one key are equal byte by byte. */
typedef struct fv_scene {
    uint64_t look; /* seed of everything that carries no facts: background, light, noise */
    int32_t split;
    int32_t rich; /* 1 or 0 */
    int32_t n_object, n_number, n_written;
    fv_scene_object object[FV_SCENE_OBJECTS]; /* in raster order: by row of cells, then by x */
    fv_scene_number number[FV_SCENE_NUMBERS]; /* in raster order too */
    fv_scene_written written;                 /* if n_written is 1 */
} fv_scene;

/* Row or column, 0 to 2, of the cell of a coordinate. */
static inline int32_t fv_scene_third(int32_t coordinate) { return coordinate * 3 / FV_SCENE_UNIT; }

/* Identifies a scene. Different keys have different seeds. */
typedef struct fv_scene_key {
    fv_split split;
    uint32_t stream;  /* below 64: 0 for scenes without a task, 1 + task for items of a task */
    uint32_t image;   /* below 2: index of the image in an item */
    uint32_t attempt; /* below 32768: tasks draw scenes until one suits the question */
    uint64_t index;   /* below 2^40 */
} fv_scene_key;

/* Fullness of a scene: for curricula, and for tasks that need certain things. */
typedef struct fv_scene_knobs {
    int32_t object_min, object_max; /* 1 to 9, rich to 16; fewer if numbers take the space */
    int32_t number_min, number_max; /* 0 to 3, rich to 6 */
    int32_t written_percent;        /* percentage of scenes with a handwritten digit */
    bool rich;
} fv_scene_knobs;

/* 1-9 objects; 0-3 numbers, none in half of the scenes; handwriting in 30 of 100 scenes. */
fv_scene_knobs fv_scene_knobs_default(void);

/* Rich: 1-16 objects; 0-6 numbers, none in half of the scenes; handwriting in 50 of 100. */
fv_scene_knobs fv_scene_knobs_rich(void);

/* FV_EINVAL, naming the field, if a part of the key or a knob is out of range. */
fv_status fv_scene_key_check(const fv_scene_key *key);
fv_status fv_scene_knobs_check(const fv_scene_knobs *knobs);

/* Seed of a valid key: a bijection of its fields. */
uint64_t fv_scene_seed(const fv_scene_key *key);

/* Makes the scene of `key`; knobs NULL: the default. FV_EINVAL as above. */
fv_status fv_scene_make(const fv_scene_key *key, const fv_scene_knobs *knobs, fv_scene *out);

#endif
