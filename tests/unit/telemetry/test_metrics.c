/* telemetry/metrics.c, labels.c and exposition.c: recorded values are written, in both formats.
 * e2e/metrics tests that tools read them. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handoff/refusal.h"
#include "policy/policy.h"
#include "telemetry/metrics.h"

static const fv_trace_context traced = {{1, 2, 3}, {4}, true}, unsampled = {{1, 2, 3}, {4}, false};

static char *print(bool openmetrics) {
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    fv_metrics_print(f, openmetrics);
    fclose(f);
    return text;
}

/* Tells whether the text has this line. */
static bool has(const char *text, const char *line) {
    size_t n = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at += n)
        if ((at == text || at[-1] == '\n') && at[n] == '\n') return true;
    return false;
}

static void assert_has(bool openmetrics, const char *line) {
    char *text = print(openmetrics);
    cr_assert(has(text, line), "%s is not in\n%s", line, text);
    free(text);
}

static void assert_lacks(bool openmetrics, const char *words) {
    char *text = print(openmetrics);
    cr_assert_null(strstr(text, words), "%s is in\n%s", words, text);
    free(text);
}

TestSuite(metrics, .fini = fv_metrics_close, .timeout = 240);

Test(metrics, what_is_not_opened_records_nothing) {
    fv_metric_add(FV_METRIC_REPLAYS, 0, 1);
    fv_metric_observe(FV_METRIC_TTFT, 0, 1, &traced);
    assert_lacks(false, "fovea_");
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    assert_has(false, "fovea_replays_total 0");
}

Test(metrics, a_counter_adds_up_and_a_gauge_is_set) {
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    fv_metric_add(FV_METRIC_REPLAYS, 0, 1);
    fv_metric_add(FV_METRIC_REPLAYS, 0, 2);
    fv_metric_set(FV_METRIC_WAITING, 0, 7);
    fv_metric_set(FV_METRIC_WAITING, 0, 4);
    assert_has(false, "fovea_replays_total 3");
    assert_has(false, "vllm:num_requests_waiting 4");
}

Test(metrics, large_and_broken_numbers_are_written_so_that_they_read_the_same) {
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    fv_metric_add(FV_METRIC_KV_RAW, 0, 9007199254740991.0);
    fv_metric_set(FV_METRIC_KV_USAGE, 0, 1.0 / 3);
    assert_has(false, "fovea_request_kv_raw_bytes_total{preset=\"exact\"} 9007199254740991");
    assert_has(false, "vllm:kv_cache_usage_perc 0.33333333333333331");
}

Test(metrics, a_daemon_shows_its_own_and_no_others) {
    cr_assert_eq(fv_metrics_open(FV_DAEMON_DECODE), FV_OK);
    assert_has(false, "fovea_conversations 0");
    assert_lacks(false, "fovea_requests_total");
    assert_lacks(false, "fovea_image_cache_hits_total");
}

Test(metrics, labels_have_the_values_of_the_tables_they_come_from) {
    int32_t n;
    (void)fv_policy_presets(&n);
    cr_assert_eq(fv_label_count(FV_LABEL_PRESET), n + 1);
    cr_assert_str_eq(fv_label_value(FV_LABEL_PRESET, n), "custom");
    cr_assert_str_eq(fv_label_value(FV_LABEL_REFUSAL, FV_REFUSED_CHECKSUM), "checksum");
    cr_assert_str_eq(fv_label_value(FV_LABEL_REASON, FV_REASON_DRAINING), "draining");
    cr_assert_eq(fv_label_count(FV_LABEL_REASON), FV_REASON_TENANT_LIMIT + 1);
    cr_assert_eq(fv_label_count(FV_LABEL_STEP), FV_STEP_RECOMPRESS + 1);
    cr_assert_eq(fv_label_count(FV_LABEL_PHASE), FV_PHASE_ATTACH + 1);
    cr_assert_eq(fv_label_count(FV_LABEL_TENSOR), FV_TENSOR_TEXT_KEYS + 1);
    cr_assert_eq(fv_label_count(FV_LABEL_OUTCOME), FV_OUTCOME_EXPIRED + 1);
    for (int s = 0; s < FV_N_STATUS; s++)
        cr_assert_str_eq(fv_label_value(FV_LABEL_CODE, fv_status_grpc_code((fv_status)s)),
                         fv_status_grpc_name((fv_status)s));
}

Test(metrics, a_series_of_two_labels_has_both) {
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    fv_metric_set(FV_METRIC_FLEET, fv_metric_series(FV_METRIC_FLEET, FV_ROLE_DECODE, FV_STATE_LOST),
                  5);
    assert_has(false, "fovea_workers{role=\"decode\",state=\"lost\"} 5");
    assert_has(false, "fovea_workers{role=\"prefill\",state=\"unhealthy\"} 0");
}

Test(metrics, a_histogram_has_cumulative_buckets_a_sum_and_a_count) {
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    fv_metric_observe(FV_METRIC_TTFT, 0, 0.25, NULL); /* a bound belongs to its bucket */
    fv_metric_observe(FV_METRIC_TTFT, 0, 0.3, NULL);
    fv_metric_observe(FV_METRIC_TTFT, 0, 1000, NULL);
    fv_metric_observe_n(FV_METRIC_ITL, 0, 0.5, 3);
    fv_metric_observe_n(FV_METRIC_ITL, 0, 0.5, 0);
    assert_has(false, "fovea_time_to_first_token_seconds_bucket{le=\"0.1\"} 0");
    assert_has(false, "fovea_time_to_first_token_seconds_bucket{le=\"0.25\"} 1");
    assert_has(false, "fovea_time_to_first_token_seconds_bucket{le=\"1.0\"} 2");
    assert_has(false, "fovea_time_to_first_token_seconds_bucket{le=\"100.0\"} 2");
    assert_has(false, "fovea_time_to_first_token_seconds_bucket{le=\"+Inf\"} 3");
    assert_has(false, "fovea_time_to_first_token_seconds_sum 1000.55");
    assert_has(false, "fovea_time_to_first_token_seconds_count 3");
    assert_has(false, "fovea_inter_token_latency_seconds_sum 1.5");
    assert_has(false, "fovea_inter_token_latency_seconds_count 3");
}

Test(metrics, openmetrics_names_families_without_total_and_says_units_and_the_end) {
    cr_assert_eq(fv_metrics_open(FV_DAEMON_PREFILL), FV_OK);
    assert_has(true, "# TYPE fovea_worker_busy_seconds counter");
    assert_has(true, "# UNIT fovea_worker_busy_seconds seconds");
    assert_has(true, "fovea_worker_busy_seconds_total 0");
    assert_has(true, "# EOF");
    assert_has(false, "# TYPE fovea_worker_busy_seconds_total counter");
    assert_lacks(false, "# UNIT");
    assert_lacks(false, "# EOF");
}

Test(metrics, a_sampled_trace_is_the_exemplar_of_its_bucket_and_of_no_other) {
    static const char id[] = "01020300000000000000000000000000";
    char words[200];
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    fv_metric_observe(FV_METRIC_TTFT, 0, 0.3, &unsampled);
    assert_lacks(true, id);
    fv_metric_observe(FV_METRIC_TTFT, 0, 0.4, &traced);
    snprintf(words, sizeof words,
             "fovea_time_to_first_token_seconds_bucket{le=\"0.5\"} 2 # {trace_id=\"%s\"} 0.4 ", id);
    char *text = print(true);
    const char *at = strstr(text, id);
    cr_assert_not_null(strstr(text, words), "%s", text);
    cr_assert_null(strstr(at + 1, id));
    free(text);
    assert_lacks(false, id);
}

/* ---- threads ---------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 2000 };

static void *record(void *arg) {
    fv_trace_context t = {{(uint8_t)(intptr_t)arg}, {1}, true};
    memset(t.trace_id, (int)(intptr_t)arg, sizeof t.trace_id);
    for (int i = 0; i < ROUNDS; i++) {
        fv_metric_add(FV_METRIC_REPLAYS, 0, 1);
        fv_metric_observe(FV_METRIC_TTFT, 0, 0.5, &t);
    }
    return NULL;
}

Test(metrics, threads_lose_nothing_and_exemplars_are_whole) {
    pthread_t thread[THREADS];
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, record, (void *)(0x11 * (i + 1)));
    for (int i = 0; i < 20; i++) {
        char *text = print(true), *id = strstr(text, "trace_id=\"");
        for (int j = 2; id && j < 2 * FV_TRACE_ID_BYTES; j++) cr_assert_eq(id[10], id[10 + j]);
        free(text);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_has(false, "fovea_replays_total 8000");
    assert_has(false, "fovea_time_to_first_token_seconds_count 8000");
    assert_has(false, "fovea_time_to_first_token_seconds_sum 4000");
}
