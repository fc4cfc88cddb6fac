/* Adapters through the whole path in one process: chosen by name, beside each other, on quantized weights, and in
 * kept conversations. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/local.h"
#include "common/file.h"
#include "tests/support/adapter_file.h"
#include "tests/support/tensor_file.h"

#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"

enum { PATH_CAP = 4096, TOKENS = 8, NAMES = 4 };

static const char *const names[NAMES] = {"", "one", "two", "three"};

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

typedef struct rig {
    char spec[NAMES - 1][PATH_CAP + 16];
    const char *specs[NAMES - 1];
    fv_local *local;
} rig;

static void open_rig(rig *r, const char *weights, int32_t n_adapter, const char *isa) {
    for (int32_t i = 0; i < NAMES - 1; i++) {
        char dir[PATH_CAP];
        scratch_dir(dir, sizeof dir);
        adapter_write(dir, NANO, 5 + (uint64_t)i);
        snprintf(r->spec[i], sizeof r->spec[i], "%s=%s", names[i + 1], dir);
        r->specs[i] = r->spec[i];
    }
    fv_local_options opt = {.checkpoint = NANO,
                            .backend = "cpu",
                            .isa = isa,
                            .weights = weights,
                            .adapter = r->specs,
                            .n_adapter = n_adapter,
                            .threads = 1,
                            .at_once = NAMES};
    ok(fv_local_open(&opt, &r->local));
}

static fv_ask ask_of(const char *model, const fv_chat_turn *turn) {
    return (fv_ask){.n_turn = 1,
                    .turns = turn,
                    .model = model,
                    .sampling = fv_sampling_default(),
                    .max_tokens = TOKENS,
                    .ignore_eos = true};
}

static const fv_chat_turn question = {.role = "user", .text = "Name a color."};
static const fv_chat_turn more = {.role = "user", .text = "Another one."};

static void answer(rig *r, const char *model, fv_report *out) {
    fv_ask ask = ask_of(model, &question);
    *out = (fv_report){0};
    ok(fv_local_ask(r->local, &ask, NULL, out));
    cr_assert_eq(out->n_generated, TOKENS);
}

static bool same(const fv_report *a, const fv_report *b) {
    return a->n_generated == b->n_generated &&
           memcmp(a->digest, b->digest, (size_t)a->n_generated * sizeof *a->digest) == 0;
}

static void on_over(void *user, fv_status st, fv_report *report) {
    ok(st);
    *(fv_report *)user = *report;
    report->digest = NULL;
}

/* Answers of all names at the same time. */
static void answer_together(rig *r, fv_report out[NAMES]) {
    static fv_ask ask[NAMES];
    for (int32_t i = 0; i < NAMES; i++) {
        out[i] = (fv_report){0};
        ask[i] = ask_of(names[i], &question);
        ok(fv_local_begin(r->local, &ask[i], NULL, on_over, &out[i]));
    }
    for (bool all = false; !all;) {
        fv_local_step(r->local);
        all = true;
        for (int32_t i = 0; i < NAMES; i++) all &= out[i].n_generated > 0;
    }
}

static void expect_beside_each_other(const char *weights) {
    rig with, without;
    fv_report alone[NAMES], together[NAMES], base;
    open_rig(&with, weights, NAMES - 1, "auto");
    for (int32_t i = 0; i < NAMES; i++) answer(&with, names[i], &alone[i]);
    answer_together(&with, together);
    open_rig(&without, weights, 0, "plain");
    answer(&without, "", &base);
    cr_expect(same(&base, &alone[0]), "the base model has the bits that it has without adapters");
    for (int32_t i = 0; i < NAMES; i++) {
        cr_expect(same(&alone[i], &together[i]), "'%s' in a batch with others", names[i]);
        for (int32_t k = 0; k < i; k++)
            cr_expect_neq(alone[i].digest[0], alone[k].digest[0], "%s, %s", names[i], names[k]);
    }
    for (int32_t i = 0; i < NAMES; i++) {
        fv_report_free(&alone[i]);
        fv_report_free(&together[i]);
    }
    fv_report_free(&base);
    fv_local_close(with.local);
    fv_local_close(without.local);
}

Test(adapters, answers_of_three_and_none_are_the_same_alone_and_together) {
    expect_beside_each_other(NULL);
}

Test(adapters, so_they_are_on_weights_of_8_bits) { expect_beside_each_other("int8"); }

Test(adapters, so_they_are_on_weights_of_4_bits) { expect_beside_each_other("int4"); }

Test(adapters, an_unknown_name_is_refused) {
    rig r;
    open_rig(&r, NULL, 1, "auto");
    fv_ask ask = ask_of("two", &question);
    fv_report report = {0};
    cr_expect_eq(fv_local_ask(r.local, &ask, NULL, &report), FV_ENOTFOUND);
    cr_expect(strstr(fv_last_error(), "--adapter"), "%s", fv_last_error());
    fv_report_free(&report);
    fv_local_close(r.local);
}

static fv_status follow(rig *r, const char *model, fv_report *first) {
    fv_ask ask = ask_of(model, &more);
    fv_report second = {0};
    ask.conversation = first->conversation;
    fv_status st = fv_local_ask(r->local, &ask, NULL, &second);
    fv_report_free(&second);
    return st;
}

Test(adapters, a_kept_conversation_continues_with_its_own_alone) {
    static const struct {
        const char *begun, *then;
        fv_status expected;
    } cases[] = {{"one", "one", FV_OK},      {"one", NULL, FV_OK}, {"one", "two", FV_EINVAL},
                 {"one", "base", FV_EINVAL}, {"", "", FV_OK},      {"", "one", FV_EINVAL},
                 {"two", "three", FV_EINVAL}};
    rig r;
    open_rig(&r, NULL, NAMES - 1, "auto");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_ask ask = ask_of(cases[i].begun, &question);
        fv_report first = {0};
        ask.keep = true;
        ok(fv_local_ask(r.local, &ask, NULL, &first));
        cr_assert(first.kept);
        fv_status st = follow(&r, cases[i].then, &first);
        cr_expect_eq(st, cases[i].expected, "case %zu: %s", i, fv_last_error());
        if (st != FV_OK)
            cr_expect(strstr(fv_last_error(), "was begun with"), "%s", fv_last_error());
        fv_report_free(&first);
    }
    fv_local_close(r.local);
}

Test(adapters, a_kept_conversation_knows_both_names_of_one_adapter) {
    rig r = {0};
    char folder[PATH_CAP];
    fv_report first = {0};
    scratch_dir(folder, sizeof folder);
    adapter_write(folder, NANO, 5);
    for (int32_t i = 0; i < 2; i++) {
        snprintf(r.spec[i], sizeof r.spec[i], "%s=%s", names[i + 1], folder);
        r.specs[i] = r.spec[i];
    }
    fv_local_options opt = {.checkpoint = NANO,
                            .backend = "cpu",
                            .isa = "auto",
                            .adapter = r.specs,
                            .n_adapter = 2,
                            .threads = 1,
                            .at_once = NAMES};
    ok(fv_local_open(&opt, &r.local));
    fv_ask ask = ask_of("two", &question);
    ask.keep = true;
    ok(fv_local_ask(r.local, &ask, NULL, &first));
    ok(follow(&r, "two", &first));
    fv_report_free(&first);
    fv_local_close(r.local);
}

static void open_picture(fv_image *out) {
    char *bytes;
    size_t n;
    ok(fv_file_read(NANO "/picture.png", (size_t)1 << 20, &bytes, &n));
    ok(fv_image_decode(bytes, n, NULL, out));
    free(bytes);
}

Test(adapters, policies_work_on_them_and_directions_of_the_base_model_are_left_out) {
    static const char *const policies[] = {
        "select=snapkv", "evict=h2o", "pack=svd,rank_k=8,rank_v=8", "prune=fastv", "pack=latent"};
    static const fv_chat_turn seen = {
        .role = "user", .text = "Describe the picture.", .n_image = 1};
    rig r;
    fv_image image;
    open_rig(&r, NULL, 1, "auto");
    open_picture(&image);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        fv_ask ask = ask_of("one", &seen);
        fv_report report = {0};
        ask.n_image = 1;
        ask.images = &image;
        ok(fv_policy_parse(policies[i], &ask.policy));
        ok(fv_local_ask(r.local, &ask, NULL, &report));
        cr_expect_eq(report.n_generated, TOKENS, "%s", policies[i]);
        bool noted = strstr(report.note[FV_STAGE_PACK], "without an adapter") != NULL;
        cr_expect_eq(noted, strcmp(policies[i], "pack=latent") == 0, "%s: %s", policies[i],
                     report.note[FV_STAGE_PACK]);
        fv_report_free(&report);
    }
    fv_image_free(&image);
    fv_local_close(r.local);
}
