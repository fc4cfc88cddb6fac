/* Gets what a request names but does not bring: images at URLs, the frames of videos, and what its
 * model is, which decides how frames are taken and in which form it calls tools. */
#include <stdlib.h>

#include "gateway/api/tool_schema.h"
#include "gateway/generate.h"

void fv_answer_forget_media(fv_answer *a) {
    fv_response_remote_drop(a->loading);
    a->loading = NULL;
    fv_kept_response_unref(a->previous);
    a->previous = NULL;
    for (int32_t i = 0; i < FV_API_URLS_MAX; i++) {
        fv_fetch_free(a->fetches[i].fetch);
        a->fetches[i].fetch = NULL;
    }
    fv_model_question_free(a->model);
    a->model = NULL;
    for (int32_t i = 0; i < FV_API_VIDEOS_MAX; i++) {
        fv_decoding_free(a->videos[i].work);
        a->videos[i].work = NULL;
    }
}

/* ---- videos ------------------------------------------------------------------------------ */

/* Puts the frames of each video into the request, last video first, because frames shift what
 * follows. */
static fv_status put_frames(fv_answer *a) {
    while (a->request.n_video > 0) {
        const fv_api_frames frames = fv_decoding_frames(a->videos[a->request.n_video - 1].work);
        FV_TRY(fv_api_put_frames(&a->request, &frames, &a->reading.held->arena));
    }
    return FV_OK;
}

static void on_decoded(void *user, fv_status st) {
    const fv_answer_video *d = user;
    fv_answer *a = d->answer;
    if (st == FV_OK && --a->n_decoding > 0) return;
    if (st == FV_OK) st = put_frames(a);
    if (st == FV_OK)
        fv_answer_begin_calls(a);
    else
        fv_answer_refuse(a, st, d->video->param);
}

static void begin_decoding(fv_answer *a, const fv_layout_config *layout) {
    a->n_decoding = a->request.n_video;
    for (int32_t i = 0; i < a->n_decoding; i++) {
        fv_answer_video *d = &a->videos[i];
        *d = (fv_answer_video){.answer = a, .video = &a->request.videos[i]};
        fv_status st =
            fv_decode_start(a->gateway, d->video, a->reading.held, layout, on_decoded, d, &d->work);
        if (st == FV_OK) continue;
        fv_answer_refuse(a, st, d->video->param);
        return;
    }
}

/* ---- the model --------------------------------------------------------------------------- */

/* Drops the other tools. */
static void keep_tool(fv_answer *a, const char *name) {
    json_t *one = json_pack("[O]", fv_api_find_tool(a->tools, name));
    json_decref(a->tools);
    a->tools = one;
}

static fv_status set_tag(fv_answer *a, const json_t *tag) {
    Fovea__Inference__V1__GenerateRequest *m = &a->request.message;
    fv_arena *arena = &a->reading.held->arena;
    Fovea__Inference__V1__Constraint *c;
    if (!m->rules) {
        FV_TRY(FV_ARENA_NEW(arena, 1, m->rules));
        fovea__inference__v1__token_rules__init(m->rules);
    }
    FV_TRY(FV_ARENA_NEW(arena, 1, c));
    fovea__inference__v1__constraint__init(c);
    c->after_reasoning = true;
    c->kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_STRUCTURAL_TAG;
    FV_TRY(fv_api_write_json(tag, arena, &c->structural_tag));
    m->rules->constraint = c;
    return FV_OK;
}

/* Holds the arguments of strict functions to their parameters, unless the answer has a form already. */
static fv_status hold_strict(fv_answer *a) {
    const Fovea__Inference__V1__TokenRules *rules = a->request.message.rules;
    json_t *tag;
    if (!a->form || (rules && rules->constraint) || !fv_api_any_strict(a->tools)) return FV_OK;
    FV_TRY(fv_calls_form_tag(a->form, a->tools, &tag));
    fv_status st = tag ? set_tag(a, tag) : FV_OK;
    json_decref(tag);
    return st;
}

/* A model whose form of calls is not known is told the tools, and what it writes is text. */
static fv_status note_tools(fv_answer *a, const char *parser) {
    fv_api_request *q = &a->request;
    const bool forced = q->tool_choice >= FV_API_TOOL_REQUIRED;
    if (!q->tools) return FV_OK;
    a->tools = json_loads(q->tools, 0, NULL);
    if (!a->tools) return FV_FAIL(FV_ENOMEM, "out of memory for tools");
    a->form = forced ? fv_calls_form_forced(q->tool_name != NULL) : fv_calls_form_named(parser);
    if (q->tool_name) keep_tool(a, q->tool_name);
    if (a->form && fv_calls_form_is_special(a->form) && !q->special_given)
        q->message.special_tokens = true;
    return hold_strict(a);
}

static void on_model(void *user, const fv_rpc_end *end, const fv_model_facts *facts) {
    fv_answer *a = user;
    if (!facts) {
        fv_answer_fail(a, end->status, fv_end_text(end), "", end->retry_ms);
        fv_answer_forget(a);
        return;
    }
    fv_status st = note_tools(a, facts->tool_parser);
    if (st != FV_OK)
        fv_answer_refuse(a, st, "tools");
    else if (a->request.n_video > 0)
        begin_decoding(a, &facts->layout);
    else
        fv_answer_begin_calls(a);
}

/* Asks for the model first: it decides which frames are taken and whether they are sent as a
 * video, and how tools are called. */
static void ask_model(fv_answer *a) {
    if (a->request.n_video == 0 && !a->request.tools) {
        fv_answer_begin_calls(a);
        return;
    }
    fv_status st = fv_model_ask(a->gateway, a->request.message.model, fv_http_client(a->http),
                                &a->reading.caller, a->reading.n_caller, on_model, a, &a->model);
    if (st != FV_OK) fv_answer_refuse(a, st, "");
}

/* ---- images at URLs ---------------------------------------------------------------------- */

static void on_fetched(void *user, fv_status st, const uint8_t *bytes, size_t n) {
    fv_fetching *f = user;
    fv_answer *a = f->answer;
    if (st == FV_OK) st = fv_request_memory_own(a->reading.held, (uint8_t *)(uintptr_t)bytes);
    if (st == FV_OK) fv_fetch_take(f->fetch);
    if (st != FV_OK) {
        fv_answer_refuse(a, st, f->url->param);
        return;
    }
    *f->url->bytes = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)bytes};
    if (--a->n_fetch == 0) ask_model(a);
}

void fv_answer_get_media(fv_answer *a) {
    a->n_fetch = a->request.n_url;
    if (a->n_fetch == 0) ask_model(a);
    for (int32_t i = 0; i < a->request.n_url; i++) {
        fv_fetching *f = &a->fetches[i];
        *f = (fv_fetching){.answer = a, .url = &a->request.urls[i]};
        fv_status st = fv_gateway_fetch(a->gateway, f->url->url, on_fetched, f, &f->fetch);
        if (st == FV_OK) continue;
        fv_answer_refuse(a, st, f->url->param);
        return;
    }
}
