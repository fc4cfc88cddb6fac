/* The whole engine against transformers, from files: tests/parity/golden.py wrote the cases in
 * golden/engine and documents them, and tests/parity/adapters.py those with an adapter. A case's checkpoint is made again from its seed, or stored
 * beside it as transformers saved it; then the request runs in this process.
 *
 * Ids, pixels, tokens and text must be equal. The tower's output may differ by 2e-5 (relative L2)
 * and logits by 1e-4 of the greatest, which is rounding in another order of sums. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cli/client/local.h"
#include "common/file.h"
#include "model/synth/synth.h"
#include "tests/support/tensor_file.h"
#include "text/json.h"

#define FOLDER FOVEA_TEST_DATA "/golden/engine"

enum { PATH_CAP = 4096, FILE_MAX = 1 << 24, IMAGES_MAX = 8, N_STEP = 16 };
static const double rows_limit = 2e-5, logits_limit = 1e-4;

typedef struct golden {
    char name[256];
} golden;

static int is_case(const struct dirent *e) { return e->d_name[0] != '.'; }

/* Every folder is a case. Returns their number; the caller frees the list and its items. */
static int list_cases(struct dirent ***found) {
    int n = scandir(FOLDER, found, is_case, alphasort);
    return n < 0 ? 0 : n;
}

/* Criterion wants parameters that live in its own memory. */
static struct criterion_test_params every_case(void) {
    struct dirent **found = NULL;
    int n = list_cases(&found);
    golden *list = cr_calloc((size_t)n + 1, sizeof *list);
    for (int i = 0; i < n; i++) {
        snprintf(list[i].name, sizeof list[i].name, "%s", found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return cr_make_param_array(golden, list, (size_t)n);
}

#define GOLDEN_TEST(test_name)                                                                     \
    ParameterizedTestParameters(golden, test_name) { return every_case(); }                        \
    ParameterizedTest(golden *g, golden, test_name)

/* ---- files ----------------------------------------------------------------------------- */

static void ok(const golden *g, fv_status st) {
    cr_assert_eq(st, FV_OK, "case %s: %s", g->name, fv_last_error());
}

static char *path_of(const golden *g, const char *file, char path[PATH_CAP]) {
    snprintf(path, PATH_CAP, FOLDER "/%s/%s", g->name, file);
    return path;
}

static char *read_of(const golden *g, const char *file, size_t *n) {
    char path[PATH_CAP], *data;
    ok(g, fv_file_read(path_of(g, file, path), FILE_MAX, &data, n));
    return data;
}

/* n floats; files are little-endian, as the machines that the engine runs on. */
static float *floats_of(const golden *g, const char *file, size_t n) {
    size_t bytes;
    char *data = read_of(g, file, &bytes);
    cr_assert_eq(bytes, n * sizeof(float), "case %s: %s has %zu bytes", g->name, file, bytes);
    return (float *)data;
}

static json_t *case_of(const golden *g) {
    size_t n;
    char *text = read_of(g, "case.json", &n);
    json_t *json;
    ok(g, fv_json_object(text, n, "case.json", &json));
    free(text);
    return json;
}

static const char *text_in(const json_t *json, const char *key) {
    return json_string_value(json_object_get(json, key));
}

/* ---- the checkpoint -------------------------------------------------------------------- */

/* Makes the checkpoint of a synthetic case, with seed + shift, in a folder of its own. */
static void make_checkpoint(const golden *g, const json_t *synth, uint64_t shift,
                            char dir[PATH_CAP]) {
    char config[PATH_CAP], from[PATH_CAP];
    scratch_dir(dir, PATH_CAP);
    fv_synth_options o = {.dir = dir,
                          .config_file = path_of(g, "config.json", config),
                          .n_shard = (int32_t)json_integer_value(json_object_get(synth, "shards")),
                          .config_v5 = !strcmp(text_in(synth, "key_form"), "v5"),
                          .seed =
                              (uint64_t)json_integer_value(json_object_get(synth, "seed")) + shift,
                          .force = true};
    ok(g, fv_name_mapping_by_name(text_in(synth, "dialect"), &o.name_mapping));
    while (strcmp(fv_dtype_name(o.dtype), text_in(synth, "dtype")) != 0) o.dtype++;
    fv_synth_report made;
    ok(g, fv_synth_write(&o, &made));
    if (!fv_file_exists(path_of(g, "preprocessor_config.json", from))) return;
    size_t n;
    char *text = read_of(g, "preprocessor_config.json", &n);
    write_text(dir, "preprocessor_config.json", text);
    free(text);
}

static void remove_checkpoint(const char *dir) {
    struct dirent **found = NULL;
    char path[PATH_CAP];
    int n = scandir(dir, &found, is_case, NULL);
    for (int i = 0; i < n; i++) {
        if (fv_path_join(dir, found[i]->d_name, path, sizeof path) == FV_OK) remove(path);
        free(found[i]);
    }
    free(found);
    remove(dir);
}

/* XXH64 of all tensors' bytes, file after file, without the headers. */
static uint64_t weights_digest(const golden *g, const char *dir, int n_shard) {
    XXH64_state_t *state = XXH64_createState();
    XXH64_reset(state, 0);
    for (int s = 1; s <= n_shard; s++) {
        char name[64] = "model.safetensors", path[PATH_CAP], *data;
        if (n_shard > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s, n_shard);
        size_t n;
        uint64_t header;
        ok(g, fv_path_join(dir, name, path, sizeof path));
        ok(g, fv_file_read(path, FILE_MAX, &data, &n));
        memcpy(&header, data, sizeof header);
        XXH64_update(state, data + 8 + header, n - 8 - header);
        free(data);
    }
    uint64_t digest = XXH64_digest(state);
    XXH64_freeState(state);
    return digest;
}

/* ---- the request ----------------------------------------------------------------------- */

/* The results of one request, recorded by the hooks. */
typedef struct outcome {
    char *rendered;
    int32_t *ids, n_ids;
    uint64_t pixels;          /* XXH64 */
    float *features, *embeds; /* [n_rows, width], the rows that the case contains */
    int32_t feature_width, embed_width;
    float *logits; /* [N_STEP, vocab] */
    int32_t vocab, n_logits, tokens[N_STEP], n_tokens;
    char text[4096];
    const fv_model_config *cfg;
    const json_t *rows, *feature_rows;
} outcome;

static fv_status on_prompt(void *user, const char *text, const fv_prompt *p) {
    outcome *o = user;
    o->rendered = strdup(text);
    o->n_ids = p->n;
    o->ids = malloc((size_t)p->n * sizeof *o->ids);
    memcpy(o->ids, p->ids, (size_t)p->n * sizeof *o->ids);
    return FV_OK;
}

static float *keep_rows(const json_t *rows, const float *all, int32_t width) {
    size_t n = json_array_size(rows);
    float *kept = malloc(n * (size_t)width * sizeof *kept);
    for (size_t i = 0; i < n; i++) {
        json_int_t row = json_integer_value(json_array_get(rows, i));
        memcpy(kept + i * (size_t)width, all + (size_t)row * (size_t)width,
               (size_t)width * sizeof *kept);
    }
    return kept;
}

static fv_status on_encoded(void *user, const fv_encoded *e) {
    outcome *o = user;
    if (e->n_image == 0) return FV_OK;
    size_t n = 0;
    for (int32_t i = 0; i < e->n_image; i++) n += fv_image_pixels_count(&e->layout[i]);
    o->pixels = XXH64(e->pixels, n * sizeof(float), 0);
    o->feature_width = fv_vision_feature_width(&o->cfg->vision);
    o->embed_width = fv_vision_embed_width(&o->cfg->vision);
    o->features = keep_rows(o->feature_rows, e->features.data, o->feature_width);
    o->embeds = keep_rows(o->rows, e->embeds.data, o->embed_width);
    return FV_OK;
}

static fv_status on_logits(void *user, const float *logits, int32_t n_vocab) {
    outcome *o = user;
    o->vocab = n_vocab;
    if (!o->logits) o->logits = malloc((size_t)N_STEP * (size_t)n_vocab * sizeof *o->logits);
    memcpy(o->logits + (size_t)o->n_logits++ * (size_t)n_vocab, logits,
           (size_t)n_vocab * sizeof *logits);
    return FV_OK;
}

static fv_status on_token(void *user, const fv_sampled *token) {
    outcome *o = user;
    o->tokens[o->n_tokens++] = token->id;
    return FV_OK;
}

static fv_status on_text(void *user, const char *text, size_t n) {
    outcome *o = user;
    strncat(o->text, text, n);
    return FV_OK;
}

static void outcome_free(outcome *o) {
    free(o->rendered);
    free(o->ids);
    free(o->features);
    free(o->embeds);
    free(o->logits);
}

static void ask(const golden *g, const json_t *json, const char *dir, outcome *o) {
    fv_image images[IMAGES_MAX] = {{0}};
    const json_t *names = json_object_get(json, "images");
    int32_t n_image = (int32_t)json_array_size(names);
    cr_assert_leq(n_image, IMAGES_MAX);
    for (int32_t i = 0; i < n_image; i++) {
        size_t n;
        char *data = read_of(g, json_string_value(json_array_get(names, (size_t)i)), &n);
        ok(g, fv_image_decode(data, n, NULL, &images[i]));
        free(data);
    }
    char adapter[PATH_CAP], spec[PATH_CAP + 16];
    const char *const specs[] = {spec};
    const bool adapted = fv_file_exists(path_of(g, "adapter", adapter));
    snprintf(spec, sizeof spec, "lora=%s", adapter);
    fv_local_options engine = {.checkpoint = dir,
                               .backend = "cpu",
                               .isa = "auto",
                               .compute = "f32",
                               .adapter = specs,
                               .n_adapter = adapted,
                               .model = adapted ? "lora" : NULL,
                               .threads = 2};
    fv_local *local;
    ok(g, fv_local_open(&engine, &local));
    o->cfg = fv_local_config(local);
    o->rows = json_object_get(json, "rows");
    o->feature_rows = json_object_get(json, "feature_rows");
    if (!o->feature_rows) o->feature_rows = o->rows;
    fv_ask request = {.n_image = n_image,
                      .images = images,
                      .question = text_in(json, "prompt"),
                      .system = text_in(json, "system"),
                      .raw = !json_is_true(json_object_get(json, "chat")),
                      .sampling = fv_sampling_default(),
                      .max_tokens = N_STEP,
                      .ignore_eos = true};
    const json_t *fps = json_object_get(json, "video_fps");
    const fv_job_video video = {.clip = {.n = n_image, .fps = json_number_value(fps)}};
    const fv_chat_part part[] = {{.video = true}, {.text = request.question}};
    if (fps) {
        request.n_video = 1;
        request.videos = &video;
        request.n_part = 2;
        request.part = part;
    }
    fv_ask_hooks hooks = {.user = o,
                          .text = on_text,
                          .token = on_token,
                          .prompt = on_prompt,
                          .encoded = on_encoded,
                          .logits = on_logits};
    fv_report report = {0};
    ok(g, fv_local_ask(local, &request, &hooks, &report));
    fv_report_free(&report);
    fv_local_close(local);
    for (int32_t i = 0; i < n_image; i++) fv_image_free(&images[i]);
}

/* Runs the case; `shift` changes the seed of its weights. */
static void run_case(const golden *g, const json_t *json, uint64_t shift, outcome *o) {
    char dir[PATH_CAP];
    const json_t *synth = json_object_get(json, "synth");
    if (synth) make_checkpoint(g, synth, shift, dir);
    *o = (outcome){0};
    ask(g, json, synth ? dir : path_of(g, "checkpoint", dir), o);
    if (synth) remove_checkpoint(dir);
}

/* ---- comparisons ----------------------------------------------------------------------- */

static double relative_l2(const float *a, const float *b, size_t n) {
    double gap = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        gap += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(gap / norm);
}

/* Greatest difference over greatest value; infinite when anything is not a number. */
static double relative_max(const float *a, const float *b, size_t n) {
    double gap = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        if (!(d <= gap)) gap = isnan(d) ? INFINITY : d;
        most = fmax(most, fabs((double)b[i]));
    }
    return gap / most;
}

static void expect_rows(const golden *g, const char *file, const float *ours, const json_t *rows,
                        int32_t width) {
    size_t n = json_array_size(rows) * (size_t)width;
    float *theirs = floats_of(g, file, n);
    double error = relative_l2(ours, theirs, n);
    cr_expect(error < rows_limit, "case %s: %s: relative L2 %.2e", g->name, file, error);
    free(theirs);
}

static double worst_step(const golden *g, const outcome *o) {
    size_t vocab = (size_t)o->vocab;
    float *theirs = floats_of(g, "logits.f32", N_STEP * vocab);
    double worst = 0;
    for (size_t s = 0; s < N_STEP; s++)
        worst = fmax(worst, relative_max(o->logits + s * vocab, theirs + s * vocab, vocab));
    free(theirs);
    return worst;
}

static void expect_ints(const golden *g, const char *what, const json_t *theirs,
                        const int32_t *ours, int32_t n) {
    cr_assert_eq(json_array_size(theirs), (size_t)n, "case %s: %d %s instead of %zu", g->name, n,
                 what, json_array_size(theirs));
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(theirs, (size_t)i));
        cr_assert_eq(ours[i], id, "case %s: %s %d is %d instead of %d", g->name, what, i, ours[i],
                     id);
    }
}

/* ---- tests ----------------------------------------------------------------------------- */

Test(golden, there_are_at_least_30_cases) {
    struct dirent **found = NULL;
    int n = list_cases(&found);
    cr_expect_geq(n, 30, "%d cases in " FOLDER, n);
    for (int i = 0; i < n; i++) free(found[i]);
    free(found);
}

GOLDEN_TEST(the_seed_gives_the_weights_that_transformers_had) {
    char dir[PATH_CAP], digest[17];
    json_t *json = case_of(g);
    const json_t *synth = json_object_get(json, "synth");
    if (synth) {
        make_checkpoint(g, synth, 0, dir);
        int n_shard = (int)json_integer_value(json_object_get(synth, "shards"));
        snprintf(digest, sizeof digest, "%016llx",
                 (unsigned long long)weights_digest(g, dir, n_shard));
        cr_expect_str_eq(digest, text_in(synth, "weights_xxh64"),
                         "case %s: `fovea synth` has changed; run tests/parity/run.py "
                         "--write-golden",
                         g->name);
        remove_checkpoint(dir);
    }
    json_decref(json);
}

GOLDEN_TEST(the_prompt_becomes_the_same_ids_and_the_images_the_same_pixels) {
    json_t *json = case_of(g);
    outcome o;
    run_case(g, json, 0, &o);
    cr_expect_str_eq(o.rendered, text_in(json, "rendered"));
    expect_ints(g, "input id", json_object_get(json, "input_ids"), o.ids, o.n_ids);
    if (o.embeds) {
        char digest[17];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)o.pixels);
        cr_expect_str_eq(digest, text_in(json, "pixel_values_xxh64"), "case %s: pixels differ",
                         g->name);
    }
    outcome_free(&o);
    json_decref(json);
}

GOLDEN_TEST(tower_and_projector_give_the_same_rows) {
    json_t *json = case_of(g);
    outcome o;
    run_case(g, json, 0, &o);
    cr_expect_eq(o.embeds != NULL, o.rows != NULL);
    if (o.embeds) {
        expect_rows(g, "features.f32", o.features, o.feature_rows, o.feature_width);
        expect_rows(g, "embeds.f32", o.embeds, o.rows, o.embed_width);
    }
    outcome_free(&o);
    json_decref(json);
}

GOLDEN_TEST(sixteen_greedy_steps_give_the_same_logits_and_tokens) {
    json_t *json = case_of(g);
    outcome o;
    run_case(g, json, 0, &o);
    cr_assert_eq(o.n_logits, N_STEP);
    double worst = worst_step(g, &o);
    cr_expect(worst < logits_limit, "case %s: logits differ by %.2e", g->name, worst);
    expect_ints(g, "token", json_object_get(json, "tokens"), o.tokens, o.n_tokens);
    cr_expect_str_eq(o.text, text_in(json, "answer"));
    outcome_free(&o);
    json_decref(json);
}

Test(golden, other_weights_are_noticed) {
    const golden g = {"01"};
    json_t *json = case_of(&g);
    outcome o;
    run_case(&g, json, 1, &o);
    cr_expect_gt(worst_step(&g, &o), 100 * logits_limit);
    outcome_free(&o);
    json_decref(json);
}
