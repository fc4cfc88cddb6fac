/* Makes scenes: draws first the objects, then their positions.
 *
 * Positions are found by trial: the largest objects first, each at random positions until one is
 * free. An object that finds none becomes smaller, and finally is left out; the scene lists only
 * placed objects.
 *
 * Each scene has a palette of its own, 2-8 colours and 2-6 shapes. With few colours and shapes
 * there are several of a kind to count, and a question about a red circle comes with red squares
 * and blue circles, so hard cases are frequent. */
#include "eval/scenes/scene.h"

#include <string.h>

#include "eval/scenes/handwriting.h"
#include "eval/scenes/random.h"

enum {
    TRIES = 40,        /* places tried per thing */
    EDGE = 120,        /* distance between a thing and the edge of the image */
    LINE_CLEAR = 400,  /* distance between a centre and a line of the 3 x 3 grid: 2.4 % of the
                        * side */
    ORDER_CLEAR = 400, /* difference in x between two things of one kind in one row of cells */
    GAP = 160,         /* distance between numbers or handwriting and other things */
    MAX_THINGS = FV_SCENE_OBJECTS + FV_SCENE_NUMBERS + 1,
};

static const char *const shape_words[FV_N_SHAPE] = {"circle",  "square", "triangle",
                                                    "diamond", "cross",  "ring"};
static const char *const color_words[FV_N_COLOR] = {"red",    "green",  "blue", "yellow",
                                                    "purple", "orange", "cyan", "white"};
static const char *const size_words[FV_N_SIZE] = {"small", "medium", "large"};

/* The ranges are disjoint: no object is between two sizes. */
static const int32_t radius_min[FV_N_SIZE] = {1040, 1500, 2120};
static const int32_t radius_max[FV_N_SIZE] = {1150, 1660, 2330};

static const uint8_t paint[FV_N_COLOR][3] = {
    {224, 31, 31},  {26, 173, 46},  {38, 64, 235},  {235, 224, 31},
    {153, 38, 191}, {250, 133, 20}, {31, 209, 224}, {245, 245, 245},
};

const char *fv_shape_word(int32_t shape) { return shape_words[shape]; }
const char *fv_color_word(int32_t color) { return color_words[color]; }
const char *fv_size_word(int32_t size) { return size_words[size]; }

/* ---- positions ------------------------------------------------------------------------- */

typedef enum kind { OBJECT, NUMBER, WRITTEN } kind;

typedef struct place {
    kind kind;
    int32_t x, y, half_w, half_h;
} place;

typedef struct layout {
    int32_t n;
    place at[MAX_THINGS];
} layout;

static int32_t distance(int32_t a, int32_t b) { return a < b ? b - a : a - b; }

static bool on_a_line(int32_t v) {
    return distance(v, FV_SCENE_UNIT / 3) < LINE_CLEAR ||
           distance(v, FV_SCENE_UNIT * 2 / 3) < LINE_CLEAR;
}

static bool overlap(const place *a, const place *b) {
    int32_t dx = distance(a->x, b->x), dy = distance(a->y, b->y);
    if (a->kind != OBJECT || b->kind != OBJECT)
        return dx < a->half_w + b->half_w + GAP && dy < a->half_h + b->half_h + GAP;
    int32_t clear = (a->half_w + b->half_w) * 26 / 25;
    return dx * dx + dy * dy < clear * clear;
}

static bool order_unclear(const place *a, const place *b) {
    return a->kind == b->kind && fv_scene_third(a->y) == fv_scene_third(b->y) &&
           distance(a->x, b->x) < ORDER_CLEAR;
}

static bool fits(const layout *l, const place *p) {
    if (on_a_line(p->x) || on_a_line(p->y)) return false;
    for (int32_t i = 0; i < l->n; i++)
        if (overlap(&l->at[i], p) || order_unclear(&l->at[i], p)) return false;
    return true;
}

/* Finds and takes a free place for a thing of this size; returns false if there is none. */
static bool find_place(layout *l, fv_random *r, kind k, int32_t half_w, int32_t half_h, int32_t *x,
                       int32_t *y) {
    for (int t = 0; t < TRIES; t++) {
        place p = {.kind = k, .half_w = half_w, .half_h = half_h};
        p.x = fv_random_between(r, half_w + EDGE, FV_SCENE_UNIT - half_w - EDGE);
        p.y = fv_random_between(r, half_h + EDGE, FV_SCENE_UNIT - half_h - EDGE);
        if (!fits(l, &p)) continue;
        l->at[l->n++] = p;
        *x = p.x;
        *y = p.y;
        return true;
    }
    return false;
}

/* ---- numbers and handwriting ------------------------------------------------------------ */

/* Draws a number, with equally likely lengths and no leading zero. */
static void draw_digits(fv_random *r, fv_scene_number *n) {
    n->n_digit = fv_random_between(r, 1, FV_NUMBER_DIGITS);
    for (int32_t i = 0; i < n->n_digit; i++)
        n->digit[i] = (uint8_t)fv_random_between(r, i == 0 && n->n_digit > 1, 9);
}

/* A length, halved in a rich scene. */
static int32_t scaled(const fv_scene *s, int32_t length) { return s->rich ? length / 2 : length; }

static void add_number(fv_scene *s, layout *l, fv_random *r) {
    fv_scene_number n = {0};
    draw_digits(r, &n);
    n.dark = fv_random_chance(r, 50);
    n.cell = scaled(s, fv_random_between(r, 255, 330));
    /* six dots per digit, the last column empty, and two dots of plate around */
    int32_t half_w = n.cell * (6 * n.n_digit + 3) / 2, half_h = n.cell * 11 / 2;
    if (find_place(l, r, NUMBER, half_w, half_h, &n.x, &n.y)) s->number[s->n_number++] = n;
}

static void add_written(fv_scene *s, layout *l, fv_random *r) {
    fv_scene_written w = {0};
    w.sample = s->split == FV_SPLIT_TEST
                   ? fv_random_between(r, FV_HANDWRITING_TRAIN, FV_HANDWRITING_SAMPLES - 1)
                   : fv_random_below(r, FV_HANDWRITING_TRAIN);
    w.digit = fv_handwriting_digit(w.sample);
    w.cell = scaled(s, fv_random_between(r, 380, 520));
    for (int i = 0; i < 3; i++) w.rgb[i] = (uint8_t)fv_random_between(r, 175, 255);
    int32_t half = w.cell * FV_HANDWRITING_SIDE / 2;
    if (!find_place(l, r, WRITTEN, half, half, &w.x, &w.y)) return;
    s->written = w;
    s->n_written = 1;
}

/* ---- objects ---------------------------------------------------------------------------- */

/* Draws `n` of the numbers 0 .. of-1, in random order. */
static void draw_some(fv_random *r, int32_t of, int32_t n, int32_t *some) {
    int32_t all[FV_N_COLOR];
    for (int32_t i = 0; i < of; i++) all[i] = i;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = fv_random_between(r, i, of - 1);
        some[i] = all[at];
        all[at] = all[i];
    }
}

/* There are at least two shapes: each colour has at most one held-back shape, so it can go with
 * another. */
static int32_t draw_objects(fv_random *r, int32_t split, int32_t n, fv_scene_object *o) {
    int32_t colors[FV_N_COLOR], shapes[FV_N_SHAPE];
    int32_t n_color = fv_random_between(r, 2, FV_N_COLOR);
    int32_t n_shape = fv_random_between(r, 2, FV_N_SHAPE);
    draw_some(r, FV_N_COLOR, n_color, colors);
    draw_some(r, FV_N_SHAPE, n_shape, shapes);
    for (int32_t i = 0; i < n; i++) {
        o[i] = (fv_scene_object){.size = fv_random_below(r, FV_N_SIZE)};
        do {
            o[i].color = colors[fv_random_below(r, n_color)];
            o[i].shape = shapes[fv_random_below(r, n_shape)];
        } while (split != FV_SPLIT_TEST && fv_peer_held_back(o[i].shape, o[i].color));
    }
    return n;
}

/* Paints an object: up to a tenth brighter or darker than its colour, with a slightly different
 * hue. */
static void mix_paint(fv_random *r, fv_scene_object *o) {
    int32_t percent = fv_random_between(r, 86, 106);
    for (int i = 0; i < 3; i++) {
        int32_t v = paint[o->color][i] * percent / 100 + fv_random_between(r, -12, 12);
        o->rgb[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

static bool place_object(fv_scene *s, layout *l, fv_random *r, fv_scene_object *o) {
    o->radius = scaled(s, fv_random_between(r, radius_min[o->size], radius_max[o->size]));
    if (!find_place(l, r, OBJECT, o->radius, o->radius, &o->x, &o->y)) return false;
    mix_paint(r, o);
    s->object[s->n_object++] = *o;
    return true;
}

/* Places the largest objects first; one that finds no place is tried again with the next smaller
 * size. */
static void add_objects(fv_scene *s, layout *l, fv_random *r, int32_t n) {
    fv_scene_object o[FV_SCENE_OBJECTS];
    n = draw_objects(r, s->split, n, o);
    for (int32_t size = FV_N_SIZE - 1; size >= 0; size--)
        for (int32_t i = 0; i < n; i++)
            if (o[i].size == size && !place_object(s, l, r, &o[i])) o[i].size--;
}

/* ---- the scene -------------------------------------------------------------------------- */

static bool raster_before(int32_t xa, int32_t ya, int32_t xb, int32_t yb) {
    int32_t row_a = fv_scene_third(ya), row_b = fv_scene_third(yb);
    return row_a != row_b ? row_a < row_b : xa < xb;
}

static void sort_raster(fv_scene *s) {
    for (int32_t i = 1; i < s->n_object; i++) {
        fv_scene_object o = s->object[i];
        int32_t k = i;
        for (; k > 0 && raster_before(o.x, o.y, s->object[k - 1].x, s->object[k - 1].y); k--)
            s->object[k] = s->object[k - 1];
        s->object[k] = o;
    }
    for (int32_t i = 1; i < s->n_number; i++) {
        fv_scene_number n = s->number[i];
        int32_t k = i;
        for (; k > 0 && raster_before(n.x, n.y, s->number[k - 1].x, s->number[k - 1].y); k--)
            s->number[k] = s->number[k - 1];
        s->number[k] = n;
    }
}

/* None in half of the scenes if both none and some are allowed, otherwise each count is equally
 * likely. */
static int32_t draw_n_number(fv_random *r, const fv_scene_knobs *k) {
    if (k->number_max == 0 || (k->number_min == 0 && fv_random_chance(r, 50))) return 0;
    return fv_random_between(r, k->number_min > 0 ? k->number_min : 1, k->number_max);
}

fv_scene_knobs fv_scene_knobs_default(void) {
    return (fv_scene_knobs){.object_min = 1,
                            .object_max = FV_PLAIN_OBJECTS,
                            .number_min = 0,
                            .number_max = FV_PLAIN_NUMBERS,
                            .written_percent = 30};
}

fv_scene_knobs fv_scene_knobs_rich(void) {
    return (fv_scene_knobs){.object_min = 1,
                            .object_max = FV_SCENE_OBJECTS,
                            .number_min = 0,
                            .number_max = FV_SCENE_NUMBERS,
                            .written_percent = 50,
                            .rich = true};
}

fv_status fv_scene_key_check(const fv_scene_key *key) {
    if ((uint32_t)key->split >= FV_N_SPLIT)
        return FV_FAIL(FV_EINVAL, "scene: no split %d", (int)key->split);
    if (key->stream >= 64 || key->image >= 2 || key->attempt >= 32768)
        return FV_FAIL(FV_EINVAL, "scene: stream %u, image %u, attempt %u: below 64, 2, 32768",
                       key->stream, key->image, key->attempt);
    if (key->index >> 40)
        return FV_FAIL(FV_EINVAL, "scene: index %llu is out of range: a split has 2^40",
                       (unsigned long long)key->index);
    return FV_OK;
}

fv_status fv_scene_knobs_check(const fv_scene_knobs *k) {
    const int32_t objects = k->rich ? FV_SCENE_OBJECTS : FV_PLAIN_OBJECTS;
    const int32_t numbers = k->rich ? FV_SCENE_NUMBERS : FV_PLAIN_NUMBERS;
    if (k->object_min < 1 || k->object_max > objects || k->object_min > k->object_max)
        return FV_FAIL(FV_EINVAL, "scene: %d to %d objects: 1 to %d are possible", k->object_min,
                       k->object_max, objects);
    if (k->number_min < 0 || k->number_max > numbers || k->number_min > k->number_max)
        return FV_FAIL(FV_EINVAL, "scene: %d to %d numbers: 0 to %d are possible", k->number_min,
                       k->number_max, numbers);
    if (k->written_percent < 0 || k->written_percent > 100)
        return FV_FAIL(FV_EINVAL, "scene: handwriting in %d of 100 scenes", k->written_percent);
    return FV_OK;
}

uint64_t fv_scene_seed(const fv_scene_key *key) {
    return fv_random_mix((uint64_t)key->split << 62 | (uint64_t)key->stream << 56 |
                         (uint64_t)key->image << 55 | (uint64_t)key->attempt << 40 | key->index);
}

fv_status fv_scene_make(const fv_scene_key *key, const fv_scene_knobs *knobs, fv_scene *out) {
    fv_scene_knobs k = knobs ? *knobs : fv_scene_knobs_default();
    FV_TRY(fv_scene_key_check(key));
    FV_TRY(fv_scene_knobs_check(&k));
    fv_random r = fv_random_seeded(fv_scene_seed(key));
    layout l = {0};
    memset(out, 0, sizeof *out);
    out->split = (int32_t)key->split;
    out->rich = k.rich;
    out->look = fv_random_next(&r);
    int32_t n_object = fv_random_between(&r, k.object_min, k.object_max);
    for (int32_t n = draw_n_number(&r, &k); n > 0; n--) add_number(out, &l, &r);
    if (fv_random_chance(&r, k.written_percent)) add_written(out, &l, &r);
    add_objects(out, &l, &r, n_object);
    sort_raster(out);
    return FV_OK;
}
