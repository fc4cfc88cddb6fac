/* A conversation on the client's side: the questions and answers so far, and the handle under which
 * the fleet keeps it. */
#include "cli/client/session.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/remote.h"
#include "cli/client/request.h"
#include "common/grow.h"
#include "common/log.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Prompt prompt_message;
typedef Fovea__Inference__V1__Chat chat_message;
typedef Fovea__Inference__V1__Turn turn_message;

enum { KEEP_MS = 300000 }; /* between two questions */

typedef struct line {
    const char *role, *text;
} line;

struct fv_session {
    fv_arena arena; /* memory of requests and turns */
    fv_remote *remote;
    fv_remote_model model;
    request_message base; /* the request without its prompt and conversation */
    const fv_options *options;
    fv_request_frames video; /* times; the frames' images are in `base` */
    bool raw;
    char *chat;      /* template: its name or its text, or "" */
    char *variables; /* of the template; NULL: none */
    int32_t n_line;
    size_t cap_line;
    line *lines; /* turns in order */
    fv_remote_outcome last;
    /* the answer being received */
    const fv_ask_hooks *hooks;
    char *said;
    size_t n_said, cap_said;
};

/* ---- turns ------------------------------------------------------------------------------ */

static fv_status add_line(fv_session *t, const char *role, const char *text) {
    FV_TRY(fv_grow(&t->lines, &t->cap_line, (size_t)t->n_line + 1, sizeof *t->lines));
    t->lines[t->n_line++] = (line){role, text};
    return FV_OK;
}

static fv_status hear_text(void *user, const char *text, size_t n) {
    fv_session *t = user;
    FV_TRY(fv_grow(&t->said, &t->cap_said, t->n_said + n, 1));
    memcpy(t->said + t->n_said, text, n);
    t->n_said += n;
    return t->hooks->text ? t->hooks->text(t->hooks->user, text, n) : FV_OK;
}

static fv_status hear_token(void *user, const fv_sampled *token) {
    const fv_ask_hooks *h = ((fv_session *)user)->hooks;
    return h->token ? h->token(h->user, token) : FV_OK;
}

static fv_status hear_kept(void *user, const fv_kept_map *kept, const fv_layout_config *layout) {
    fv_session *t = user;
    const fv_ask_hooks *h = t->hooks;
    fv_kept_map mine = *kept;
    (void)layout; /* like n_kv, the model's */
    mine.n_kv = t->model.n_kv;
    return h->kept(h->user, &mine, &t->model.layout);
}

/* Records the answer without leading space, which templates write themselves. */
static fv_status note_answer(fv_session *t) {
    char *text;
    size_t skip = 0;
    while (!t->raw && skip < t->n_said && isspace((unsigned char)t->said[skip])) skip++;
    FV_TRY(fv_arena_strndup(&t->arena, t->said + skip, t->n_said - skip, &text));
    return add_line(t, "assistant", text);
}

/* ---- requests --------------------------------------------------------------------------- */

static fv_status make_text(fv_session *t, int32_t from, prompt_message *p) {
    size_t n = 1;
    for (int32_t i = from; i < t->n_line; i++) n += strlen(t->lines[i].text);
    FV_TRY(FV_ARENA_NEW(&t->arena, n, p->text));
    char *at = p->text;
    for (int32_t i = from; i < t->n_line; i++) at = stpcpy(at, t->lines[i].text);
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    return FV_OK;
}

/* Images belong to the first question. */
static uint32_t images_at(const fv_session *t, int32_t i) {
    bool first = i == 0 || (i == 1 && strcmp(t->lines[0].role, "system") == 0);
    return first && strcmp(t->lines[i].role, "user") == 0 ? (uint32_t)t->base.n_images : 0;
}

/* Puts the question's text and images into parts, instead of `text` and `n_images`. */
static fv_status inline_images(fv_session *t, turn_message *turn) {
    Fovea__Inference__V1__NextImage *image;
    static Fovea__Inference__V1__NextVideo video = FOVEA__INFERENCE__V1__NEXT_VIDEO__INIT;
    Fovea__Inference__V1__Part *m;
    fv_chat_part *part;
    int32_t n;
    FV_TRY(fv_request_marked_question(t->options, turn->text, &t->arena, &turn->text));
    FV_TRY(fv_request_parts(turn->text, (int32_t)turn->n_images, &t->video, &t->arena, &part, &n));
    FV_TRY(FV_ARENA_NEW(&t->arena, n, turn->parts));
    FV_TRY(FV_ARENA_NEW(&t->arena, n, m));
    FV_TRY(FV_ARENA_NEW(&t->arena, n, image));
    for (int32_t i = 0; i < n; i++) {
        fovea__inference__v1__part__init(&m[i]);
        fovea__inference__v1__next_image__init(&image[i]);
        if (part[i].ahead) image[i].ahead = (char *)(uintptr_t)part[i].ahead;
        m[i].kind_case = part[i].text    ? FOVEA__INFERENCE__V1__PART__KIND_TEXT
                         : part[i].video ? FOVEA__INFERENCE__V1__PART__KIND_VIDEO
                                         : FOVEA__INFERENCE__V1__PART__KIND_IMAGE;
        if (part[i].text)
            m[i].text = (char *)(uintptr_t)part[i].text;
        else if (part[i].video)
            m[i].video = &video;
        else
            m[i].image = &image[i];
        turn->parts[turn->n_parts++] = &m[i];
    }
    turn->text = (char *)(uintptr_t)protobuf_c_empty_string;
    turn->n_images = 0;
    return FV_OK;
}

static fv_status make_chat(fv_session *t, int32_t from, prompt_message *p) {
    FV_TRY(FV_ARENA_NEW(&t->arena, 1, p->chat));
    fovea__inference__v1__chat__init(p->chat);
    p->chat->template_ = t->chat;
    if (t->variables) p->chat->variables = t->variables;
    FV_TRY(FV_ARENA_NEW(&t->arena, t->n_line - from, p->chat->turns));
    for (int32_t i = from; i < t->n_line; i++) {
        turn_message *turn;
        FV_TRY(FV_ARENA_NEW(&t->arena, 1, turn));
        fovea__inference__v1__turn__init(turn);
        turn->role = (char *)(uintptr_t)t->lines[i].role;
        turn->text = (char *)(uintptr_t)t->lines[i].text;
        turn->n_images = images_at(t, i);
        if (fv_request_is_inline(t->options) && turn->n_images) FV_TRY(inline_images(t, turn));
        p->chat->turns[p->chat->n_turns++] = turn;
    }
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    return FV_OK;
}

/* Makes a request whose prompt is all lines from `from` on. */
static fv_status make_request(fv_session *t, int32_t from, bool more, request_message *out) {
    uint32_t max = t->model.keep_ms_max;
    *out = t->base;
    FV_TRY(FV_ARENA_NEW(&t->arena, 1, out->prompt));
    fovea__inference__v1__prompt__init(out->prompt);
    out->kept_tokens = t->hooks->kept != NULL;
    if (more) out->keep_ms = KEEP_MS < max ? KEEP_MS : max;
    return t->raw ? make_text(t, from, out->prompt) : make_chat(t, from, out->prompt);
}

static fv_status ask(fv_session *t, const request_message *request, fv_report *report) {
    fv_ask_hooks hooks = {.user = t, .text = hear_text, .token = hear_token};
    if (request->kept_tokens) hooks.kept = hear_kept;
    t->n_said = 0;
    return fv_remote_ask(t->remote, request, &hooks, &t->last, report);
}

/* Continues the kept conversation. FV_ENOTFOUND: it is not kept. */
static fv_status ask_on(fv_session *t, bool more, fv_report *report) {
    request_message request;
    uint8_t name[sizeof t->last.conversation];
    size_t n = t->last.n_conversation;
    if (n == 0) return FV_FAIL(FV_ENOTFOUND, "the conversation was not kept");
    memcpy(name, t->last.conversation, n);
    FV_TRY(make_request(t, t->n_line - 1, more, &request));
    request.n_images = request.n_videos = 0;
    request.policy = NULL; /* the conversation has its own */
    request.conversation = (ProtobufCBinaryData){n, name};
    return ask(t, &request, report);
}

static fv_status ask_whole(fv_session *t, bool more, fv_report *report) {
    request_message request;
    FV_TRY(make_request(t, 0, more, &request));
    return ask(t, &request, report);
}

fv_status fv_session_ask(fv_session *t, const char *question, bool more, const fv_ask_hooks *hooks,
                         fv_report_source *source, fv_report *report) {
    bool first = t->n_line == 0 || strcmp(t->lines[t->n_line - 1].role, "system") == 0;
    fv_status st = FV_ENOTFOUND;
    t->hooks = hooks;
    FV_TRY(add_line(t, "user", question));
    if (!first) st = ask_on(t, more, report);
    if (st == FV_ENOTFOUND && !first)
        FV_LOG(INFO, GENERAL, "event=sent-again why=\"%s\"", fv_last_error());
    if (st == FV_ENOTFOUND) st = ask_whole(t, more, report);
    FV_TRY(st);
    *source = (fv_report_source){.checkpoint = t->model.fingerprint,
                                 .prefill_worker = t->last.prefill,
                                 .decode_worker = t->last.decode};
    return note_answer(t);
}

/* ---- opening and closing ---------------------------------------------------------------- */

static fv_status open_session(fv_session *t, const fv_options *o) {
    const char *system = fv_options_string(o, "system");
    fv_remote_options to = fv_remote_options_of(o);
    fovea__inference__v1__generate_request__init(&t->base);
    t->raw = fv_options_flag(o, "raw");
    t->options = o;
    FV_TRY(fv_request_chat(o, &t->chat));
    FV_TRY(fv_request_variables(o, &t->arena, &t->variables));
    if (system && !t->raw) FV_TRY(add_line(t, "system", system));
    fv_video_options video;
    FV_TRY(fv_request_check_video(o, &video));
    FV_TRY(fv_remote_open(&to, &t->remote));
    FV_TRY(fv_remote_get_model(t->remote, &t->model));
    FV_TRY(fv_request_video(o, &t->model.layout, &t->video));
    return fv_request_message(o, &t->video, &t->arena, &t->base);
}

fv_status fv_session_open(const fv_options *o, fv_session **out) {
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    fv_session *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for a conversation");
    fv_status st = open_session(t, o);
    if (st != FV_OK) {
        fv_session_close(t);
        return st;
    }
    *out = t;
    return FV_OK;
}

void fv_session_close(fv_session *t) {
    if (!t) return;
    fv_remote_close(t->remote);
    fv_request_video_free(&t->video);
    fv_arena_fini(&t->arena);
    free(t->lines);
    free(t->said);
    free(t->chat);
    free(t);
}
