/* Rows -> tables and JSON. */
#include "cli/bench/print.h"

#include <math.h>

#include "cli/client/table.h"

static const double MS = 1e3, KIB = 1.0 / 1024;

/* ---- tables ------------------------------------------------------------------------------- */

static void heads(fv_table *t, const char *first, const char *const *head) {
    fv_table_init(t, 1);
    while (head[t->n_col - 1]) t->n_col++;
    fv_table_cell(t, "%s", first);
    for (int32_t i = 0; i < t->n_col - 1; i++) fv_table_cell(t, "%s", head[i]);
}

static void name_cells(fv_table *t, const fv_bench_result *r) {
    fv_table_cell(t, "%s", r->policy);
    if (r->rate > 0)
        fv_table_cell(t, "%g/s", r->rate);
    else
        fv_table_cell(t, "%d", r->concurrency);
}

static void quantiles(fv_table *t, fv_samples *s, double scale, int32_t digits, double a, double b,
                      double c) {
    fv_table_number(t, scale * fv_samples_quantile(s, a), digits);
    if (b > 0) fv_table_number(t, scale * fv_samples_quantile(s, b), digits);
    if (c > 0) fv_table_number(t, scale * fv_samples_quantile(s, c), digits);
}

static double per_s(const fv_bench_row *row, double n) {
    return row->seconds > 0 ? n / row->seconds : 0;
}

static double steady_per_s(const fv_bench_row *row) {
    return row->steady_s > 0 ? row->n_steady / row->steady_s : 0;
}

/* With a closed loop the fleet is busy almost to the end; with a rate, the time after the last
 * request is not part of the load. */
static double goodput(const fv_bench_result *r) {
    bool steady = r->rate > 0 && r->row.steady_s > 0;
    return steady ? steady_per_s(&r->row) : per_s(&r->row, r->row.n_good);
}

static fv_status print_speed(FILE *f, const char *first, fv_bench_result *results, int32_t n) {
    static const char *const head[] = {"at once",  "ok",       "refused",  "late",     "failed",
                                       "req/s",    "good/s",   "tokens/s", "TTFT p50", "TTFT p90",
                                       "TTFT p99", "TPOT p50", "ITL p50",  "ITL p99",  "E2E p50",
                                       "E2E p99",  NULL};
    fv_table t;
    heads(&t, first, head);
    for (int32_t i = 0; i < n; i++) {
        fv_bench_row *row = &results[i].row;
        name_cells(&t, &results[i]);
        fv_table_cell(&t, "%d", row->n_ok);
        fv_table_cell(&t, "%d", row->n_refused);
        fv_table_cell(&t, "%d", row->n_late);
        fv_table_cell(&t, "%d", row->n_failed);
        fv_table_number(&t, per_s(row, row->n_ok), 2);
        fv_table_number(&t, results[i].goodput ? goodput(&results[i]) : (double)NAN, 2);
        fv_table_number(&t, per_s(row, (double)row->n_token), 1);
        quantiles(&t, &row->ttft_s, MS, 1, 0.5, 0.9, 0.99);
        quantiles(&t, &row->tpot_s, MS, 2, 0.5, 0, 0);
        quantiles(&t, &row->itl_s, MS, 2, 0.5, 0.99, 0);
        quantiles(&t, &row->e2e_s, MS, 1, 0.5, 0.99, 0);
    }
    fprintf(f, "speed as clients saw it; times in ms\n");
    fv_status st = fv_table_print(f, &t);
    fv_table_fini(&t);
    return st;
}

static fv_status print_bytes(FILE *f, const char *first, fv_bench_result *results, int32_t n) {
    static const char *const head[] = {"at once", "raw",     "sent",   "resident", "at end", "open",
                                       "send",    "exposed", "commit", "attach",   NULL};
    fv_table t;
    heads(&t, first, head);
    for (int32_t i = 0; i < n; i++) {
        fv_bench_row *row = &results[i].row;
        fv_samples *stages[] = {&row->open_s, &row->send_s, &row->exposed_s, &row->commit_s,
                                &row->attach_s};
        name_cells(&t, &results[i]);
        fv_table_number(&t, KIB * fv_samples_mean(&row->bytes_raw), 1);
        fv_table_number(&t, KIB * fv_samples_mean(&row->bytes_sent), 1);
        fv_table_number(&t, KIB * fv_samples_mean(&row->bytes_resident), 1);
        fv_table_number(&t, KIB * fv_samples_mean(&row->bytes_end), 1);
        for (size_t s = 0; s < sizeof stages / sizeof stages[0]; s++)
            quantiles(&t, stages[s], MS, 2, 0.5, 0, 0);
    }
    fprintf(f, "KV per request, mean, in KiB; stages of its hand-off, p50, in ms\n");
    fv_status st = fv_table_print(f, &t);
    fv_table_fini(&t);
    return st;
}

/* Reports the client's own load: a load generator that waits for the machine measures itself. */
static void print_client(FILE *f, fv_bench_result *r) {
    fv_bench_row *row = &r->row;
    if (row->cpu_s <= 0 || row->lag_s.n == 0) return;
    fprintf(f, "%s: the client took %.2f s of CPU in %.1f s", r->policy, row->cpu_s, row->seconds);
    if (r->rate > 0)
        fprintf(f, ", and sent p99 of its requests within %.1f ms of their time",
                MS * fv_samples_quantile(&row->lag_s, 0.99));
    fputc('\n', f);
}

static void print_errors(FILE *f, const fv_bench_result *r) {
    for (int code = 0; code < FV_BENCH_CODES; code++) {
        const fv_bench_error *e = &r->row.errors[code];
        if (e->n == 0) continue;
        fprintf(f, "%s: %d times %s: %s\n", r->policy, e->n,
                fv_rpc_code_name((grpc_status_code)code), e->first);
    }
}

fv_status fv_bench_print(FILE *f, const char *head, fv_bench_result *results, int32_t n) {
    FV_TRY(print_speed(f, head, results, n));
    fputc('\n', f);
    FV_TRY(print_bytes(f, head, results, n));
    for (int32_t i = 0; i < n; i++) print_client(f, &results[i]);
    for (int32_t i = 0; i < n; i++) print_errors(f, &results[i]);
    return FV_OK;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static json_t *samples_json(fv_samples *s, double scale) {
    static const struct {
        const char *name;
        double q;
    } points[] = {{"min", 0},    {"p1", 0.01},  {"p5", 0.05},     {"p10", 0.1},
                  {"p25", 0.25}, {"p50", 0.5},  {"p75", 0.75},    {"p90", 0.9},
                  {"p95", 0.95}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}};
    if (s->n == 0) return json_null();
    json_t *o = json_pack("{s:I, s:f}", "n", (json_int_t)s->n, "mean", scale * fv_samples_mean(s));
    for (size_t i = 0; o && i < sizeof points / sizeof points[0]; i++)
        json_object_set_new(o, points[i].name,
                            json_real(scale * fv_samples_quantile(s, points[i].q)));
    return o;
}

static json_t *errors_json(const fv_bench_row *row) {
    json_t *list = json_array();
    for (int code = 0; code < FV_BENCH_CODES; code++)
        if (row->errors[code].n > 0)
            json_array_append_new(
                list, json_pack("{s:s, s:i, s:s}", "code", fv_rpc_code_name((grpc_status_code)code),
                                "n", row->errors[code].n, "first", row->errors[code].first));
    return list;
}

static json_t *bytes_json(fv_bench_row *row) {
    return json_pack("{s:o, s:o, s:o, s:o}", "raw", samples_json(&row->bytes_raw, 1), "sent",
                     samples_json(&row->bytes_sent, 1), "resident",
                     samples_json(&row->bytes_resident, 1), "resident_end",
                     samples_json(&row->bytes_end, 1));
}

static json_t *handoff_json(fv_bench_row *row) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "open", samples_json(&row->open_s, MS), "send",
                     samples_json(&row->send_s, MS), "exposed", samples_json(&row->exposed_s, MS),
                     "commit", samples_json(&row->commit_s, MS), "attach",
                     samples_json(&row->attach_s, MS));
}

json_t *fv_bench_json(fv_bench_result *r) {
    fv_bench_row *row = &r->row;
    json_t *o = json_pack(
        "{s:s, s:i, s:i, s:i, s:f, s:I, s:I, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "policy", r->policy, "ok", row->n_ok, "refused", row->n_refused, "failed", row->n_failed,
        "seconds", row->seconds, "tokens", (json_int_t)row->n_token, "prompt_tokens",
        (json_int_t)row->n_prompt_row, "requests_per_s", per_s(row, row->n_ok), "tokens_per_s",
        per_s(row, (double)row->n_token), "ttft_ms", samples_json(&row->ttft_s, MS), "tpot_ms",
        samples_json(&row->tpot_s, MS), "itl_ms", samples_json(&row->itl_s, MS), "e2e_ms",
        samples_json(&row->e2e_s, MS), "bytes", bytes_json(row), "handoff_ms", handoff_json(row),
        "errors", errors_json(row));
    if (!o) return NULL;
    if (r->rate > 0)
        json_object_set_new(o, "rate", json_real(r->rate));
    else
        json_object_set_new(o, "concurrency", json_integer(r->concurrency));
    if (r->goodput) json_object_set_new(o, "goodput_per_s", json_real(goodput(r)));
    json_object_set_new(o, "steady_good_per_s", json_real(steady_per_s(row)));
    json_object_set_new(o, "late", json_integer(row->n_late));
    json_object_set_new(o, "client_cpu_seconds", json_real(row->cpu_s));
    json_object_set_new(o, "lag_ms", samples_json(&row->lag_s, MS));
    return o;
}
