/* Lines of JSON: read once at the start, then only appended. */
#include "eval/suite/results_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "text/json.h"

enum { FORM = 1 }; /* format version of the lines */

static const size_t BYTES_MAX = (size_t)1 << 30;

json_t *fv_results_log_head_json(const fv_results_log_head *h) {
    json_t *tasks = json_array(), *policies = json_array();
    for (int32_t i = 0; i < h->suite.n_task; i++)
        json_array_append_new(tasks, json_string(fv_suite_task_name(&h->suite, h->suite.task[i])));
    for (int32_t i = 0; i < h->n_policy; i++)
        json_array_append_new(policies, json_string(h->policy[i]));
    return json_pack(
        "{s:i, s:s, s:s*, s:s, s:s, s:s, s:s*, s:s*, s:s*, s:o*, s:s*, s:i, s:i, s:o, s:o}", "form",
        FORM, "checkpoint", h->checkpoint, "measured", h->measured, "by", h->by, "dialog",
        h->dialog, "first", h->first, "kv_dtype", h->kv_dtype, "compute", h->compute, "data",
        h->suite.benchmark ? h->suite.benchmark->digest : NULL, "span_as_visual",
        h->span ? json_integer(h->span) : NULL, "scenes",
        h->suite.benchmark ? NULL
        : h->suite.rich    ? "rich"
                           : "plain",
        "items", h->suite.n_item, "seed", h->suite.seed, "tasks", tasks, "policies", policies);
}

fv_status fv_results_log_init(const fv_results_log_head *head, fv_results_log *out) {
    size_t n = (size_t)head->n_policy * (size_t)head->suite.n_item;
    fv_results_log s = {
        .head = head, .item_score = calloc(n, sizeof *s.item_score), .done = calloc(n, 1)};
    if (!s.item_score || !s.done) {
        fv_results_log_close(&s);
        return FV_FAIL(FV_ENOMEM, "out of memory for %zu answers", n);
    }
    *out = s;
    return FV_OK;
}

void fv_results_log_close(fv_results_log *s) {
    for (int32_t i = 0; s->item_score && i < s->head->n_policy * s->head->suite.n_item; i++)
        fv_item_score_free(&s->item_score[i]);
    if (s->file) fclose(s->file);
    free(s->item_score);
    free(s->done);
    *s = (fv_results_log){0};
}

int32_t fv_results_log_at(const fv_results_log *s, int32_t policy, int32_t item) {
    return policy * s->head->suite.n_item + item;
}

static void keep(fv_results_log *s, fv_item_score *item_score) {
    int32_t at = fv_results_log_at(s, item_score->policy, item_score->item);
    fv_item_score_free(&s->item_score[at]);
    s->item_score[at] = *item_score;
    s->n_done += !s->done[at];
    s->done[at] = true;
}

/* ---- reading ---------------------------------------------------------------------------- */

/* Lines of a results log being read: of this evaluation, or of another with its own policies and
 * items. */
typedef struct reading {
    fv_results_log *s;
    bool other;
    fv_suite suite;
    int32_t n_policy;
    int32_t
        *policy; /* [n_policy] index of each of its policies in this log, or -1; only for another
                  * log, owned */
} reading;

static bool may_differ(const reading *r, const char *key) {
    return r->other && (strcmp(key, "items") == 0 || strcmp(key, "policies") == 0 ||
                        strcmp(key, "measured") == 0);
}

static bool agrees(const json_t *found, const char *key, const json_t *value) {
    const json_t *there = json_object_get(found, key);
    if (!there && (strcmp(key, "kv_dtype") == 0 || strcmp(key, "compute") == 0))
        return strcmp(json_string_value(value), "f32") == 0;
    if (!there && strcmp(key, "measured") == 0)
        return strcmp(json_string_value(value), "none") == 0;
    if (!there && strcmp(key, "scenes") == 0) return strcmp(json_string_value(value), "plain") == 0;
    if (!there && strcmp(key, "first") == 0)
        return strcmp(json_string_value(value), "prefill") == 0;
    return json_equal(value, there);
}

static fv_status check_head(const reading *r, const json_t *found, const char *where) {
    json_t *head = fv_results_log_head_json(r->s->head);
    const char *key, *differs = NULL;
    json_t *value;
    json_object_foreach(head, key, value) {
        if (!differs && !may_differ(r, key) && !agrees(found, key, value)) differs = key;
    }
    fv_status st = head ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the results log");
    if (differs)
        st = FV_FAIL(FV_EINVAL, "%s belongs to a run with another '%s': %s", where, differs,
                     r->other ? "it has no answers for this evaluation"
                              : "give the arguments that it began with, or another --out");
    json_decref(head);
    return st;
}

static int32_t policy_of(const fv_results_log_head *head, const json_t *text) {
    for (int32_t i = 0; i < head->n_policy; i++)
        if (json_is_string(text) && strcmp(head->policy[i], json_string_value(text)) == 0) return i;
    return -1;
}

/* Returns whether the other log's policies used the same calibration. */
static bool measured_the_same(const reading *r, const json_t *found) {
    json_t *mine = json_string(r->s->head->measured ? r->s->head->measured : "none");
    bool same = mine && agrees(found, "measured", mine);
    json_decref(mine);
    return same;
}

/* Reads the other evaluation's head and matches its policies with this one's. */
static fv_status read_other(reading *r, const json_t *found, const char *where) {
    const json_t *texts = json_object_get(found, "policies"), *text;
    size_t i;
    r->suite = r->s->head->suite;
    r->n_policy = (int32_t)json_array_size(texts);
    FV_TRY(fv_json_i32(found, "items", where, 1, FV_SUITE_ITEMS_MAX, &r->suite.n_item));
    r->policy = calloc(json_array_size(texts) + 1, sizeof *r->policy);
    if (!r->policy) return FV_FAIL(FV_ENOMEM, "out of memory for policies");
    bool same = measured_the_same(r, found);
    json_array_foreach(texts, i, text) {
        bool reads_nothing = json_is_string(text) && strcmp(json_string_value(text), "exact") == 0;
        r->policy[i] = same || reads_nothing ? policy_of(r->s->head, text) : -1;
    }
    return FV_OK;
}

static fv_status read_head(reading *r, const json_t *found, const char *where) {
    FV_TRY(check_head(r, found, where));
    return r->other ? read_other(r, found, where) : FV_OK;
}

/* Takes the score. */
static fv_status take_item_score(reading *r, fv_item_score *item_score) {
    if (!r->other) {
        keep(r->s, item_score);
        return FV_OK;
    }
    item_score->policy = r->policy[item_score->policy];
    bool wanted = item_score->policy >= 0 && item_score->item < r->s->head->suite.n_item;
    if (wanted && !r->s->done[fv_results_log_at(r->s, item_score->policy, item_score->item)])
        return fv_results_log_add(r->s, item_score);
    fv_item_score_free(item_score);
    return FV_OK;
}

static fv_status read_line(reading *r, const char *line, size_t n, bool first, const char *where) {
    json_t *json;
    fv_item_score item_score;
    FV_TRY(fv_json_object(line, n, where, &json));
    fv_status st = first ? read_head(r, json, where)
                         : fv_item_score_read(json, &r->suite, r->n_policy, where, &item_score);
    if (st == FV_OK && !first) st = take_item_score(r, &item_score);
    json_decref(json);
    return st;
}

/* *whole: bytes of complete lines. */
static fv_status read_lines(reading *r, const char *path, const char *text, size_t *whole) {
    int number = 0;
    char where[600];
    const char *at = text;
    for (const char *end; (end = strchr(at, '\n')); at = end + 1) {
        number++;
        snprintf(where, sizeof where, number == 1 ? "%.500s" : "%.500s line %d", path, number);
        FV_TRY(read_line(r, at, (size_t)(end - at), number == 1, where));
    }
    *whole = (size_t)(at - text);
    return FV_OK;
}

static fv_status read_file(reading *r, const char *path, size_t *whole) {
    char *text;
    size_t n;
    FV_TRY(fv_file_read(path, BYTES_MAX, &text, &n));
    fv_status st = read_lines(r, path, text, whole);
    free(text);
    return st;
}

static fv_status read_own(fv_results_log *s, const char *path, size_t *whole) {
    reading r = {.s = s, .suite = s->head->suite, .n_policy = s->head->n_policy};
    *whole = 0;
    return fv_file_exists(path) ? read_file(&r, path, whole) : FV_OK;
}

fv_status fv_results_log_reuse(fv_results_log *s, const char *path) {
    reading r = {.s = s, .other = true};
    size_t whole;
    fv_status st = read_file(&r, path, &whole);
    free(r.policy);
    return st;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* Writes a line; takes the JSON. */
static fv_status write_line(fv_results_log *s, json_t *json) {
    if (!json) return FV_FAIL(FV_ENOMEM, "out of memory for an answer");
    bool good = json_dumpf(json, s->file, JSON_COMPACT) == 0 && fputc('\n', s->file) != EOF &&
                fflush(s->file) == 0;
    json_decref(json);
    return good ? FV_OK : FV_FAIL(FV_EIO, "an answer cannot be written: %s", strerror(errno));
}

static fv_status open_file(fv_results_log *s, const char *path, size_t whole) {
    s->file = fopen(path, "a");
    if (!s->file || ftruncate(fileno(s->file), (off_t)whole) != 0)
        return FV_FAIL(FV_EIO, "%s: %s", path, strerror(errno));
    return whole ? FV_OK : write_line(s, fv_results_log_head_json(s->head));
}

fv_status fv_results_log_add(fv_results_log *s, fv_item_score *item_score) {
    json_t *json = s->file ? fv_item_score_json(item_score, &s->head->suite) : NULL;
    keep(s, item_score);
    return s->file ? write_line(s, json) : FV_OK;
}

fv_status fv_results_log_open(const char *path, const fv_results_log_head *head,
                              fv_results_log *out) {
    size_t whole;
    fv_results_log s;
    fv_status st;
    FV_TRY(fv_results_log_init(head, &s));
    FV_TRY_GOTO(read_own(&s, path, &whole), st, fail);
    FV_TRY_GOTO(open_file(&s, path, whole), st, fail);
    *out = s;
    return FV_OK;
fail:
    fv_results_log_close(&s);
    return st;
}
