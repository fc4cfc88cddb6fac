/* Responses by their ids. Whose they are is known once the router has admitted the caller. */
#include <stdlib.h>
#include <string.h>

#include "gateway/response.h"
#include "rpc/message.h"

enum { ITEMS_DEFAULT = 20, ITEMS_MAX = 100 };

typedef struct looking {
    fv_gateway_task task; /* first */
    fv_gateway *gateway;
    fv_http_request *http;        /* NULL: gone */
    fv_caller_question *question; /* NULL: not asked, or answered */
    void (*serve)(struct looking *l, const fv_response_owner *owner, const char *id);
    /* of a store elsewhere */
    fv_response_remote_op *op;
    fv_response_owner owner;
    fv_kept_response *found; /* a reference; NULL: nothing yet */
} looking;

static void on_http_ended(fv_gateway_task *t) {
    looking *l = (looking *)t;
    fv_gateway *g = l->gateway;
    fv_caller_question_free(l->question);
    fv_response_remote_drop(l->op);
    fv_kept_response_unref(l->found);
    free(l);
    fv_gateway_task_gone(g);
}

/* Copies the path's id, which ends at a slash or with the path. */
static void id_of(const fv_http_request *r, char id[FV_API_RESPONSE_ID_MAX + 1]) {
    const char *path = fv_http_path(r) + strlen(FV_RESPONSE_PATH);
    size_t n = strcspn(path, "/");
    if (n > FV_API_RESPONSE_ID_MAX) n = FV_API_RESPONSE_ID_MAX;
    memcpy(id, path, n);
    id[n] = '\0';
}

fv_status fv_gateway_owner(const fv_gateway *g, const char *tenant, const char *authorization,
                           fv_response_owner *out) {
    return g->remote ? fv_response_remote_owner(g->remote, tenant, authorization, out)
                     : fv_response_owner_of(g->responses, tenant, authorization, out);
}

static fv_responding *find_running(const fv_gateway *g, const fv_response_owner *owner,
                                   const char *id) {
    fv_responding *r = g->responding;
    while (r && (memcmp(&r->owner, owner, sizeof *owner) != 0 || r->ending || r->answer->over ||
                 strcmp(r->answer->names.id, id) != 0))
        r = r->next;
    return r;
}

static void on_loaded(void *user, fv_status st, fv_kept_response *r) {
    looking *l = user;
    char id[FV_API_RESPONSE_ID_MAX + 1];
    l->op = NULL;
    l->found = r;
    id_of(l->http, id);
    if (st == FV_OK)
        l->serve(l, &l->owner, id);
    else
        fv_reply_last_error(l->http, st, "");
}

/* A response that is being made here need not be asked for. */
static void serve(looking *l, const char *tenant) {
    fv_gateway *g = l->gateway;
    char id[FV_API_RESPONSE_ID_MAX + 1];
    fv_status st = fv_gateway_owner(g, tenant, fv_http_header(l->http, "Authorization"), &l->owner);
    id_of(l->http, id);
    const bool here = st == FV_OK && (!g->remote || find_running(g, &l->owner, id));
    if (here)
        l->serve(l, &l->owner, id);
    else if (st == FV_OK)
        st = fv_response_remote_load(g->remote, g->responses, &l->owner, id, false, on_loaded, l,
                                     &l->op);
    if (st != FV_OK) fv_reply_last_error(l->http, st, "");
}

static void on_caller(void *user, const fv_rpc_end *end, const char *tenant) {
    looking *l = user;
    if (end->status == FV_OK)
        serve(l, tenant);
    else
        fv_reply_error(l->http, end->status, fv_end_text(end), "", end->retry_ms);
}

static void look(fv_gateway *g, fv_http_request *r,
                 void (*what)(looking *l, const fv_response_owner *owner, const char *id)) {
    looking *l = calloc(1, sizeof *l);
    char tenant[FV_TENANT_NAME_MAX + 1] = "";
    fv_rpc_metadata caller;
    int32_t n;
    if (!l) {
        fv_reply_error(r, FV_ENOMEM, "out of memory", "", -1);
        return;
    }
    *l = (looking){.task = {.ended = on_http_ended}, .gateway = g, .http = r, .serve = what};
    g->n_task++;
    fv_http_set_user(r, &l->task);
    if (!fv_gateway_caller(g, r, &caller, &n)) return;
    fv_status st = fv_caller_ask(g, "Generate", fv_http_client(r), &caller, n, on_caller, l, tenant,
                                 &l->question);
    if (st != FV_OK)
        fv_reply_last_error(r, st, "");
    else if (!l->question)
        serve(l, tenant);
}

/* ---- what is done with them -------------------------------------------------------------- */

/* Gives a reference; NULL: the request was refused. */
static fv_kept_response *find(const looking *l, const fv_response_owner *owner, const char *id) {
    fv_kept_response *r = l->found;
    if (r) r->n_ref++;
    fv_status st = FV_OK;
    if (!l->gateway->remote)
        st = fv_response_store_find(l->gateway->responses, owner, id, &r);
    else if (!r)
        st = FV_FAIL(FV_ENOTFOUND, "the response '%.128s' is not complete", id);
    if (st != FV_OK) fv_reply_last_error(l->http, st, "");
    return r;
}

static void show(looking *l, const fv_response_owner *owner, const char *id) {
    fv_kept_response *r = find(l, owner, id);
    if (r) fv_reply_json(l->http, 200, json_incref(r->json));
    fv_kept_response_unref(r);
}

static void say_deleted(looking *l, const char *id) {
    fv_reply_json(l->http, 200,
                  json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
}

static void on_deleted(void *user, fv_status st, fv_kept_response *none) {
    looking *l = user;
    (void)none;
    l->op = NULL;
    if (st == FV_OK)
        say_deleted(l, l->found->id);
    else
        fv_reply_last_error(l->http, st, "");
}

static void delete (looking *l, const fv_response_owner *owner, const char *id) {
    fv_kept_response *r = find(l, owner, id);
    if (!r) return;
    fv_gateway *g = l->gateway;
    fv_status st = FV_OK;
    if (g->remote)
        st = fv_response_remote_delete(g->remote, owner, id, on_deleted, l, &l->op);
    else
        fv_response_store_remove(g->responses, r);
    fv_kept_response_unref(r);
    if (st != FV_OK)
        fv_reply_last_error(l->http, st, "");
    else if (!g->remote)
        say_deleted(l, id);
}

/* The one who asked for the response gets it as it is, and so does the one who cancels it. */
static void cancel(looking *l, const fv_response_owner *owner, const char *id) {
    fv_responding *running = find_running(l->gateway, owner, id);
    if (running) {
        fv_reply_json(l->http, 200, fv_responding_cancel(running));
        return;
    }
    fv_kept_response *r = find(l, owner, id);
    if (r)
        fv_reply_error(l->http, FV_EINVAL, "the response is complete: there is nothing to cancel",
                       "", -1);
    fv_kept_response_unref(r);
}

/* ---- the input's items ------------------------------------------------------------------- */

static fv_status page_of(const fv_http_request *r, json_t *all, json_t **out) {
    const char *limit = fv_http_argument(r, "limit"), *order = fv_http_argument(r, "order"),
               *after = fv_http_argument(r, "after");
    const long most = limit ? strtol(limit, NULL, 10) : ITEMS_DEFAULT;
    const bool ascending = order && strcmp(order, "asc") == 0;
    const size_t n = json_array_size(all);
    bool begun = !after;
    size_t i = 0;
    if (most < 1 || most > ITEMS_MAX)
        return FV_FAIL(FV_EINVAL, "limit: it must be 1 to %d", ITEMS_MAX);
    if (order && !ascending && strcmp(order, "desc") != 0)
        return FV_FAIL(FV_EINVAL, "order: it must be asc or desc");
    json_t *page = json_array();
    for (; i < n && json_array_size(page) < (size_t)most; i++) {
        json_t *item = json_array_get(all, ascending ? i : n - 1 - i);
        const char *id = json_string_value(json_object_get(item, "id"));
        if (begun) json_array_append(page, item);
        begun |= id && after && strcmp(id, after) == 0;
    }
    const json_t *first = json_array_get(page, 0),
                 *last = json_array_get(page, json_array_size(page) - 1);
    *out = json_pack("{s:s, s:o, s:O?, s:O?, s:b}", "object", "list", "data", page, "first_id",
                     json_object_get(first, "id"), "last_id", json_object_get(last, "id"),
                     "has_more", i < n);
    return FV_OK;
}

static fv_status list_items(const looking *l, const fv_kept_response *r, json_t **out) {
    fv_arena arena = {0};
    ProtobufCMessage *m;
    fv_status st =
        fv_rpc_unpack(&fovea__inference__v1__generate_request__descriptor, r->input, &arena, &m);
    if (st == FV_OK) {
        json_t *all = fv_api_input_items((const Fovea__Inference__V1__GenerateRequest *)m, r->id);
        st = page_of(l->http, all, out);
        json_decref(all);
    }
    fv_arena_fini(&arena);
    return st;
}

static void list(looking *l, const fv_response_owner *owner, const char *id) {
    fv_kept_response *r = find(l, owner, id);
    json_t *page = NULL;
    if (!r) return;
    fv_status st = list_items(l, r, &page);
    fv_kept_response_unref(r);
    if (st == FV_OK)
        fv_reply_json(l->http, 200, page);
    else
        fv_reply_last_error(l->http, st, "");
}

void fv_show_response(fv_gateway *g, fv_http_request *r) { look(g, r, show); }

void fv_delete_response(fv_gateway *g, fv_http_request *r) { look(g, r, delete); }

void fv_cancel_response(fv_gateway *g, fv_http_request *r) { look(g, r, cancel); }

void fv_list_response_input(fv_gateway *g, fv_http_request *r) { look(g, r, list); }
