/* Spans as OTLP messages in an arena, and their exports: one at a time, while the next spans are
 * recorded. */
#include "telemetry/otlp/spans.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "common/version.h"
#include "otlp.pb-c.h"
#include "rpc/listen.h"
#include "rpc/message.h"
#include "telemetry/metrics.h"

enum { QUEUE_MAX = 32 << 20, N_RESOURCE = 3 };

typedef Fovea__Otlp__V1__Span span_message;
typedef Fovea__Otlp__V1__KeyValue key_value;
typedef Fovea__Otlp__V1__Value value_message;

static struct {
    bool on;
    fv_spans_options opt;
    char instance[256];
    fv_rpc_channel *channel;
    uv_timer_t timer;
    fv_arena arena; /* of the waiting spans */
    span_message *waiting[FV_SPANS_MAX];
    int32_t n_waiting;
    double unix_s;       /* 1970 by fv_clock_s, for the waiting spans; 0: not read yet */
    uint8_t random[512]; /* for ids; refilled by one system call */
    size_t n_random;     /* bytes left in it */
    fv_rpc_call *call;   /* the export in progress; NULL: none */
    int32_t n_exported;  /* spans in that export */
    bool failing, closing;
    void (*closed)(void *user);
    void *closed_user;
} spans;

static void count(int32_t outcome, int64_t n) {
    if (n > 0) fv_metric_add(FV_METRIC_SPANS, outcome, (double)n);
}

/* ---- recording -------------------------------------------------------------------------- */

typedef struct stored_span {
    span_message message;
    Fovea__Otlp__V1__Status status;
    fv_trace_context context;
    uint8_t parent[FV_SPAN_ID_BYTES];
} stored_span;

typedef struct stored_field {
    key_value field;
    value_message value;
} stored_field;

static fv_status store_field(const fv_span_field *in, span_message *out, stored_field *field) {
    fovea__otlp__v1__key_value__init(&field->field);
    fovea__otlp__v1__value__init(&field->value);
    field->field.key = (char *)(uintptr_t)in->key;
    field->field.value = &field->value;
    if (in->text) {
        field->value.value_case = FOVEA__OTLP__V1__VALUE__VALUE_STRING_VALUE;
        FV_TRY(
            fv_arena_strndup(&spans.arena, in->text, strlen(in->text), &field->value.string_value));
    } else {
        field->value.value_case = FOVEA__OTLP__V1__VALUE__VALUE_INT_VALUE;
        field->value.int_value = in->number;
    }
    out->attributes[out->n_attributes++] = &field->field;
    return FV_OK;
}

static fv_status store_fields(const fv_span_field *in, int32_t n, int code, span_message *out) {
    stored_field *field;
    fv_span_field status = {.key = "rpc.grpc.status_code", .number = code};
    FV_TRY(FV_ARENA_NEW(&spans.arena, n + 1, out->attributes));
    FV_TRY(FV_ARENA_NEW(&spans.arena, n + 1, field));
    for (int32_t i = 0; i < n; i++)
        if (!in[i].text || in[i].text[0]) FV_TRY(store_field(&in[i], out, field++));
    return code < 0 ? FV_OK : store_field(&status, out, field);
}

/* Returns whether a status counts as an error; for a server only if it is the server's fault
 * (OpenTelemetry's conventions for gRPC). */
static bool is_error(fv_span_kind kind, int code) {
    static const unsigned of_server = 1u << GRPC_STATUS_UNKNOWN | 1u << GRPC_STATUS_INTERNAL |
                                      1u << GRPC_STATUS_DEADLINE_EXCEEDED |
                                      1u << GRPC_STATUS_UNIMPLEMENTED |
                                      1u << GRPC_STATUS_UNAVAILABLE | 1u << GRPC_STATUS_DATA_LOSS;
    return code > 0 && (kind != FV_SPAN_SERVER || (code < 32 && (of_server >> code & 1)));
}

static uint64_t unix_ns(double s) { return (uint64_t)(1e9 * (spans.unix_s + s)); }

static fv_status store(const fv_span *s, double end_s, int code, const fv_span_field *fields,
                       int32_t n_field) {
    stored_span *x;
    FV_TRY(FV_ARENA_NEW(&spans.arena, 1, x));
    span_message *m = &x->message;
    fovea__otlp__v1__span__init(m);
    fovea__otlp__v1__status__init(&x->status);
    x->context = s->context;
    memcpy(x->parent, s->parent, sizeof x->parent);
    m->trace_id = (ProtobufCBinaryData){sizeof x->context.trace_id, x->context.trace_id};
    m->span_id = (ProtobufCBinaryData){sizeof x->context.span_id, x->context.span_id};
    static const uint8_t none[FV_SPAN_ID_BYTES];
    if (memcmp(s->parent, none, sizeof none) != 0)
        m->parent_span_id = (ProtobufCBinaryData){sizeof x->parent, x->parent};
    m->name = (char *)(uintptr_t)s->name;
    m->kind = (Fovea__Otlp__V1__SpanKind)s->kind;
    m->start_time_unix_nano = unix_ns(s->begin_s);
    m->end_time_unix_nano = unix_ns(end_s);
    if (is_error(s->kind, code)) {
        x->status.code = FOVEA__OTLP__V1__STATUS_CODE__STATUS_CODE_ERROR;
        m->status = &x->status;
    }
    FV_TRY(store_fields(fields, n_field, code, m));
    spans.waiting[spans.n_waiting++] = m;
    return FV_OK;
}

static void export_spans(void);

void fv_span_end(const fv_span *s, double end_s, int code, const fv_span_field *fields,
                 int32_t n_field) {
    if (!s->recorded || !spans.on) return;
    if (spans.n_waiting == 0) spans.unix_s = fv_clock_unix_s() - fv_clock_s();
    if (spans.n_waiting == FV_SPANS_MAX || store(s, end_s, code, fields, n_field) != FV_OK)
        count(FV_EXPORT_DROPPED, 1);
    if (spans.n_waiting >= FV_SPANS_EXPORT) export_spans();
}

void fv_span_stage(const fv_span *of, const char *name, double begin_s, double end_s,
                   const fv_span_field *fields, int32_t n_field) {
    if (!of->recorded || begin_s == 0 || end_s < begin_s) return;
    fv_span s = fv_span_begin(name, FV_SPAN_INTERNAL, &of->context, begin_s);
    fv_span_end(&s, end_s, -1, fields, n_field);
}

static bool draw(uint8_t *out, size_t n) {
    if (spans.n_random < n) {
        if (fv_random_bytes(spans.random, sizeof spans.random) != FV_OK) return false;
        spans.n_random = sizeof spans.random;
    }
    spans.n_random -= n;
    memcpy(out, spans.random + spans.n_random, n);
    return true;
}

fv_span fv_span_begin(const char *name, fv_span_kind kind, const fv_trace_context *parent,
                      double begin_s) {
    fv_span s = {.name = name, .kind = kind, .context = *parent, .begin_s = begin_s};
    if (!spans.on || !parent->sampled) return s;
    memcpy(s.parent, parent->span_id, sizeof s.parent);
    s.recorded = draw(s.context.span_id, sizeof s.context.span_id);
    return s;
}

fv_trace_context fv_span_new_trace(void) {
    fv_trace_context t = {.sampled = true};
    uint64_t number;
    if (!spans.on || !draw(t.trace_id, sizeof t.trace_id)) return (fv_trace_context){0};
    memcpy(&number, t.trace_id + sizeof t.trace_id - sizeof number, sizeof number);
    t.sampled = (double)number < spans.opt.sample * 0x1p64;
    /* A span id without a span, so that callees do not draw again. */
    if (!t.sampled && !draw(t.span_id, sizeof t.span_id)) return (fv_trace_context){0};
    return t;
}

/* ---- exports ---------------------------------------------------------------------------- */

static void maybe_closed(void) {
    if (!spans.closing || spans.call) return;
    spans.on = false;
    fv_rpc_channel_close(spans.channel);
    fv_arena_fini(&spans.arena);
    uv_close((uv_handle_t *)&spans.timer, NULL);
    if (spans.closed) spans.closed(spans.closed_user);
}

/* Logs once when exports begin to fail, and once when they work again. */
static void note_failure(const fv_rpc_end *end) {
    bool failed = end->status != FV_OK;
    if (failed && !spans.failing)
        FV_LOG(WARN, WIRE, "event=spans-dropped spans=%d collector=%s status=%s reason=\"%s\"",
               spans.n_exported, spans.opt.collector, fv_rpc_code_name(end->code), end->text);
    else if (!failed && spans.failing)
        FV_LOG(INFO, WIRE, "event=spans-sent-again collector=%s", spans.opt.collector);
    spans.failing = failed;
}

/* Number of spans that the collector has accepted. */
static int64_t taken(fv_rpc_call *call, grpc_byte_buffer *reply) {
    ProtobufCMessage *m;
    int64_t n = spans.n_exported;
    if (fv_rpc_call_unpack(call, &fovea__otlp__v1__export_reply__descriptor, reply, &m) != FV_OK)
        return n; /* the status was OK */
    const Fovea__Otlp__V1__PartialSuccess *p =
        ((const Fovea__Otlp__V1__ExportReply *)m)->partial_success;
    int64_t rejected = p && p->rejected_spans > 0 ? p->rejected_spans : 0;
    return rejected < n ? n - rejected : 0;
}

static void on_exported(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                        grpc_byte_buffer *reply) {
    (void)user;
    int64_t n = reply ? taken(call, reply) : 0;
    spans.call = NULL;
    count(FV_EXPORT_SENT, n);
    count(FV_EXPORT_DROPPED, spans.n_exported - n);
    note_failure(end);
    maybe_closed();
}

static fv_status send_spans(void) {
    static const char path[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    key_value attribute[N_RESOURCE], *attributes[N_RESOURCE];
    value_message value[N_RESOURCE];
    const char *const resource_of[N_RESOURCE][2] = {{"service.name", spans.opt.service},
                                                    {"service.version", fv_version()},
                                                    {"service.instance.id", spans.instance}};
    for (int i = 0; i < N_RESOURCE; i++) {
        fovea__otlp__v1__key_value__init(&attribute[i]);
        fovea__otlp__v1__value__init(&value[i]);
        attribute[i].key = (char *)(uintptr_t)resource_of[i][0];
        attribute[i].value = &value[i];
        value[i].value_case = FOVEA__OTLP__V1__VALUE__VALUE_STRING_VALUE;
        value[i].string_value = (char *)(uintptr_t)resource_of[i][1];
        attributes[i] = &attribute[i];
    }
    Fovea__Otlp__V1__Resource resource = FOVEA__OTLP__V1__RESOURCE__INIT;
    Fovea__Otlp__V1__Scope scope = FOVEA__OTLP__V1__SCOPE__INIT;
    Fovea__Otlp__V1__ScopeSpans of_scope = FOVEA__OTLP__V1__SCOPE_SPANS__INIT, *scopes = &of_scope;
    Fovea__Otlp__V1__ResourceSpans of_resource = FOVEA__OTLP__V1__RESOURCE_SPANS__INIT;
    Fovea__Otlp__V1__ResourceSpans *resources = &of_resource;
    Fovea__Otlp__V1__ExportRequest m = FOVEA__OTLP__V1__EXPORT_REQUEST__INIT;
    resource.n_attributes = N_RESOURCE;
    resource.attributes = attributes;
    scope.name = (char *)"fovea";
    scope.version = (char *)(uintptr_t)fv_version();
    of_scope.scope = &scope;
    of_scope.n_spans = (size_t)spans.n_waiting;
    of_scope.spans = spans.waiting;
    of_resource.resource = &resource;
    of_resource.n_scope_spans = 1;
    of_resource.scope_spans = &scopes;
    m.n_resource_spans = 1;
    m.resource_spans = &resources;
    fv_rpc_call_options opt = {.path = path,
                               .deadline_ms =
                                   spans.closing ? FV_SPANS_CLOSE_MS : FV_SPANS_DEADLINE_MS,
                               .request = &m.base,
                               .queue_max = QUEUE_MAX};
    return fv_rpc_unary_with(spans.channel, &opt, on_exported, NULL, &spans.call);
}

static void export_spans(void) {
    if (spans.call || spans.n_waiting == 0) return;
    spans.n_exported = spans.n_waiting;
    if (send_spans() != FV_OK) count(FV_EXPORT_DROPPED, spans.n_waiting);
    spans.n_waiting = 0; /* the message has copies */
    fv_arena_reset(&spans.arena);
}

static void on_timer(uv_timer_t *t) {
    (void)t;
    if (spans.closing && spans.call)
        fv_rpc_call_cancel(spans.call);
    else
        export_spans();
}

fv_status fv_spans_open(const fv_spans_options *opt) {
    fv_status st = fv_rpc_target_check(opt->collector);
    if (st != FV_OK) return fv_fail_prefix(st, "--otlp");
    memset(&spans, 0, sizeof spans);
    spans.opt = *opt;
    snprintf(spans.instance, sizeof spans.instance, "%s", opt->instance);
    fv_rpc_channel_options channel = {.tls = opt->tls};
    FV_TRY(fv_rpc_channel_open(opt->bridge, opt->collector, &channel, &spans.channel));
    uv_timer_init(fv_bridge_loop(opt->bridge), &spans.timer);
    uv_timer_start(&spans.timer, on_timer, FV_SPANS_EXPORT_MS, FV_SPANS_EXPORT_MS);
    spans.on = true;
    return FV_OK;
}

void fv_spans_close(void (*closed)(void *user), void *user) {
    if (!spans.on || spans.closing) {
        if (closed) closed(user);
        return;
    }
    spans.closing = true;
    spans.closed = closed;
    spans.closed_user = user;
    if (spans.call) /* an earlier export is still in progress: waiting spans are not sent */
        count(FV_EXPORT_DROPPED, spans.n_waiting);
    else
        export_spans();
    uv_timer_start(&spans.timer, on_timer, FV_SPANS_CLOSE_MS, 0);
    maybe_closed();
}
