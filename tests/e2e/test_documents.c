/* Documents that are taken for images: prompts of them, and an evaluation on a text model. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/eval/document.h"
#include "common/file.h"
#include "tests/support/command.h"

#define FOVEA FOVEA_BIN "/fovea"

enum { SPAN = 64, STEPS = 6, VOCAB = 512 };

static char dir[200];
static command_result said;
static fv_local *l;

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

static void begin(void) {
    char path[260];
    snprintf(dir, sizeof dir, FOVEA_TEST_TMP "/documents-XXXXXX");
    cr_assert(mkdtemp(dir));
    command_run(&said, FOVEA " synth --shape tiny --family llama --dtype f32 --out %s/ck", dir);
    cr_assert_eq(said.status, 0, "%s", said.err);
    snprintf(path, sizeof path, "%s/ck", dir);
    ok(fv_local_open(&(fv_local_options){.checkpoint = path,
                                         .backend = "cpu",
                                         .isa = "auto",
                                         .compute = "f32",
                                         .kv_dtype = "f32",
                                         .threads = 1},
                     &l));
}

static void end(void) {
    fv_local_close(l);
    command_run(&said, "rm -rf %s", dir);
}

TestSuite(documents, .init = begin, .fini = end, .timeout = 200);

static char *many(const char *text, int32_t times) {
    static char all[4000];
    all[0] = '\0';
    for (int32_t i = 0; i < times; i++) strcat(all, text);
    return all;
}

static int32_t ids_of(const char *text, int32_t **id) {
    int32_t n;
    ok(fv_tokenizer_encode_after(fv_local_engine(l)->tok, 1, text, strlen(text), NULL, id, &n));
    return n;
}

/* Where `part` is in the ids; -1: nowhere. */
static int32_t find(const int32_t *id, int32_t n, const int32_t *part, int32_t n_part) {
    for (int32_t i = 0; i + n_part <= n; i++)
        if (!memcmp(id + i, part, (size_t)n_part * sizeof *id)) return i;
    return -1;
}

static const char *decoded(const int32_t *id, int32_t n) {
    static char text[8000];
    char *out;
    size_t bytes;
    ok(fv_tokenizer_decode(fv_local_engine(l)->tok, id, n, false, &out, &bytes));
    snprintf(text, sizeof text, "%s", out);
    free(out);
    return text;
}

Test(documents, a_needle_is_behind_the_sentence_that_ends_next_to_its_depth) {
    fv_benchmark_item item = {.document = many("the cat sat. ", 60),
                              .question = "what?",
                              .begin = "it is",
                              .n_needle = 2,
                              .needle = {{" a red dog.", 0.3}, {" a blue sky.", 0.9}}};
    fv_eval_document d;
    ok(fv_eval_document_make(l, &item, SPAN, 0, &d));
    cr_assert_eq(d.n_visual, SPAN);
    cr_assert_gt(d.first, 0, "the first token stays text");
    cr_assert_gt(d.n, d.first + SPAN);
    int32_t *id, n = ids_of(" a red dog.", &id), at = find(d.id + d.first, SPAN, id, n);
    cr_assert_gt(at, 0);
    cr_assert_leq(at, SPAN * 3 / 10);
    free(id);
    n = ids_of(" a blue sky.", &id);
    cr_assert_gt(find(d.id + d.first, SPAN, id, n), at);
    free(id);
    cr_assert(strstr(decoded(d.id, d.first + at), "sat."), "%s", decoded(d.id, d.first + at));
    const char *rest = decoded(d.id + d.first + SPAN, d.n - d.first - SPAN);
    cr_assert(strstr(rest, "what?") && strstr(rest, "it is"), "%s", rest);
    fv_eval_document_free(&d);
}

Test(documents, one_without_a_question_goes_on_behind_the_span) {
    fv_benchmark_item item = {.document = many("the cat sat. ", 60)};
    fv_eval_document d;
    ok(fv_eval_document_make(l, &item, SPAN, STEPS, &d));
    int32_t *id, n = ids_of(item.document, &id);
    cr_assert_gt(n, SPAN + FV_EVAL_TAIL + STEPS);
    cr_assert_eq(d.n, d.first + SPAN + FV_EVAL_TAIL);
    cr_assert_eq(d.n_after, STEPS);
    cr_assert_eq(
        memcmp(d.id + d.first + 1, id + 1, (size_t)(SPAN + FV_EVAL_TAIL + STEPS - 1) * sizeof *id),
        0);
    free(id);
    fv_eval_document_free(&d);
    item.document = many("the cat sat. ", 4);
    cr_assert_eq(fv_eval_document_make(l, &item, SPAN, STEPS, &d), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "the document has"), "%s", fv_last_error());
}

typedef struct steps {
    float logits[STEPS][VOCAB];
    int32_t n;
} steps;

static fv_status on_logits(void *user, const float *logits, int32_t n) {
    steps *s = user;
    cr_assert(n == VOCAB && s->n < STEPS);
    memcpy(s->logits[s->n++], logits, sizeof s->logits[0]);
    return FV_OK;
}

static void answer(const fv_ask *ask, steps *out, fv_report *r) {
    const fv_ask_hooks hooks = {.user = out, .logits = on_logits};
    *r = (fv_report){0};
    out->n = 0;
    ok(fv_local_ask(l, ask, &hooks, r));
    cr_assert_eq(out->n, STEPS);
}

static double furthest(const steps *a, const steps *b) {
    double most = 0;
    for (int32_t s = 0; s < STEPS; s++)
        for (int32_t i = 0; i < VOCAB; i++)
            most = fmax(most, fabs((double)a->logits[s][i] - (double)b->logits[s][i]));
    return most;
}

Test(documents, exact_reads_the_same_text_and_a_policy_less_of_it) {
    static steps text, visual, half;
    const fv_benchmark_item item = {.document = many("the cat sat on a mat. ", 40)};
    fv_eval_document d;
    fv_report r;
    ok(fv_eval_document_make(l, &item, SPAN, STEPS, &d));
    fv_ask ask = {.sampling = fv_sampling_default(),
                  .max_tokens = STEPS,
                  .ignore_eos = true,
                  .n_forced = STEPS,
                  .forced = d.id + d.n,
                  .n_id = d.n,
                  .id = d.id};
    answer(&ask, &text, &r);
    cr_assert_eq(r.n_visual, 0);
    fv_report_free(&r);
    fv_eval_document_ask(&d, &ask);
    answer(&ask, &visual, &r);
    cr_assert(r.n_visual == SPAN && r.n_prompt == d.n && r.bytes_visual > 0);
    const size_t bytes = r.bytes_visual;
    fv_report_free(&r);
    cr_assert_lt(furthest(&text, &visual), 1e-4);
    ok(fv_policy_parse("prune=random,layer=1,keep=0.5", &ask.policy));
    answer(&ask, &half, &r);
    cr_assert_lt(r.bytes_visual, bytes);
    cr_assert_gt(furthest(&text, &half), 1e-3);
    fv_report_free(&r);
    fv_eval_document_free(&d);
}

static json_t *evaluate(const char *line, const char *args, const char *file) {
    char path[300];
    snprintf(path, sizeof path, "%s/items.jsonl", dir);
    ok(fv_file_write(path, line, strlen(line)));
    command_run(&said,
                FOVEA " eval --checkpoint %s/ck --data %s/items.jsonl --out %s/out "
                      "--policy exact --policy prune=random,layer=1,keep=0.5 %s",
                dir, dir, dir, args);
    if (!file) return NULL;
    cr_assert_eq(said.status, 0, "%s", said.err);
    snprintf(path, sizeof path, "%s/out/%s", dir, file);
    json_t *json = json_load_file(path, 0, NULL);
    cr_assert(json, "%s", path);
    return json;
}

Test(documents, an_evaluation_scores_them_or_follows_them) {
    char line[5000];
    snprintf(line, sizeof line,
             "{\"document\":\"%s\",\"needles\":[{\"text\":\" red.\",\"depth\":0.5}],"
             "\"question\":\"what?\",\"begin\":\"it is\",\"answers\":\"red\",\"max_tokens\":4}\n",
             many("the cat sat. ", 60));
    json_t *json = evaluate(line, "--span-as-visual 64", "results.json");
    cr_assert_eq(
        json_integer_value(json_object_get(json_object_get(json, "eval"), "span_as_visual")), SPAN);
    cr_assert_eq(json_array_size(json_object_get(json, "results")), 2);
    json_decref(json);
    evaluate(line, "", NULL);
    cr_assert(said.status != 0 && strstr(said.err, "--span-as-visual N"), "%s", said.err);
    evaluate(line, "--span-as-visual 32", NULL);
    cr_assert(said.status != 0 && strstr(said.err, "another 'span_as_visual'"), "%s", said.err);
    snprintf(line, sizeof line, "{\"document\":\"%s\"}\n", many("the cat sat. ", 60));
    evaluate(line, "--span-as-visual 64", NULL);
    cr_assert(said.status != 0 && strstr(said.err, "give --follow"), "%s", said.err);
    json = evaluate(line, "--span-as-visual 64 --follow 8", "follow.json");
    const json_t *results = json_object_get(json, "results");
    const json_t *first = json_array_get(results, 0), *second = json_array_get(results, 1);
    cr_assert_eq(json_real_value(json_object_get(first, "divergence")), 0);
    cr_assert_gt(json_real_value(json_object_get(second, "divergence")), 0);
    cr_assert_lt(json_real_value(json_object_get(second, "bytes_visual")),
                 json_real_value(json_object_get(first, "bytes_visual")));
    json_decref(json);
}

Test(documents, a_model_with_a_tower_is_refused) {
    command_run(&said, FOVEA " synth --shape tiny --out %s/vlm", dir);
    char line[5000], path[300];
    snprintf(line, sizeof line, "{\"document\":\"%s\"}\n", many("the cat sat. ", 60));
    snprintf(path, sizeof path, "%s/items.jsonl", dir);
    ok(fv_file_write(path, line, strlen(line)));
    command_run(&said,
                FOVEA " eval --checkpoint %s/vlm --data %s/items.jsonl --out %s/out2 --follow 8 "
                      "--span-as-visual 64",
                dir, dir, dir);
    cr_assert(said.status != 0 && strstr(said.err, "reads text only"), "%s", said.err);
}
