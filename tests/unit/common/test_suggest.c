/* common/suggest: which names are similar, and which of several is chosen. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/suggest.h"

static const char *near(const char *word, const char *const *known) {
    fv_suggestion s = fv_suggest_for(word, strlen(word));
    for (int i = 0; known[i]; i++) fv_suggest_try(&s, known[i]);
    return s.best;
}

static const char *const known[] = {"image", "images", "policy", "seed", "to", "log", NULL};

Test(suggest, one_edit_of_each_kind_is_near) {
    cr_assert_str_eq(near("imge", known), "image");
    cr_assert_str_eq(near("iimage", known), "image");
    cr_assert_str_eq(near("imaje", known), "image");
    cr_assert_str_eq(near("miage", known), "image");
}

Test(suggest, two_edits_are_near_and_three_are_not) {
    cr_assert_str_eq(near("opliyc", known), "policy");
    cr_assert_str_eq(near("polc", known), "policy");
    cr_assert_null(near("opliycx", known));
    cr_assert_null(near("model", known));
}

Test(suggest, short_names_are_near_by_one_edit_only) {
    cr_assert_str_eq(near("lgo", known), "log");
    cr_assert_null(near("lxx", known));
    cr_assert_null(near("x", known));
    cr_assert_null(near("", known));
}

Test(suggest, the_nearest_wins_and_of_equals_the_first) {
    cr_assert_str_eq(near("imagess", known), "images");
    cr_assert_str_eq(near("imagex", known), "image");
}

Test(suggest, a_word_longer_than_any_name_is_near_to_none) {
    char word[4096];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    cr_assert_null(near(word, known));
}

Test(suggest, the_text_is_a_question_or_nothing) {
    char text[FV_SUGGEST_MAX];
    fv_suggestion s = fv_suggest_for("sed", 3);
    cr_assert_str_eq(fv_suggest_text(&s, text), "");
    fv_suggest_try(&s, "seed");
    cr_assert_str_eq(fv_suggest_text(&s, text), "; did you mean 'seed'?");
}
