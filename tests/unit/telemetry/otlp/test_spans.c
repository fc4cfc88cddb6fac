/* telemetry/otlp/spans.c: spans recorded, sent and dropped. e2e/traces tests that collectors read
 * them. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/clock.h"
#include "otlp.pb-c.h"
#include "telemetry/metrics.h"
#include "telemetry/otlp/spans.h"
#include "tests/support/net.h"

#define EXPORT "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

static const fv_trace_context sampled = {{1, 2, 3}, {4, 5}, true}, unsampled = {{1, 2}, {4}, false};

static net r;

/* A collector in this process. */
static struct {
    int32_t exports, spans;
    int64_t rejects; /* of each export */
    fv_status fails; /* each export, with this status */
    bool mute;       /* does not answer */
    char first[64];  /* the name of the last export's first span */
    uint8_t trace_id[16], id[8], parent[8];
    size_t n_parent, n_field;
    uint64_t begin_ns, end_ns;
    int error;
} got;

static void note(const Fovea__Otlp__V1__Span *s) {
    snprintf(got.first, sizeof got.first, "%s", s->name);
    cr_assert_eq(s->trace_id.len, sizeof got.trace_id);
    cr_assert_eq(s->span_id.len, sizeof got.id);
    memcpy(got.trace_id, s->trace_id.data, sizeof got.trace_id);
    memcpy(got.id, s->span_id.data, sizeof got.id);
    got.n_parent = s->parent_span_id.len;
    if (got.n_parent) memcpy(got.parent, s->parent_span_id.data, sizeof got.parent);
    got.n_field = s->n_attributes;
    got.begin_ns = s->start_time_unix_nano;
    got.end_ns = s->end_time_unix_nano;
    got.error = s->status ? (int)s->status->code : 0;
}

static fv_status on_export(fv_rpc_call *c, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__otlp__v1__export_request__descriptor, message, &m));
    const Fovea__Otlp__V1__ExportRequest *q = (const Fovea__Otlp__V1__ExportRequest *)m;
    const Fovea__Otlp__V1__ScopeSpans *s = q->resource_spans[0]->scope_spans[0];
    got.exports++;
    got.spans += (int32_t)s->n_spans;
    note(s->spans[0]);
    if (got.mute) return FV_OK;
    if (got.fails != FV_OK) return FV_FAIL(got.fails, "not now");
    Fovea__Otlp__V1__ExportReply reply = FOVEA__OTLP__V1__EXPORT_REPLY__INIT;
    Fovea__Otlp__V1__PartialSuccess part = FOVEA__OTLP__V1__PARTIAL_SUCCESS__INIT;
    part.rejected_spans = got.rejects;
    if (got.rejects) reply.partial_success = &part;
    fv_rpc_call_finish(c, fv_rpc_call_send(c, &reply.base));
    return FV_OK;
}

static void open_with(const char *collector, double sample) {
    static const fv_rpc_method methods[] = {
        {.path = EXPORT, .message_max = 16 << 20, .events = {.on_message = on_export}}};
    r = (net){.services = {{methods, 1, NULL, NULL}}, .n_service = 1};
    net_open(&r);
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    fv_spans_options opt = {.bridge = r.bridge,
                            .collector = collector ? collector : r.target,
                            .service = "test",
                            .instance = "one",
                            .sample = sample};
    cr_assert_eq(fv_spans_open(&opt), FV_OK);
}

static void on_closed(void *user) { *(bool *)user = true; }

static void close_all(void) {
    bool closed = false;
    fv_spans_close(on_closed, &closed);
    net_wait(&r, &closed);
    net_close(&r, 0);
    fv_metrics_close();
}

static double metric(int32_t outcome) {
    char line[64], *text;
    size_t n, n_line;
    FILE *f = open_memstream(&text, &n);
    fv_metrics_print(f, false);
    fclose(f);
    n_line = (size_t)snprintf(line, sizeof line, "fovea_spans_total{outcome=\"%s\"} ",
                              outcome == FV_EXPORT_SENT ? "sent" : "dropped");
    const char *at = strstr(text, line);
    cr_assert_not_null(at);
    double value = strtod(at + n_line, NULL);
    free(text);
    return value;
}

static void wait_metric(int32_t outcome, double at_least) {
    for (int i = 0; i < 1000 && metric(outcome) < at_least; i++) net_sleep(&r, 10);
    cr_assert_geq(metric(outcome), at_least);
}

static void record(const char *name, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        fv_span s = fv_span_begin(name, FV_SPAN_SERVER, &sampled, fv_clock_s());
        fv_span_end(&s, fv_clock_s(), 0, NULL, 0);
    }
}

TestSuite(spans, .timeout = 240);

Test(spans, without_a_collector_nothing_is_recorded_and_traces_go_on) {
    fv_span s = fv_span_begin("x", FV_SPAN_SERVER, &sampled, 1);
    cr_assert_not(s.recorded);
    cr_assert_eq(memcmp(&s.context, &sampled, sizeof sampled), 0);
    fv_span_end(&s, 2, 0, NULL, 0);
    fv_span_stage(&s, "y", 1, 2, NULL, 0);
    fv_trace_context none = fv_span_new_trace();
    cr_assert_not(fv_trace_known(&none));
    bool closed = false;
    fv_spans_close(on_closed, &closed);
    cr_assert(closed);
}

Test(spans, a_span_arrives_as_it_was_recorded) {
    open_with(NULL, 1);
    const fv_span_field fields[] = {
        {"text", .text = "a"}, {"number", .number = -5}, {"empty", .text = ""}};
    double now_s = fv_clock_s(), unix_s = fv_clock_unix_s();
    fv_span s = fv_span_begin("x", FV_SPAN_CLIENT, &sampled, now_s - 2);
    cr_assert(s.recorded && s.context.sampled);
    cr_assert_neq(memcmp(s.context.span_id, sampled.span_id, FV_SPAN_ID_BYTES), 0);
    fv_span_end(&s, now_s - 1, 14, FV_SPAN_FIELDS(fields));
    net_wait_for(&r, &got.spans, 1);
    cr_assert_str_eq(got.first, "x");
    cr_assert_eq(memcmp(got.trace_id, sampled.trace_id, 16), 0);
    cr_assert_eq(memcmp(got.id, s.context.span_id, 8), 0);
    cr_assert_eq(memcmp(got.parent, sampled.span_id, 8), 0);
    cr_assert_eq(got.n_field, 3); /* two, and the call's status */
    cr_assert_eq(got.error, 2);
    cr_assert_float_eq(1e-9 * (double)got.begin_ns, unix_s - 2, 0.1);
    cr_assert_float_eq(1e-9 * (double)(got.end_ns - got.begin_ns), 1, 1e-5);
    wait_metric(FV_EXPORT_SENT, 1);
    close_all();
}

Test(spans, an_error_of_a_client_is_none_of_a_server) {
    static const struct {
        fv_span_kind kind;
        int code, error;
    } cases[] = {{FV_SPAN_SERVER, 0, 0},  {FV_SPAN_SERVER, 3, 0}, {FV_SPAN_SERVER, 13, 2},
                 {FV_SPAN_SERVER, 16, 0}, {FV_SPAN_CLIENT, 3, 2}, {FV_SPAN_CLIENT, 0, 0}};
    open_with(NULL, 1);
    for (int32_t i = 0; i < (int32_t)(sizeof cases / sizeof *cases); i++) {
        fv_span s = fv_span_begin("x", cases[i].kind, &sampled, fv_clock_s());
        fv_span_end(&s, fv_clock_s(), cases[i].code, NULL, 0);
        net_wait_for(&r, &got.spans, i + 1);
        cr_assert_eq(got.error, cases[i].error, "case %d", i);
    }
    close_all();
}

Test(spans, what_is_not_sampled_or_did_not_happen_is_not_recorded) {
    open_with(NULL, 1);
    fv_span s = fv_span_begin("x", FV_SPAN_SERVER, &unsampled, 1);
    cr_assert_not(s.recorded);
    cr_assert_eq(memcmp(&s.context, &unsampled, sizeof unsampled), 0);
    fv_span_end(&s, 2, 0, NULL, 0);
    fv_span on = fv_span_begin("on", FV_SPAN_SERVER, &sampled, fv_clock_s());
    fv_span_stage(&on, "did not happen", 0, 2, NULL, 0);
    fv_span_stage(&on, "did not end", 5, 0, NULL, 0);
    fv_span_end(&on, fv_clock_s(), 0, NULL, 0);
    close_all();
    cr_assert_eq(got.spans, 1);
    cr_assert_str_eq(got.first, "on");
}

Test(spans, a_new_trace_has_no_parent_and_is_drawn_by_its_share) {
    enum { N = 4000 };
    int32_t n = 0;
    open_with(NULL, 0.25);
    for (int i = 0; i < N; i++) {
        fv_trace_context t = fv_span_new_trace();
        if (!t.sampled) continue;
        if (n++ > 0) continue;
        fv_span s = fv_span_begin("first", FV_SPAN_SERVER, &t, fv_clock_s());
        fv_span_end(&s, fv_clock_s(), 0, NULL, 0);
    }
    cr_assert_float_eq((double)n / N, 0.25, 0.05); /* seven standard deviations */
    close_all();
    cr_assert_eq(got.spans, 1);
    cr_assert_eq(got.n_parent, 0);
}

Test(spans, as_many_as_an_export_holds_do_not_wait_for_the_timer) {
    open_with(NULL, 1);
    record("x", FV_SPANS_EXPORT);
    cr_assert_eq(got.exports, 0);
    net_wait_for(&r, &got.spans, FV_SPANS_EXPORT);
    cr_assert_eq(got.exports, 1);
    close_all();
}

Test(spans, those_beyond_the_limit_are_dropped_while_a_collector_is_slow) {
    open_with(NULL, 1);
    got.mute = true;
    record("first", FV_SPANS_EXPORT);
    net_wait_for(&r, &got.exports, 1);
    record("second", FV_SPANS_MAX + 7);
    cr_assert_eq(metric(FV_EXPORT_DROPPED), 7);
    net_sleep(&r, 1);
    cr_assert_eq(got.exports, 1); /* one at a time */
    close_all();
}

Test(spans, those_of_a_failed_export_are_dropped_and_later_ones_sent) {
    open_with(NULL, 1);
    got.fails = FV_EIO;
    record("first", 3);
    wait_metric(FV_EXPORT_DROPPED, 3);
    got.fails = FV_OK;
    record("second", 2);
    wait_metric(FV_EXPORT_SENT, 2);
    cr_assert_eq(metric(FV_EXPORT_DROPPED), 3);
    cr_assert_str_eq(got.first, "second");
    close_all();
}

Test(spans, what_a_collector_rejects_is_dropped) {
    open_with(NULL, 1);
    got.rejects = 2;
    record("x", 5);
    wait_metric(FV_EXPORT_SENT, 3);
    cr_assert_eq(metric(FV_EXPORT_DROPPED), 2);
    close_all();
}

Test(spans, the_end_sends_what_waits) {
    open_with(NULL, 1);
    record("last", 2);
    close_all();
    cr_assert_eq(got.spans, 2);
}

Test(spans, the_end_does_not_wait_for_a_collector_that_is_away) {
    open_with("127.0.0.1:1", 1);
    record("last", 2);
    double begin_s = fv_clock_s();
    close_all();
    cr_assert_lt(fv_clock_s() - begin_s, 10);
}

Test(spans, an_address_that_is_none_is_refused) {
    fv_spans_options opt = {.collector = "collector"};
    cr_assert_eq(fv_spans_open(&opt), FV_EINVAL);
}
