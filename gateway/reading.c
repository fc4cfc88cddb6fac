/* Reads a request's body. A reading may end at any time: `held` owns what has been decoded so
 * far. */
#include "gateway/reading.h"

#include <stdio.h>

#include "common/clock.h"
#include "gateway/internal.h"

enum { FULL_RETRY_MS = 1000 };

static void close_reader(fv_reading *r) {
    if (!r->reader) return;
    fv_api_reader_close(r->reader);
    r->reader = NULL;
    r->held->bytes = r->request->bytes;
    r->request->bytes = NULL;
}

void fv_reading_end(fv_reading *r) {
    fv_caller_question_free(r->question);
    r->question = NULL;
    close_reader(r);
    fv_request_memory_unref(r->held);
    r->held = NULL;
    if (r->bytes > 0) r->gateway->bodies -= r->bytes;
    r->bytes = 0;
}

static void refuse(fv_reading *r, fv_status st) {
    char param[FV_API_PARAM_MAX] = "";
    if (r->reader) snprintf(param, sizeof param, "%s", fv_api_reader_param(r->reader));
    fv_reply_last_error(r->http, st, param);
    fv_reading_end(r);
}

/* ---- the body ---------------------------------------------------------------------------- */

void fv_reading_complete(fv_reading *r) {
    fv_status st = fv_api_reader_end(r->reader);
    if (st != FV_OK) {
        refuse(r, st);
        return;
    }
    close_reader(r);
    fv_ignored_note(r->gateway->ignored, *r->tenant ? r->tenant : fv_http_client(r->http),
                    r->request, fv_clock_s());
    r->done(r->user);
}

static void take_piece(fv_reading *r, const char *bytes, size_t n) {
    if (n > r->gateway->opt.bodies_max - r->gateway->bodies) {
        fv_reply_error(r->http, FV_EIO, "too many large requests are being read; try again later",
                       "", FULL_RETRY_MS);
        fv_reading_end(r);
        return;
    }
    r->gateway->bodies += n;
    r->bytes += n;
    fv_status st = fv_api_reader_feed(r->reader, bytes, n);
    if (st != FV_OK) refuse(r, st);
}

static void on_piece(void *user, fv_http_request *http, const char *bytes, size_t n) {
    const fv_gateway_task *t = fv_http_user(http);
    (void)user;
    take_piece(t->reading, bytes, n);
}

static fv_status open_reader(fv_reading *r) {
    const fv_api_reader_options opt = {.kind = r->kind,
                                       .policy = fv_http_header(r->http, "x-fovea-policy"),
                                       .json_max = r->gateway->opt.json_max,
                                       .strict = r->gateway->opt.strict_fields,
                                       .chat_templates = r->gateway->opt.chat_templates};
    FV_TRY(fv_request_memory_open(&r->held));
    return fv_api_reader_open(&opt, &r->held->arena, r->request, &r->reader);
}

static void read_body(fv_reading *r) {
    fv_status st = open_reader(r);
    if (st != FV_OK) {
        refuse(r, st);
        return;
    }
    fv_http_take_body(r->http, on_piece);
    fv_http_read_body(r->http);
}

/* ---- the caller -------------------------------------------------------------------------- */

static void note_tenant(fv_reading *r, const char *tenant) {
    fv_gateway_task *t = fv_http_user(r->http);
    snprintf(r->tenant, sizeof r->tenant, "%s", tenant);
    snprintf(t->facts.tenant, sizeof t->facts.tenant, "%s", tenant);
}

static void on_caller(void *user, const fv_rpc_end *end, const char *tenant) {
    fv_reading *r = user;
    if (end->status == FV_OK) {
        note_tenant(r, tenant);
        fv_caller_question_free(r->question);
        r->question = NULL;
        read_body(r);
        return;
    }
    fv_reply_error(r->http, end->status, fv_end_text(end), "", end->retry_ms);
    fv_reading_end(r);
}

static const char *method_of(fv_api_kind kind) {
    return kind == FV_API_TOKENS ? "Tokenize" : kind == FV_API_IDS ? "Detokenize" : "Generate";
}

void fv_reading_begin(fv_reading *r, fv_gateway *g, fv_http_request *http, fv_api_kind kind,
                      fv_api_request *request, void (*done)(void *user), void *user) {
    *r = (fv_reading){
        .gateway = g, .http = http, .kind = kind, .request = request, .done = done, .user = user};
    char tenant[FV_TENANT_NAME_MAX + 1] = "";
    if (!fv_gateway_caller(g, http, &r->caller, &r->n_caller)) return;
    fv_status st = fv_caller_ask(g, method_of(kind), fv_http_client(http), &r->caller, r->n_caller,
                                 on_caller, r, tenant, &r->question);
    if (st != FV_OK) {
        refuse(r, st);
    } else if (!r->question) {
        note_tenant(r, tenant);
        read_body(r);
    }
}
