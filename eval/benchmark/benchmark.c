/* Parses lines of JSON into items. Every key is checked before any question is asked. */
#include "eval/benchmark/benchmark.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "eval/benchmark/metrics.h"
#include "image/size.h"
#include "text/json.h"

enum {
    QUESTION_MAX = 1 << 16,
    ANSWER_MAX = FV_ANLS_MAX,
    VQA_ANSWERS_MIN = 4, /* one is left out; three of the others make a full score */
    TOKENS = 32,
    TOKENS_MAX = 1024,
    DOCUMENT_MAX = 1 << 20,
    ITEMS_MAX = 1 << 20,
    PATH_CAP = 4096,
};
static const size_t FILE_MAX = (size_t)256 << 20;

static const fv_metric_info metrics[FV_N_METRIC] = {
    [FV_METRIC_EXACT_MATCH] = {"exact_match", "exact match"},
    [FV_METRIC_CONTAINS] = {"contains", "answer contained"},
    [FV_METRIC_VQA] = {"vqa", "VQA accuracy"},
    [FV_METRIC_ANLS] = {"anls", "ANLS"},
    [FV_METRIC_CHOICE] = {"choice", "accuracy"},
};

const fv_metric_info *fv_metric_describe(int32_t metric) { return &metrics[metric]; }

typedef struct reading {
    const char *path;
    char where[600]; /* "FILE line N" */
    uint64_t digest;
} reading;

/* FNV-1a, 64 bits. */
static void digest(reading *r, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) r->digest = (r->digest ^ p[i]) * 0x100000001b3u;
}

/* ---- texts -------------------------------------------------------------------------------- */

static fv_status take_text(const reading *r, const char *key, const json_t *json, size_t most,
                           char **out) {
    size_t n = json_string_length(json);
    if (!json_is_string(json))
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be a text or a list of texts", r->where, key);
    if (n == 0 || n > most || strlen(json_string_value(json)) != n)
        return FV_FAIL(FV_EDATA, "%s: key '%s': a text of %zu bytes; 1 to %zu without U+0000",
                       r->where, key, n, most);
    *out = strdup(json_string_value(json));
    return *out ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a benchmark");
}

/* Reads a text or a list of texts; *n is the number of texts before and after. */
static fv_status take_texts(const reading *r, const json_t *line, const char *key, size_t most,
                            size_t count_max, char **out, int32_t *n) {
    const json_t *value = json_object_get(line, key), *text;
    size_t i;
    if (json_is_string(value)) return take_text(r, key, value, most, &out[(*n)++]);
    if (!json_is_array(value) || json_array_size(value) < 1 || json_array_size(value) > count_max)
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be a text or a list of 1 to %zu texts",
                       r->where, key, count_max);
    json_array_foreach(value, i, text) {
        FV_TRY(take_text(r, key, text, most, &out[*n]));
        ++*n;
    }
    return FV_OK;
}

static fv_status check_keys(const reading *r, json_t *line) {
    static const char *const known[] = {"image",    "images",  "question",   "answers",
                                        "choices",  "metric",  "max_tokens", "id",
                                        "document", "needles", "begin"};
    const char *key;
    json_t *value;
    json_object_foreach(line, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found |= strcmp(key, known[i]) == 0;
        if (!found)
            return FV_FAIL(FV_EDATA,
                           "%s: unknown key '%s'; known: image, images, question, answers, "
                           "choices, metric, max_tokens, id, document, needles, begin",
                           r->where, key);
    }
    return FV_OK;
}

/* ---- images ------------------------------------------------------------------------------- */

static fv_status place(const reading *r, char **image) {
    char path[PATH_CAP];
    const char *slash = strrchr(r->path, '/');
    if (**image == '/' || !slash) return FV_OK;
    int n = snprintf(path, sizeof path, "%.*s/%s", (int)(slash - r->path), r->path, *image);
    if (n < 0 || (size_t)n >= sizeof path)
        return FV_FAIL(FV_EDATA, "%s: key 'image': the path is too long", r->where);
    free(*image);
    *image = strdup(path);
    return *image ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a benchmark");
}

static fv_status check_image(reading *r, const char *path) {
    fv_file_map map;
    fv_image_size size;
    FV_TRY(fv_file_map_open(path, &map));
    digest(r, &map.bytes, sizeof map.bytes);
    fv_status st = fv_image_size_check(map.data, map.bytes, NULL, &size);
    fv_file_map_close(&map);
    return st == FV_OK ? FV_OK : fv_fail_prefix(st, "%s", path);
}

static fv_status take_images(reading *r, const json_t *line, fv_benchmark_item *x) {
    const char *key = json_object_get(line, "images") ? "images" : "image";
    if (json_object_get(line, "images") && json_object_get(line, "image"))
        return FV_FAIL(FV_EDATA, "%s: key 'image': give 'image' or 'images', not both", r->where);
    FV_TRY(take_texts(r, line, key, PATH_CAP, FV_BENCHMARK_IMAGES, x->image, &x->n_image));
    for (int32_t i = 0; i < x->n_image; i++) {
        FV_TRY(place(r, &x->image[i]));
        fv_status st = check_image(r, x->image[i]);
        if (st != FV_OK) return fv_fail_prefix(st, "%s: key '%s'", r->where, key);
    }
    return FV_OK;
}

/* ---- documents ----------------------------------------------------------------------------- */

static fv_status take_optional(const reading *r, const json_t *line, const char *key, size_t most,
                               char **out) {
    const json_t *value = json_object_get(line, key);
    return value ? take_text(r, key, value, most, out) : FV_OK;
}

static fv_status take_needles(const reading *r, const json_t *line, fv_benchmark_item *x) {
    const json_t *list = json_object_get(line, "needles"), *needle;
    size_t i;
    if (!list) return FV_OK;
    if (!json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > FV_BENCHMARK_NEEDLES)
        return FV_FAIL(FV_EDATA, "%s: key 'needles' must be a list of 1 to %d objects", r->where,
                       FV_BENCHMARK_NEEDLES);
    json_array_foreach(list, i, needle) {
        const json_t *depth = json_object_get(needle, "depth");
        const double at = json_number_value(depth), last = i ? x->needle[i - 1].depth : 0;
        if (json_object_size(needle) != 2 || !json_is_number(depth) || !(at >= last && at <= 1))
            return FV_FAIL(FV_EDATA,
                           "%s: key 'needles': each is a 'text' and a 'depth' from 0 to 1, in "
                           "ascending order",
                           r->where);
        FV_TRY(
            take_text(r, "text", json_object_get(needle, "text"), ANSWER_MAX, &x->needle[i].text));
        x->needle[x->n_needle++].depth = at;
    }
    return FV_OK;
}

static fv_status take_document(const reading *r, const json_t *line, fv_benchmark_item *x) {
    static const char *const needed[] = {"needles", "begin"};
    for (size_t i = 0; !json_object_get(line, "document") && i < sizeof needed / sizeof *needed;
         i++)
        if (json_object_get(line, needed[i]))
            return FV_FAIL(FV_EDATA, "%s: key '%s' needs the key 'document'", r->where, needed[i]);
    FV_TRY(take_optional(r, line, "document", DOCUMENT_MAX, &x->document));
    FV_TRY(take_optional(r, line, "begin", ANSWER_MAX, &x->begin));
    if (x->document && (json_object_get(line, "image") || json_object_get(line, "images")))
        return FV_FAIL(FV_EDATA, "%s: key 'document': give a document or images, not both",
                       r->where);
    return take_needles(r, line, x);
}

/* ---- questions and answers ----------------------------------------------------------------- */

/* Writes the question with its choices below it. */
static fv_status write_question(fv_benchmark_item *x) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a benchmark");
    fputs(x->question, f);
    for (int32_t i = 0; i < x->n_choice; i++) fprintf(f, "\n%c. %s", 'A' + i, x->choice[i]);
    if (x->n_choice) fputs("\nAnswer with the option's letter from the given choices directly.", f);
    if (fclose(f) != 0) {
        free(text);
        return FV_FAIL(FV_ENOMEM, "out of memory for a benchmark");
    }
    free(x->question);
    x->question = text;
    return FV_OK;
}

static fv_status find_right(const reading *r, fv_benchmark_item *x) {
    const char *answer = x->answer[0];
    int32_t letter = answer[1] ? -1 : answer[0] - 'A', found = -1;
    for (int32_t i = 0; i < x->n_choice; i++)
        if (strcmp(x->choice[i], answer) == 0) found = i;
    if (found < 0 && letter >= 0 && letter < x->n_choice) found = letter;
    if (x->n_answer != 1 || found < 0)
        return FV_FAIL(FV_EDATA, "%s: key 'answers' must be one of the choices, or its letter",
                       r->where);
    x->right = found;
    return FV_OK;
}

static fv_status take_metric(const reading *r, const json_t *line, fv_benchmark_item *x) {
    x->metric = x->n_choice ? FV_METRIC_CHOICE : FV_METRIC_EXACT_MATCH;
    const char *name = metrics[x->metric].name;
    FV_TRY(fv_json_str(line, "metric", r->where, &name));
    int32_t m = 0;
    while (m < FV_N_METRIC && strcmp(metrics[m].name, name) != 0) m++;
    if (m == FV_N_METRIC)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'metric': unknown '%s'; available: exact_match, contains, vqa, "
                       "anls, choice",
                       r->where, name);
    x->metric = (fv_metric)m;
    if ((x->metric == FV_METRIC_CHOICE) != (x->n_choice > 0))
        return FV_FAIL(FV_EDATA, "%s: key 'metric': 'choice' and key 'choices' belong together",
                       r->where);
    if (x->metric == FV_METRIC_VQA && x->n_answer < VQA_ANSWERS_MIN)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'answers': vqa needs those of %d people or more, equal ones "
                       "repeated; with fewer no answer can score 1",
                       r->where, VQA_ANSWERS_MIN);
    return x->metric == FV_METRIC_CHOICE ? find_right(r, x) : FV_OK;
}

/* A document without a question is for --follow, which needs no answers. */
static fv_status check_no_question(const reading *r, const json_t *line) {
    static const char *const asked[] = {"answers", "choices", "metric",
                                        "begin",   "needles", "max_tokens"};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (json_object_get(line, asked[i]))
            return FV_FAIL(FV_EDATA, "%s: key '%s' needs the key 'question'", r->where, asked[i]);
    return FV_OK;
}

static fv_status take_line(reading *r, json_t *line, fv_benchmark_item *x) {
    int32_t n = 0;
    FV_TRY(check_keys(r, line));
    FV_TRY(take_document(r, line, x));
    if (!x->document) FV_TRY(take_images(r, line, x));
    if (x->document && !json_object_get(line, "question")) return check_no_question(r, line);
    if (!json_is_string(json_object_get(line, "question")))
        return FV_FAIL(FV_EDATA, "%s: key 'question' must be a text", r->where);
    FV_TRY(take_texts(r, line, "question", QUESTION_MAX, 1, &x->question, &n));
    FV_TRY(
        take_texts(r, line, "answers", ANSWER_MAX, FV_BENCHMARK_ANSWERS, x->answer, &x->n_answer));
    if (json_object_get(line, "choices"))
        FV_TRY(take_texts(r, line, "choices", ANSWER_MAX, FV_BENCHMARK_CHOICES, x->choice,
                          &x->n_choice));
    if (x->n_choice == 1)
        return FV_FAIL(FV_EDATA, "%s: key 'choices' must be a list of 2 to %d texts", r->where,
                       FV_BENCHMARK_CHOICES);
    x->max_tokens = TOKENS;
    FV_TRY(fv_json_i32(line, "max_tokens", r->where, 1, TOKENS_MAX, &x->max_tokens));
    FV_TRY(take_metric(r, line, x));
    return write_question(x);
}

/* ---- the file ------------------------------------------------------------------------------ */

static void free_item(fv_benchmark_item *x) {
    free(x->question);
    for (int32_t i = 0; i < x->n_image; i++) free(x->image[i]);
    for (int32_t i = 0; i < x->n_answer; i++) free(x->answer[i]);
    for (int32_t i = 0; i < x->n_choice; i++) free(x->choice[i]);
    for (int32_t i = 0; i < x->n_needle; i++) free(x->needle[i].text);
    free(x->document);
    free(x->begin);
}

void fv_benchmark_free(fv_benchmark *b) {
    for (int32_t i = 0; i < b->n_item; i++) free_item(&b->item[i]);
    free(b->item);
    *b = (fv_benchmark){0};
}

static fv_status add_line(reading *r, const char *text, size_t n, int32_t number, fv_benchmark *b) {
    json_t *line;
    if (strspn(text, " \t\r") >= n) return FV_OK;
    snprintf(r->where, sizeof r->where, "%.500s line %d", r->path, number);
    if (b->n_item == ITEMS_MAX)
        return FV_FAIL(FV_EDATA, "%s: at most %d items", r->where, ITEMS_MAX);
    FV_TRY(fv_json_object(text, n, r->where, &line));
    digest(r, text, n);
    fv_benchmark_item *x = &b->item[b->n_item++];
    x->line = number;
    fv_status st = take_line(r, line, x);
    json_decref(line);
    b->n_document += x->document != NULL;
    if (st == FV_OK && b->n_document != 0 && b->n_document != b->n_item)
        st = FV_FAIL(FV_EDATA, "%s: items with documents and items with images need a file each",
                     r->where);
    return st;
}

static fv_status add_lines(reading *r, const char *text, int32_t most, fv_benchmark *b) {
    int32_t lines = 1, number = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    b->item = calloc((size_t)(lines < ITEMS_MAX ? lines : ITEMS_MAX), sizeof *b->item);
    if (!b->item) return FV_FAIL(FV_ENOMEM, "out of memory for a benchmark of %d lines", lines);
    for (const char *at = text; *at && (most == 0 || b->n_item < most);) {
        size_t n = strcspn(at, "\n");
        FV_TRY(add_line(r, at, n, ++number, b));
        at += n + (at[n] == '\n');
    }
    return b->n_item ? FV_OK : FV_FAIL(FV_EDATA, "%s has no questions", r->path);
}

fv_status fv_benchmark_read(const char *path, int32_t most, fv_benchmark *out) {
    reading r = {.path = path, .digest = 0xcbf29ce484222325u};
    fv_benchmark b = {0};
    char *text;
    size_t n;
    FV_TRY(fv_file_read(path, FILE_MAX, &text, &n));
    fv_status st = strlen(text) == n ? add_lines(&r, text, most, &b)
                                     : FV_FAIL(FV_EDATA, "%s has U+0000 in it", path);
    free(text);
    if (st != FV_OK) {
        fv_benchmark_free(&b);
        return st;
    }
    snprintf(b.digest, sizeof b.digest, "%016" PRIx64, r.digest);
    *out = b;
    return FV_OK;
}

/* ---- scores -------------------------------------------------------------------------------- */

double fv_benchmark_score(const fv_benchmark_item *x, const char *said) {
    static double (*const metric[])(const char *const *, int32_t, const char *) = {
        [FV_METRIC_EXACT_MATCH] = fv_metric_exact_match,
        [FV_METRIC_CONTAINS] = fv_metric_contains,
        [FV_METRIC_VQA] = fv_metric_vqa,
        [FV_METRIC_ANLS] = fv_metric_anls,
    };
    if (x->metric == FV_METRIC_CHOICE)
        return fv_choice_said((const char *const *)x->choice, x->n_choice, said) == x->right;
    return metric[x->metric]((const char *const *)x->answer, x->n_answer, said);
}

double fv_benchmark_chance(const fv_benchmark_item *x) {
    return x->metric == FV_METRIC_CHOICE ? 1.0 / x->n_choice : 0;
}
