/* Calls CheckCaller and caches its answers in two tables: admitted callers and refusals. Anybody
 * can cause refusals, so they must not evict admitted callers. */
#include "gateway/caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/random.h"
#include "gateway/internal.h"

enum { N_PLACE = 1024, ASK_MS = 10000, KEPT_MS_MAX = 10000, REFUSED_MS = 1000 };

typedef struct place {
    uint8_t caller[FV_MAC_BYTES];
    double until_s; /* 0: empty */
    fv_status status;
    char why[128];
    char tenant[FV_TENANT_NAME_MAX + 1]; /* of an admitted caller */
} place;

struct fv_known_callers {
    fv_key key; /* for hashing headers */
    place known[N_PLACE], refused[N_PLACE];
};

struct fv_caller_question {
    fv_gateway *gateway;
    fv_lane *lane;
    fv_rpc_call *call;     /* NULL: over */
    fv_caller_known known; /* NULL: freed by its owner */
    void *user;
    bool hashed; /* false: `caller` is not set, and the answer is not cached */
    uint8_t caller[FV_MAC_BYTES];
};

/* ---- cache of answers -------------------------------------------------------------------- */

fv_status fv_known_callers_open(fv_known_callers **out) {
    fv_known_callers *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for callers");
    fv_status st = fv_random_bytes(c->key.bytes, sizeof c->key.bytes);
    if (st == FV_OK)
        *out = c;
    else
        free(c);
    return st;
}

void fv_known_callers_close(fv_known_callers *c) { free(c); }

static bool hash(const fv_known_callers *c, const fv_rpc_metadata *caller, int32_t n,
                 uint8_t *out) {
    static const char purpose[] = "caller";
    const char *value = n ? caller->value : "";
    const fv_mac_field fields[] = {{purpose, sizeof purpose - 1}, {value, strlen(value)}};
    return fv_mac(&c->key, fields, 2, out) == FV_OK;
}

static place *place_of(place *table, const uint8_t *caller) {
    uint32_t n;
    memcpy(&n, caller, sizeof n);
    return &table[n % N_PLACE];
}

/* Returns NULL where nothing is cached, or the entry has expired. */
static const place *find(place *table, const uint8_t *caller) {
    const place *p = place_of(table, caller);
    const bool is = memcmp(p->caller, caller, sizeof p->caller) == 0;
    return is && fv_clock_s() < p->until_s ? p : NULL;
}

static void remember(fv_known_callers *c, const uint8_t *caller, const fv_rpc_end *end,
                     const char *tenant, int64_t ms) {
    place *p = place_of(end->status == FV_OK ? c->known : c->refused, caller);
    if (ms > KEPT_MS_MAX) ms = KEPT_MS_MAX;
    memcpy(p->caller, caller, sizeof p->caller);
    p->until_s = fv_clock_s() + 1e-3 * (double)ms;
    p->status = end->status;
    snprintf(p->why, sizeof p->why, "%s", end->text);
    snprintf(p->tenant, sizeof p->tenant, "%s", tenant);
}

/* ---- asking ------------------------------------------------------------------------------ */

static void release(fv_caller_question *q) {
    fv_gateway *g = q->gateway;
    free(q);
    fv_gateway_task_gone(g);
}

/* *tenant is borrowed from the call. */
static fv_status read_reply(fv_rpc_call *call, grpc_byte_buffer *reply, const char **tenant,
                            int64_t *ms) {
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_call_unpack(call, &fovea__inference__v1__check_caller_reply__descriptor, reply, &m));
    *ms = ((const Fovea__Inference__V1__CheckCallerReply *)m)->valid_ms;
    *tenant = ((const Fovea__Inference__V1__CheckCallerReply *)m)->tenant;
    return FV_OK;
}

static void on_reply(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    fv_caller_question *q = user;
    fv_rpc_end said = *end;
    const char *tenant = "";
    int64_t ms = 0;
    q->call = NULL;
    q->lane->n_call--;
    if (said.code == GRPC_STATUS_UNIMPLEMENTED) {
        said = (fv_rpc_end){.status = FV_OK, .retry_ms = -1, .text = ""};
        ms = KEPT_MS_MAX;
    } else if (said.status == FV_OK && read_reply(call, reply, &tenant, &ms) != FV_OK) {
        said.status = FV_EDATA;
        said.text = fv_last_error();
    }
    if (said.status == FV_EAUTH || said.status == FV_EDENIED) ms = REFUSED_MS;
    if (q->hashed && ms > 0) remember(q->gateway->callers, q->caller, &said, tenant, ms);
    if (q->known)
        q->known(q->user, &said, tenant);
    else
        release(q);
}

static fv_status start(fv_caller_question *q, const char *method, const char *client,
                       const fv_rpc_metadata *caller, int32_t n_caller) {
    Fovea__Inference__V1__CheckCallerRequest m = FOVEA__INFERENCE__V1__CHECK_CALLER_REQUEST__INIT;
    m.method = (char *)(uintptr_t)method;
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/CheckCaller",
                               .forwarded_for = client,
                               .request = &m.base,
                               .deadline_ms = ASK_MS,
                               .metadata = caller,
                               .n_metadata = n_caller};
    FV_TRY(fv_gateway_lane(q->gateway, &q->lane));
    FV_TRY(fv_rpc_unary_with(q->lane->channel, &opt, on_reply, q, &q->call));
    q->lane->n_call++;
    q->gateway->n_task++;
    return FV_OK;
}

fv_status fv_caller_ask(fv_gateway *g, const char *method, const char *client,
                        const fv_rpc_metadata *caller, int32_t n_caller, fv_caller_known known,
                        void *user, char tenant[FV_TENANT_NAME_MAX + 1], fv_caller_question **out) {
    uint8_t who[FV_MAC_BYTES];
    const bool hashed = hash(g->callers, caller, n_caller, who);
    const place *refused = hashed ? find(g->callers->refused, who) : NULL;
    const place *admitted = hashed ? find(g->callers->known, who) : NULL;
    *out = NULL;
    if (refused) return FV_FAIL(refused->status, "%s", refused->why);
    if (admitted) {
        strcpy(tenant, admitted->tenant);
        return FV_OK;
    }
    fv_caller_question *q = calloc(1, sizeof *q);
    if (!q) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    *q = (fv_caller_question){.gateway = g, .known = known, .user = user, .hashed = hashed};
    if (hashed) memcpy(q->caller, who, sizeof who);
    fv_status st = start(q, method, client, caller, n_caller);
    if (st == FV_OK)
        *out = q;
    else
        free(q);
    return st;
}

void fv_caller_question_free(fv_caller_question *q) {
    if (!q) return;
    q->known = NULL;
    if (q->call)
        fv_rpc_call_cancel(q->call); /* on_reply releases q */
    else
        release(q);
}
