/* model/net/rope, common/rope_map: positions and rotations of M-RoPE are those that transformers
 * computes (golden/rope, written by parity/rope_golden.py). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/rope.h"

enum { LINE_MAX = 4096, GRIDS_MAX = 8 };

/* "3+1x4x6+5" -> spans; returns the number of tokens. */
static int32_t read_prompt(const char *text, fv_token_span *span, int32_t *n_span) {
    int32_t n = 0, t, h, w, read;
    for (*n_span = 0; *text; text += read, text += *text == '+') {
        if (sscanf(text, "%dx%dx%d%n", &t, &h, &w, &read) == 3) {
            span[(*n_span)++] = (fv_token_span){.first = n, .n = t * h * w, .t = t, .h = h, .w = w};
            n += t * h * w;
        } else {
            cr_assert_eq(sscanf(text, "%d%n", &t, &read), 1, "%s", text);
            n += t;
        }
    }
    return n;
}

static void check_positions(const char *text, int32_t delta, char *want) {
    fv_token_span span[GRIDS_MAX];
    fv_rope_grid grid[GRIDS_MAX];
    fv_rope_map map;
    int32_t n_span, n = read_prompt(text, span, &n_span);
    int32_t n_grid = fv_rope_grids(span, n_span, grid);
    cr_assert_eq(n_grid, n_span);
    cr_assert_eq(fv_rope_map_make(grid, n_grid, n, &map), FV_OK, "%s", fv_last_error());
    cr_assert_eq(map.delta, delta, "%s: %d", text, map.delta);
    for (int32_t i = 0; i < n; i++) {
        char at[48];
        fv_rope_pos p = fv_rope_map_at(&map, i);
        snprintf(at, sizeof at, "%d,%d,%d", p.t, p.h, p.w);
        want = strtok(i ? NULL : want, " \n");
        cr_assert(want && !strcmp(at, want), "%s, token %d: %s", text, i, at);
    }
    for (int32_t i = n; i < n + 3; i++) {
        fv_rope_pos p = fv_rope_map_at(&map, i);
        cr_assert(p.t == i + delta && p.h == p.t && p.w == p.t);
    }
}

static void check_angles(fv_rope_config cfg, int32_t d_head, fv_rope_pos at, char *want) {
    fv_rope rope;
    float x[2][FV_ROPE_MAX_HALF];
    fv_rope_init(&rope, &cfg, d_head);
    fv_rope_angles(&rope, &at, 1, x[0], x[1]);
    for (int32_t i = 0; i < d_head; i++) {
        char *end;
        float y = strtof(want, &end), got = x[i / rope.half][i % rope.half];
        cr_assert(end > want && fabsf(y - got) < 3e-5F, "%d: %g and not %g", i, (double)got,
                  (double)y);
        want = end;
    }
}

Test(rope, positions_and_angles_are_those_of_transformers) {
    FILE *f = fopen(FOVEA_TEST_DATA "/golden/rope/golden.txt", "r");
    char line[LINE_MAX], family[32], text[64];
    int32_t n_positions = 0, n_angles = 0, read, delta, d;
    fv_rope_config c = {.theta = 10000};
    fv_rope_pos at;
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "positions %31s %63s %d%n", family, text, &delta, &read) == 3) {
            check_positions(text, delta, line + read);
            n_positions++;
        } else if (sscanf(line, "angles %31s %d %d,%d,%d %d,%d,%d%n", family, &d, &c.section[0],
                          &c.section[1], &c.section[2], &at.t, &at.h, &at.w, &read) == 8) {
            c.interleaved = !strcmp(family, "qwen3_vl_text");
            check_angles(c, d, at, line + read);
            n_angles++;
        } else {
            cr_assert_eq(line[0], '#', "%s", line);
        }
    }
    fclose(f);
    cr_assert(n_positions > 20 && n_angles == 12);
}

/* Models without sections, and prompts without grids. */
Test(rope, an_empty_map_gives_the_index_three_times) {
    static const fv_rope_config one = {.theta = 10000},
                                three = {.theta = 10000, .section = {4, 2, 2}, .interleaved = true};
    fv_rope_map empty = {0}, text;
    fv_rope a, b;
    float x[2][8], y[2][8];
    cr_assert_eq(fv_rope_map_make(NULL, 0, 9, &text), FV_OK);
    fv_rope_init(&a, &one, 16);
    fv_rope_init(&b, &three, 16);
    for (int32_t i = 0; i < 30; i++) {
        fv_rope_pos p = fv_rope_map_at(&empty, i), q = fv_rope_map_at(&text, i);
        cr_assert(p.t == i && p.h == i && p.w == i);
        cr_assert_eq(memcmp(&p, &q, sizeof p), 0);
        fv_rope_angles(&a, &p, 1, x[0], x[1]);
        fv_rope_angles(&b, &p, 1, y[0], y[1]);
        cr_assert_eq(memcmp(x, y, sizeof x), 0);
    }
}

/* A class token, newlines, or fewer tokens than the grid had. */
Test(rope, a_span_that_is_no_whole_grid_is_numbered_as_text_is) {
    static const fv_token_span span[] = {{.first = 2, .n = 7, .t = 1, .h = 2, .w = 3, .ahead = 1},
                                         {.first = 10, .n = 6, .t = 1, .h = 2, .w = 3},
                                         {.first = 17, .n = 0, .t = 1, .h = 2, .w = 3}};
    fv_rope_grid grid[3];
    fv_rope_map map;
    cr_assert_eq(fv_rope_grids(span, 3, grid), 1);
    cr_assert_eq(fv_rope_map_make(grid, 1, 20, &map), FV_OK);
    cr_assert_eq(fv_rope_map_at(&map, 8).w, 8);
    cr_assert_eq(fv_rope_map_at(&map, 15).h, 11);
    cr_assert_eq(fv_rope_map_at(&map, 15).w, 12);
    cr_assert_eq(fv_rope_map_at(&map, 16).t, 13);
    cr_assert_eq(map.delta, -3);
}

/* Qwen2.5-VL's videos: times are rounded down; later text continues from rows and columns, the
 * answer from the greatest number. */
Test(rope, frames_of_a_video_are_a_step_apart) {
    fv_rope_grid grid = {.first = 2, .t = 4, .h = 2, .w = 3, .step = 1.6F};
    static const int32_t times[] = {2, 3, 5, 6};
    fv_rope_map map;
    cr_assert_eq(fv_rope_map_make(&grid, 1, 28, &map), FV_OK);
    for (int32_t i = 0; i < 24; i++) {
        const fv_rope_pos p = fv_rope_map_at(&map, 2 + i);
        cr_assert(p.t == times[i / 6] && p.h == 2 + i / 3 % 2 && p.w == 2 + i % 3, "token %d", i);
    }
    cr_assert_eq(fv_rope_map_at(&map, 26).t, 5);
    cr_assert_eq(fv_rope_map_at(&map, 27).w, 6);
    cr_assert_eq(map.delta, 7 - 28, "the greatest is 6");
    grid.step = 100;
    cr_assert_eq(fv_rope_map_make(&grid, 1, 28, &map), FV_OK);
    cr_assert_eq(map.delta, 303 - 28);
    static const float wrong[] = {-1, NAN, INFINITY, 1e9F};
    for (int i = 0; i < 4; i++) {
        grid.step = wrong[i];
        cr_assert_eq(fv_rope_map_make(&grid, 1, 28, &map), FV_EINVAL, "%g", (double)wrong[i]);
    }
}

Test(rope, grids_that_are_none_are_refused) {
    static const struct {
        fv_rope_grid grid[2];
        int32_t n;
    } wrong[] = {{{{.first = 1, .t = 1, .h = 2, .w = 3}}, 1},
                 {{{.first = -1, .t = 1, .h = 2, .w = 3}}, 1},
                 {{{.first = 9, .t = 1, .h = 1, .w = 1}}, 1},
                 {{{.first = 5, .t = 1, .h = 1, .w = 1}, {.first = 0, .t = 1, .h = 1, .w = 1}}, 2},
                 {{{.first = 0, .t = 1, .h = 2, .w = 2}, {.first = 3, .t = 1, .h = 1, .w = 1}}, 2},
                 {{{.first = 0, .t = 0, .h = 2, .w = 2}}, 1},
                 {{{.first = 0, .t = 1, .h = -2, .w = -2}}, 1},
                 {{{.first = 0, .t = 65536, .h = 65536, .w = 65536}}, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_rope_grid grid[2];
        fv_rope_map map;
        memcpy(grid, wrong[i].grid, sizeof grid);
        cr_assert_eq(fv_rope_map_make(grid, wrong[i].n, i == 0 ? 6 : 9, &map), FV_EINVAL, "%zu", i);
        cr_assert(strstr(fv_last_error(), "reaches past the prompt's"));
    }
}
