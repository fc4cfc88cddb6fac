/* kv/cache/chain.h: where prompts are cut, and that whatever KV depends on changes the keys from there on. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "kv/cache/chain.h"

enum { ROWS = 400, RUNS = 4, LINKS = 64 };

/* A prompt of 100 text rows, images of 90 and 70 rows with 5 text rows between them, and text up to ROWS. */
typedef struct sample {
    fv_chain_base base;
    fv_chain_prompt prompt;
    int32_t ids[ROWS];
    fv_chain_visual visual[RUNS];
    fv_rope_grid grid[RUNS];
} sample;

static void fill(sample *s) {
    *s = (sample){.base = {.compat = "model=a",
                           .compute = "bf16",
                           .kv_dtype = "bf16",
                           .stages = "",
                           .tenant = "t",
                           .salt = "s"}};
    for (int32_t i = 0; i < ROWS; i++) s->ids[i] = 3 * i + 1;
    s->visual[0] = (fv_chain_visual){.first = 100, .n = 90, .digest = {1}};
    s->visual[1] = (fv_chain_visual){.first = 195, .n = 70, .digest = {2}};
    s->prompt = (fv_chain_prompt){.n = ROWS, .ids = s->ids, .n_visual = 2, .visual = s->visual};
}

static int32_t chain(const sample *s, fv_chain_link link[LINKS]) {
    int32_t n = -1;
    cr_assert_leq(fv_chain_links_max(s->prompt.n, s->prompt.n_visual), LINKS);
    cr_assert_eq(fv_chain_make(&s->base, &s->prompt, link, &n), FV_OK, "%s", fv_last_error());
    cr_assert_leq(n, fv_chain_links_max(s->prompt.n, s->prompt.n_visual));
    return n;
}

/* Checks that the two prompts have their first `same` links in common and no key after them. */
static void expect_common(const sample *a, const sample *b, int32_t same, const char *what) {
    fv_chain_link x[LINKS], y[LINKS];
    int32_t n = chain(a, x), m = chain(b, y);
    cr_assert_eq(fv_chain_common(x, n, y, m), same, "%s: %d in common", what,
                 fv_chain_common(x, n, y, m));
    for (int32_t i = same; i < n; i++)
        for (int32_t j = 0; j < m; j++)
            cr_assert(!fv_chain_key_equal(&x[i].key, &y[j].key), "%s: %d and %d", what, i, j);
}

Test(chain, text_is_cut_at_images_and_where_pages_of_text_end) {
    sample s;
    fv_chain_link link[LINKS];
    fill(&s);
    static const int32_t want[][3] = {{64, 64, 0},     {100, 100, 0},   {190, 100, 90},
                                      {195, 105, 90},  {265, 105, 160}, {288, 128, 160},
                                      {352, 192, 160}, {400, 240, 160}};
    cr_assert_eq(chain(&s, link), 8);
    for (int32_t i = 0; i < 8; i++) {
        cr_assert_eq(link[i].end, want[i][0], "link %d ends at %d", i, link[i].end);
        cr_assert_eq(link[i].n_text, want[i][1]);
        cr_assert_eq(link[i].n_visual, want[i][2]);
    }
}

Test(chain, a_prompt_of_no_row_has_no_link_and_one_of_one_row_has_one) {
    sample s;
    fv_chain_link link[LINKS];
    fill(&s);
    s.prompt.n_visual = 0;
    s.prompt.n = 0;
    cr_assert_eq(chain(&s, link), 0);
    s.prompt.n = 1;
    cr_assert_eq(chain(&s, link), 1);
    cr_assert_eq(link[0].end, 1);
    s.visual[0] = (fv_chain_visual){.first = 0, .n = 1};
    s.prompt.n_visual = 1;
    cr_assert_eq(chain(&s, link), 1);
    cr_assert_eq(link[0].n_visual, 1);
}

Test(chain, equal_prompts_have_equal_keys_and_a_longer_one_begins_with_them) {
    sample a, b;
    fill(&a);
    fill(&b);
    expect_common(&a, &b, 8, "equal");
    a.prompt.n = 352;
    fv_chain_link x[LINKS], y[LINKS];
    cr_assert_eq(fv_chain_common(x, chain(&a, x), y, chain(&b, y)), 7);
}

Test(chain, whatever_the_base_says_changes_all_keys) {
    sample a, b;
    fill(&a);
#define OTHER(field)                                                                               \
    fill(&b);                                                                                      \
    b.base.field = "another";                                                                      \
    expect_common(&a, &b, 0, #field);
    OTHER(compat)
    OTHER(compute)
    OTHER(kv_dtype)
    OTHER(stages)
    OTHER(tenant)
    OTHER(salt)
#undef OTHER
    fill(&b);
    b.base.tenant = "ts";
    b.base.salt = "";
    expect_common(&a, &b, 0, "a byte of the salt moved to the tenant");
    b.base.tenant = "";
    b.base.salt = "ts";
    expect_common(&a, &b, 0, "the other way round");
    b.base.tenant = "s";
    b.base.salt = "t";
    expect_common(&a, &b, 0, "tenant and salt exchanged");
}

Test(chain, one_id_changes_the_keys_from_its_run_on) {
    static const int32_t at[][2] = {{0, 0},   {63, 0},  {64, 1},  {99, 1},  {190, 3}, {194, 3},
                                    {265, 5}, {287, 5}, {288, 6}, {351, 6}, {352, 7}, {399, 7}};
    sample a, b;
    fill(&a);
    for (int i = 0; i < 12; i++) {
        fill(&b);
        b.ids[at[i][0]]++;
        expect_common(&a, &b, at[i][1], "an id");
    }
    fill(&b);
    b.ids[120] = 7;
    expect_common(&a, &b, 8, "an id at a visual row, which the model does not read");
}

Test(chain, an_image_changes_the_keys_from_its_run_on) {
    sample a, b;
    fill(&a);
    for (int byte = 0; byte < FV_DIGEST_BYTES; byte += 31) {
        fill(&b);
        b.visual[0].digest[byte] ^= 0x80;
        expect_common(&a, &b, 2, "the first image");
        fill(&b);
        b.visual[1].digest[byte] ^= 0x80;
        expect_common(&a, &b, 4, "the second image");
    }
    fill(&b);
    b.visual[0].digest[0] = 2;
    b.visual[1].digest[0] = 1;
    expect_common(&a, &b, 2, "exchanged images");
}

Test(chain, rows_are_text_or_visual_whatever_their_ids) {
    sample a, b;
    fill(&a);
    fill(&b);
    b.prompt.n_visual = 1;
    expect_common(&a, &b, 3, "the second image is text");
    fill(&b);
    b.visual[0].n = 89;
    expect_common(&a, &b, 2, "an image with a row less");
    fill(&b);
    b.visual[1].first = 194;
    expect_common(&a, &b, 3, "text between images with a row less");
}

Test(chain, positions_of_m_rope_change_the_keys) {
    sample a, b;
    fill(&a);
    fill(&b);
    b.grid[0] = (fv_rope_grid){.first = 100, .t = 1, .h = 9, .w = 10};
    cr_assert_eq(fv_rope_map_make(b.grid, 1, ROWS, &b.prompt.rope_map), FV_OK);
    expect_common(&a, &b, 2, "a grid instead of a line");
    sample c = b;
    c.grid[0].h = 10;
    c.grid[0].w = 9;
    cr_assert_eq(fv_rope_map_make(c.grid, 1, ROWS, &c.prompt.rope_map), FV_OK);
    expect_common(&b, &c, 2, "a grid on its side");
    c = b;
    c.grid[1] = (fv_rope_grid){.first = 195, .t = 1, .h = 7, .w = 10};
    cr_assert_eq(fv_rope_map_make(c.grid, 2, ROWS, &c.prompt.rope_map), FV_OK);
    expect_common(&b, &c, 4, "the second image has a grid");
    c = b;
    c.prompt.n = 300; /* the map of a shorter prompt: the same positions up to there */
    cr_assert_eq(fv_rope_map_make(c.grid, 1, 300, &c.prompt.rope_map), FV_OK);
    fv_chain_link x[LINKS], y[LINKS];
    cr_assert_eq(fv_chain_common(x, chain(&b, x), y, chain(&c, y)), 6);
}

Test(chain, images_side_by_side_are_segments_of_their_own_unless_seen_whole) {
    sample s, cut;
    fv_chain_link link[LINKS];
    fill(&s);
    s.visual[1].first = 190;
    cr_assert_eq(chain(&s, link), 7);
    cr_assert_eq(link[2].end, 190);
    cr_assert_eq(link[3].end, 260);
    s.prompt.image_whole = true;
    cr_assert_eq(chain(&s, link), 6);
    cr_assert_eq(link[2].end, 260);
    cut = s;
    cut.prompt.visual = cut.visual;
    cut.visual[0].n = 80;
    cut.visual[1] = (fv_chain_visual){.first = 180, .n = 80, .digest = {2}};
    expect_common(&s, &cut, 2, "another border between them");
}

Test(chain, runs_that_are_no_part_of_the_prompt_are_refused) {
    static const int32_t bad[][2] = {{-1, 5},  {100, 0}, {100, -3},
                                     {399, 2}, {401, 1}, {INT32_MAX, INT32_MAX}};
    sample s;
    fv_chain_link link[LINKS];
    for (int i = 0; i < 6; i++) {
        int32_t n = -7;
        fill(&s);
        s.prompt.n_visual = 1;
        s.visual[0].first = bad[i][0];
        s.visual[0].n = bad[i][1];
        cr_assert_eq(fv_chain_make(&s.base, &s.prompt, link, &n), FV_EINVAL);
        cr_assert_eq(n, -7, "untouched");
    }
    fill(&s);
    s.visual[1].first = 189;
    cr_assert_eq(fv_chain_make(&s.base, &s.prompt, link, &(int32_t){0}), FV_EINVAL);
}

/* Random prompts from few ids, runs and digests, so that many begin alike. */
static void draw(sample *s) {
    fill(s);
    s->prompt.n = 1 + rand() % 260;
    int32_t at = rand() % 3 ? 63 : rand() % 130;
    s->prompt.n_visual = 0;
    for (int32_t i = 0; i < RUNS; i++) {
        int32_t n = 1 + rand() % 2 * 64;
        if (at + n > s->prompt.n) break;
        s->visual[i] = (fv_chain_visual){.first = at, .n = n, .digest = {(uint8_t)(rand() % 2)}};
        s->prompt.n_visual++;
        at += n + rand() % 2 * 65;
    }
    if (rand() % 2) s->ids[rand() % 260] = 0;
}

static bool visual_at(const sample *s, int32_t row, int32_t *first, uint8_t *digest) {
    for (int32_t i = 0; i < s->prompt.n_visual; i++)
        if (row >= s->visual[i].first && row < s->visual[i].first + s->visual[i].n) {
            *first = s->visual[i].first;
            *digest = s->visual[i].digest[0];
            return true;
        }
    return false;
}

/* Whether rows [0, end) of both are the same, by looking at each. */
static bool alike(const sample *a, const sample *b, int32_t end) {
    for (int32_t i = 0; i < end; i++) {
        int32_t first[2] = {0};
        uint8_t digest[2] = {0};
        bool visual = visual_at(a, i, &first[0], &digest[0]);
        if (visual != visual_at(b, i, &first[1], &digest[1])) return false;
        if (visual && (first[0] != first[1] || digest[0] != digest[1])) return false;
        if (!visual && a->ids[i] != b->ids[i]) return false;
    }
    return true;
}

Test(chain, keys_are_equal_exactly_where_prompts_are) {
    srand(5);
    for (int round = 0; round < 3000; round++) {
        sample a, b;
        fv_chain_link x[LINKS], y[LINKS];
        draw(&a);
        draw(&b);
        int32_t n = chain(&a, x), m = chain(&b, y);
        for (int32_t i = 0; i < n && i < m; i++) {
            bool same =
                x[i].end == y[i].end && x[i].n_text == y[i].n_text && alike(&a, &b, x[i].end);
            cr_assert_eq(fv_chain_key_equal(&x[i].key, &y[i].key), same, "round %d, link %d", round,
                         i);
        }
    }
}

/* ---- continued ---------------------------------------------------------------------------------- */

Test(chain, links_of_an_answer_are_those_of_the_prompt_that_has_it) {
    for (int grids = 0; grids < 2; grids++) {
        sample s;
        fv_chain_link whole[LINKS], more[LINKS];
        int32_t n_more;
        fill(&s);
        s.grid[0] = (fv_rope_grid){.first = 100, .t = 1, .h = 9, .w = 10};
        s.grid[1] = (fv_rope_grid){.first = 195, .t = 1, .h = 7, .w = 10};
        if (grids)
            cr_assert_eq(fv_rope_map_make(s.grid, 2, ROWS, &s.prompt.rope_map), FV_OK, "%s",
                         fv_last_error());
        int32_t n = chain(&s, whole);
        for (int32_t from = 4; from < n; from++) { /* behind the last image */
            cr_assert_eq(fv_chain_continue(&s.prompt, &whole[from], more, &n_more), FV_OK);
            cr_assert_eq(n_more, n - 1 - from);
            for (int32_t i = 0; i < n_more; i++) {
                cr_assert(fv_chain_key_equal(&more[i].key, &whole[from + 1 + i].key), "%d", i);
                cr_assert_eq(more[i].end, whole[from + 1 + i].end);
                cr_assert_eq(more[i].n_text, whole[from + 1 + i].n_text);
                cr_assert_eq(more[i].n_visual, whole[from + 1 + i].n_visual);
            }
        }
    }
}
