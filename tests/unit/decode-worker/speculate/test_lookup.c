/* decode-worker/speculate/lookup.c: where drafts come from. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/speculate/lookup.h"

static fv_draft draft_of(fv_lookup *k, const int32_t *ids, int32_t n, int32_t most) {
    fv_draft d = {0};
    fv_draft_source s = fv_lookup_source(k);
    s.draft(s.user, ids, n, most, &d);
    return d;
}

static fv_lookup *open_lookup(const int32_t *ids, int32_t n, const int32_t *prediction,
                              int32_t n_prediction) {
    fv_lookup *k;
    cr_assert_eq(fv_lookup_open(ids, n, prediction, n_prediction, &k), FV_OK);
    return k;
}

Test(lookup, an_answer_that_copies_the_prompt_goes_on_as_it_did) {
    static const int32_t ids[] = {9, 1, 2, 3, 4, 5, 6, 7, 20, 30, 1, 2, 3};
    fv_lookup *k = open_lookup(ids, 10, NULL, 0);
    cr_assert_eq(draft_of(k, ids, 10, 8).n, 0, "30 was not there");
    fv_draft d = draft_of(k, ids, 13, 4);
    cr_assert_eq(d.n, 4);
    cr_assert_eq(memcmp(d.id, (int32_t[]){4, 5, 6, 7}, 16), 0);
    cr_assert_eq(d.grade, 1, "three tokens are the same");
    fv_lookup_close(k);
}

Test(lookup, the_longest_match_wins_and_of_equal_ones_the_latest) {
    static const int32_t ids[] = {1, 2, 3, 50, 8, 2, 3, 60, 9, 2, 3, 70, 1, 2, 3};
    fv_lookup *k = open_lookup(ids, 15, NULL, 0);
    cr_assert_eq(draft_of(k, ids, 15, 1).id[0], 50);
    fv_lookup_close(k);
    static const int32_t equal[] = {8, 2, 3, 60, 9, 2, 3, 70, 1, 2, 3};
    k = open_lookup(equal, 11, NULL, 0);
    cr_assert_eq(draft_of(k, equal, 11, 1).id[0], 70);
    fv_lookup_close(k);
}

Test(lookup, a_text_that_repeats_goes_on_repeating_beyond_its_end) {
    static const int32_t ids[] = {1, 2, 3, 1, 2, 3};
    fv_lookup *k = open_lookup(ids, 6, NULL, 0);
    fv_draft d = draft_of(k, ids, 6, 8);
    cr_assert_eq(d.n, 8);
    cr_assert_eq(memcmp(d.id, (int32_t[]){1, 2, 3, 1, 2, 3, 1, 2}, sizeof d.id), 0);
    fv_lookup_close(k);
}

Test(lookup, a_prediction_is_found_from_the_first_token_and_again_after_another_one) {
    static const int32_t ids[] = {4, 5, 6, 70, 71, 80, 72, 73}, prediction[] = {70, 71, 72, 73, 74};
    fv_lookup *k = open_lookup(ids, 3, prediction, 5);
    fv_draft d = draft_of(k, ids, 3, 8);
    cr_assert_eq(d.n, 5, "no further than the prediction");
    cr_assert_eq(memcmp(d.id, prediction, sizeof prediction), 0);
    cr_assert_eq(draft_of(k, ids, 4, 2).id[0], 71);
    cr_assert_eq(draft_of(k, ids, 6, 8).n, 0);
    cr_assert_eq(draft_of(k, ids, 8, 8).id[0], 74);
    fv_lookup_close(k);
}

Test(lookup, prompts_of_one_token_and_none_give_no_draft) {
    static const int32_t ids[] = {4};
    fv_lookup *k = open_lookup(ids, 0, ids, 1);
    cr_assert_eq(draft_of(k, ids, 0, 8).n, 0);
    cr_assert_eq(draft_of(k, ids, 1, 8).n, 0);
    fv_lookup_close(k);
}

/* Whatever it finds is a continuation of an equal pair; the index grows over several sizes. */
Test(lookup, drafts_of_long_texts_continue_an_equal_pair) {
    enum { N = 9000 };
    static int32_t ids[N];
    uint32_t x = 7;
    int32_t found = 0;
    for (int32_t i = 0; i < N; i++) ids[i] = (int32_t)((x = x * 1664525 + 1013904223) >> 8) % 60;
    fv_lookup *k = open_lookup(ids, 100, NULL, 0);
    for (int32_t n = 100; n <= N; n += 1 + n % 9) {
        fv_draft d = draft_of(k, ids, n, 3);
        bool there = d.n == 0;
        for (int32_t at = 1; !there && at < n - 1; at++)
            there = ids[at] == ids[n - 1] && ids[at - 1] == ids[n - 2] && ids[at + 1] == d.id[0];
        cr_assert(there, "after %d tokens", n);
        found += d.n > 0;
    }
    cr_assert_gt(found, 500);
    fv_lookup_close(k);
}
