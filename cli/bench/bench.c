/* fovea bench: measures a fleet from its clients' side, for each policy and number of clients. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/print.h"
#include "cli/client/command.h"
#include "cli/client/output.h"
#include "cli/client/request.h"
#include "common/log.h"
#include "serving/policy_message.h"

enum { AT_ONCE_MAX = 10000, N_AT_ONCE = 32 };

typedef struct bench {
    const fv_options *o;
    fv_arena arena;
    fv_remote *remote;
    fv_remote_model model;
    fv_fleet_count fleet;
    int32_t at_once[N_AT_ONCE], n_at_once;
    const char *const *policies; /* [n_policy] */
    Fovea__Inference__V1__Policy **messages;
    int32_t n_policy;
    fv_bench_load load;
    fv_bench_result *results; /* [n_policy * n_at_once] */
    int32_t n_result;
} bench;

/* ---- options ------------------------------------------------------------------------------ */

static fv_status read_concurrency(bench *b) {
    const char *text = fv_options_string(b->o, "concurrency");
    for (const char *at = text;; at++) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || n < 1 || n > AT_ONCE_MAX)
            return FV_FAIL(FV_EINVAL, "--concurrency %s: write numbers from 1 to %d, as in 1,4,16",
                           text, AT_ONCE_MAX);
        if (b->n_at_once == N_AT_ONCE)
            return FV_FAIL(FV_EINVAL, "--concurrency has more than %d numbers", N_AT_ONCE);
        if (n > b->load.n_request)
            return FV_FAIL(FV_EINVAL,
                           "--requests %d are too few for %ld clients: each needs one at least",
                           b->load.n_request, n);
        b->at_once[b->n_at_once++] = (int32_t)n;
        at = end;
        if (!*end) return FV_OK;
    }
}

static fv_status read_arrivals(bench *b) {
    b->load.rate = fv_options_float(b->o, "rate");
    if (b->load.rate == 0) return read_concurrency(b);
    if (fv_options_given(b->o, "concurrency"))
        return FV_FAIL(FV_EINVAL, "--rate and --concurrency exclude each other: requests come at "
                                  "their times, or when a client is free");
    b->n_at_once = 1;
    return FV_OK;
}

static fv_status read_policies(bench *b) {
    static const char *const exact[] = {""};
    b->n_policy = fv_options_list(b->o, "policy", &b->policies);
    if (b->n_policy == 0) {
        b->policies = exact;
        b->n_policy = 1;
    }
    FV_TRY(FV_ARENA_NEW(&b->arena, b->n_policy, b->messages));
    for (int32_t i = 0; i < b->n_policy; i++) {
        fv_policy policy;
        FV_TRY(fv_policy_parse(b->policies[i], &policy));
        FV_TRY(fv_policy_to_message(&policy, &b->arena, &b->messages[i]));
    }
    return FV_OK;
}

static fv_status read_images(bench *b) {
    const char *const *files;
    Fovea__Inference__V1__Image **images;
    int32_t n = fv_options_list(b->o, "image", &files);
    FV_TRY(FV_ARENA_NEW(&b->arena, n, images));
    for (int32_t i = 0; i < n; i++) FV_TRY(fv_request_image(files[i], &b->arena, &images[i]));
    b->load.images = images;
    b->load.n_image = n;
    return FV_OK;
}

static fv_status read_options(bench *b) {
    const fv_options *o = b->o;
    const char *const *rest;
    if (fv_options_positional(o, &rest) > 0)
        return FV_FAIL(FV_EINVAL, "unexpected argument '%s'; the question goes after --prompt",
                       rest[0]);
    if (!fv_options_string(o, "to"))
        return FV_FAIL(FV_EINVAL, "--to HOST:PORT is needed: a fleet, such as `fovea up` starts");
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    b->load = (fv_bench_load){.prompt = fv_options_string(o, "prompt"),
                              .max_tokens = (int32_t)fv_options_int(o, "max-tokens"),
                              .ignore_eos = fv_options_flag(o, "ignore-eos"),
                              .cached = fv_options_flag(o, "cached"),
                              .speculate = fv_options_flag(o, "speculate"),
                              .n_request = (int32_t)fv_options_int(o, "requests"),
                              .seed = (uint64_t)fv_options_int(o, "seed"),
                              .deadline_ms = fv_options_int(o, "deadline-ms"),
                              .ttft_ms = fv_options_float(o, "ttft-ms"),
                              .itl_ms = fv_options_float(o, "itl-ms")};
    FV_TRY(fv_request_form_message(o, &b->arena, &b->load.rules));
    FV_TRY(fv_request_variables(o, &b->arena, &b->load.variables));
    FV_TRY(read_arrivals(b));
    FV_TRY(read_policies(b));
    FV_TRY(fv_output_check(fv_options_string(o, "out")));
    return read_images(b);
}

/* ---- running ------------------------------------------------------------------------------ */

static fv_status warm_up(bench *b, uint64_t *number) {
    fv_bench_row unused = {0};
    fv_bench_load load = b->load;
    load.n_request = (int32_t)fv_options_int(b->o, "warmup");
    load.rate = 0;
    if (load.concurrency < 1 || load.concurrency > load.n_request)
        load.concurrency = load.n_request;
    fv_status st = fv_bench_run(b->remote, &load, number, &unused);
    fv_bench_row_free(&unused);
    return st;
}

static fv_status run_row(bench *b, int32_t policy, int32_t at_once, uint64_t *number) {
    fv_bench_result *r = &b->results[b->n_result++];
    b->load.policy = b->messages[policy];
    b->load.policy_text = b->policies[policy][0] ? b->policies[policy] : "exact";
    b->load.concurrency = at_once;
    b->load.progress = true;
    *r = (fv_bench_result){.policy = b->load.policy_text,
                           .concurrency = at_once,
                           .rate = b->load.rate,
                           .goodput = b->load.ttft_ms > 0 || b->load.itl_ms > 0 ||
                                      fv_options_given(b->o, "deadline-ms")};
    FV_TRY(warm_up(b, number));
    return fv_bench_run(b->remote, &b->load, number, &r->row);
}

static fv_status run_rows(bench *b) {
    uint64_t number = 0;
    fv_remote_options to = fv_remote_options_of(b->o);
    FV_TRY(FV_ARENA_NEW(&b->arena, b->n_policy * b->n_at_once, b->results));
    FV_TRY(fv_remote_open(&to, &b->remote));
    FV_TRY(fv_remote_get_model(b->remote, &b->model));
    FV_TRY(fv_remote_fleet(b->remote, &b->fleet));
    for (int32_t i = 0; i < b->n_policy; i++)
        for (int32_t j = 0; j < b->n_at_once; j++) FV_TRY(run_row(b, i, b->at_once[j], &number));
    return FV_OK;
}

/* ---- output ------------------------------------------------------------------------------- */

static json_t *to_json(bench *b) {
    const fv_bench_load *l = &b->load;
    json_t *rows = json_array();
    for (int32_t i = 0; i < b->n_result; i++)
        json_array_append_new(rows, fv_bench_json(&b->results[i]));
    return json_pack("{s:s, s:s, s:{s:i, s:i}, s:i, s:i, s:i, s:b, s:b, s:I, s:f, s:f, s:o}", "to",
                     fv_options_string(b->o, "to"), "checkpoint", b->model.fingerprint, "fleet",
                     "prefill", b->fleet.n_prefill, "decode", b->fleet.n_decode, "requests",
                     l->n_request, "images", l->n_image, "max_tokens", l->max_tokens, "ignore_eos",
                     l->ignore_eos, "form", l->rules != NULL, "seed", (json_int_t)l->seed,
                     "ttft_limit_ms", l->ttft_ms, "itl_limit_ms", l->itl_ms, "rows", rows);
}

static fv_status tell(bench *b) {
    fv_status st = FV_OK;
    const char *path = fv_options_string(b->o, "out");
    json_t *json = to_json(b);
    if (!json) return FV_FAIL(FV_ENOMEM, "out of memory for the results");
    if (path) FV_TRY_GOTO(fv_output_json_file(json, path), st, out);
    if (fv_options_flag(b->o, "json")) {
        fv_output_json(json);
    } else {
        printf("%s: %d prefill and %d decode workers\n", fv_options_string(b->o, "to"),
               b->fleet.n_prefill, b->fleet.n_decode);
        st = fv_bench_print(stdout, "policy", b->results, b->n_result);
    }
out:
    json_decref(json);
    return st;
}

static int exit_status(const bench *b) {
    bool may_be_late = fv_options_given(b->o, "deadline-ms");
    for (int32_t i = 0; i < b->n_result; i++) {
        const fv_bench_row *row = &b->results[i].row;
        if (row->n_failed > 0 || row->n_ok == 0 || (row->n_late > 0 && !may_be_late)) return 1;
    }
    return 0;
}

static int run(const fv_options *o) {
    bench b = {.o = o};
    fv_status st = read_options(&b);
    if (st == FV_OK) st = run_rows(&b);
    if (st == FV_OK) st = tell(&b);
    int rc = st == FV_OK ? exit_status(&b) : fv_cli_end(&fv_cli_bench, st);
    for (int32_t i = 0; i < b.n_result; i++) fv_bench_row_free(&b.results[i].row);
    fv_remote_close(b.remote);
    fv_arena_fini(&b.arena);
    return rc;
}

const fv_command fv_cli_bench = {.program = FV_PROGRAM_BENCH, .run = run};
