/* Opens, runs and closes a worker program; its hooks connect the daemon, the registration and the worker.
 * Loop thread. */
#include "serving/worker/program.h"

#include <string.h>

#include "common/limits.h"
#include "kernels/backends/open.h"
#include "serving/worker/checkpoint.h"
#include "serving/worker/load_metrics.h"
#include "serving/worker/model_info.h"
#include "serving/worker/room.h"

/* ---- in the fleet ----------------------------------------------------------------------- */

void fv_worker_program_touch(void *program) {
    fv_registration_touch(&((fv_worker_program *)program)->place);
}

static void measure(void *user, Fovea__Inference__V1__Load *load) {
    const fv_worker_program *p = user;
    p->kind->load(p->worker, load);
}

static void measure_metrics(void *user) {
    fv_worker_program *p = user;
    Fovea__Inference__V1__Load load = FOVEA__INFERENCE__V1__LOAD__INIT;
    if (!p->worker) return;
    p->kind->load(p->worker, &load);
    fv_load_record(&load);
    if (p->kind->record) p->kind->record(p->worker);
}

static fv_status introduce(void *user, const char *address, Fovea__Fleet__V1__Introduction **out) {
    fv_worker_program *p = user;
    const char *const *names, *const former = fv_options_string(p->o, "model-name");
    int n_name = fv_options_list(p->o, "served-model-name", &names);
    if (n_name == 0 && former) {
        names = &former;
        n_name = 1;
    }
    fv_model_info_options opt = {.name = p->name,
                                 .models = names,
                                 .n_model = n_name,
                                 .role = p->kind->fleet_role,
                                 .address = address,
                                 .kv_dtype = p->engine.kv_dtype,
                                 .tool_parser = fv_options_string(p->o, "tool-parser"),
                                 .reasoning_parser = fv_options_string(p->o, "reasoning-parser")};
    FV_TRY(fv_info(&p->engine, &opt, &p->arena, out));
    p->kind->limits(p->o, (*out)->model->limits);
    return FV_OK;
}

static fv_vital_signs signs(void *user) {
    const fv_worker_program *p = user;
    return p->kind->signs(p->worker);
}

static void on_lost(void *user, const char *why) {
    fv_registration_device_lost(&((fv_worker_program *)user)->place, why);
}

static void on_health(void *user, bool healthy) {
    fv_registration_health(&((fv_worker_program *)user)->place, healthy);
}

/* ---- the end ---------------------------------------------------------------------------- */

static void drain(void *user) {
    fv_worker_program *p = user;
    if (p->worker && p->kind->drain) p->kind->drain(p->worker);
    fv_registration_drain(&p->place);
}

static bool idle(void *user) {
    const fv_worker_program *p = user;
    return !p->worker || !p->kind->idle || p->kind->idle(p->worker);
}

static void on_worker_closed(void *user) { fv_daemon_end(((fv_worker_program *)user)->daemon); }

static void on_left(void *user) {
    fv_worker_program *p = user;
    void *worker = p->worker;
    p->worker = NULL;
    if (worker)
        p->kind->close(worker, on_worker_closed, p);
    else
        on_worker_closed(p);
}

static void stopped(void *user) {
    fv_registration_leave(&((fv_worker_program *)user)->place, on_left);
}

/* ---- the beginning ---------------------------------------------------------------------- */

/* Checks the memory of a worker on the CPU; a GPU has memory of its own, which no control group limits. */
static fv_status check_room(const fv_worker_program *p) {
    const size_t kv = (size_t)fv_options_int(p->o, "kv-bytes");
    if (strcmp(p->engine.be.ops->name, "cpu") != 0) return FV_OK;
    FV_TRY(fv_memory_check("kv-bytes", kv));
    fv_worker_check_memory(fv_engine_weight_bytes(&p->engine), kv, fv_memory_limit());
    return FV_OK;
}

static fv_status open_engine(fv_worker_program *p) {
    const fv_options *o = p->o;
    char checkpoint[FV_HUB_PATH_MAX];
    const char *const *adapters;
    int32_t n_adapter = fv_options_list(o, "adapter", &adapters);
    FV_TRY(fv_checkpoint_find_pair(o, checkpoint));
    fv_engine_options engine = {.checkpoint = checkpoint,
                                .chat = fv_options_string(o, "chat"),
                                .backend = fv_options_string(o, "device"),
                                .isa = fv_options_string(o, "isa"),
                                .compute = fv_options_string(o, "compute"),
                                .kv_dtype = fv_options_string(o, "kv-dtype"),
                                .weights = fv_options_string(o, "weights"),
                                .adapter = adapters,
                                .n_adapter = n_adapter,
                                .gpu = (int32_t)fv_options_int(o, "gpu"),
                                .gpu_trace = fv_options_string(o, "gpu-trace"),
                                .threads = (int32_t)fv_options_int(o, "threads"),
                                .vision = p->kind->vision};
    fv_plugin_set_dir(fv_options_string(o, "plugin-dir"));
    FV_TRY(fv_registration_open(&p->place));
    FV_TRY(fv_engine_open(&engine, &p->engine));
    FV_TRY(check_room(p));
    /* Frames over NCCL are not encrypted: with TLS, `auto` does not choose it. */
    bool automatic = strcmp(fv_options_string(o, "transport"), "auto") == 0;
    const fv_peer_ops *pairs =
        automatic && fv_daemon_tls(p->daemon) ? NULL : p->engine.be.ops->pairs;
    return fv_peer_settings_from(o, p->engine.be.ops->name, pairs, &p->pairs);
}

static fv_status serve(fv_worker_program *p) {
    fv_rpc_service services[FV_WORKER_SERVICES_MAX];
    fv_daemon_listener listener = {
        .option = "listen", .offers = "services", .words = "listening on", .services = services};
    FV_TRY(open_engine(p));
    FV_TRY(p->kind->open(p));
    p->place.pulse = p->kind->pulse(p->worker);
    p->place.kept = p->kind->kept(p->worker);
    listener.n_service = p->kind->services(p->worker, services);
    FV_TRY(fv_daemon_serve(p->daemon, &listener, 1));
    return fv_daemon_name(p->daemon, p->kind->role, p->name);
}

fv_status fv_worker_run(const fv_options *o, const fv_worker_kind *kind) {
    fv_worker_program p = {.kind = kind, .o = o};
    fv_daemon_hooks hooks = {.user = &p,
                             .drain = drain,
                             .idle = kind->idle ? idle : NULL,
                             .stopped = stopped,
                             .metrics = kind->metrics,
                             .measure = measure_metrics,
                             .signs = signs,
                             .on_health = on_health,
                             .on_lost = on_lost};
    FV_TRY(fv_daemon_open(o, &hooks, &p.daemon));
    p.place = (fv_registration){
        .o = o, .daemon = p.daemon, .introduce = introduce, .measure = measure, .user = &p};
    fv_status st = serve(&p);
    if (st != FV_OK) fv_registration_give_up(&p.place, st);
    fv_daemon_run(p.daemon); /* also after a failed serve, to close everything that was opened */
    fv_daemon_close(p.daemon);
    fv_registration_close(&p.place);
    fv_engine_close(&p.engine);
    fv_arena_fini(&p.arena);
    return fv_registration_verdict(&p.place);
}
