/* Sliding-window attention: which tokens a layer sees. test_prefill.c tests that chunks, groups of
 * layers, threads, CPU paths and batches change no bit of it. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_net.h"

enum { WINDOW = 6, LOGITS = 97, STEPS = 3 };

/* Logits after the prompt and after each of some steps. */
typedef struct answer {
    float logits[STEPS + 1][LOGITS];
} answer;

static tiny_shape shape_of(int32_t n_layer, int32_t window) {
    tiny_shape s = tiny_shape_default();
    s.n_layer = n_layer;
    s.window = window;
    return s;
}

/* The answer to a prompt in which token `other` has another id; -1: none has. */
static answer answer_of(tiny_shape shape, const char *layout, const char *policy, int32_t other) {
    tiny_net net;
    tiny_prompt p, *one = &p;
    answer a;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    tiny_prompt_lay(&net, &p, layout, 5, policy);
    if (other >= 0) p.ids[other] = (p.ids[other] + 1) % shape.vocab;
    cr_assert_eq(tiny_prefill(&net, &p, 1, 4), FV_OK, "%s", fv_last_error());
    memcpy(a.logits[0], p.logits, sizeof a.logits[0]);
    for (int32_t s = 0; s < STEPS; s++) {
        int32_t id = 20 + s;
        cr_assert_eq(tiny_step(&net, &one, 1, &id, 1, s), FV_OK, "%s", fv_last_error());
        memcpy(a.logits[s + 1], p.logits, sizeof a.logits[0]);
    }
    tiny_prompt_free(&p);
    tiny_net_close(&net);
    return a;
}

Test(window, a_token_counts_for_those_within_the_window_after_it) {
    const tiny_shape slides = shape_of(1, WINDOW);
    const answer a = answer_of(slides, "t12", "", -1);
    for (int32_t i = 0; i < 12; i++) {
        const answer b = answer_of(slides, "t12", "", i);
        for (int32_t s = 0; s <= STEPS; s++)
            cr_assert_eq(!same_bits(a.logits[s], b.logits[s], LOGITS), 11 + s - i < WINDOW,
                         "token %d, step %d", i, s);
    }
}

Test(window, a_layer_that_does_not_slide_sees_all) {
    const answer a = answer_of(shape_of(2, WINDOW), "t12", "", -1);
    const answer b = answer_of(shape_of(2, WINDOW), "t12", "", 0);
    for (int32_t s = 0; s <= STEPS; s++) cr_assert_not(same_bits(a.logits[s], b.logits[s], LOGITS));
}

Test(window, one_that_nothing_leaves_changes_no_bit) {
    static const char *const policies[] = {"", "prune=fastv,layer=1,keep=0.5", "lazy=vla"};
    for (int i = 0; i < 3; i++) {
        const answer none = answer_of(shape_of(4, 0), "t3 v20 t2 v9 t4", policies[i], -1);
        const answer wide = answer_of(shape_of(4, 38 + STEPS), "t3 v20 t2 v9 t4", policies[i], -1);
        const answer less = answer_of(shape_of(4, 37), "t3 v20 t2 v9 t4", policies[i], -1);
        for (int32_t s = 0; s <= STEPS; s++) {
            cr_assert(same_bits(none.logits[s], wide.logits[s], LOGITS), "'%s'", policies[i]);
            cr_assert_not(same_bits(none.logits[s], less.logits[s], LOGITS), "'%s'", policies[i]);
        }
    }
}

/* Positions are those of the prompt: dropping tokens brings nothing back into the window. */
Test(window, tokens_that_are_dropped_do_not_move_the_window) {
    const tiny_shape slides = shape_of(1, WINDOW);
    const char *drop = "prune=grid,layer=0,keep=0";
    const answer a = answer_of(slides, "t4 v9 t3", drop, -1);
    for (int32_t i = 0; i < 4; i++) {
        const answer b = answer_of(slides, "t4 v9 t3", drop, i);
        for (int32_t s = 0; s <= STEPS; s++)
            cr_assert(same_bits(a.logits[s], b.logits[s], LOGITS), "token %d", i);
    }
}

/* Tells whether token `other` of the image changes the stored row of token `at`. */
static bool changes(bool whole, int32_t chunk, int32_t other, int32_t at) {
    tiny_net net;
    tiny_prompt p[2];
    float row[2][24];
    tiny_net_open(&net, shape_of(2, 0), FV_F32, NULL, 1);
    net.cfg.image_whole = whole;
    for (int i = 0; i < 2; i++) {
        tiny_prompt_lay(&net, &p[i], "t3 v20 t2 v9 t4", 5, "");
        if (i) p[i].embeds[other * net.cfg.d_model] += 1.0f;
        cr_assert_eq(tiny_prefill(&net, &p[i], 1, chunk), FV_OK, "%s", fv_last_error());
        fv_block_table v = fv_kv_runs(p[i].kv, 1)[FV_SEG_VISUAL];
        memcpy(row[i], (const float *)v.block[0].v + at * 24, sizeof row[i]);
    }
    for (int i = 0; i < 2; i++) tiny_prompt_free(&p[i]);
    tiny_net_close(&net);
    return !same_bits(row[0], row[1], 24);
}

Test(window, tokens_of_a_whole_image_see_each_other_in_any_chunk) {
    for (int32_t chunk = 0; chunk < 12; chunk += 5) {
        cr_assert_not(changes(false, chunk, 19, 0), "causal");
        cr_assert(changes(true, chunk, 19, 0), "the last of the image, chunk %d", chunk);
        cr_assert(changes(true, chunk, 28, 20), "of the second, chunk %d", chunk);
        cr_assert_not(changes(true, chunk, 20, 19), "the next image, chunk %d", chunk);
    }
}
