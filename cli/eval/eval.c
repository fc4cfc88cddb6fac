/* fovea eval: runs the evaluation under any number of policies, in this process or on a fleet. */
#include <stdio.h>
#include <string.h>

#include "cli/client/command.h"
#include "cli/client/output.h"
#include "cli/client/request.h"
#include "cli/eval/follow.h"
#include "cli/eval/print.h"
#include "cli/eval/run.h"
#include "cli/eval/spectra.h"
#include "common/file.h"
#include "common/log.h"
#include "eval/scenes/render.h"
#include "eval/suite/page.h"
#include "model/calibration.h"

enum { POLICIES_MAX = 64, AT_ONCE_MAX = 1024, PATH_CAP = 1024, KEEP_MS = 300000 };

typedef struct eval {
    const fv_options *o;
    fv_policy policy[POLICIES_MAX];
    char text[POLICIES_MAX][FV_POLICY_TEXT_MAX]; /* with all parameters; "exact" */
    const char *policies[POLICIES_MAX];          /* pointers into text */
    const char *name[POLICIES_MAX];              /* as given */
    bool kept;                                   /* keep dialogs between turns if possible */
    char fingerprint[64];
    char measured[17];
    char results_log_path[PATH_CAP], results_path[PATH_CAP], page_path[PATH_CAP];
    char follow_path[PATH_CAP];
    fv_local *local;   /* NULL with a fleet, */
    fv_remote *remote; /* NULL without a fleet */
    fv_results_log_head head;
    fv_results_log results_log;
    fv_eval_run eval_run;
    fv_benchmark benchmark; /* for --data */
    json_t *spectra;        /* NULL: not requested */
} eval;

/* ---- options ------------------------------------------------------------------------------ */

/* Display name of a policy: its preset if it is only that. */
static const char *name_of(const char *given) {
    static const char preset[] = "preset=";
    bool alone = strncmp(given, preset, strlen(preset)) == 0 && !strpbrk(given, ";,");
    return alone ? given + strlen(preset) : *given ? given : "exact";
}

static fv_status add_policy(eval *e, const char *given) {
    int32_t i = e->head.n_policy;
    if (i == POLICIES_MAX) return FV_FAIL(FV_EINVAL, "more than %d policies", POLICIES_MAX);
    FV_TRY(fv_policy_parse(strcmp(given, "exact") == 0 ? "" : given, &e->policy[i]));
    fv_policy_print(&e->policy[i], e->text[i]);
    if (!e->text[i][0]) strcpy(e->text[i], "exact");
    e->policies[i] = e->text[i];
    e->name[i] = name_of(given);
    for (int32_t j = 0; j < i; j++)
        if (strcmp(e->text[i], e->text[j]) == 0)
            return FV_FAIL(FV_EINVAL, "the policy %s is given twice", e->text[i]);
    e->head.n_policy++;
    return FV_OK;
}

/* Adds exact and the presets, of presets with the same text only the first. */
static fv_status add_all(eval *e) {
    int32_t n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    FV_TRY(add_policy(e, "exact"));
    for (int32_t i = 0; i < n; i++) {
        fv_policy policy;
        char text[FV_POLICY_TEXT_MAX];
        FV_TRY(fv_policy_parse(preset[i].name, &policy));
        fv_policy_print(&policy, text);
        if (text[0] && fv_policy_preset_of(text) == i) FV_TRY(add_policy(e, preset[i].name));
    }
    return FV_OK;
}

static fv_status read_policies(eval *e) {
    const char *const *given;
    int n = fv_options_list(e->o, "policy", &given);
    e->head.policy = e->policies;
    e->head.name = e->name;
    if (n == 0) return fv_options_string(e->o, "data") ? add_all(e) : add_policy(e, "exact");
    for (int i = 0; i < n; i++)
        FV_TRY(strcmp(given[i], "all") == 0 ? add_all(e) : add_policy(e, given[i]));
    return FV_OK;
}

static fv_status read_data(eval *e, const char *path) {
    static const char *const scenes_only[] = {"task", "seed", "scenes", "dialogs", "spectra"};
    for (size_t i = 0; i < sizeof scenes_only / sizeof scenes_only[0]; i++)
        if (fv_options_given(e->o, scenes_only[i]))
            return FV_FAIL(FV_EINVAL, "--%s does not work with --data", scenes_only[i]);
    bool some = fv_options_given(e->o, "items");
    FV_TRY(
        fv_benchmark_read(path, some ? (int32_t)fv_options_int(e->o, "items") : 0, &e->benchmark));
    e->head.suite = fv_suite_of_benchmark(&e->benchmark);
    return FV_OK;
}

static fv_status read_suite(eval *e) {
    const char *const *tasks, *data = fv_options_string(e->o, "data");
    if (data) return read_data(e, data);
    int n_task = fv_options_list(e->o, "task", &tasks);
    bool rich;
    FV_TRY(fv_eval_session_scenes(fv_options_string(e->o, "scenes"), &rich));
    return fv_suite_make(tasks, n_task, (int32_t)fv_options_int(e->o, "items"),
                         (int32_t)fv_options_int(e->o, "seed"), rich, &e->head.suite);
}

static fv_status read_spectra(const fv_options *o, const fv_suite *suite) {
    int64_t n = fv_options_int(o, "spectra");
    if (n == 0) return FV_OK;
    if (fv_options_string(o, "to")) return FV_FAIL(FV_EINVAL, "--spectra does not work with --to");
    if (n > suite->n_item)
        return FV_FAIL(FV_EINVAL, "--spectra %d is more than the %d items", (int)n, suite->n_item);
    return FV_OK;
}

static fv_status read_follow(const fv_options *o) {
    static const char *const others[] = {"to", "spectra", "reuse"};
    for (size_t i = 0; fv_options_int(o, "follow") > 0 && i < sizeof others / sizeof *others; i++)
        if (fv_options_given(o, others[i]))
            return FV_FAIL(FV_EINVAL, "--follow does not work with --%s", others[i]);
    return FV_OK;
}

static fv_status read_span(eval *e) {
    const fv_benchmark *b = &e->benchmark;
    const int32_t n = (int32_t)fv_options_int(e->o, "span-as-visual");
    const bool documents = b->n_document > 0;
    if (n > 0 && fv_options_string(e->o, "to"))
        return FV_FAIL(FV_EINVAL, "--span-as-visual does not work with --to");
    if (documents != (n > 0))
        return FV_FAIL(FV_EINVAL,
                       documents ? "--data has documents: say with --span-as-visual N how many of "
                                   "their tokens are taken for an image's"
                                 : "--span-as-visual needs documents (--data, docs/BENCHMARKS.md)");
    for (int32_t i = 0; i < b->n_item && fv_options_int(e->o, "follow") == 0; i++)
        if (!b->item[i].question)
            return FV_FAIL(FV_EINVAL, "--data line %d has no question: give --follow N",
                           b->item[i].line);
    e->eval_run.span = n;
    e->head.span = n;
    return FV_OK;
}

static fv_status check_output(const eval *e) {
    FV_TRY(fv_dir_make(fv_options_string(e->o, "out")));
    if (fv_options_int(e->o, "follow") > 0) return fv_output_check(e->follow_path);
    FV_TRY(fv_output_check(e->results_log_path));
    FV_TRY(fv_output_check(e->results_path));
    return fv_output_check(e->page_path);
}

static fv_status read_modes(eval *e) {
    const char *dialogs = fv_options_string(e->o, "dialogs");
    const char *first = fv_options_string(e->o, "first");
    bool fleet = fv_options_string(e->o, "to") != NULL;
    e->kept = strcmp(dialogs, "kept") == 0;
    if (!e->kept && strcmp(dialogs, "whole") != 0)
        return FV_FAIL(FV_EINVAL, "--dialogs %s: write kept or whole", dialogs);
    if (!first) first = fleet ? "prefill" : "held";
    if (strcmp(first, "held") != 0 && strcmp(first, "prefill") != 0)
        return FV_FAIL(FV_EINVAL, "--first %s: write held or prefill", first);
    e->eval_run.first_held = strcmp(first, "held") == 0;
    if (e->eval_run.first_held && fleet)
        return FV_FAIL(FV_EINVAL, "--first held does not work with --to: a fleet computes the "
                                  "first token in the prefill");
    e->head.first = e->eval_run.first_held ? "held" : "prefill";
    return FV_OK;
}

static fv_status read_options(eval *e) {
    const fv_options *o = e->o;
    const char *const *rest, *out = fv_options_string(o, "out");
    if (fv_options_positional(o, &rest) > 0)
        return FV_FAIL(FV_EINVAL, "'%s' is not an option", rest[0]);
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    FV_TRY(read_policies(e));
    FV_TRY(read_modes(e));
    FV_TRY(read_suite(e));
    FV_TRY(read_spectra(o, &e->head.suite));
    FV_TRY(read_follow(o));
    FV_TRY(read_span(e));
    FV_TRY(fv_path_join(out, "items.jsonl", e->results_log_path, sizeof e->results_log_path));
    FV_TRY(fv_path_join(out, "results.json", e->results_path, sizeof e->results_path));
    FV_TRY(fv_path_join(out, "report.html", e->page_path, sizeof e->page_path));
    FV_TRY(fv_path_join(out, "follow.json", e->follow_path, sizeof e->follow_path));
    return check_output(e);
}

/* ---- the examined model ------------------------------------------------------------------- */

static fv_status set_model(eval *e, const fv_model_config *cfg, const char *fingerprint) {
    if (e->head.span && cfg->has_vision)
        return FV_FAIL(FV_EINVAL, "--span-as-visual needs a model that reads text only");
    if (!cfg->has_vision && !e->head.span)
        return FV_FAIL(FV_EINVAL, "%s has no vision tower, and the questions are about images",
                       fv_options_string(e->o, "checkpoint"));
    snprintf(e->fingerprint, sizeof e->fingerprint, "%s", fingerprint);
    e->head.checkpoint = e->fingerprint;
    e->eval_run.side = fv_eval_session_side(cfg);
    return FV_OK;
}

static fv_status open_local(eval *e) {
    FV_TRY(fv_request_engine(e->o, e->eval_run.at_once, true, &e->local));
    if (fv_options_int(e->o, "spectra") > 0 && fv_local_kv_dtype(e->local) != FV_F32)
        return FV_FAIL(FV_EINVAL, "--spectra needs --kv-dtype f32");
    e->head.by = "process";
    e->eval_run.keep_ms = e->kept ? KEEP_MS : 0;
    e->head.dialog = e->kept ? "kept" : "whole";
    e->head.kv_dtype = fv_dtype_name(fv_local_kv_dtype(e->local));
    e->head.compute = fv_compute_name(fv_local_compute(e->local));
    FV_TRY(fv_calibration_digest(fv_options_string(e->o, "checkpoint"), e->measured));
    e->head.measured = e->measured;
    return set_model(e, fv_local_config(e->local), fv_local_fingerprint(e->local));
}

/* Checks that the fleet's checkpoint is the local one. */
static fv_status check_fleet_model(eval *e, const char *dir, const fv_remote_model *model) {
    fv_checkpoint *ck;
    char fingerprint[17];
    FV_TRY(fv_checkpoint_open(dir, &ck));
    fv_checkpoint_fingerprint(ck, fingerprint);
    fv_status st = set_model(e, fv_checkpoint_config(ck), model->fingerprint);
    fv_checkpoint_close(ck);
    /* a suffix "+int8.2": the fleet has quantized its weights */
    if (st == FV_OK && strncmp(model->fingerprint, fingerprint, strlen(fingerprint)) != 0)
        st = FV_FAIL(FV_EINVAL, "--checkpoint %s is %s, but the fleet at %s serves %s", dir,
                     fingerprint, fv_options_string(e->o, "to"), model->fingerprint);
    return st;
}

static fv_status open_remote(eval *e) {
    fv_remote_model model;
    fv_remote_options to = fv_remote_options_of(e->o);
    const char *dir = fv_options_string(e->o, "checkpoint");
    if (!dir && !e->head.suite.benchmark)
        return FV_FAIL(FV_EINVAL, "--checkpoint DIR is required with --to too, for the image size "
                                  "and to check what the fleet serves");
    FV_TRY(fv_remote_open(&to, &e->remote));
    FV_TRY(fv_remote_get_model(e->remote, &model));
    snprintf(e->fingerprint, sizeof e->fingerprint, "%s", model.fingerprint);
    e->head.checkpoint = e->fingerprint;
    if (dir) FV_TRY(check_fleet_model(e, dir, &model));
    if (e->kept)
        e->eval_run.keep_ms = (int32_t)(model.keep_ms_max < KEEP_MS ? model.keep_ms_max : KEEP_MS);
    e->head.by = "fleet";
    e->head.dialog = e->eval_run.keep_ms ? "kept" : "whole";
    return FV_OK;
}

static fv_status open_model(eval *e) {
    e->eval_run.at_once = (int32_t)fv_options_int(e->o, "concurrency");
    return fv_options_string(e->o, "to") ? open_remote(e) : open_local(e);
}

/* ---- the evaluation ------------------------------------------------------------------------ */

/* Opens the results log and adds answers of earlier evaluations. */
static fv_status open_results_log(eval *e) {
    const char *const *dirs;
    char path[PATH_CAP];
    int n = fv_options_list(e->o, "reuse", &dirs);
    FV_TRY(fv_results_log_open(e->results_log_path, &e->head, &e->results_log));
    for (int i = 0; i < n; i++) {
        FV_TRY(fv_path_join(dirs[i], "items.jsonl", path, sizeof path));
        FV_TRY(fv_results_log_reuse(&e->results_log, path));
    }
    return FV_OK;
}

static fv_status run_evaluation(eval *e) {
    e->eval_run.results_log = &e->results_log;
    e->eval_run.policy = e->policy;
    return e->local ? fv_eval_run_local(&e->eval_run, e->local)
                    : fv_eval_run_remote(&e->eval_run, e->remote);
}

static fv_status write_results(const eval *e, const fv_results *r) {
    json_t *json = fv_results_json(r);
    if (!json) return FV_FAIL(FV_ENOMEM, "out of memory for the results");
    if (e->spectra) json_object_set(json, "spectra", e->spectra);
    fv_status st = fv_output_json_file(json, e->results_path);
    if (st == FV_OK) st = fv_page_write(e->page_path, json);
    json_decref(json);
    return st;
}

static fv_status write_output(const eval *e) {
    fv_results r;
    FV_TRY(fv_results_make(&e->results_log, &r));
    fv_status st = write_results(e, &r);
    if (st == FV_OK) st = fv_eval_print(stdout, &r);
    fv_results_free(&r);
    return st;
}

static fv_status follow(const eval *e) {
    fv_eval_follow f = {.suite = &e->head.suite,
                        .side = e->eval_run.side,
                        .span = e->head.span,
                        .n_token = (int32_t)fv_options_int(e->o, "follow"),
                        .at_once = e->eval_run.at_once,
                        .first_held = e->eval_run.first_held,
                        .n_policy = e->head.n_policy,
                        .policy = e->policy,
                        .text = e->policies};
    json_t *json;
    FV_TRY(fv_eval_follow_run(&f, e->local, &json));
    json_object_set_new(json, "checkpoint", json_string(e->head.checkpoint));
    json_object_set_new(json, "kv_dtype", json_string(e->head.kv_dtype));
    json_object_set_new(json, "compute", json_string(e->head.compute));
    fv_status st = fv_output_json_file(json, e->follow_path);
    if (st == FV_OK) st = fv_eval_follow_print(stdout, json);
    json_decref(json);
    return st;
}

static fv_status evaluate(eval *e) {
    FV_TRY(read_options(e));
    FV_TRY(open_model(e));
    if (fv_options_int(e->o, "follow") > 0) return follow(e);
    FV_TRY(open_results_log(e));
    FV_TRY(run_evaluation(e));
    int32_t n = (int32_t)fv_options_int(e->o, "spectra");
    if (n > 0) FV_TRY(fv_eval_spectra(e->local, &e->head.suite, e->eval_run.side, n, &e->spectra));
    return write_output(e);
}

static int run(const fv_options *o) {
    static eval e; /* too large for the stack */
    e = (eval){.o = o};
    fv_status st = evaluate(&e);
    json_decref(e.spectra);
    fv_results_log_close(&e.results_log);
    fv_benchmark_free(&e.benchmark);
    fv_local_close(e.local);
    fv_remote_close(e.remote);
    return fv_cli_end(&fv_cli_eval, st);
}

const fv_command fv_cli_eval = {.program = FV_PROGRAM_EVAL, .run = run};
