/* Describes models and workers in messages. A model's description is a prefill worker's; the router
 * adds its own limits and the table of compression methods. Loop thread. */
#include "router/fleet_info.h"

#include "common/clock.h"
#include "common/version.h"
#include "policy/conflicts.h"
#include "policy/depends.h"
#include "router/admit.h"
#include "serving/policy_message.h"

typedef Fovea__Inference__V1__Method method_message;
typedef Fovea__Inference__V1__MethodParam param_message;
typedef Fovea__Inference__V1__Preset preset_message;
typedef Fovea__Inference__V1__Conflict conflict_message;
typedef Fovea__Inference__V1__Worker worker_message;

static fv_status fill_params(const fv_method_info *in, fv_arena *a, method_message *out) {
    param_message *p;
    FV_TRY(FV_ARENA_NEW(a, in->n_param, p));
    FV_TRY(FV_ARENA_NEW(a, in->n_param, out->params));
    for (int32_t i = 0; i < in->n_param; i++) {
        const fv_param_info *q = &in->param[i];
        fovea__inference__v1__method_param__init(&p[i]);
        p[i].name = (char *)q->name;
        p[i].type = (char *)fv_param_type_name(q->type);
        p[i].default_value = q->fallback;
        p[i].min = q->min;
        p[i].max = q->max;
        p[i].unit = (char *)q->unit;
        p[i].meaning = (char *)q->meaning;
        if (q->text) p[i].text = (char *)q->text;
        while (q->word[p[i].n_words]) p[i].n_words++;
        p[i].words = (char **)q->word;
        out->params[out->n_params++] = &p[i];
    }
    return FV_OK;
}

static fv_status fill_inputs(uint32_t inputs, fv_arena *a, method_message *out) {
    FV_TRY(FV_ARENA_NEW(a, FV_N_INPUT, out->depends_on));
    for (int32_t i = 0; i < FV_N_INPUT; i++)
        if (inputs & 1U << i) out->depends_on[out->n_depends_on++] = (char *)fv_input_name(i);
    return FV_OK;
}

static fv_status fill_methods(fv_arena *a, fv_model_message *out) {
    int32_t n;
    const fv_method_info *in = fv_policy_methods(&n);
    method_message *m;
    FV_TRY(FV_ARENA_NEW(a, n, m));
    FV_TRY(FV_ARENA_NEW(a, n, out->methods));
    for (int32_t i = 0; i < n; i++) {
        fovea__inference__v1__method__init(&m[i]);
        m[i].stage = (char *)fv_stage_name(in[i].stage);
        m[i].name = (char *)in[i].name;
        m[i].source = (char *)in[i].source;
        m[i].summary = (char *)in[i].summary;
        FV_TRY(fill_params(&in[i], a, &m[i]));
        FV_TRY(fill_inputs(fv_method_inputs(&in[i]), a, &m[i]));
        out->methods[i] = &m[i];
    }
    out->n_methods = (size_t)n;
    return FV_OK;
}

static fv_status fill_presets(fv_arena *a, fv_model_message *out) {
    int32_t n;
    fv_policy policy;
    Fovea__Inference__V1__Policy *message;
    const fv_preset_info *in = fv_policy_presets(&n);
    preset_message *p;
    FV_TRY(FV_ARENA_NEW(a, n, p));
    FV_TRY(FV_ARENA_NEW(a, n, out->presets));
    for (int32_t i = 0; i < n; i++) {
        fovea__inference__v1__preset__init(&p[i]);
        p[i].name = (char *)in[i].name;
        p[i].text = (char *)in[i].text;
        p[i].meaning = (char *)in[i].meaning;
        FV_TRY(fv_policy_parse(in[i].text, &policy));
        FV_TRY(fv_policy_to_message(&policy, a, &message));
        p[i].bytes = fv_admit_policy_bytes(message, out);
        out->presets[i] = &p[i];
    }
    out->n_presets = (size_t)n;
    return FV_OK;
}

static fv_status fill_conflicts(fv_arena *a, fv_model_message *out) {
    int32_t n;
    const fv_conflict *in = fv_conflicts(&n);
    conflict_message *c;
    FV_TRY(FV_ARENA_NEW(a, n, c));
    FV_TRY(FV_ARENA_NEW(a, n, out->conflicts));
    for (int32_t i = 0; i < n; i++) {
        fovea__inference__v1__conflict__init(&c[i]);
        c[i].a = (char *)in[i].a;
        c[i].b = (char *)in[i].b;
        c[i].why = (char *)in[i].why;
        out->conflicts[i] = &c[i];
    }
    out->n_conflicts = (size_t)n;
    return FV_OK;
}

fv_status fv_model_info(fv_rpc_call *c, grpc_byte_buffer *message, const fv_registry *members,
                        uint32_t max_tokens_default) {
    ProtobufCMessage *q;
    fv_fleet *f;
    FV_TRY(
        fv_rpc_call_unpack(c, &fovea__inference__v1__get_model_request__descriptor, message, &q));
    FV_TRY(fv_registry_choose_fleet(members,
                                    ((const Fovea__Inference__V1__GetModelRequest *)q)->model, &f));
    const fv_model_message *said = fv_fleet_model(f);
    fv_arena *a = fv_rpc_call_arena(c);
    fv_model_message m = *said;
    Fovea__Inference__V1__Limits limits = FOVEA__INFERENCE__V1__LIMITS__INIT;
    if (said->limits) limits = *said->limits;
    limits.bytes_request = FV_REQUEST_BYTES_MAX;
    limits.max_tokens_default = max_tokens_default ? max_tokens_default : limits.max_positions;
    uint32_t keep_ms_max = fv_fleet_keep_ms_max(f);
    limits.keep_ms_max = keep_ms_max < UINT32_MAX ? keep_ms_max : 0;
    m.limits = &limits;
    FV_TRY(fill_methods(a, &m));
    FV_TRY(fill_presets(a, &m));
    FV_TRY(fill_conflicts(a, &m));
    m.version = (char *)fv_version();
    FV_TRY(fv_rpc_call_send(c, &m.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

fv_status fv_models_info(fv_rpc_call *c, const fv_registry *members) {
    Fovea__Inference__V1__ModelList list = FOVEA__INFERENCE__V1__MODEL_LIST__INIT;
    fv_arena *a = fv_rpc_call_arena(c);
    size_t n = 0;
    for (const fv_fleet *f = fv_registry_fleets(members); f; f = f->next) n++;
    FV_TRY(FV_ARENA_NEW(a, n, list.models));
    for (const fv_fleet *f = fv_registry_fleets(members); f; f = f->next) {
        const fv_model_message *said = fv_fleet_model(f);
        Fovea__Inference__V1__ServedModel *m;
        if (!said) continue;
        FV_TRY(FV_ARENA_NEW(a, 1, m));
        fovea__inference__v1__served_model__init(m);
        m->name = f->model;
        m->fingerprint = f->fingerprint;
        m->n_aliases = said->n_aliases;
        m->aliases = said->aliases;
        m->n_adapters = said->n_adapters;
        m->adapters = said->adapters;
        m->family = said->family;
        m->max_positions = said->limits ? said->limits->max_positions : 0;
        m->n_prefill = (uint32_t)fv_fleet_ready(f, FV_WORKER_PREFILL);
        m->n_decode = (uint32_t)fv_fleet_ready(f, FV_WORKER_DECODE);
        m->n_queued = (uint32_t)f->n_queued;
        m->n_running = (uint32_t)f->n_running;
        list.models[list.n_models++] = m;
    }
    FV_TRY(fv_rpc_call_send(c, &list.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

fv_status fv_fleet_info(fv_rpc_call *c, const fv_registry *members, const fv_relay *relay,
                        double up_s) {
    Fovea__Inference__V1__FleetState state = FOVEA__INFERENCE__V1__FLEET_STATE__INIT;
    fv_arena *a = fv_rpc_call_arena(c);
    double now_s = fv_clock_s();
    size_t n = 0;
    for (const fv_registered_worker *w = fv_registry_first(members); w; w = fv_registry_next(w))
        n++;
    FV_TRY(FV_ARENA_NEW(a, n, state.workers));
    for (fv_registered_worker *w = fv_registry_first(members); w; w = fv_registry_next(w)) {
        worker_message *m;
        FV_TRY(FV_ARENA_NEW(a, 1, m));
        fovea__inference__v1__worker__init(m);
        m->role = w->role;
        m->state = w->state;
        m->load = &w->load;
        m->seconds_since_report = now_s - w->reported_s;
        m->n_failed = (uint32_t)w->breaker.n_failed;
        m->seconds_backoff = fv_breaker_rest_s(&w->breaker, now_s);
        m->model = w->fleet->model;
        m->fingerprint = w->fleet->fingerprint;
        state.workers[state.n_workers++] = m;
    }
    state.seconds_up = up_s;
    fv_relay_counts counts = fv_relay_count(relay);
    state.n_queued = (uint32_t)counts.n_queued;
    state.n_running = (uint32_t)counts.n_running;
    state.seconds_queue = counts.queue_s;
    state.n_refused = counts.n_refused;
    state.n_expired = counts.n_expired;
    FV_TRY(fv_rpc_call_send(c, &state.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}
