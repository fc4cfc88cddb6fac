/* Endpoints with one reply: a unary call to the router, whose reply is converted to JSON. A long
 * reply is converted on a libuv thread, so that it does not block the loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "gateway/api/answer.h"
#include "gateway/api/message_json.h"
#include "gateway/internal.h"
#include "grpc/health/v1/health.pb-c.h"
#include "image/size.h"
#include "serving/layout_message.h"

enum { ASK_MS = 30000, LONG_REPLY = 32 << 10 /* bytes */ };

typedef struct ask {
    fv_gateway_task task; /* first */
    fv_gateway *gateway;
    fv_lane *lane;
    fv_http_request *http; /* NULL: gone */
    fv_reading reading;    /* of the body, if there is one */
    fv_api_request request;
    fv_rpc_call *call; /* NULL: over, or not begun */
    const ProtobufCMessageDescriptor *descriptor;
    unsigned (*answer)(struct ask *a, const ProtobufCMessage *m,
                       json_t **out); /* the HTTP status */
    /* for a long reply, which is always answered with 200 */
    bool may_be_long, works;
    uv_work_t work;
    grpc_byte_buffer *reply;
    char *text, why[256]; /* text: the JSON; NULL: failed, see `why` */
    fv_status st;
} ask;

static void ask_free(ask *a) {
    fv_gateway *g = a->gateway;
    fv_reading_end(&a->reading);
    free(a);
    fv_gateway_task_gone(g);
}

static void on_http_ended(fv_gateway_task *t) {
    ask *a = (ask *)t;
    a->http = NULL;
    if (a->call)
        fv_rpc_call_cancel(a->call);
    else if (!a->works)
        ask_free(a);
}

static fv_status make_text(ask *a) {
    fv_arena arena = {0};
    ProtobufCMessage *m;
    json_t *json = NULL;
    fv_status st = fv_rpc_unpack(a->descriptor, a->reply, &arena, &m);
    if (st == FV_OK) {
        a->answer(a, m, &json);
        a->text = json ? json_dumps(json, FV_API_JSON_FLAGS) : NULL;
        if (!a->text) st = FV_FAIL(FV_ENOMEM, "out of memory for the reply");
    }
    json_decref(json);
    fv_arena_fini(&arena);
    return st;
}

static void on_thread(uv_work_t *w) {
    ask *a = w->data;
    a->st = make_text(a);
    if (a->st != FV_OK) snprintf(a->why, sizeof a->why, "%s", fv_last_error());
}

static void on_text(uv_work_t *w, int status) {
    ask *a = w->data;
    (void)status; /* work is never cancelled */
    a->works = false;
    grpc_byte_buffer_destroy(a->reply);
    if (a->http && a->text)
        fv_http_reply(a->http, 200, "application/json", a->text, strlen(a->text));
    else if (a->http)
        fv_reply_error(a->http, a->st, a->why, "", -1);
    free(a->text);
    if (!a->http) ask_free(a);
}

static void answer_later(ask *a, grpc_byte_buffer *reply) {
    a->works = true;
    a->reply = grpc_byte_buffer_copy(reply);
    a->work.data = a;
    uv_queue_work(fv_bridge_loop(a->gateway->opt.bridge), &a->work, on_thread, on_text);
}

static void on_reply(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    ask *a = user;
    ProtobufCMessage *m;
    json_t *json = NULL;
    a->call = NULL;
    a->lane->n_call--;
    if (!a->http) {
        ask_free(a);
        return;
    }
    fv_status st = end->status;
    if (st != FV_OK) {
        fv_reply_error(a->http, st, fv_end_text(end), "", end->retry_ms);
    } else if (a->may_be_long && grpc_byte_buffer_length(reply) > LONG_REPLY) {
        answer_later(a, reply);
    } else if ((st = fv_rpc_call_unpack(call, a->descriptor, reply, &m)) != FV_OK) {
        fv_reply_last_error(a->http, st, "");
    } else {
        unsigned status = a->answer(a, m, &json);
        fv_reply_json(a->http, status, json);
    }
}

static fv_status begin(ask *a, const char *path, const ProtobufCMessage *request) {
    fv_rpc_metadata caller;
    int32_t n_caller;
    if (!fv_gateway_caller(a->gateway, a->http, &caller, &n_caller)) return FV_OK;
    FV_TRY(fv_gateway_lane(a->gateway, &a->lane));
    fv_rpc_call_options opt = {.path = path,
                               .forwarded_for = fv_http_client(a->http),
                               .request = request,
                               .deadline_ms = ASK_MS,
                               .metadata = &caller,
                               .n_metadata = n_caller};
    FV_TRY(fv_rpc_unary_with(a->lane->channel, &opt, on_reply, a, &a->call));
    a->lane->n_call++;
    return FV_OK;
}

/* Returns NULL when out of memory; the request has then been answered. */
static ask *new_ask(fv_gateway *g, fv_http_request *r) {
    ask *a = calloc(1, sizeof *a);
    if (!a) {
        fv_reply_error(r, FV_ENOMEM, "out of memory", "", -1);
        return NULL;
    }
    a->task.ended = on_http_ended;
    a->gateway = g;
    a->http = r;
    g->n_task++;
    fv_http_set_user(r, &a->task);
    return a;
}

/* Starts the call; its reply or its failure will answer the HTTP request. */
static void start(ask *a, const char *path, const ProtobufCMessage *request) {
    fv_status st = begin(a, path, request);
    if (st != FV_OK) fv_reply_last_error(a->http, st, "");
}

/* ---- tokens ----------------------------------------------------------------------------- */

static unsigned answer_ids(ask *a, const ProtobufCMessage *m, json_t **out) {
    const Fovea__Inference__V1__TokenizeReply *t = (const void *)m;
    json_t *ids = json_array(), *texts = t->n_text ? json_array() : json_null();
    (void)a;
    for (size_t i = 0; i < t->n_id; i++) json_array_append_new(ids, json_integer(t->id[i]));
    for (size_t i = 0; i < t->n_text; i++)
        json_array_append_new(texts, fv_json_text((const char *)t->text[i].data, t->text[i].len));
    *out = json_pack("{s:I, s:o, s:o}", "count", (json_int_t)t->n_id, "tokens", ids, "token_strs",
                     texts);
    return 200;
}

/* Reads the images' sizes, from which the number of their tokens follows. */
static fv_status size_images(ask *a, Fovea__Inference__V1__TokenizeRequest *q) {
    const Fovea__Inference__V1__GenerateRequest *m = &a->request.message;
    fv_arena *arena = &a->reading.held->arena;
    if (a->request.n_url > 0)
        return FV_FAIL(FV_EINVAL, "images at http(s) URLs are not fetched to count their tokens: "
                                  "send them as data:image/png;base64,...");
    FV_TRY(FV_ARENA_NEW(arena, m->n_images, q->image_sizes));
    for (size_t i = 0; i < m->n_images; i++) {
        fv_image_size size;
        fv_status st =
            fv_image_size_check(m->images[i]->data.data, m->images[i]->data.len, NULL, &size);
        if (st != FV_OK) return FV_FAIL(FV_EINVAL, "image %zu: %s", i, fv_last_error());
        FV_TRY(FV_ARENA_NEW(arena, 1, q->image_sizes[i]));
        fovea__inference__v1__image_size__init(q->image_sizes[i]);
        q->image_sizes[i]->w = (uint32_t)size.w;
        q->image_sizes[i]->h = (uint32_t)size.h;
    }
    q->n_image_sizes = m->n_images;
    return FV_OK;
}

static void ask_tokens(void *user) {
    Fovea__Inference__V1__TokenizeRequest q = FOVEA__INFERENCE__V1__TOKENIZE_REQUEST__INIT;
    ask *a = user;
    const Fovea__Inference__V1__GenerateRequest *m = &a->request.message;
    q.model = m->model;
    q.prompt = m->prompt;
    q.bare = m->special_case && !m->add_special_tokens; /* for workers without the next field */
    if (m->special_case)
        q.special_case = FOVEA__INFERENCE__V1__TOKENIZE_REQUEST__SPECIAL_ADD_SPECIAL_TOKENS;
    q.add_special_tokens = m->add_special_tokens;
    q.image_bounds = m->image_bounds;
    q.texts = a->request.texts;
    fv_status st = size_images(a, &q);
    if (st == FV_OK)
        start(a, "/fovea.inference.v1.Inference/Tokenize", &q.base);
    else
        fv_reply_last_error(a->http, st, a->request.n_url ? a->request.urls[0].param : "");
    fv_reading_end(&a->reading);
}

void fv_show_tokens(fv_gateway *g, fv_http_request *r) {
    ask *a = new_ask(g, r);
    if (!a) return;
    a->descriptor = &fovea__inference__v1__tokenize_reply__descriptor;
    a->answer = answer_ids;
    a->task.reading = &a->reading;
    a->may_be_long = true;
    fv_reading_begin(&a->reading, g, r, FV_API_TOKENS, &a->request, ask_tokens, a);
}

static unsigned answer_text(ask *a, const ProtobufCMessage *m, json_t **out) {
    const char *text = ((const Fovea__Inference__V1__DetokenizeReply *)m)->text;
    (void)a;
    *out = json_pack("{s:o}", "prompt", fv_json_text(text, strlen(text)));
    return 200;
}

static void ask_text(void *user) {
    Fovea__Inference__V1__DetokenizeRequest q = FOVEA__INFERENCE__V1__DETOKENIZE_REQUEST__INIT;
    ask *a = user;
    const Fovea__Inference__V1__TokenIds *ids = a->request.message.prompt->ids;
    q.model = a->request.message.model;
    q.n_id = ids->n_id;
    q.id = ids->id;
    start(a, "/fovea.inference.v1.Inference/Detokenize", &q.base);
    fv_reading_end(&a->reading);
}

void fv_show_text(fv_gateway *g, fv_http_request *r) {
    ask *a = new_ask(g, r);
    if (!a) return;
    a->descriptor = &fovea__inference__v1__detokenize_reply__descriptor;
    a->answer = answer_text;
    a->task.reading = &a->reading;
    a->may_be_long = true;
    fv_reading_begin(&a->reading, g, r, FV_API_IDS, &a->request, ask_text, a);
}

/* ---- the model and the fleet ------------------------------------------------------------ */

/* A model under one of its names; `root` is its first name, as in vLLM. */
static json_t *model_json(const Fovea__Inference__V1__ServedModel *model, const char *id) {
    return json_pack("{s:o, s:s, s:I, s:s, s:o, s:I, s:s}", "id", fv_json_text(id, strlen(id)),
                     "object", "model", "created", (json_int_t)(fv_log_time_ns() / 1000000000),
                     "owned_by", "fovea", "root", fv_json_text(model->name, strlen(model->name)),
                     "max_model_len", (json_int_t)model->max_positions, "fingerprint",
                     model->fingerprint);
}

/* The adapter of this name, as a model whose `parent` is the one that it adapts; NULL: there is none. */
static json_t *adapter_json(const Fovea__Inference__V1__ServedModel *model, const char *id) {
    for (size_t i = 0; i < model->n_adapters; i++) {
        const Fovea__Inference__V1__Adapter *x = model->adapters[i];
        if (strcmp(x->name, id) != 0) continue;
        json_t *o = model_json(model, id);
        json_object_set_new(o, "root", fv_json_text(id, strlen(id)));
        json_object_set_new(o, "parent", fv_json_text(model->name, strlen(model->name)));
        json_object_set_new(o, "adapter",
                            json_pack("{s:s, s:I, s:I}", "digest", x->digest, "rank",
                                      (json_int_t)x->rank, "bytes", (json_int_t)x->bytes));
        return o;
    }
    return NULL;
}

/* The model's names: its own, its aliases, and its adapters'. */
static size_t n_name(const Fovea__Inference__V1__ServedModel *model) {
    return 1 + model->n_aliases + model->n_adapters;
}

static const char *name_at(const Fovea__Inference__V1__ServedModel *model, size_t i) {
    if (i > model->n_aliases) return model->adapters[i - model->n_aliases - 1]->name;
    return i == 0 ? model->name : model->aliases[i - 1];
}

/* The model under one of its names. */
static json_t *named_json(const Fovea__Inference__V1__ServedModel *model, const char *id) {
    json_t *adapter = adapter_json(model, id);
    return adapter ? adapter : model_json(model, id);
}

static unsigned answer_models(ask *a, const ProtobufCMessage *m, json_t **out) {
    const Fovea__Inference__V1__ModelList *list = (const void *)m;
    json_t *data = json_array();
    (void)a;
    for (size_t i = 0; i < list->n_models; i++)
        for (size_t k = 0; k < n_name(list->models[i]); k++)
            json_array_append_new(data, named_json(list->models[i], name_at(list->models[i], k)));
    *out = json_pack("{s:s, s:o}", "object", "list", "data", data);
    return 200;
}

/* Lists the models' names for an error: "a, b". */
static void print_names(const Fovea__Inference__V1__ModelList *list, char *out, size_t cap) {
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < list->n_models; i++)
        for (size_t k = 0; k < n_name(list->models[i]) && n < cap; k++)
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "",
                                  name_at(list->models[i], k));
}

/* Finds the model by the path's end, which may have slashes. */
static unsigned answer_served(ask *a, const ProtobufCMessage *m, json_t **out) {
    const Fovea__Inference__V1__ModelList *list = (const void *)m;
    const char *id = fv_http_path(a->http) + strlen(FV_MODEL_PATH);
    char names[512], why[1024];
    for (size_t i = 0; i < list->n_models; i++) {
        const Fovea__Inference__V1__ServedModel *model = list->models[i];
        bool found = strcmp(model->fingerprint, id) == 0;
        for (size_t k = 0; k < n_name(model); k++) found |= strcmp(name_at(model, k), id) == 0;
        if (!found) continue;
        *out = named_json(model, id);
        return 200;
    }
    print_names(list, names, sizeof names);
    snprintf(why, sizeof why, "unknown model '%.200s'; models: %s", id, names);
    fv_http_set_error(a->http, why);
    *out = fv_api_error(FV_ENOTFOUND, why, "model");
    return fv_api_http_status(FV_ENOTFOUND);
}

static unsigned answer_message(ask *a, const ProtobufCMessage *m, json_t **out) {
    (void)a;
    *out = fv_message_json(m);
    return 200;
}

static unsigned answer_health(ask *a, const ProtobufCMessage *m, json_t **out) {
    bool serves = ((const Grpc__Health__V1__HealthCheckResponse *)m)->status ==
                  GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    if (!serves) fv_http_set_error(a->http, "no worker");
    *out = json_pack("{s:s}", "status", serves ? "ok" : "no worker");
    return serves ? 200 : 503;
}

static void get(fv_gateway *g, fv_http_request *r, const char *path,
                const ProtobufCMessage *request, const ProtobufCMessageDescriptor *descriptor,
                unsigned (*answer)(ask *a, const ProtobufCMessage *m, json_t **out)) {
    ask *a = new_ask(g, r);
    if (!a) return;
    a->descriptor = descriptor;
    a->answer = answer;
    start(a, path, request);
}

static void get_models(fv_gateway *g, fv_http_request *r,
                       unsigned (*answer)(ask *a, const ProtobufCMessage *m, json_t **out)) {
    Fovea__Inference__V1__ListModelsRequest q = FOVEA__INFERENCE__V1__LIST_MODELS_REQUEST__INIT;
    get(g, r, "/fovea.inference.v1.Inference/ListModels", &q.base,
        &fovea__inference__v1__model_list__descriptor, answer);
}

void fv_list_models(fv_gateway *g, fv_http_request *r) { get_models(g, r, answer_models); }

void fv_show_served(fv_gateway *g, fv_http_request *r) { get_models(g, r, answer_served); }

/* Asks for the model named by "?model=NAME", which is needed where the fleet serves several. */
static void get_model(fv_gateway *g, fv_http_request *r,
                      unsigned (*answer)(ask *a, const ProtobufCMessage *m, json_t **out)) {
    Fovea__Inference__V1__GetModelRequest q = FOVEA__INFERENCE__V1__GET_MODEL_REQUEST__INIT;
    const char *name = fv_http_argument(r, "model");
    if (name) q.model = (char *)(uintptr_t)name;
    get(g, r, "/fovea.inference.v1.Inference/GetModel", &q.base,
        &fovea__inference__v1__model__descriptor, answer);
}

static unsigned answer_tokenizer(ask *a, const ProtobufCMessage *m, json_t **out) {
    (void)a;
    *out = json_loads(((const Fovea__Inference__V1__Tokenizer *)m)->config, JSON_ALLOW_NUL, NULL);
    return 200;
}

/* Like vLLM's; with several models "?model=NAME" says which, too. */
void fv_show_tokenizer(fv_gateway *g, fv_http_request *r) {
    Fovea__Inference__V1__GetTokenizerRequest q = FOVEA__INFERENCE__V1__GET_TOKENIZER_REQUEST__INIT;
    const char *name = fv_http_argument(r, "model");
    ask *a = new_ask(g, r);
    if (!a) return;
    if (name) q.model = (char *)(uintptr_t)name;
    a->descriptor = &fovea__inference__v1__tokenizer__descriptor;
    a->answer = answer_tokenizer;
    a->may_be_long = true;
    start(a, "/fovea.inference.v1.Inference/GetTokenizer", &q.base);
}

void fv_show_model(fv_gateway *g, fv_http_request *r) { get_model(g, r, answer_message); }

static json_t *span_json(const fv_layout_config *c, const fv_layout *l, int32_t index) {
    const fv_layout_span *s = &l->span[index];
    fv_layout_place at = fv_layout_span_place(c, l, index);
    fv_layout_rect seen = fv_layout_view_rect(l, &l->view[at.view]);
    return json_pack("{s:i, s:i, s:i, s:i, s:b, s:b, s:f, s:f, s:f, s:f}", "n", s->n, "t", s->t,
                     "h", s->h, "w", s->w, "class_token", s->class_token, "newline_column",
                     s->newline_column, "left", seen.x + seen.w * at.x, "top",
                     seen.y + seen.h * at.y, "width", seen.w * at.w, "height", seen.h * at.h);
}

static fv_status layout_of(const fv_http_request *r, const Fovea__Inference__V1__Model *m,
                           fv_layout_config *c, fv_layout *out) {
    const char *w = fv_http_argument(r, "w"), *h = fv_http_argument(r, "h");
    const char *images = fv_http_argument(r, "images");
    long side[2] = {w ? strtol(w, NULL, 10) : 0, h ? strtol(h, NULL, 10) : 0};
    long n = images ? strtol(images, NULL, 10) : 1;
    long most = m->limits ? (long)m->limits->side_max : 0;
    if (side[0] < 1 || side[1] < 1 || side[0] > most || side[1] > most)
        return FV_FAIL(FV_EINVAL, "w and h must be an image's sides in pixels, 1..%ld", most);
    if (n < 1 || n > FV_API_IMAGES_MAX)
        return FV_FAIL(FV_EINVAL, "images must be 1..%d", FV_API_IMAGES_MAX);
    FV_TRY(fv_layout_from_message(m->image_layout, c));
    return fv_layout_image(c, (int32_t)side[0], (int32_t)side[1], (int32_t)n, out);
}

/* Answers where in an image of w x h pixels each visual token comes from. */
static unsigned answer_layout(ask *a, const ProtobufCMessage *m, json_t **out) {
    fv_layout_config c;
    fv_layout l;
    fv_status st = layout_of(a->http, (const void *)m, &c, &l);
    if (st != FV_OK) {
        fv_http_set_error(a->http, fv_last_error());
        *out = fv_api_error(st, fv_last_error(), "");
        return fv_api_http_status(st);
    }
    *out = json_pack("{s:[]}", "spans");
    for (int32_t i = 0; i < l.n_span; i++)
        json_array_append_new(json_object_get(*out, "spans"), span_json(&c, &l, i));
    return 200;
}

void fv_show_layout(fv_gateway *g, fv_http_request *r) { get_model(g, r, answer_layout); }

void fv_show_fleet(fv_gateway *g, fv_http_request *r) {
    Fovea__Inference__V1__GetFleetRequest q = FOVEA__INFERENCE__V1__GET_FLEET_REQUEST__INIT;
    get(g, r, "/fovea.inference.v1.Inference/GetFleet", &q.base,
        &fovea__inference__v1__fleet_state__descriptor, answer_message);
}

/* The router's own health, which needs no credentials: SERVING when it has workers of each kind. */
void fv_show_health(fv_gateway *g, fv_http_request *r) {
    if (g->leaving) {
        fv_http_set_error(r, "shutting down");
        fv_reply_json(r, 503, json_pack("{s:s}", "status", "shutting down"));
        return;
    }
    Grpc__Health__V1__HealthCheckRequest q = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    get(g, r, "/grpc.health.v1.Health/Check", &q.base,
        &grpc__health__v1__health_check_response__descriptor, answer_health);
}
