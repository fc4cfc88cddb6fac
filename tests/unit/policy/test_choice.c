/* policy/choice.c: the types of parameters, on a method made for the test. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "tests/support/choice.h"

static const fv_method_info sample = {
    .stage = FV_STAGE_PRUNE,
    .name = "sample",
    .n_param = 6,
    .param = {
        {.name = "count", .type = FV_PARAM_INT, .fallback = 4, .min = 1, .max = 9},
        {.name = "share", .type = FV_PARAM_FLOAT, .fallback = 0.5, .min = 0, .max = 1},
        {.name = "layer", .type = FV_PARAM_LAYER, .fallback = 16, .min = 1, .max = 255},
        {.name = "order", .type = FV_PARAM_CHOICE, .max = 2, .word = {"first", "best", "any"}},
        {.name = "map", .type = FV_PARAM_TEXT, .text = "2-6/7-11"},
        {.name = "note", .type = FV_PARAM_TEXT, .text = "-"}}};

static fv_choice defaults(void) {
    fv_choice c;
    fv_choice_init(&c, &sample);
    return c;
}

static void sets(fv_choice *c, const char *text) {
    cr_assert_eq(fv_choice_set(c, text, strlen(text)), FV_OK, "%s: %s", text, fv_last_error());
}

static void refuses(const char *text, const char *because) {
    fv_choice c = defaults();
    cr_assert_eq(fv_choice_set(&c, text, strlen(text)), FV_EINVAL, "%s", text);
    cr_assert(strstr(fv_last_error(), because), "'%s' said: %s", text, fv_last_error());
}

static void prints(const fv_choice *c, int32_t param, const char *text) {
    char out[FV_PARAM_TEXT_MAX];
    fv_choice_print(c, param, out);
    cr_assert_str_eq(out, text);
}

Test(choice, what_is_not_written_has_its_default) {
    fv_choice c = defaults();
    cr_assert_eq(choice_value(&c, "count"), 4);
    cr_assert_eq(choice_value(&c, "order"), 0);
    cr_assert(choice_is(&c, "order", "first"));
    cr_assert(choice_is(&c, "map", "2-6/7-11"));
    cr_assert(choice_is(&c, "note", "-"));
    static const char *const printed[] = {"4", "0.5", "16/32", "first", "2-6/7-11", "-"};
    for (int32_t i = 0; i < sample.n_param; i++) prints(&c, i, printed[i]);
}

Test(choice, a_word_is_known_by_its_index) {
    fv_choice c = defaults();
    sets(&c, "order=any");
    cr_assert_eq(choice_value(&c, "order"), 2);
    cr_assert(choice_is(&c, "order", "any"));
    cr_assert_not(choice_is(&c, "order", "best"));
    prints(&c, 3, "any");
    refuses("order=", "one of first, best, any");
    refuses("order=bes", "one of first, best, any");
    refuses("order=1", "one of first, best, any");
}

Test(choice, each_text_has_its_own_place) {
    fv_choice c = defaults();
    sets(&c, "note=a=b");
    cr_assert(choice_is(&c, "note", "a=b"));
    cr_assert(choice_is(&c, "map", "2-6/7-11"));
    sets(&c, "map=0-3");
    cr_assert(choice_is(&c, "map", "0-3"));
    prints(&c, 4, "0-3");
    prints(&c, 5, "a=b");
}

Test(choice, a_text_has_1_to_127_printable_characters) {
    char text[200] = "map=";
    fv_choice c = defaults();
    memset(text + 4, 'x', 127);
    sets(&c, text);
    prints(&c, 4, text + 4);
    text[4 + 127] = 'x';
    refuses(text, "1..127 printable");
    refuses("map=", "1..127 printable");
    refuses("map=a b", "1..127 printable");
    refuses("map=\x7f", "1..127 printable");
    refuses("map=\xc3\xa4", "1..127 printable");
}

Test(choice, values_keep_to_their_type_and_range) {
    refuses("count=0", "1..9");
    refuses("count=1.5", "whole number");
    refuses("share=1.01", "0..1");
    refuses("layer=0", "1..255");
    refuses("layer=16/", "is not a number");
    refuses("count=4/32", "is not a number");
    refuses("count=4/32+", "is not a number");
    refuses("layer=3/32++", "is not a number");
    refuses("layer=3+", "is not a number");
    refuses("size=1", "it has count, share, layer, order, map, note");
    refuses("count", "PARAMETER=VALUE");
}

Test(choice, layers_of_32_are_mapped_and_others_are_not) {
    fv_choice c = defaults();
    cr_assert_eq(choice_layer(&c, "layer", 12), 6);
    sets(&c, "layer=3");
    cr_assert_eq(choice_layer(&c, "layer", 12), 3);
    sets(&c, "layer=3/32");
    cr_assert_eq(choice_layer(&c, "layer", 12), 1);
    cr_assert_eq(choice_layer(&c, "layer", 1), 1, "no less than may be written");
    prints(&c, 2, "3/32");
    sets(&c, "layer=28/32");
    cr_assert_eq(choice_layer(&c, "layer", 32), 28);
    cr_assert_eq(choice_layer(&c, "layer", 12), 11);
    cr_assert_eq(choice_layer(&c, "layer", 3), 2, "the last layer, and not one after it");
    sets(&c, "layer=32/32");
    cr_assert_eq(choice_layer(&c, "layer", 3), 3);
}

/* An early layer k/32+ of networks of n: k, but no deeper than the first quarter, unless its share
 * of the depth is. */
Test(choice, an_early_layer_is_not_before_the_published_one_where_the_depth_allows) {
    static const struct {
        const char *written;
        int32_t n_layer, layer;
        const char *mapping;
    } list[] = {
        {"2/32+", 32, 2, "published"},    {"2/32+", 12, 2, "published"},
        {"2/32+", 8, 2, "published"},     {"2/32+", 4, 1, "proportion"},
        {"2/32+", 2, 1, "proportion"},    {"2/32+", 40, 3, "proportion"},
        {"2/32", 12, 1, "proportion"},    {"3/32+", 12, 3, "published"},
        {"6/32+", 12, 3, "quarter"},      {"6/32+", 24, 6, "published"},
        {"7/32+", 12, 3, "proportion"},   {"16/32+", 12, 6, "proportion"},
        {"16/32+", 24, 12, "proportion"}, {"2", 12, 2, "given"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char text[64];
        fv_choice c = defaults();
        snprintf(text, sizeof text, "layer=%s", list[i].written);
        sets(&c, text);
        prints(&c, 2, list[i].written);
        cr_assert_eq(choice_layer(&c, "layer", list[i].n_layer), list[i].layer, "%s of %d", text,
                     list[i].n_layer);
        const char *mapping =
            fv_layer_mapping_name(fv_choice_layer_mapping(&c, 2, list[i].n_layer));
        cr_assert_str_eq(mapping, list[i].mapping, "%s of %d", text, list[i].n_layer);
    }
}

/* Steps that follow one another keep their order at any depth. */
Test(choice, layers_that_ascend_do_so_at_any_depth) {
    for (int32_t n = 1; n <= 256; n++)
        for (int32_t k = 1; k < 32; k++) {
            char text[2][64];
            fv_choice a = defaults(), b = defaults();
            snprintf(text[0], sizeof text[0], "layer=%d/32+", k);
            snprintf(text[1], sizeof text[1], "layer=%d/32+", k + 1);
            sets(&a, text[0]);
            sets(&b, text[1]);
            cr_assert_leq(choice_layer(&a, "layer", n), choice_layer(&b, "layer", n));
        }
}
