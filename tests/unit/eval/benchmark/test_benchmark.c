/* Lines of a benchmark, and the errors of bad ones. */
#include "eval/benchmark/benchmark.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"

#define IMAGE "\"image\":\"" FOVEA_TEST_DATA "/golden/image/420.jpg\""
#define ASKED "{" IMAGE ",\"question\":\"What?\""

static char path[300]; /* cases run side by side */
static fv_benchmark b;

static void begin(void) {
    snprintf(path, sizeof path, FOVEA_TEST_TMP "/benchmark_%d.jsonl", (int)getpid());
}
static void end(void) { remove(path); }

TestSuite(benchmark, .init = begin, .fini = end);

static fv_status read_text(const char *text, int32_t most) {
    cr_assert_eq(fv_file_write(path, text, strlen(text)), FV_OK);
    return fv_benchmark_read(path, most, &b);
}

static void reads(const char *text) {
    cr_assert_eq(read_text(text, 0), FV_OK, "%s", fv_last_error());
}

static void refused(const char *text, const char *words) {
    cr_assert_neq(read_text(text, 0), FV_OK, "%s was read", text);
    cr_expect(strstr(fv_last_error(), words), "%s: %s", text, fv_last_error());
}

Test(benchmark, a_line_has_its_defaults) {
    reads("\n" ASKED ",\"answers\":\"red\"}\r\n\n");
    cr_assert_eq(b.n_item, 1);
    const fv_benchmark_item *x = &b.item[0];
    cr_expect(x->metric == FV_METRIC_EXACT_MATCH && x->line == 2 && x->max_tokens == 32);
    cr_expect(x->n_image == 1 && x->n_answer == 1 && x->n_choice == 0);
    cr_expect_str_eq(x->question, "What?");
    cr_expect_eq(fv_benchmark_score(x, "Red."), 1);
    cr_expect_eq(fv_benchmark_chance(x), 0);
    fv_benchmark_free(&b);
}

Test(benchmark, choices_are_asked_with_their_letters) {
    reads(ASKED ",\"choices\":[\"left\",\"right\"],\"answers\":\"right\",\"id\":7}\n" ASKED
                ",\"choices\":[\"left\",\"right\"],\"answers\":[\"B\"],\"metric\":\"choice\"}");
    for (int32_t i = 0; i < 2; i++) {
        const fv_benchmark_item *x = &b.item[i];
        cr_expect_str_eq(x->question, "What?\nA. left\nB. right\nAnswer with the option's letter "
                                      "from the given choices directly.");
        cr_expect(x->metric == FV_METRIC_CHOICE && x->right == 1);
        cr_expect_eq(fv_benchmark_score(x, "B"), 1);
        cr_expect_eq(fv_benchmark_score(x, "A"), 0);
        cr_expect_eq(fv_benchmark_score(x, "neither"), 0);
        cr_expect_eq(fv_benchmark_chance(x), 0.5);
    }
    fv_benchmark_free(&b);
}

Test(benchmark, every_metric_has_its_name) {
    static const struct {
        const char *metric, *answers, *said;
        double score;
    } t[] = {{"exact_match", "\"red\"", "red ring", 0},
             {"contains", "\"red\"", "red ring", 1},
             {"vqa", "[\"red\",\"red\",\"ring\",\"it\"]", "red", 0.5},
             {"anls", "\"abcd\"", "abce", 0.75}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        char line[600];
        snprintf(line, sizeof line, ASKED ",\"answers\":%s,\"metric\":\"%s\"}", t[i].answers,
                 t[i].metric);
        reads(line);
        cr_expect_str_eq(fv_metric_describe((int32_t)b.item[0].metric)->name, t[i].metric);
        cr_expect_float_eq(fv_benchmark_score(&b.item[0], t[i].said), t[i].score, 1e-12);
        fv_benchmark_free(&b);
    }
}

Test(benchmark, paths_are_relative_to_the_file) {
    char line[300];
    reads(ASKED ",\"answers\":\"red\"}");
    fv_benchmark_free(&b);
    cr_assert_eq(fv_file_write(FOVEA_TEST_TMP "/not.png", "not", 3), FV_OK);
    snprintf(line, sizeof line, "{\"images\":[\"not.png\"],\"question\":\"?\",\"answers\":\"x\"}");
    refused(line, ".jsonl line 1: key 'images': " FOVEA_TEST_TMP "/not.png");
}

Test(benchmark, what_is_asked_has_a_digest) {
    char first[17];
    reads(ASKED ",\"answers\":\"red\"}\n" ASKED ",\"answers\":\"blue\"}");
    memcpy(first, b.digest, sizeof first);
    cr_expect_eq(strlen(first), 16);
    fv_benchmark_free(&b);
    cr_assert_eq(fv_benchmark_read(path, 2, &b), FV_OK);
    cr_expect_str_eq(b.digest, first);
    fv_benchmark_free(&b);
    cr_assert_eq(fv_benchmark_read(path, 1, &b), FV_OK);
    cr_expect_eq(b.n_item, 1);
    cr_expect_str_neq(b.digest, first);
    fv_benchmark_free(&b);
}

Test(benchmark, a_bad_line_is_named_with_its_key) {
    refused("", "has no questions");
    refused("\n \n", "has no questions");
    refused(ASKED ",\"answers\":\"red\"}\nnonsense", "line 2");
    refused("[]", "line 1");
    refused("{\"question\":\"?\",\"answers\":\"x\"}", "line 1: key 'image'");
    refused("{" IMAGE ",\"images\":[\"a\"],\"question\":\"?\",\"answers\":\"x\"}", "not both");
    refused("{\"image\":\"nowhere.png\",\"question\":\"?\",\"answers\":\"x\"}", "nowhere.png");
    refused("{\"images\":[1],\"question\":\"?\",\"answers\":\"x\"}", "key 'images' must be a text");
    refused("{" IMAGE ",\"answers\":\"x\"}", "key 'question' must be a text");
    refused("{" IMAGE ",\"question\":\"\",\"answers\":\"x\"}", "key 'question': a text of 0 bytes");
    refused(ASKED "}", "key 'answers'");
    refused(ASKED ",\"answers\":[]}", "key 'answers'");
    refused(ASKED ",\"answers\":\"a\\u0000b\"}", "key 'answers'");
    refused(ASKED ",\"answer\":\"x\"}", "unknown key 'answer'");
    refused(ASKED ",\"answers\":\"x\",\"metric\":\"bleu\"}", "key 'metric': unknown 'bleu'");
    refused(ASKED ",\"answers\":\"x\",\"metric\":1}", "key 'metric'");
    refused(ASKED ",\"answers\":\"x\",\"metric\":\"choice\"}", "belong together");
    refused(ASKED ",\"answers\":\"x\",\"metric\":\"vqa\"}", "vqa needs those of 4");
    refused(ASKED ",\"answers\":\"x\",\"choices\":[\"x\"]}", "2 to 26");
    refused(ASKED ",\"answers\":\"C\",\"choices\":[\"x\",\"y\"]}", "must be one of the choices");
    refused(ASKED ",\"answers\":\"x\",\"max_tokens\":0}", "key 'max_tokens'");
}

#define DOCUMENT "{\"document\":\"A text.\""

Test(benchmark, documents_stand_in_place_of_images) {
    reads(DOCUMENT ",\"needles\":[{\"text\":\"one\",\"depth\":0},{\"text\":\"two\",\"depth\":1}],"
                   "\"question\":\"What?\",\"begin\":\"It is\",\"answers\":\"red\"}\n" DOCUMENT
                   "}");
    const fv_benchmark_item *x = &b.item[0];
    cr_expect_eq(b.n_document, 2);
    cr_expect(x->n_image == 0 && x->n_needle == 2);
    cr_expect_str_eq(x->document, "A text.");
    cr_expect_str_eq(x->begin, "It is");
    cr_expect_str_eq(x->needle[1].text, "two");
    cr_expect_eq(x->needle[1].depth, 1);
    cr_expect_null(b.item[1].question);
    fv_benchmark_free(&b);
}

Test(benchmark, bad_documents_are_named) {
    refused(DOCUMENT "," IMAGE ",\"question\":\"What?\",\"answers\":\"red\"}", "not both");
    refused(ASKED ",\"answers\":\"red\",\"begin\":\"It\"}", "needs the key 'document'");
    refused(DOCUMENT ",\"answers\":\"red\"}", "'answers' needs the key 'question'");
    refused(DOCUMENT "}\n" ASKED ",\"answers\":\"red\"}", "a file each");
    refused("{\"document\":3}", "key 'document' must be a text");
    static const char *const needles[] = {
        "[]",
        "{}",
        "[{\"text\":\"a\"}]",
        "[{\"text\":\"a\",\"depth\":1.5}]",
        "[{\"text\":\"a\",\"depth\":1},{\"text\":\"b\",\"depth\":0}]",
        "[{\"text\":\"a\",\"depth\":0,\"more\":1}]"};
    for (size_t i = 0; i < sizeof needles / sizeof *needles; i++) {
        char line[300];
        snprintf(line, sizeof line,
                 DOCUMENT ",\"needles\":%s,\"question\":\"What?\",\"answers\":\"red\"}",
                 needles[i]);
        refused(line, "key 'needles'");
    }
}
