/* layout against transformers on the same images (golden/layout, written by
 * parity/layout_golden.py): tiles, tokens, their order, and the text in the prompt. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "layout/layout.h"
#include "tests/support/layout_line.h"

enum { NEWLINE = -1 };

/* Appends the tokens of a span, numbered tile by tile, before any scaling. */
static int32_t *put_order(const fv_layout_config *c, const fv_layout *l, const fv_layout_span *s,
                          int32_t *out) {
    const int32_t cols = l->tile.w / c->patch / c->merge, rows = l->tile.h / c->patch / c->merge;
    for (int32_t y = s->crop_y; y < s->crop_y + s->crop_h; y++) {
        for (int32_t x = s->crop_x; x < s->crop_x + s->crop_w; x++) {
            const int32_t tile = s->tile + y / rows * s->cols + x / cols;
            *out++ = (tile * rows + y % rows) * cols + x % cols;
        }
        if (s->newline_column) *out++ = NEWLINE;
    }
    if (s->newline_end) *out++ = NEWLINE;
    return out;
}

static uint32_t crc_of_order(const fv_layout_config *c, const fv_layout *l) {
    size_t n = 0;
    for (int32_t i = 0; i < l->n_span; i++)
        n += (size_t)l->span[i].crop_h * (size_t)(l->span[i].crop_w + 1) + 1;
    int32_t *order = malloc(n * sizeof *order), *end = order;
    cr_assert_not_null(order);
    for (int32_t i = 0; i < l->n_span; i++) end = put_order(c, l, &l->span[i], end);
    const uint32_t crc =
        (uint32_t)crc32(0, (const void *)order, (uInt)((size_t)(end - order) * sizeof *order));
    free(order);
    return crc;
}

/* The text with each mark as often as its span has tokens. */
static uint32_t crc_of_text(const fv_layout_config *c, const fv_layout *l) {
    static const char mark[] = "<image>";
    static char text[FV_LAYOUT_TEXT_MAX];
    cr_assert_eq(fv_layout_text(c, l, mark, text), FV_OK, "%s", fv_last_error());
    const char *from = text;
    uLong crc = 0;
    for (int32_t i = 0; i < l->n_span; i++) {
        const char *at = strstr(from, mark);
        cr_assert_not_null(at, "%d of %d spans have a mark", i, l->n_span);
        crc = crc32(crc, (const void *)from, (uInt)(at - from));
        for (int32_t k = 0; k < l->span[i].n; k++) crc = crc32(crc, (const void *)mark, 7);
        from = at + 7;
    }
    cr_assert_null(strstr(from, mark));
    return (uint32_t)crc32(crc, (const void *)from, (uInt)strlen(from));
}

static void check(const char *line) {
    fv_layout_config c;
    fv_layout l;
    int32_t n_image, w, h, n_tile, n_visual;
    uint32_t order, text;
    const char *rest = layout_config_read(line, &c);
    cr_assert_not_null(rest, "%s", line);
    cr_assert_eq(sscanf(rest,
                        "%" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNx32
                        " %" SCNx32,
                        &n_image, &w, &h, &n_tile, &n_visual, &order, &text),
                 7);
    cr_assert_eq(fv_layout_check(&c), FV_OK, "%s: %s", line, fv_last_error());
    cr_assert_eq(fv_layout_image(&c, w, h, n_image, &l), FV_OK, "%s: %s", line, fv_last_error());
    cr_expect_eq(l.n_tile, n_tile, "%s: %d", line, l.n_tile);
    cr_expect_eq(l.n_visual, n_visual, "%s: %d", line, l.n_visual);
    cr_expect_leq(l.n_visual, fv_layout_tokens_max(&c, n_image), "%s", line);
    cr_expect_eq(crc_of_order(&c, &l), order, "the order differs: %s", line);
    cr_expect_eq(crc_of_text(&c, &l), text, "the text differs: %s", line);
}

Test(golden, layouts_are_those_of_transformers) {
    FILE *f = fopen(FOVEA_TEST_DATA "/golden/layout/golden.txt", "r");
    cr_assert_not_null(f);
    char line[1024];
    int n = 0;
    while (fgets(line, sizeof line, f))
        if (*line != '#') check(line), n++;
    fclose(f);
    cr_assert_gt(n, 200, "golden.txt has %d layouts", n);
}
