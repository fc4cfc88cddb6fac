/* Text as codes: when it becomes codes, and its bytes (common/text_rule.h,
 * packed/text_codes.h). */
#include <criterion/criterion.h>

#include "packed/text_codes.h"

static const fv_text_width vicuna = {32, 128, FV_BF16}, nano = {8, 32, FV_BF16},
                           tiny = {2, 24, FV_F32}, narrow = {1, 7, FV_BF16};

enum { CASES = 12 };

static fv_text_width width_of(int i) {
    const fv_text_width all[] = {vicuna, nano, tiny};
    return all[i % 3];
}

static fv_text_rule rule_of(int i) {
    return (fv_text_rule){.bits = i / 3 % 2 ? 4 : 8, .values = i / 6 > 0, .again = 48};
}

Test(text_codes, positions_below_the_last_token_of_every_t_are_codes) {
    fv_text_rule r = {.bits = 4, .again = 16};
    cr_expect_eq(fv_text_coded(&r, 100, 99), 0);
    cr_expect_eq(fv_text_coded(&r, 100, 100), 99);
    cr_expect_eq(fv_text_coded(&r, 100, 115), 99);
    cr_expect_eq(fv_text_coded(&r, 100, 116), 115);
    cr_expect_eq(fv_text_coded(&r, 100, 163), 147);
    cr_expect_eq(fv_text_until(&r, 100, 99), 1);
    for (int32_t h = 100; h < 200; h++) {
        int32_t n = fv_text_until(&r, 100, h);
        cr_expect(n >= 1 && n <= 16);
        cr_expect_eq(fv_text_coded(&r, 100, h + n - 1), fv_text_coded(&r, 100, h));
        cr_expect_eq(fv_text_coded(&r, 100, h + n), fv_text_coded(&r, 100, h) + 16);
    }
    r.again = 0;
    cr_expect_eq(fv_text_coded(&r, 100, 5000), 99);
    cr_expect_eq(fv_text_until(&r, 100, 5000), INT32_MAX);
    r.bits = 0;
    cr_expect_eq(fv_text_coded(&r, 100, 5000), 0);
    cr_expect_eq(fv_text_until(&r, 100, 100), INT32_MAX);
}

/* 4 bits: keys 4 bits and 8 bytes a channel, values 4 bits and 8 bytes a token. */
Test(text_codes, bytes_of_a_block_are_codes_and_pairs) {
    fv_text_rule r = {.bits = 4, .values = true, .again = 48};
    cr_expect_eq(fv_text_block_bytes(&r, 48, &vicuna, true),
                 48 * 4096 / 2 + 4096 * 8 + 48 * 4096 / 2 + 48 * 8);
    cr_expect_eq(fv_text_block_bytes(&r, 48, &vicuna, false), 48 * 4096 / 2 + 48 * 8);
    cr_expect_eq(fv_text_block_bytes(&r, 0, &vicuna, true), 0);
    r.values = false;
    cr_expect_eq(fv_text_block_bytes(&r, 48, &vicuna, true),
                 48 * 4096 / 2 + 4096 * 8 + 48 * 4096 * 2);
    cr_expect_eq(fv_text_row_bytes(48, &vicuna, true), 48 * 4096 * 4);
}

Test(text_codes, from_the_fewest_rows_on_a_block_is_smaller_than_they_are) {
    for (int i = 0; i < CASES; i++) {
        fv_text_width w = width_of(i);
        fv_text_rule r = rule_of(i);
        int32_t least = fv_text_min_rows(&r, &w);
        cr_assert(least > 1 && least <= 65);
        cr_expect_geq(fv_text_block_bytes(&r, least - 1, &w, true),
                      fv_text_row_bytes(least - 1, &w, true));
        for (int32_t n = least; n < 3000; n++)
            cr_assert_lt(fv_text_block_bytes(&r, n, &w, true), fv_text_row_bytes(n, &w, true));
    }
    fv_text_rule r = {.bits = 4, .values = true, .again = 48};
    cr_expect_eq(fv_text_min_rows(&r, &narrow), INT32_MAX);
    cr_expect_eq(fv_text_storage(&r, 500, 100, 2, &narrow, true).raw, 600);
}

/* Simulates step by step: rows become a block once enough of them are due. */
static fv_text_held hold_slowly(const fv_text_rule *r, int32_t prompt, int32_t answer,
                                int32_t times, const fv_text_width *w, bool own, int32_t *most) {
    int32_t least = fv_text_min_rows(r, w), wait = prompt > 2 ? prompt - 2 : 0;
    fv_text_held h = {.raw = prompt + answer};
    for (int32_t i = 0; i <= times; i++) {
        if (i > 0) wait += r->again;
        if (wait < least) continue;
        h.codes += fv_text_block_bytes(r, wait, w, own);
        h.n_block++;
        h.raw -= wait;
        wait = 0;
    }
    *most = 2 + (least - 1) + r->again;
    return h;
}

Test(text_codes, what_is_held_is_known_from_the_number_of_tokens) {
    for (int i = 0; i < CASES * 2; i++)
        for (int32_t prompt = 0; prompt < 80; prompt += 1 + prompt / 9)
            for (int32_t times = 0; times < 7; times++) {
                fv_text_width w = width_of(i);
                fv_text_rule r = rule_of(i % CASES);
                int32_t most, answer;
                bool own = i < CASES;
                r.again = 16 + 16 * (times % 3);
                answer = times * r.again + times % 5;
                fv_text_held want = hold_slowly(&r, prompt, answer, times, &w, own, &most);
                fv_text_held got = fv_text_storage(&r, prompt, answer, times, &w, own);
                cr_assert_eq(got.codes, want.codes, "%d and %d times", prompt, times);
                cr_assert_eq(got.n_block, want.n_block);
                cr_assert_eq(got.raw, want.raw);
                cr_assert_leq(got.codes, fv_text_codes_most(&r, prompt, answer, &w, own));
                cr_assert_eq(fv_text_raw_most(&r, 1 << 20, &w), most);
                cr_assert_eq(fv_text_raw_most(&r, 3, &w), 3);
            }
}

/* Holds however much of the prompt is a resumed answer. */
Test(text_codes, codes_of_a_replay_are_within_the_bound) {
    for (int i = 0; i < CASES * 28; i++)
        for (int32_t n = i / CASES * 7, replay = 0; replay <= n; replay++) {
            fv_text_width w = width_of(i);
            fv_text_rule r = rule_of(i % CASES);
            int32_t times = replay > 0 ? (replay - 1) / r.again : 0;
            fv_text_held h = fv_text_storage(&r, n - replay, replay, times, &w, true);
            cr_assert_leq(h.codes, fv_text_codes_most(&r, n, 0, &w, true), "%d of %d", replay, n);
        }
}
