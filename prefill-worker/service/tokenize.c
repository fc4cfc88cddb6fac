/* Serves Tokenize, Detokenize and GetTokenizer. A reading line runs the tokenizer, because a long text takes a while;
 * the loop thread creates an asking, answers its call, and frees the asking when it is computed, even if
 * the client has gone: it is short. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "image/size.h"
#include "prefill-worker/prompt/prompt.h"
#include "prefill-worker/service/internal.h"
#include "rpc/message.h"
#include "serving/worker/request.h"
#include "text/tokenizer_config.h"

typedef Fovea__Inference__V1__TokenizeRequest tokenize_message;
typedef Fovea__Inference__V1__TokenizeReply ids_message;
typedef Fovea__Inference__V1__DetokenizeRequest detokenize_message;
typedef Fovea__Inference__V1__DetokenizeReply text_message;

enum { SIZES_MAX = 256 };

typedef struct asking {
    fv_prefill_worker *worker;
    fv_arena arena; /* of the request and the reply */
    const ProtobufCMessage *request;
    fv_status (*compute)(struct asking *a);
    fv_rpc_call *call; /* NULL: its client has gone */
    fv_unit unit;
    fv_rpc_op back;
    ProtobufCMessage *reply;
    fv_error fault;
    double until_s; /* time by which a chat must be rendered, by fv_clock_s */
} asking;

/* ---- a reading thread ------------------------------------------------------------------- */

/* Each image is one token. */
static fv_status encode_bare(const fv_engine *e, const fv_chat_text *text, int32_t **ids,
                             int32_t *n) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    fv_text_marks marks = {text->user, cfg->has_vision ? cfg->image_token : -1};
    FV_TRY(fv_tokenizer_check_length(e->tok, text->n, cfg->text.max_position));
    return fv_tokenizer_encode_marked(e->tok, text->text, text->n, text->adds_special, &marks, ids,
                                      n);
}

static fv_status lay_images(asking *a, const fv_model_config *cfg, fv_layout **out) {
    const tokenize_message *q = (const tokenize_message *)a->request;
    const int32_t n = (int32_t)q->n_image_sizes;
    const fv_image_limits limits = fv_image_limits_default();
    if (q->n_image_sizes > SIZES_MAX)
        return FV_FAIL(FV_EINVAL, "%zu images: expected at most %d", q->n_image_sizes, SIZES_MAX);
    if (!cfg->has_vision)
        return FV_FAIL(FV_EINVAL, "this checkpoint reads text only: ask without images");
    fv_layout_config bounds = cfg->layout;
    if (q->image_bounds)
        FV_TRY(fv_layout_bound(&bounds, q->image_bounds->pixels_min, q->image_bounds->pixels_max));
    FV_TRY(FV_ARENA_NEW(&a->arena, n, *out));
    for (int32_t i = 0; i < n; i++) {
        const Fovea__Inference__V1__ImageSize *s = q->image_sizes[i];
        fv_status st = s->w > 0 && s->h > 0 ? fv_image_size_fits("the image", s->w, s->h, &limits)
                                            : FV_FAIL(FV_EINVAL, "a side of 0 pixels");
        if (st == FV_OK) st = fv_layout_image(&bounds, (int32_t)s->w, (int32_t)s->h, n, &(*out)[i]);
        if (st != FV_OK) return fv_fail_prefix(st, "image %d", i);
    }
    return FV_OK;
}

/* Each image is its tokens, as in a prompt. Gives *ids [*n]. */
static fv_status encode_whole(asking *a, const fv_chat_text *text, int32_t **ids, int32_t *n) {
    const fv_engine *e = a->worker->opt.engine;
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    const int32_t n_image = (int32_t)((const tokenize_message *)a->request)->n_image_sizes;
    fv_layout *layout;
    fv_prompt p = {0};
    FV_TRY(lay_images(a, cfg, &layout));
    FV_TRY(fv_prompt_make_chat(e->tok, cfg, text, n_image, layout, cfg->text.max_position, &p));
    *ids = p.ids;
    *n = p.n;
    p.ids = NULL;
    fv_prompt_free(&p);
    return FV_OK;
}

static fv_status encode_chat(asking *a, const fv_prompt_form *f, int32_t **ids, int32_t *n) {
    const fv_engine *e = a->worker->opt.engine;
    const bool sized = ((const tokenize_message *)a->request)->n_image_sizes > 0;
    fv_chat *chat;
    fv_chat_text text = {0};
    FV_TRY(fv_engine_chat(e, f->chat_template, &chat));
    fv_status st = fv_chat_render(chat, f->turn, f->n_turn, &f->options, a->until_s, &text);
    if (st == FV_OK) st = sized ? encode_whole(a, &text, ids, n) : encode_bare(e, &text, ids, n);
    fv_chat_text_free(&text);
    fv_chat_free(chat);
    return st;
}

static fv_status encode(asking *a, const tokenize_message *q, int32_t **ids, int32_t *n) {
    const fv_engine *e = a->worker->opt.engine;
    int32_t context = fv_checkpoint_config(e->ck)->text.max_position;
    fv_prompt_form form;
    FV_TRY(fv_request_prompt(q->prompt, INT32_MAX, context, &a->arena, &form));
    fv_request_special(q->special_case, q->add_special_tokens, &form);
    if (form.kind == FV_PROMPT_IDS)
        return FV_FAIL(FV_EINVAL, "the prompt is ids already: send a text or a chat");
    if (form.kind == FV_PROMPT_CHAT) return encode_chat(a, &form, ids, n);
    FV_TRY(fv_tokenizer_check_length(e->tok, strlen(form.text), context));
    bool adds =
        form.options.special == FV_CHAT_UNSET ? !q->bare : form.options.special == FV_CHAT_YES;
    return fv_tokenizer_encode(e->tok, form.text, strlen(form.text), adds, ids, n);
}

static fv_status fill_ids(asking *a, const int32_t *ids, int32_t n, bool texts, ids_message *m) {
    FV_TRY(FV_ARENA_NEW(&a->arena, n, m->id));
    m->n_id = (size_t)n;
    for (int32_t i = 0; i < n; i++) m->id[i] = (uint32_t)ids[i];
    if (!texts) return FV_OK;
    FV_TRY(FV_ARENA_NEW(&a->arena, n, m->text));
    m->n_text = (size_t)n;
    for (int32_t i = 0; i < n; i++) {
        char *text;
        FV_TRY(fv_tokenizer_token_text(a->worker->opt.engine->tok, ids[i], &a->arena, &text,
                                       &m->text[i].len));
        m->text[i].data = (uint8_t *)text;
    }
    return FV_OK;
}

static fv_status tokenize(asking *a) {
    const tokenize_message *q = (const tokenize_message *)a->request;
    ids_message *m;
    int32_t *ids, n;
    FV_TRY(FV_ARENA_NEW(&a->arena, 1, m));
    fovea__inference__v1__tokenize_reply__init(m);
    FV_TRY(encode(a, q, &ids, &n));
    fv_status st = fill_ids(a, ids, n, q->texts, m);
    free(ids);
    a->reply = &m->base;
    return st;
}

static fv_status detokenize(asking *a) {
    const detokenize_message *q = (const detokenize_message *)a->request;
    const fv_engine *e = a->worker->opt.engine;
    text_message *m;
    int32_t *ids;
    char *text;
    size_t n;
    FV_TRY(FV_ARENA_NEW(&a->arena, 1, m));
    fovea__inference__v1__detokenize_reply__init(m);
    FV_TRY(fv_request_ids(q->id, q->n_id, fv_checkpoint_config(e->ck)->text.max_position, &a->arena,
                          &ids));
    FV_TRY(fv_tokenizer_decode(e->tok, ids, (int32_t)q->n_id, false, &text, &n));
    /* Leave out NUL bytes, which ids may stand for but a protobuf-c string cannot hold. */
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i]) text[kept++] = text[i];
    fv_status st = fv_arena_strndup(&a->arena, text, kept, &m->text);
    free(text);
    a->reply = &m->base;
    return st;
}

/* A checkpoint's template that does not run is still told; a client may be able to run it. */
static fv_status describe(asking *a) {
    const fv_engine *e = a->worker->opt.engine;
    Fovea__Inference__V1__Tokenizer *m;
    fv_chat *chat = NULL;
    char *config;
    FV_TRY(FV_ARENA_NEW(&a->arena, 1, m));
    fovea__inference__v1__tokenizer__init(m);
    const bool runs = fv_engine_chat(e, "", &chat) == FV_OK;
    fv_status st =
        fv_tokenizer_config(fv_checkpoint_dir(e->ck), runs ? fv_chat_program(chat) : NULL, &config);
    fv_chat_free(chat);
    FV_TRY(fv_fail_origin(st, FV_ORIGIN_CHECKPOINT));
    st = fv_arena_strndup(&a->arena, config, strlen(config), &m->config);
    free(config);
    a->reply = &m->base;
    return st;
}

static void run(fv_unit *unit) {
    asking *a = unit->owner;
    fv_error_take(&a->fault, fv_fail_caller(a->compute(a)));
    fv_bridge_post(a->worker->opt.bridge, &a->back, true);
}

/* ---- the loop thread -------------------------------------------------------------------- */

static void asking_free(asking *a) {
    fv_prefill_worker *w = a->worker;
    fv_arena_fini(&a->arena);
    free(a);
    fv_prefill_worker_leave(w);
}

static void on_computed(fv_rpc_op *op, bool ok) {
    asking *a = op->owner;
    (void)ok;
    if (a->call) {
        fv_rpc_call_set_user(a->call, NULL);
        fv_status st = fv_error_raise(&a->fault);
        if (st == FV_OK) st = fv_rpc_call_send(a->call, a->reply);
        fv_rpc_call_finish(a->call, st);
    }
    asking_free(a);
}

static double chat_until(const fv_rpc_call *c) {
    double left_s = 1e-3 * (double)fv_rpc_call_left_ms(c);
    return fv_clock_s() + (left_s < FV_CHAT_SECONDS ? left_s : FV_CHAT_SECONDS);
}

static fv_status begin(fv_rpc_call *c, grpc_byte_buffer *message,
                       const ProtobufCMessageDescriptor *descriptor,
                       fv_status (*compute)(asking *a)) {
    fv_prefill_worker *w = fv_rpc_call_service(c);
    fv_caller who;
    ProtobufCMessage *m;
    FV_TRY(fv_caller_identify(w->opt.callers, c, &who));
    FV_TRY(fv_caller_check_request(&who, NULL, NULL));
    FV_TRY(fv_prefill_worker_enter(w));
    asking *a = calloc(1, sizeof *a);
    if (!a) {
        fv_prefill_worker_leave(w);
        return FV_FAIL(FV_ENOMEM, "out of memory for another request");
    }
    a->worker = w;
    fv_status st = fv_rpc_unpack(descriptor, message, &a->arena, &m);
    if (st != FV_OK) {
        asking_free(a);
        return st == FV_EDATA ? FV_EINVAL : st;
    }
    a->request = m;
    a->compute = compute;
    a->until_s = chat_until(c);
    a->call = c;
    /* All calls count as one tenant's, because a call does not name its tenant. */
    a->unit = (fv_unit){.run = run,
                        .owner = a,
                        .who = "tokenize ",
                        .weight = 1,
                        .cost = (double)grpc_byte_buffer_length(message)};
    a->back = (fv_rpc_op){.done = on_computed, .owner = a};
    fv_rpc_call_set_user(c, a);
    fv_reading_add(w->reading, &a->unit);
    return FV_OK;
}

fv_status fv_tokenize_on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    return begin(c, message, &fovea__inference__v1__tokenize_request__descriptor, tokenize);
}

fv_status fv_detokenize_on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    return begin(c, message, &fovea__inference__v1__detokenize_request__descriptor, detokenize);
}

fv_status fv_get_tokenizer_on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    return begin(c, message, &fovea__inference__v1__get_tokenizer_request__descriptor, describe);
}

void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    asking *a = fv_rpc_call_user(c);
    (void)end;
    if (a) a->call = NULL;
}
