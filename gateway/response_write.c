/* Writes an answer as a response: parts become items, and in a stream each step is an event. The order is
 * OpenAI's:
 *
 *   response.created, response.in_progress
 *   for each item: output_item.added [content_part.added, deltas, done, content_part.done] output_item.done
 *   response.completed, .incomplete or .failed */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "common/log.h"
#include "common/random.h"
#include "gateway/api/message_json.h"
#include "gateway/response.h"

static bool streams(const fv_responding *r) { return r->answer->request.stream; }

/* Sends an event; takes its members. */
static void emit(fv_responding *r, const char *type, json_t *members) {
    if (streams(r)) {
        json_object_set_new(members, "type", json_string(type));
        json_object_set_new(members, "sequence_number", json_integer(r->n_event++));
        fv_answer_send_event(r->answer, type, members);
    } else {
        json_decref(members);
    }
}

json_t *fv_responding_json(const fv_responding *r, const char *status, json_t *error,
                           const fv_api_usage *usage) {
    return fv_api_response(&r->answer->names, r->echo, status, json_copy(r->output), error, usage);
}

static void begin(fv_choice *c) {
    fv_responding *r = c->answer->responding;
    r->announced = true;
    emit(r, "response.created",
         json_pack("{s:o}", "response", fv_responding_json(r, "in_progress", NULL, NULL)));
    emit(r, "response.in_progress",
         json_pack("{s:o}", "response", fv_responding_json(r, "in_progress", NULL, NULL)));
}

/* ---- items ------------------------------------------------------------------------------- */

static int number(const fv_responding *r) { return (int)json_array_size(r->output); }

static fv_status name_item(fv_responding *r, const char *prefix) {
    uint64_t n[2];
    FV_TRY(fv_random_bytes(n, sizeof n));
    snprintf(r->item_id, sizeof r->item_id, "%s_%016llx%016llx", prefix, (unsigned long long)n[0],
             (unsigned long long)n[1]);
    return FV_OK;
}

static json_t *item_json(const fv_responding *r, bool done) {
    const char *text = r->text ? r->text : "";
    return r->item == FV_RESPONSE_MESSAGE
               ? fv_api_item_message(r->item_id, done, text, r->n, r->logprobs)
               : fv_api_item_reasoning(r->item_id, done, text, r->n);
}

static void send_item(fv_responding *r, const char *type, json_t *item) {
    emit(r, type, json_pack("{s:i, s:o}", "output_index", number(r), "item", item));
}

/* The members that all events of a part have. */
static json_t *place(const fv_responding *r) {
    return json_pack("{s:s, s:i, s:i}", "item_id", r->item_id, "output_index", number(r),
                     "content_index", 0);
}

static void send_content(fv_responding *r, const char *type, const char *text, size_t n) {
    json_t *members = place(r);
    json_object_set_new(members, "part",
                        fv_api_content(r->item == FV_RESPONSE_REASONING, text, n, r->logprobs));
    emit(r, type, members);
}

static json_t *all_logprobs(const fv_responding *r) {
    return r->logprobs ? json_incref(r->logprobs) : json_array();
}

/* Sends a delta ("delta"), with the entries that waited for it, or the whole text ("text"). */
static void send_text(fv_responding *r, const char *key, const char *text, size_t n) {
    const bool thought = r->item == FV_RESPONSE_REASONING, delta = strcmp(key, "delta") == 0;
    json_t *members = place(r);
    json_object_set_new(members, key, fv_json_text(text, n));
    if (!thought)
        json_object_set_new(members, "logprobs",
                            delta ? fv_responding_take_logprobs(r) : all_logprobs(r));
    emit(r,
         thought ? delta ? "response.reasoning_text.delta" : "response.reasoning_text.done"
         : delta ? "response.output_text.delta"
                 : "response.output_text.done",
         members);
}

static fv_status open_item(fv_responding *r, fv_response_item item) {
    FV_TRY(name_item(r, item == FV_RESPONSE_MESSAGE ? "msg" : "rs"));
    r->item = item;
    r->n = 0;
    send_item(r, "response.output_item.added", item_json(r, false));
    send_content(r, "response.content_part.added", "", 0);
    return FV_OK;
}

/* status: NULL: as it is */
static fv_status add_item(fv_responding *r, json_t *item, const char *status) {
    if (status) json_object_set_new(item, "status", json_string(status));
    if (!item) return FV_FAIL(FV_ENOMEM, "out of memory for a response");
    send_item(r, "response.output_item.done", json_incref(item));
    return json_array_append_new(r->output, item) == 0
               ? FV_OK
               : FV_FAIL(FV_ENOMEM, "out of memory for a response");
}

static fv_status close_item(fv_responding *r, const char *status) {
    const char *text = r->text ? r->text : "";
    if (r->item == FV_RESPONSE_NO_ITEM) return FV_OK;
    send_text(r, "text", text, r->n);
    send_content(r, "response.content_part.done", text, r->n);
    json_t *item = item_json(r, true);
    r->item = FV_RESPONSE_NO_ITEM;
    json_decref(r->logprobs);
    r->logprobs = NULL;
    return add_item(r, item, status);
}

static fv_status write_text(fv_responding *r, fv_response_item item, const char *text) {
    const size_t n = strlen(text);
    if (n == 0) return FV_OK;
    if (item == FV_RESPONSE_REASONING) fv_responding_drop_logprobs(r);
    if (r->item != item) {
        FV_TRY(close_item(r, NULL));
        FV_TRY(open_item(r, item));
    }
    FV_TRY(fv_grow(&r->text, &r->cap, r->n + n + 1, 1));
    memcpy(r->text + r->n, text, n + 1);
    r->n += n;
    r->answer->n_kept += n;
    send_text(r, "delta", text, n);
    return FV_OK;
}

static fv_status write_call(fv_responding *r, const fv_api_call *call) {
    const char *arguments = call->arguments;
    fv_responding_drop_logprobs(r);
    FV_TRY(close_item(r, NULL));
    FV_TRY(name_item(r, "fc"));
    send_item(r, "response.output_item.added", fv_api_item_call(r->item_id, false, call));
    emit(r, "response.function_call_arguments.delta",
         json_pack("{s:s, s:i, s:o}", "item_id", r->item_id, "output_index", number(r), "delta",
                   fv_json_text(arguments, strlen(arguments))));
    emit(r, "response.function_call_arguments.done",
         json_pack("{s:s, s:i, s:s, s:o}", "item_id", r->item_id, "output_index", number(r), "name",
                   call->name, "arguments", fv_json_text(arguments, strlen(arguments))));
    return add_item(r, fv_api_item_call(r->item_id, true, call), NULL);
}

static bool is_cut(const fv_choice *c) {
    return c->reason == FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH;
}

/* An answer without anything is an empty message. The end of the sequence has no text. */
static fv_status finish(fv_responding *r, const char *status) {
    fv_responding_drop_logprobs(r);
    if (r->item == FV_RESPONSE_NO_ITEM && number(r) == 0) FV_TRY(open_item(r, FV_RESPONSE_MESSAGE));
    return close_item(r, status);
}

static fv_status part(fv_choice *c, const fv_api_choice *p) {
    fv_responding *r = c->answer->responding;
    if (p->logprobs) FV_TRY(fv_responding_hold_logprobs(r, p->logprobs));
    if (p->thought) FV_TRY(write_text(r, FV_RESPONSE_REASONING, p->thought));
    if (p->text) FV_TRY(write_text(r, FV_RESPONSE_MESSAGE, p->text));
    if (p->calls && p->call_begins) FV_TRY(write_call(r, p->calls));
    return p->finish ? finish(r, is_cut(c) ? "incomplete" : NULL) : FV_OK;
}

/* ---- the end ----------------------------------------------------------------------------- */

/* Takes the response. */
static void reply(fv_responding *r, const char *event, json_t *json) {
    fv_answer *a = r->answer;
    if (streams(r)) {
        emit(r, event, json_pack("{s:o}", "response", json));
        fv_answer_end_stream(a, "");
    } else {
        a->over = true;
        fv_reply_json(a->http, 200, json);
    }
}

/* The store has it, or does not: the response says so. */
static void on_put(void *user, fv_status st, fv_kept_response *none) {
    fv_responding *r = user;
    json_t *json = r->whole;
    (void)none;
    r->putting = NULL;
    r->whole = NULL;
    if (st != FV_OK) {
        FV_LOG(WARN, WIRE, "event=response-not-kept id=%s reason=\"%s\"", r->answer->names.id,
               fv_last_error());
        json_object_set_new(json, "store", json_false());
    }
    reply(r, r->event, json);
}

/* Begins to keep it elsewhere, with the answer to follow; takes json. */
static void keep_elsewhere(fv_responding *r, const char *event, json_t *json) {
    const fv_gateway *g = r->answer->gateway;
    r->ending = true;
    r->whole = json;
    r->event = event;
    fv_status st =
        fv_response_remote_put(g->remote, r->kept, g->opt.responses.ms, on_put, r, &r->putting);
    if (st != FV_OK) on_put(r, st, NULL);
}

static void end(fv_answer *a, const char *status, const char *event) {
    fv_responding *r = a->responding;
    json_t *json;
    fv_status st = fv_responding_end(r, status, &json);
    if (st != FV_OK)
        fv_answer_refuse(a, st, "");
    else if (a->gateway->remote && r->kept)
        keep_elsewhere(r, event, json);
    else
        reply(r, event, json);
}

static void complete(fv_answer *a) {
    const bool cut = is_cut(&a->choices[0]);
    end(a, cut ? "incomplete" : "completed", cut ? "response.incomplete" : "response.completed");
}

json_t *fv_responding_cancel(fv_responding *r) {
    fv_answer *a = r->answer;
    json_t *json = NULL;
    if (streams(r)) {
        fv_answer_begin_stream(a);
        if (!r->announced) begin(&a->choices[0]);
    }
    fv_status st = finish(r, "incomplete");
    if (st == FV_OK) st = fv_responding_end(r, "cancelled", &json);
    if (st != FV_OK) {
        fv_answer_refuse(a, st, "");
        return NULL;
    }
    if (a->gateway->remote && r->kept) { /* nobody waits for it */
        fv_response_remote_op *op;
        st = fv_response_remote_put(a->gateway->remote, r->kept, a->gateway->opt.responses.ms, NULL,
                                    NULL, &op);
        if (st != FV_OK) json_object_set_new(json, "store", json_false());
    }
    reply(r, "response.incomplete", json_incref(json));
    fv_answer_cancel_calls(a);
    return json;
}

/* The error of a response has one of two codes; a stream whose response has not begun has an error
 * alone. */
static void fail(fv_answer *a, fv_status st, const char *why, const char *param) {
    fv_responding *r = a->responding;
    json_t *error =
        json_pack("{s:s, s:o}", "code", st == FV_EBUSY ? "rate_limit_exceeded" : "server_error",
                  "message", fv_json_text(why, strlen(why)));
    if (r && r->announced) {
        emit(r, "response.failed",
             json_pack("{s:o}", "response", fv_responding_json(r, "failed", error, NULL)));
    } else {
        json_object_set_new(error, "type", json_string("error"));
        json_object_set_new(error, "param", *param ? json_string(param) : json_null());
        json_object_set_new(error, "sequence_number", json_integer(0));
        fv_answer_send_event(a, "error", error);
    }
    fv_answer_end_stream(a, "");
}

const fv_output fv_response_output = {.name = "response",
                                      .prefix = "resp_",
                                      .prepare = fv_responding_begin,
                                      .begin = begin,
                                      .part = part,
                                      .complete = complete,
                                      .fail = fail,
                                      .takes_parts = true};
