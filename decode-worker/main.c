/* The program fovea-decode: its options, and the decode worker that it opens with them. */
#include <string.h>

#include "decode-worker/service/worker.h"
#include "serving/worker/program.h"
#include "telemetry/metrics.h"

static fv_status read_reserve(const fv_options *o, bool *all) {
    const char *s = fv_options_string(o, "reserve");
    *all = strcmp(s, "full") == 0;
    if (*all || strcmp(s, "predicted") == 0) return FV_OK;
    return FV_FAIL(FV_EINVAL, "--reserve is '%s'; it must be predicted or full", s);
}

static fv_status read_speculate(const fv_options *o, bool *on) {
    const char *s = fv_options_string(o, "speculate");
    *on = strcmp(s, "on") == 0;
    if (*on || strcmp(s, "off") == 0) return FV_OK;
    return FV_FAIL(FV_EINVAL, "--speculate is '%s'; it must be on or off", s);
}

/* The share of kept prompts where the pool has no limit that would have them given up. */
static const size_t prefix_bytes_default = (size_t)1 << 30;

static size_t prefix_bytes(const fv_options *o, size_t kv_bytes) {
    int64_t asked = fv_options_int(o, "kv-prefix-bytes");
    if (asked >= 0) return (size_t)asked;
    return kv_bytes ? kv_bytes : prefix_bytes_default;
}

static fv_status open_worker(fv_worker_program *p) {
    const fv_options *o = p->o;
    fv_decode_worker *worker;
    fv_decode_options opt = fv_decode_options_default();
    opt.pairs = p->pairs.ops;
    opt.pairs_most = p->pairs.most;
    opt.engine = &p->engine;
    opt.name = p->name;
    opt.callers = fv_registration_callers(&p->place);
    opt.kv_dtype = p->engine.kv_dtype;
    opt.kv_bytes = (size_t)fv_options_int(o, "kv-bytes");
    opt.prefix_bytes = prefix_bytes(o, opt.kv_bytes);
    opt.rest_most = (int32_t)fv_options_int(o, "rest-tokens");
    opt.batch_max = (int32_t)fv_options_int(o, "batch");
    FV_TRY(read_reserve(o, &opt.reserve_all));
    FV_TRY(read_speculate(o, &opt.speculate));
    fv_engine_options draft = {.checkpoint = fv_options_string(o, "draft"),
                               .backend = fv_options_string(o, "device"),
                               .isa = fv_options_string(o, "isa"),
                               .weights = fv_options_string(o, "draft-weights"),
                               .gpu = (int32_t)fv_options_int(o, "gpu"),
                               .threads = (int32_t)fv_options_int(o, "threads")};
    if (draft.checkpoint) opt.draft = &draft;
    opt.draft_kv_bytes = (size_t)fv_options_int(o, "draft-kv-bytes");
    opt.queue_max = (int32_t)fv_options_int(o, "queue");
    opt.keep_s_max = 1e-3 * (double)fv_options_int(o, "keep-ms-max");
    opt.keep_bytes = (size_t)fv_options_int(o, "keep-bytes");
    opt.probe_s = 1e-3 * (double)fv_options_int(o, "probe-ms");
    opt.wait_s_max = 1e-3 * (double)fv_options_int(o, "memory-wait-ms");
    opt.on_change = fv_worker_program_touch;
    opt.user = p;
    opt.grants.lease_s = 1e-3 * (double)fv_options_int(o, "lease-ms");
    opt.grants.attach_s = 1e-3 * (double)fv_options_int(o, "attach-ms");
    FV_TRY(fv_decode_worker_open(fv_daemon_bridge(p->daemon), &opt, &worker));
    p->worker = worker;
    return FV_OK;
}

static int32_t services(void *worker, fv_rpc_service out[FV_WORKER_SERVICES_MAX]) {
    fv_decode_worker_services(worker, out);
    return FV_DECODE_SERVICES;
}

static fv_pulse *pulse(void *worker) { return fv_decode_worker_pulse(worker); }

static fv_kept_log *kept(void *worker) { return fv_decode_worker_kept(worker); }

static fv_vital_signs signs(void *worker) { return fv_decode_worker_signs(worker); }

static void load(void *worker, Fovea__Inference__V1__Load *out) {
    *out = fv_decode_worker_load(worker);
}

static void record(void *worker) { fv_decode_worker_record(worker); }

static void limits(const fv_options *o, Fovea__Inference__V1__Limits *out) {
    out->keep_ms_max = (uint32_t)fv_options_int(o, "keep-ms-max");
}

static void drain(void *worker) { fv_decode_worker_drain(worker); }

static bool idle(void *worker) { return fv_decode_worker_idle(worker); }

static void close_worker(void *worker, void (*closed)(void *user), void *user) {
    fv_decode_worker_close(worker, closed, user);
}

static fv_status run(const fv_options *o) {
    static const fv_worker_kind kind = {.role = "decode",
                                        .fleet_role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE,
                                        .metrics = FV_DAEMON_DECODE,
                                        .open = open_worker,
                                        .services = services,
                                        .pulse = pulse,
                                        .kept = kept,
                                        .signs = signs,
                                        .load = load,
                                        .record = record,
                                        .limits = limits,
                                        .drain = drain,
                                        .idle = idle,
                                        .close = close_worker};
    return fv_worker_run(o, &kind);
}

int main(int argc, char **argv) { return fv_daemon_main(FV_PROGRAM_DECODE, run, argc, argv); }
