/* Options -> a request over the network, and its answer. Pictures go as the files they are: the
 * prefill worker decodes them. */
#include <stdlib.h>
#include <string.h>

#include "cli/remote.h"
#include "cli/request.h"
#include "common/file.h"
#include "common/log.h"
#include "policy/message.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Image image_message;
typedef Fovea__Inference__V1__Prompt prompt_message;
typedef Fovea__Inference__V1__Sampling sampling_message;
typedef Fovea__Inference__V1__Chat chat_message;
typedef Fovea__Inference__V1__Turn turn_message;

fv_status fv_request_image(const char *path, fv_arena *a, image_message **out) {
    image_message *m;
    char *data;
    size_t n;
    void *kept;
    FV_TRY(FV_ARENA_NEW(a, 1, m));
    fovea__inference__v1__image__init(m);
    FV_TRY(fv_file_read(path, fv_image_limits_default().bytes_max, &data, &n));
    fv_status st = fv_arena_alloc(a, n, &kept);
    if (st == FV_OK) memcpy(kept, data, n);
    free(data);
    FV_TRY(st);
    m->data = (ProtobufCBinaryData){n, kept};
    *out = m;
    return FV_OK;
}

static fv_status read_images(const fv_options *o, fv_arena *a, request_message *out) {
    const char *const *files;
    int n = fv_options_list(o, "image", &files);
    FV_TRY(FV_ARENA_NEW(a, n, out->images));
    for (int i = 0; i < n; i++) FV_TRY(fv_request_image(files[i], a, &out->images[i]));
    out->n_images = (size_t)n;
    return FV_OK;
}

static fv_status add_turn(chat_message *chat, fv_arena *a, const char *role, const char *text,
                          size_t n_image) {
    turn_message *t;
    FV_TRY(FV_ARENA_NEW(a, 1, t));
    fovea__inference__v1__turn__init(t);
    t->role = (char *)role;
    t->text = (char *)text;
    t->n_images = (uint32_t)n_image;
    chat->turns[chat->n_turns++] = t;
    return FV_OK;
}

static fv_status read_prompt(const fv_options *o, const char *question, fv_arena *a,
                             request_message *out) {
    prompt_message *p;
    chat_message *chat;
    const char *system = fv_options_string(o, "system");
    FV_TRY(FV_ARENA_NEW(a, 1, p));
    fovea__inference__v1__prompt__init(p);
    out->prompt = p;
    if (fv_options_flag(o, "raw")) {
        p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
        p->text = (char *)question;
        return FV_OK;
    }
    FV_TRY(FV_ARENA_NEW(a, 1, chat));
    fovea__inference__v1__chat__init(chat);
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    p->chat = chat;
    if (fv_options_string(o, "chat")) chat->template_ = (char *)fv_options_string(o, "chat");
    FV_TRY(FV_ARENA_NEW(a, 2, chat->turns));
    if (system) FV_TRY(add_turn(chat, a, "system", system, 0));
    return add_turn(chat, a, "user", question, out->n_images);
}

static fv_status read_sampling(const fv_options *o, fv_arena *a, request_message *out) {
    sampling_message *s;
    FV_TRY(FV_ARENA_NEW(a, 1, s));
    fovea__inference__v1__sampling__init(s);
    s->temperature = (float)fv_options_float(o, "temperature");
    s->top_k = (uint32_t)fv_options_int(o, "top-k");
    s->top_p = (float)fv_options_float(o, "top-p");
    s->repetition_penalty = (float)fv_options_float(o, "repetition-penalty");
    s->seed = (uint64_t)fv_options_int(o, "seed");
    out->sampling = s;
    return FV_OK;
}

static fv_status read_request(const fv_options *o, const char *question, fv_arena *a,
                              request_message *out) {
    const char *const *stop;
    fv_policy policy;
    FV_TRY(fv_policy_parse(fv_options_string(o, "policy"), &policy));
    FV_TRY(fv_policy_to_message(&policy, a, &out->policy));
    FV_TRY(read_images(o, a, out));
    FV_TRY(read_prompt(o, question, a, out));
    FV_TRY(read_sampling(o, a, out));
    out->max_tokens = (uint32_t)fv_options_int(o, "max-tokens");
    out->n_stop = (size_t)fv_options_list(o, "stop", &stop);
    out->stop = (char **)stop;
    out->ignore_eos = fv_options_flag(o, "ignore-eos");
    out->n_logprobs = (uint32_t)fv_options_int(o, "logprobs");
    out->digests = true;
    return FV_OK;
}

static fv_status copy(fv_arena *a, const char *s, const char **out) {
    char *text;
    FV_TRY(fv_arena_strndup(a, s, strlen(s), &text));
    *out = text;
    return FV_OK;
}

fv_status fv_request_remote(const fv_options *o, const char *question, const fv_ask_hooks *hooks,
                            fv_arena *a, fv_report_source *source, fv_report *report) {
    request_message request = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    fv_remote *r;
    const char *fingerprint;
    fv_remote_workers workers;
    fv_status st;
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    FV_TRY(read_request(o, question, a, &request));
    FV_TRY(fv_remote_open(fv_options_string(o, "to"), &r));
    *source = (fv_report_source){0};
    FV_TRY_GOTO(fv_remote_fingerprint(r, &fingerprint), st, out);
    FV_TRY_GOTO(fv_remote_ask(r, &request, hooks, &workers, report), st, out);
    FV_TRY_GOTO(copy(a, fingerprint, &source->checkpoint), st, out);
    FV_TRY_GOTO(copy(a, workers.prefill, &source->prefill_worker), st, out);
    st = copy(a, workers.decode, &source->decode_worker);
out:
    fv_remote_close(r);
    return st;
}
