/* The built `fovea`, run as a user runs it: the form of answers, invalid input, exit statuses. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/tensor_file.h"

#define FOVEA FOVEA_BIN "/fovea"
#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

#ifdef __SANITIZE_ADDRESS__
#define LIMITED /* AddressSanitizer's shadow memory exceeds any limit */
#else
#define LIMITED "ulimit -v 8000000; "
#endif

static command_result r;
static char dir[512]; /* the test's own checkpoint */

/* Every test is a process of its own, with a checkpoint of its own. */
static void make_checkpoint(void) {
    snprintf(dir, sizeof dir, "%s/cli-%d", FOVEA_TEST_TMP, (int)getpid());
    command_run(&r, FOVEA " synth --shape tiny --dtype f32 --seed 5 --out %s", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

static void drop_checkpoint(void) { command_run(&r, "rm -rf '%s' '%s.alone'", dir, dir); }

TestSuite(cli, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 300);

/* Asks with the given extra arguments; expects this exit status and this text on stderr. */
static void ask_fails(const char *args, int status, const char *words) {
    command_run(&r, FOVEA " ask --checkpoint %s %s", dir, args);
    cr_assert_eq(r.status, status, "%s gave %d: %s", args, r.status, r.err);
    cr_assert(strstr(r.err, words), "%s said: %s", args, r.err);
    size_t lines = 0;
    for (const char *p = r.err; (p = strchr(p, '\n')); p++) lines++;
    cr_assert_eq(lines, 1, "one line, not: %s", r.err);
    cr_assert_str_empty(r.out);
}

static json_t *ask_json(const char *args) {
    json_error_t err;
    command_run(&r, FOVEA " ask --json --ignore-eos --max-tokens 6 --checkpoint %s %s", dir, args);
    cr_assert_eq(r.status, 0, "%s: %s", args, r.err);
    json_t *root = json_loads(r.out, 0, &err);
    cr_assert_not_null(root, "%s", err.text);
    return root;
}

static json_int_t number(const json_t *root, const char *group, const char *key) {
    return json_integer_value(
        json_object_get(json_object_get(json_object_get(root, "report"), group), key));
}

/* ---- success ----------------------------------------------------------------------------- */

Test(cli, an_answer_has_the_form_that_options_ask_for) {
    char path[600];
    FILE *f;
    command_run(&r,
                FOVEA " ask --checkpoint %s --image " IMAGE
                      " --choice yes --choice 'not at all' 'Is it?'",
                dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strncmp(r.out, "yes\n", 4) == 0 || strncmp(r.out, "not at all\n", 11) == 0, "%s",
              r.out);
    snprintf(path, sizeof path, "%s/schema.json", dir);
    cr_assert((f = fopen(path, "w")) != NULL);
    fputs("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}", f);
    fclose(f);
    command_run(
        &r, FOVEA " ask --checkpoint %s --max-tokens 100 --ignore-eos --json-schema %s 'Is it?'",
        dir, path);
    cr_assert_eq(r.status, 0, "%s", r.err);
    r.out[strcspn(r.out, "]") + 1] = '\0';
    json_t *list = json_loads(r.out, 0, NULL);
    cr_assert(json_array_size(list) == 1 || json_array_size(list) == 2, "%s", r.out);
    cr_assert(json_is_boolean(json_array_get(list, 0)), "%s", r.out);
    json_decref(list);
    ask_fails("--regex '(a' x", 2, "not closed");
    ask_fails("--regex a --choice b x", 2, "only one of");
    ask_fails("--json-schema /none.json x", 1, "/none.json");
}

static json_int_t n_prompt(const char *args) {
    json_t *root = ask_json(args);
    const json_int_t n = number(root, "tokens", "prompt");
    json_decref(root);
    return n;
}

Test(cli, the_template_has_the_variables_of_a_file) {
    char path[700], with[2000], without[700];
    write_text(dir, "template.jinja",
               "{{ messages[0].content }}{% for t in tools or [] %} {{ t.name }}{% endfor %}");
    write_text(dir, "variables.json", "{\"tools\": [{\"name\": \"look\"}, {\"name\": \"wait\"}]}");
    write_text(dir, "list.json", "[1]");
    snprintf(without, sizeof without, "--chat %s/template.jinja x", dir);
    snprintf(with, sizeof with, "--chat-variables %s/variables.json %s", dir, without);
    cr_assert_gt(n_prompt(with), n_prompt(without));
    snprintf(path, sizeof path, "--chat-variables %s/list.json x", dir);
    ask_fails(path, 2, "list.json must hold one JSON object");
    snprintf(path, sizeof path, "--raw --chat-variables %s/variables.json x", dir);
    ask_fails(path, 2, "--raw");
    ask_fails("--chat-variables /none.json x", 1, "/none.json");
}

Test(cli, an_answer_streams_to_stdout_and_the_report_to_stderr) {
    command_run(&r, FOVEA " ask --checkpoint %s --image %s --ignore-eos --max-tokens 8 hello", dir,
                IMAGE);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "8 out, finish: length"), "%s", r.err);
    cr_assert(strstr(r.err, "policy   exact"), "%s", r.err);
    cr_assert_null(strstr(r.out, "policy"));
}

Test(cli, json_holds_text_tokens_finish_reason_and_report) {
    json_t *root = ask_json("--image " IMAGE " --logprobs 2 'what is it?'");
    cr_assert(json_is_string(json_object_get(root, "text")));
    json_t *tokens = json_object_get(root, "tokens");
    cr_assert_eq(json_array_size(tokens), 6);
    cr_assert_eq(json_array_size(json_object_get(json_array_get(tokens, 0), "top")), 2);
    cr_assert_str_eq(json_string_value(json_object_get(root, "finish_reason")), "length");
    cr_assert_eq(number(root, "tokens", "generated"), 6);
    cr_assert_eq(json_array_size(json_object_get(json_object_get(root, "report"), "digests")), 6);
    json_decref(root);
}

Test(cli, chunk_threads_and_path_change_no_digest) {
    json_t *a = ask_json("--image " IMAGE " --threads 1 --chunk 0 hi");
    json_t *b = ask_json("--image " IMAGE " --threads 2 --chunk 5 --isa plain hi");
    json_t *one = json_object_get(json_object_get(a, "report"), "digests");
    json_t *two = json_object_get(json_object_get(b, "report"), "digests");
    cr_assert_gt(json_array_size(one), 0);
    cr_assert(json_equal(one, two));
    json_decref(a);
    json_decref(b);
}

Test(cli, drafts_change_no_digest) {
    char with[800];
    write_text(dir, "expected.txt", "the the the the the");
    snprintf(with, sizeof with, "--max-tokens 60 --speculate on --prediction %s/expected.txt hi",
             dir);
    json_t *a = ask_json("--max-tokens 60 --speculate off hi"), *b = ask_json(with);
    cr_assert_eq(number(a, "drafts", "tokens"), 0);
    cr_assert_geq(number(b, "drafts", "tokens"), number(b, "drafts", "kept"));
    json_t *one = json_object_get(json_object_get(a, "report"), "digests");
    cr_assert_eq(json_array_size(one), 60);
    cr_assert(json_equal(one, json_object_get(json_object_get(b, "report"), "digests")));
    json_decref(a);
    json_decref(b);
    ask_fails("--speculate perhaps x", 2, "must be on or off");
    ask_fails("--prediction /none.txt x", 1, "/none.txt");
}

Test(cli, a_policy_makes_the_kv_smaller_and_the_report_says_by_how_much) {
    json_t *exact = ask_json("--image " IMAGE " hi");
    json_t *vtw = ask_json("--image " IMAGE " --policy prune=vtw,layer=1 hi");
    cr_assert_lt(number(vtw, "bytes", "bound"), number(exact, "bytes", "bound"));
    cr_assert_eq(number(vtw, "bytes", "raw"), number(exact, "bytes", "raw"));
    json_t *start =
        json_object_get(json_object_get(json_object_get(vtw, "report"), "bytes"), "resident_start");
    cr_assert_eq(json_integer_value(json_object_get(start, "visual")) +
                     json_integer_value(json_object_get(start, "text")),
                 number(vtw, "bytes", "bound"));
    json_decref(exact);
    json_decref(vtw);
}

Test(cli, a_calibrated_map_is_measured_kept_and_used) {
    ask_fails("--image " IMAGE " --policy lazy=vla,map=calibrated hi", 2, "fovea calibrate");
    command_run(&r, FOVEA " calibrate --checkpoint %s --items 2 --epsilon 1 --cap 2", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "layers can be lazy"), "%s", r.out);
    static char all[sizeof r.out];
    strcpy(all, r.out);
    json_t *exact = ask_json("--image " IMAGE " hi");
    json_t *lazy = ask_json("--image " IMAGE " --policy lazy=vla,map=calibrated hi");
    cr_assert_lt(number(lazy, "bytes", "bound"), number(exact, "bytes", "bound"));
    json_decref(exact);
    json_decref(lazy);
    command_run(&r, FOVEA " calibrate --checkpoint %s --items 2 --epsilon 1 --cap 2 --visual", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "(nats), of attention to visual tokens\n"), "%s", r.out);
    cr_assert_str_neq(strchr(r.out, '\n'), strchr(all, '\n'));
    json_decref(ask_json("--image " IMAGE " --policy lazy=vla,map=calibrated hi"));
}

/* latent.bin of these weights, kept under another name. */
static void measure_latent(const char *weights, const char *name) {
    command_run(&r, FOVEA " calibrate --checkpoint %s --latent --items 4 --latent-weights %s", dir,
                weights);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "written: latent.bin"), "%s", r.out);
    command_run(&r, "mv '%s/latent.bin' '%s/%s'", dir, dir, name);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(cli, latent_directions_are_the_same_bytes_each_time_and_follow_their_weights) {
    measure_latent("attention", "one");
    measure_latent("attention", "again");
    measure_latent("none", "other");
    command_run(&r, "cmp '%s/one' '%s/again'", dir, dir);
    cr_assert_eq(r.status, 0, "%s", r.out);
    command_run(&r, "cmp '%s/one' '%s/other'", dir, dir);
    cr_assert_eq(r.status, 1, "%s", r.out);
    command_run(&r, FOVEA " calibrate --checkpoint %s --latent --latent-weights all", dir);
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "none or attention"), "%s", r.err);
}

Test(cli, a_report_says_how_layers_of_32_were_mapped) {
    command_run(&r, FOVEA " ask --checkpoint %s --image " IMAGE " --policy preset=paper-st3 hi",
                dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    const char *line = "\nmapped   to 3 layers: prune.layer=3/32+ is 1, in proportion; "
                       "prune.stride=7/32 is 1, in proportion\n";
    cr_assert(strstr(r.out, line) || strstr(r.err, line), "%s%s", r.out, r.err);
}

/* The report tells apart what a stage decided and that a stage did nothing, and names the
 * thresholds it used. */
static const char *decided(json_t *root) {
    json_t *report = json_object_get(root, "report");
    cr_assert_eq(json_array_size(json_object_get(report, "bypassed")), 0);
    const char *text = json_string_value(json_array_get(json_object_get(report, "decided"), 0));
    cr_assert_not_null(text);
    return text;
}

Test(cli, visipruner_uses_thresholds_that_were_measured_on_its_checkpoint_only) {
    static const char ask[] = "--image " IMAGE " --policy prune=visipruner,shallow=0,detect=0 hi";
    char path[600];
    json_t *root = ask_json(ask);
    cr_assert(strstr(decided(root), "thresholds of LLaVA-1.5"), "%s", decided(root));
    json_decref(root);
    command_run(&r, FOVEA " calibrate --checkpoint %s --items 3", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "prune=visipruner: cos "), "%s", r.out);
    root = ask_json(ask);
    cr_assert(strstr(decided(root), "thresholds of the checkpoint's calibration"), "%s",
              decided(root));
    json_decref(root);
    snprintf(path, sizeof path,
             "sed -i 's/\"fingerprint\": \"[0-9a-f]*/\"fingerprint\": \"77/' "
             "%s/calibration.json",
             dir);
    command_run(&r, "%s", path);
    cr_assert_eq(r.status, 0, "%s", r.err);
    root = ask_json(ask);
    cr_assert(strstr(decided(root), "of other weights"), "%s", decided(root));
    json_decref(root);
    command_run(&r, FOVEA " ask --checkpoint %s --policy lazy=gla,map=calibrated hi", dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "policy: lazy=gla,map=calibrated: ") &&
                  strstr(r.err, "belongs to checkpoint '77'"),
              "%s", r.err);
    command_run(&r, "rm %s/calibration.json", dir);
}

/* A network of 3 layers with random weights: its last layer pays little attention to what the
 * answer needs, or much; text and JSON report the same. */
Test(cli, what_was_measured_for_vtw_and_fitprune_is_used) {
    static const char fitprune[] = "--image " IMAGE " --policy prune=fitprune hi";
    command_run(
        &r, FOVEA " ask --checkpoint %s --image " IMAGE " --policy prune=vtw,from=calibrated hi",
        dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "fovea calibrate"), "%s", r.err);
    json_t *root = ask_json(fitprune);
    cr_assert(strstr(decided(root), "as the checkpoint has none"), "%s", decided(root));
    json_decref(root);
    command_run(&r, FOVEA " calibrate --checkpoint %s --items 3 --eta 100", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "prune=vtw: without visual tokens from layer 1 of 0..2 on"), "%s",
              r.out);
    cr_assert(strstr(r.out, "prune=fitprune,target=60: of 576 tokens, dropped after each layer: "),
              "%s", r.out);
    root = ask_json(fitprune);
    cr_assert(strstr(decided(root), "schedule of the checkpoint's calibration"), "%s",
              decided(root));
    json_decref(root);
    root = ask_json("--image " IMAGE " --policy prune=vtw,from=calibrated hi");
    cr_assert(strstr(decided(root), "before layer 1"), "%s", decided(root));
    json_decref(root);
    command_run(&r, FOVEA " calibrate --checkpoint %s --items 2 --eta 0", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "visual tokens are needed in every layer"), "%s", r.out);
    command_run(&r, "rm %s/calibration.json", dir);
}

Test(cli, packed_layers_are_in_the_report_with_rank_and_error) {
    json_t *root = ask_json("--image " IMAGE " --policy pack=svd,rank_k=4,rank_v=3,gain=1 hi");
    json_t *packed = json_object_get(json_object_get(root, "report"), "packed");
    json_t *layers = json_object_get(packed, "layers");
    cr_assert_eq(json_array_size(layers), 3);
    cr_assert_gt(number(root, "packed", "bytes"), 0);
    cr_assert_lt(number(root, "packed", "bytes"), number(root, "packed", "bytes_raw"));
    for (size_t l = 0; l < 3; l++) {
        const json_t *rank = json_object_get(json_array_get(layers, l), "rank");
        const json_t *error = json_object_get(json_array_get(layers, l), "error");
        for (size_t k = 0; k < 2; k++) {
            cr_assert_eq(json_integer_value(json_array_get(rank, k)), 4 - (json_int_t)k);
            double e = json_real_value(json_array_get(error, k));
            cr_assert(e > 0 && e < 1, "%g", e);
        }
    }
    json_decref(root);
    root = ask_json("--image " IMAGE " hi");
    cr_assert_null(json_object_get(json_object_get(root, "report"), "packed"));
    json_decref(root);
}

Test(cli, an_overlay_shows_what_was_kept) {
    command_run(&r,
                FOVEA " ask --checkpoint %s --image %s --ignore-eos --max-tokens 2 --policy "
                      "prune=fastv,layer=1,keep=0.5 --overlay %s/kept.png hello",
                dir, IMAGE, dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "layer 0 holds 16, layers 1-2 hold 8 of 16 image tokens"), "%s", r.err);
    static const unsigned char size[] = {0, 0, 0x01, 0xf8, 0, 0, 0x02, 0x0c}; /* 504 x 524 */
    unsigned char head[24] = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/kept.png", dir);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    cr_assert_eq(fread(head, 1, sizeof head, f), sizeof head);
    fclose(f);
    cr_assert_eq(memcmp(head + 1, "PNG", 3), 0);
    cr_assert_eq(memcmp(head + 16, size, 8), 0, "two tiles of 240, and their heat below");
}

Test(cli, an_overlay_needs_an_image_and_an_output_path) {
    ask_fails("--overlay /tmp/kept.png hello", 2, "add an image with --image");
    ask_fails("--image " IMAGE " --overlay /nowhere/kept.png hello", 1, "/nowhere/kept.png");
}

Test(cli, a_policy_that_can_do_nothing_says_so) {
    json_t *root = ask_json("--policy prune=vtw 'no picture here'");
    json_t *notes = json_object_get(json_object_get(root, "report"), "bypassed");
    cr_assert_eq(json_array_size(notes), 1);
    cr_assert(strstr(json_string_value(json_array_get(notes, 0)), "no image"));
    json_decref(root);
}

Test(cli, several_images_and_raw_prompts_work) {
    json_t *root = ask_json("--raw --image " IMAGE " --image " IMAGE " 'a <image> b <image> c'");
    cr_assert_eq(number(root, "tokens", "images"), 2);
    json_decref(root);
}

Test(cli, sampling_follows_its_seed) {
    json_t *a = ask_json("--temperature 2 --seed 1 hi"),
           *b = ask_json("--temperature 2 --seed 1 hi");
    json_t *c = ask_json("--temperature 2 --seed 2 hi");
    cr_assert(json_equal(json_object_get(a, "tokens"), json_object_get(b, "tokens")));
    cr_assert_not(json_equal(json_object_get(a, "tokens"), json_object_get(c, "tokens")));
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

Test(cli, a_stop_string_ends_the_answer_before_itself) {
    json_t *whole = ask_json("hi");
    const char *text = json_string_value(json_object_get(whole, "text"));
    cr_assert_gt(strlen(text), 2);
    /* The stop string is the second half of the random model's own output. */
    char args[256], half[64];
    size_t at = strlen(text) / 2;
    while (((unsigned char)text[at] & 0xc0) == 0x80) at--;
    snprintf(half, sizeof half, "%.8s", text + at);
    cr_assert_null(strpbrk(half, "'"), "choose another seed: a quote in the stop string");
    snprintf(args, sizeof args, "--stop '%s' hi", half);
    json_t *cut = ask_json(args);
    const char *shown = json_string_value(json_object_get(cut, "text"));
    cr_assert_str_eq(json_string_value(json_object_get(cut, "finish_reason")), "stop");
    cr_assert_null(strstr(shown, half));
    cr_assert_eq(strncmp(text, shown, strlen(shown)), 0);
    json_decref(whole);
    json_decref(cut);
}

/* ---- precision -------------------------------------------------------------------------- */

/* The weights alone decide, so that any instruction set gives the same bits. */
Test(cli, bf16_checkpoints_are_computed_in_bf16_and_others_in_f32) {
    static const char *const cases[][2] = {{"f32", "compute=f32 kv_dtype=f32"},
                                           {"f16", "compute=f32 kv_dtype=f32"},
                                           {"bf16", "compute=bf16 kv_dtype=bf16"}};
    for (int i = 0; i < 3; i++) {
        command_run(&r, FOVEA " synth --shape tiny --dtype %s --force --out %s", cases[i][0], dir);
        cr_assert_eq(r.status, 0, "%s", r.err);
        json_t *fast = ask_json("--log model=info hi");
        cr_assert(strstr(r.err, cases[i][1]), "%s: %s", cases[i][0], r.err);
        json_t *plain = ask_json("--isa plain hi"), *f32 = ask_json("--compute f32 hi");
        json_t *digests = json_object_get(json_object_get(fast, "report"), "digests");
        cr_assert(
            json_equal(digests, json_object_get(json_object_get(plain, "report"), "digests")));
        cr_assert_eq(
            json_equal(digests, json_object_get(json_object_get(f32, "report"), "digests")), i < 2,
            "%s", cases[i][0]);
        json_decref(fast);
        json_decref(plain);
        json_decref(f32);
    }
}

/* ---- bad input ------------------------------------------------------------------------- */

Test(cli, wrong_usage_ends_with_2) {
    ask_fails("", 2, "expected one question");
    ask_fails("--imag x hi", 2, "unknown option --imag");
    ask_fails("--max-tokens 0 hi", 2, "max-tokens");
    ask_fails("--max-tokens many hi", 2, "not a whole number");
    ask_fails("--policy prune=magic hi", 2, "has no method 'magic'");
    ask_fails("--policy prune=vtw,layer=99 --image " IMAGE " hi", 2, "this checkpoint has layers");
    ask_fails("--top-p 1.5 hi", 2, "top-p");
    ask_fails("--isa neon hi", 2, "neon");
    ask_fails("--kv-dtype f64 hi", 2, "f32, bf16 or f16");
    ask_fails("--compute f16 hi", 2, "f32 or bf16");
    ask_fails("--weights int2 hi", 2, "use stored, int8, int4, int4-128, exact or dequantized");
    command_run(&r, FOVEA " sing");
    cr_assert_eq(r.status, 2);
    command_run(&r, FOVEA);
    cr_assert_eq(r.status, 2);
    command_run(&r, FOVEA " ask hi");
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "--checkpoint MODEL is needed"));
}

Test(cli, a_checkpoint_is_quantized_into_another_directory_and_once) {
    command_run(&r, FOVEA " quantize --force --checkpoint %s --out %s/.", dir, dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "is the checkpoint itself"), "%s", r.err);
    command_run(&r, FOVEA " quantize --checkpoint %s --out %s/quantized", dir, dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    command_run(&r, FOVEA " quantize --checkpoint %s/quantized --out %s/again", dir, dir);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.err, "quantized is quantized already"), "%s", r.err);
}

Test(cli, an_empty_question_is_refused) {
    ask_fails("''", 2, "the question is empty");
    ask_fails("' \t'", 2, "the question is empty");
    ask_fails("--raw ''", 2, "the question is empty");
    command_run(&r, FOVEA " trace --checkpoint %s --prompt '' --out %s/t", dir, dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "the question is empty"), "%s", r.err);
}

Test(cli, an_image_tag_in_a_question_is_text) {
    json_t *plain = ask_json("--image " IMAGE " 'a tag'");
    json_t *tag = ask_json("--image " IMAGE " 'a <image> tag'");
    json_t *alone = ask_json("'a <image> tag'");
    cr_assert_eq(number(tag, "tokens", "images"), 1);
    cr_assert_eq(number(tag, "tokens", "visual"), number(plain, "tokens", "visual"));
    cr_assert_gt(number(tag, "tokens", "text"), number(plain, "tokens", "text"));
    cr_assert_eq(number(alone, "tokens", "visual"), 0);
    json_decref(plain);
    json_decref(tag);
    json_decref(alone);
}

Test(cli, an_image_comes_from_standard_input) {
    command_run(&r,
                "cat " IMAGE " | " FOVEA " ask --checkpoint %s --image - --overlay %s/k.png "
                "--max-tokens 2 hello",
                dir, dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "of 1 image,"), "%s", r.err);
    command_run(&r, FOVEA " ask --checkpoint %s --image - hello < /dev/null", dir);
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "standard input is empty"), "%s", r.err);
}

Test(cli, logprobs_are_shown_without_json_too) {
    command_run(&r, FOVEA " ask --checkpoint %s --logprobs 2 --max-tokens 3 --ignore-eos hi", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    size_t lines = 0;
    for (const char *p = r.err; (p = strstr(p, "logprob  id ")); p++) lines++;
    cr_assert_eq(lines, 3, "%s", r.err);
    cr_assert(strstr(r.err, "(likeliest: "), "%s", r.err);
    command_run(&r, FOVEA " ask --checkpoint %s --max-tokens 3 --ignore-eos hi", dir);
    cr_assert_null(strstr(r.err, "logprob"));
}

Test(cli, tokens_processed_and_held_are_two_lines) {
    command_run(&r,
                FOVEA " ask --checkpoint %s --image " IMAGE " --max-tokens 2 --policy "
                      "'select=streaming,sink=1,recent=0.1' hi",
                dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "visual   tokens processed: layers 0-2: 16\n"), "%s", r.err);
    cr_assert(strstr(r.err, "tokens held (mean over KV heads): "), "%s", r.err);
    cr_assert_null(strstr(r.err, "heads): layers 0-2: 16"), "fewer are held: %s", r.err);
}

Test(cli, help_and_version_are_commands_too) {
    command_run(&r, FOVEA " help");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "calibrate"), "%s", r.out);
    command_run(&r, FOVEA " help ask");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "--max-tokens N"), "%s", r.out);
    command_run(&r, FOVEA " help asl");
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "did you mean 'ask'?"), "%s", r.err);
    command_run(&r, FOVEA " --version && " FOVEA_BIN "/fovea-decode --version");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "fovea 0.") && strstr(r.out, "fovea-decode 0."), "%s", r.out);
}

Test(cli, help_lists_the_options_of_a_first_day_and_help_all_every_one) {
    command_run(&r, FOVEA " ask --help");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "--max-tokens N") && !strstr(r.out, "--top-k"), "%s", r.out);
    command_run(&r, FOVEA " ask --help-all");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "(FOVEA_MAX_TOKENS)") && strstr(r.out, "--top-k K"), "%s", r.out);
    command_run(&r, FOVEA " --help");
    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "trace"));
}

Test(cli, image_counts_must_match) {
    ask_fails("--raw 'two <image> and <image>'", 2, "names 2 images with <image> and 0 are given");
    ask_fails("--raw --image " IMAGE " 'none'", 2, "names 0 images with <image> and 1 is given");
}

Test(cli, a_prompt_longer_than_the_context_is_refused) {
    command_run(&r, FOVEA " ask --checkpoint %s \"$(yes word | head -20000 | tr '\\n' ' ')\"", dir);
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "context is"), "%s", r.err);
}

Test(cli, a_missing_checkpoint_is_named) {
    command_run(&r, FOVEA " ask --checkpoint /nonexistent/x hi");
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.err, "/nonexistent/x"), "%s", r.err);
}

Test(cli, broken_images_are_refused) {
    char args[1024], file[600];
    snprintf(file, sizeof file, "%s/cut.png", dir);
    command_run(&r, "head -c 3000 " IMAGE " > %s", file);
    snprintf(args, sizeof args, "--image %s hi", file);
    ask_fails(args, 1, "cut.png");
    command_run(&r, "echo hello > %s", file);
    ask_fails(args, 1, "cut.png");
    ask_fails("--image /nonexistent.png hi", 1, "/nonexistent.png");
    /* A decompression bomb: a PNG whose header says 60000 x 60000. */
    command_run(&r,
                "printf '\\211PNG\\r\\n\\032\\n\\000\\000\\000\\015IHDR\\000\\000\\352\\140"
                "\\000\\000\\352\\140\\010\\002\\000\\000\\000\\000\\000\\000\\000' > %s",
                file);
    command_run(&r, LIMITED FOVEA " ask --checkpoint %s %s", dir, args);
    cr_assert(r.status == 1 || r.status == 2, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "cut.png"), "%s", r.err);
}

/* Damages one file of the checkpoint with a shell command, in which $F is the file. */
static void damage(const char *file, const char *command) {
    command_run(&r, "F='%s/%s'; %s", dir, file, command);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(cli, a_truncated_safetensors_is_refused) {
    damage("model.safetensors", "truncate -s -100 \"$F\"");
    ask_fails("hi", 1, "model.safetensors");
}

Test(cli, an_invalid_safetensors_is_refused) {
    damage("model.safetensors", "printf '\\377\\377\\377\\377\\377\\377\\377\\177' | dd of=\"$F\" "
                                "conv=notrunc 2>/dev/null");
    ask_fails("hi", 1, "model.safetensors");
}

Test(cli, a_broken_config_is_refused) {
    damage("config.json", "truncate -s 40 \"$F\"");
    ask_fails("hi", 1, "config.json");
}

Test(cli, an_unknown_family_is_named) {
    damage("config.json", "sed -i 's/\"llava\"/\"blip\"/; s/LlavaForC/BlipForC/' \"$F\"");
    ask_fails("hi", 1, "blip");
}

Test(cli, an_unknown_activation_is_named) {
    damage("config.json", "sed -i 's/\"silu\"/\"swish9\"/' \"$F\"");
    ask_fails("hi", 1, "swish9");
}

Test(cli, a_shape_that_does_not_fit_is_named) {
    damage("config.json", "sed -i 's/\"vocab_size\": [0-9]*/\"vocab_size\": 777/' \"$F\"");
    ask_fails("hi", 1, "777");
}

Test(cli, a_broken_tokenizer_is_refused) {
    damage("tokenizer.json", "truncate -s 1000 \"$F\"");
    ask_fails("hi", 1, "tokenizer.json");
}

Test(cli, a_git_lfs_pointer_is_called_one) {
    static const char pointer[] =
        "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:00\\nsize 9\\n' > \"$F\"";
    damage("model.safetensors", pointer);
    ask_fails("hi", 1, "model.safetensors is a Git LFS pointer");
    damage("tokenizer.json", pointer);
    damage("config.json", pointer);
    ask_fails("hi", 1, "config.json is a Git LFS pointer");
}

Test(cli, a_header_of_zeros_is_called_empty) {
    damage("model.safetensors", "head -c 4096 /dev/zero > \"$F\"");
    ask_fails("hi", 1, "the header is empty");
}

Test(cli, a_missing_preprocessor_config_is_named) {
    damage("preprocessor_config.json", "rm \"$F\"");
    ask_fails("hi", 1, "has neither preprocessor_config.json nor");
}

Test(cli, a_missing_tokenizer_is_named) {

    damage("tokenizer.json", "rm \"$F\"");
    ask_fails("hi", 1, "tokenizer.json");
}

Test(cli, nan_weights_are_found_and_named) {
    /* An f32 in the middle of the file, in a weight of the text model, becomes NaN. */
    damage("model.safetensors", "printf '\\000\\000\\300\\177' | dd of=\"$F\" bs=4 conv=notrunc "
                                "seek=$(($(stat -c %s \"$F\") / 8)) 2>/dev/null");
    command_run(&r, FOVEA " ask --checkpoint %s --image %s hi", dir, IMAGE);
    cr_assert_eq(r.status, 1, "%s", r.err);
    cr_assert(strstr(r.err, "holds NaN or infinity"), "%s", r.err);
}

/* ---- trace ----------------------------------------------------------------------------- */

Test(cli, trace_writes_every_file) {
    command_run(&r,
                FOVEA " trace --checkpoint %s --image %s --prompt hi --max-tokens 3 --ignore-eos "
                      "--policy 'select=streaming,sink=1,recent=0.1' --out %s/out && ls %s/out",
                dir, IMAGE, dir, dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    static const char *const files[] = {
        "answer.txt",   "image_embeds.npy", "input_ids.npy",       "kept_000.npy",
        "kept_001.npy", "logits.npy",       "pixel_values.npy",    "prompt.txt",
        "report.json",  "tokens.npy",       "vision_features.npy", "visual_mass.npy"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        cr_assert(strstr(r.out, files[i]), "%s is missing of: %s", files[i], r.out);
    cr_assert(strstr(r.err, "wrote answer.txt"), "%s", r.err);
    command_run(&r, FOVEA " trace --checkpoint %s --prompt hi", dir);
    cr_assert_eq(r.status, 2);
}

/* The image's 16 rows stand at 8..23 of the prompt's 39; 4 of them go on into layer 1. */
static void trace_kept(const char *policy, const char *kept) {
    command_run(&r,
                FOVEA " trace --checkpoint %s --image %s --prompt hi --max-tokens 1 --policy %s "
                      "--out %s/kept && cd %s/kept && grep -aq '(4,39,)' kept_000.npy && "
                      "grep -aq '(4,27,)' kept_001.npy && "
                      "od -An -td4 -w4 -j128 -N108 kept_001.npy | tr -d '\\n' | tr -s ' ' && "
                      "rm *",
                dir, IMAGE, policy, dir, dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert(strstr(r.out, kept), "%s kept%s", policy, r.out);
}

Test(cli, trace_has_each_layers_attention_to_visual_tokens) {
    float first, second;
    command_run(&r,
                FOVEA " trace --checkpoint %s --image %s --prompt hi --max-tokens 1 "
                      "--policy prune=vtw,layer=1 --out %s/mass && "
                      "od -An -tf4 -j128 -N8 %s/mass/visual_mass.npy",
                dir, IMAGE, dir, dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_eq(sscanf(r.out, "%f %f", &first, &second), 2, "%s", r.out);
    cr_assert(first > 0 && first < 1, "%s", r.out);
    cr_assert_eq(second, 0, "no visual row is left there: %s", r.out);
}

Test(cli, trace_has_the_tokens_each_layer_kept) {
    trace_kept("prune=grid,layer=1,keep=0.25", " 6 7 8 10 16 18 24 25 ");
    trace_kept("prune=fastv,layer=1,keep=0.25", " 4 5 6 7 ");
    cr_assert_null(strstr(r.out, " 8 10 16 18 "), "fastv looks: %s", r.out);
}
