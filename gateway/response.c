/* The preparation of a response before its calls begin, the turns of those that it continues, and what is kept
 * of it. */
#include "gateway/response.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/api/reader.h"
#include "rpc/message.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Turn turn_message;
typedef Fovea__Inference__V1__Chat chat_message;

enum { DEPTH_MAX = 1024 }; /* responses that one continues */

/* ---- turns ------------------------------------------------------------------------------- */

/* Turns and images in order; in the arena of the request. */
typedef struct joined {
    fv_arena *arena;
    turn_message **turns;
    size_t n_turn;
    Fovea__Inference__V1__Image **images;
    size_t n_image;
} joined;

static fv_status add_turn(joined *j, turn_message *t) {
    if (j->n_turn == FV_API_TURNS_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d turns with those of previous_response_id",
                       FV_API_TURNS_MAX);
    FV_TRY(fv_api_room(j->arena, &j->turns, j->n_turn, sizeof *j->turns));
    j->turns[j->n_turn++] = t;
    return FV_OK;
}

static fv_status add_request(joined *j, const request_message *m) {
    const chat_message *chat = m->prompt->chat;
    for (size_t i = 0; i < chat->n_turns; i++) FV_TRY(add_turn(j, chat->turns[i]));
    if (j->n_image + m->n_images > FV_API_IMAGES_MAX)
        return FV_FAIL(FV_EINVAL, "more than %d images with those of previous_response_id",
                       FV_API_IMAGES_MAX);
    for (size_t i = 0; i < m->n_images; i++) {
        FV_TRY(fv_api_room(j->arena, &j->images, j->n_image, sizeof *j->images));
        j->images[j->n_image++] = m->images[i];
    }
    return FV_OK;
}

static fv_status add_kept(joined *j, const fv_kept_response *r) {
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_unpack(&fovea__inference__v1__generate_request__descriptor, r->input, j->arena, &m));
    FV_TRY(add_request(j, (const request_message *)m));
    FV_TRY(fv_rpc_unpack(&fovea__inference__v1__turn__descriptor, r->output, j->arena, &m));
    return add_turn(j, (turn_message *)m);
}

static fv_status add_instructions(joined *j, char *text) {
    turn_message *t;
    if (!text) return FV_OK;
    FV_TRY(FV_ARENA_NEW(j->arena, 1, t));
    fovea__inference__v1__turn__init(t);
    t->role = (char *)(uintptr_t) "system";
    t->text = text;
    return add_turn(j, t);
}

/* Adds the responses that this one continues, the first one first. */
static fv_status add_chain(joined *j, const fv_kept_response *last, size_t bytes_max) {
    const fv_kept_response *chain[DEPTH_MAX];
    size_t n = 0, bytes = 0;
    for (const fv_kept_response *r = last; r; r = r->previous) {
        chain[n++] = r;
        bytes += grpc_byte_buffer_length(r->input) + grpc_byte_buffer_length(r->output);
    }
    if (bytes > bytes_max)
        return FV_FAIL(FV_ENOMEM, "the responses that this one continues have %zu bytes: too large",
                       bytes);
    while (n > 0) FV_TRY(add_kept(j, chain[--n]));
    return FV_OK;
}

/* The request's turns become: instructions, those of the responses before it, its own. */
static fv_status join(fv_answer *a, const fv_kept_response *previous) {
    request_message *m = &a->request.message;
    chat_message *chat = m->prompt->chat;
    joined j = {.arena = &a->reading.held->arena};
    FV_TRY(add_instructions(&j, a->request.response.instructions));
    FV_TRY(add_chain(&j, previous, a->gateway->opt.bodies_max));
    FV_TRY(add_request(&j, m));
    chat->turns = j.turns;
    chat->n_turns = j.n_turn;
    m->images = j.images;
    m->n_images = j.n_image;
    return FV_OK;
}

/* ---- what is kept ------------------------------------------------------------------------ */

/* Packs the request's own turns and images. */
static fv_status pack_input(const fv_answer *a, grpc_byte_buffer **out) {
    request_message own = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    chat_message chat = FOVEA__INFERENCE__V1__CHAT__INIT;
    const request_message *m = &a->request.message;
    chat.turns = m->prompt->chat->turns;
    chat.n_turns = m->prompt->chat->n_turns;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    prompt.chat = &chat;
    own.prompt = &prompt;
    own.images = m->images;
    own.n_images = m->n_images;
    if (protobuf_c_message_get_packed_size(&own.base) > a->gateway->opt.responses.bytes_owner)
        return FV_OK;
    return fv_rpc_pack(&own.base, out);
}

/* Without room for its input, a response is not kept. */
static fv_status begin_kept(fv_responding *r, fv_kept_response *previous) {
    const fv_answer *a = r->answer;
    grpc_byte_buffer *input = NULL;
    FV_TRY(pack_input(a, &input));
    if (!input) return FV_OK;
    fv_status st = fv_kept_response_new(a->gateway->responses, &r->kept);
    if (st != FV_OK) {
        grpc_byte_buffer_destroy(input);
        return st;
    }
    fv_kept_response *k = r->kept;
    k->owner = r->owner;
    k->input = input;
    k->previous = previous;
    if (previous) {
        previous->n_ref++;
        k->depth = previous->depth + 1;
    }
    strcpy(k->id, a->names.id);
    return FV_OK;
}

static void list(fv_responding *r) {
    fv_responding **head = &r->answer->gateway->responding;
    r->next = *head;
    if (r->next) r->next->link = &r->next;
    *head = r;
    r->link = head;
}

static fv_status begin_with(fv_responding *r, fv_kept_response *previous) {
    fv_answer *a = r->answer;
    if (previous && previous->depth + 1 >= DEPTH_MAX)
        return FV_FAIL(FV_EINVAL, "previous_response_id: more than %d responses in a row",
                       DEPTH_MAX);
    if (a->request.response.store && a->gateway->opt.responses.n_owner > 0)
        FV_TRY(begin_kept(r, previous));
    a->request.response.store = r->kept != NULL;
    FV_TRY(join(a, previous));
    r->echo = fv_api_response_echo(&a->request);
    r->output = json_array();
    if (!r->echo || !r->output) return FV_FAIL(FV_ENOMEM, "out of memory for a response");
    list(r);
    return FV_OK;
}

fv_status fv_responding_begin(fv_answer *a) {
    fv_response_store *store = a->gateway->responses;
    const char *id = a->request.response.previous;
    fv_kept_response *previous = NULL;
    fv_responding *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for a response");
    r->answer = a;
    a->responding = r; /* answer_free frees it */
    FV_TRY(fv_gateway_owner(a->gateway, a->reading.tenant, fv_http_header(a->http, "Authorization"),
                            &r->owner));
    if (a->previous) {
        previous = a->previous;
        a->previous = NULL;
    } else if (id) {
        fv_status st = fv_response_store_find(store, &r->owner, id, &previous);
        if (st != FV_OK) return FV_FAIL(st, "previous_response_id: %s", fv_last_error());
    }
    fv_status st = begin_with(r, previous);
    fv_kept_response_unref(previous);
    return st;
}

/* ---- a store elsewhere -------------------------------------------------------------------- */

static void on_previous(void *user, fv_status st, fv_kept_response *r) {
    fv_answer *a = user;
    a->loading = NULL;
    a->previous = r;
    if (st == FV_OK)
        fv_answer_begin_calls(a);
    else
        fv_answer_refuse(a, st, "previous_response_id");
}

bool fv_responding_must_load(const fv_answer *a) {
    return a->gateway->remote && a->request.kind == FV_API_RESPONSE &&
           a->request.response.previous && !a->previous;
}

fv_status fv_responding_load(fv_answer *a) {
    fv_gateway *g = a->gateway;
    fv_response_owner owner;
    FV_TRY(
        fv_gateway_owner(g, a->reading.tenant, fv_http_header(a->http, "Authorization"), &owner));
    return fv_response_remote_load(g->remote, g->responses, &owner, a->request.response.previous,
                                   true, on_previous, a, &a->loading);
}

void fv_responding_free(fv_responding *r) {
    if (!r) return;
    fv_response_remote_drop(r->putting);
    json_decref(r->whole);
    if (r->link) {
        *r->link = r->next;
        if (r->next) r->next->link = r->link;
    }
    fv_kept_response_unref(r->kept);
    json_decref(r->echo);
    json_decref(r->output);
    json_decref(r->logprobs);
    json_decref(r->waiting);
    free(r->text);
    free(r);
}

static fv_status keep(fv_responding *r, json_t *json, bool *kept) {
    fv_kept_response *k = r->kept;
    turn_message *turn;
    FV_TRY(fv_api_output_turn(r->output, &r->answer->arena, &turn));
    FV_TRY(fv_rpc_pack(&turn->base, &k->output));
    char *text = json_dumps(json, FV_API_JSON_FLAGS);
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for a response");
    k->json = json_incref(json);
    if (r->answer->gateway->remote)
        *kept = true; /* as far as is known */
    else
        fv_response_store_put(r->answer->gateway->responses, k, strlen(text),
                              fv_responding_logprob_bytes(r), kept);
    free(text);
    return FV_OK;
}

fv_status fv_responding_end(fv_responding *r, const char *status, json_t **out) {
    const fv_api_usage usage = fv_answer_usage(r->answer);
    json_t *json = fv_responding_json(r, status, NULL, &usage);
    bool kept = false;
    if (!json) return FV_FAIL(FV_ENOMEM, "out of memory for a response");
    fv_status st = r->kept ? keep(r, json, &kept) : FV_OK;
    if (st != FV_OK) {
        json_decref(json);
        return st;
    }
    if (!kept) json_object_set_new(json, "store", json_false());
    *out = json;
    return FV_OK;
}
