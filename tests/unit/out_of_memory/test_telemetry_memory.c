/* Metrics and traces allocate nothing per token; only our own code's allocations are counted
 * (support/alloc_fail.h). */
#include <criterion/criterion.h>

#include "common/clock.h"
#include "router/record.h"
#include "telemetry/otlp/spans.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/net.h"

enum { TOKENS = 1000 };

static const fv_trace_context sampled = {{1, 2, 3}, {4, 5}, true};

static void on_closed(void *user) { *(bool *)user = true; }

Test(telemetry_memory, a_token_is_recorded_without_an_allocation, .timeout = 240) {
    net r = {0};
    double token_s = fv_clock_s();
    bool closed = false;
    net_open(&r);
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    cr_assert_eq(fv_spans_open(&(fv_spans_options){
                     .bridge = r.bridge, .collector = r.target, .service = "t", .instance = "t"}),
                 FV_OK);
    fv_span span = fv_span_begin("Generate", FV_SPAN_SERVER, &sampled, token_s);
    cr_assert(span.recorded);
    alloc_fail_begin(1);
    for (int i = 0; i < TOKENS; i++) {
        double now_s = fv_clock_s();
        fv_record_tokens(1, i == 0, now_s - token_s, &span.context);
        token_s = now_s;
    }
    cr_assert_not(alloc_fail_end(), "a token takes memory");
    /* The counter works: it sees the allocation of the request's span. */
    alloc_fail_begin(1);
    fv_span_end(&span, fv_clock_s(), 0, NULL, 0);
    cr_assert(alloc_fail_end());
    fv_spans_close(on_closed, &closed);
    net_wait(&r, &closed);
    net_close(&r, 0);
    fv_metrics_close();
}
