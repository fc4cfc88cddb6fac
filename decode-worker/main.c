/* The program fovea-decode: its options, and the decode worker that it opens with them. */
#include "decode-worker/service/worker.h"
#include "serving/worker/program.h"
#include "telemetry/metrics.h"

static const fv_option table[] = {
    FV_WORKER_OPTIONS,
    {"kv-bytes", "FOVEA_KV_BYTES", FV_OPTION_INT, "N", "0",
     "size of the KV pool in bytes; 0: unlimited", 0, 9e15},
    {"batch", "FOVEA_BATCH", FV_OPTION_INT, "N", "64",
     "maximum number of running requests; others wait", 1, 4096},
    {"prompt-tokens", "FOVEA_PROMPT_TOKENS", FV_OPTION_INT, "N", "256",
     "maximum prompt tokens of continued conversations per step", 1, 1 << 16},
    {"queue", "FOVEA_QUEUE", FV_OPTION_INT, "N", "256",
     "maximum number of waiting requests; excess requests are rejected", 1, 1 << 16},
    {"waiting", "FOVEA_WAITING", FV_OPTION_INT, "N", "256",
     "maximum number of hand-offs waiting for memory, oldest request first; excess hand-offs are "
     "rejected",
     1, 1 << 16},
    {"memory-wait-ms", "FOVEA_MEMORY_WAIT_MS", FV_OPTION_INT, "MS", "30000",
     "maximum time a hand-off waits for memory", 0, 3600000},
    {"lease-ms", "FOVEA_LEASE_MS", FV_OPTION_INT, "MS", "30000",
     "silence of a prefill worker after which its grant expires", 10, 3600000},
    {"attach-ms", "FOVEA_ATTACH_MS", FV_OPTION_INT, "MS", "30000",
     "time for the router to attach to a hand-off", 10, 3600000},
    {"keep-ms-max", "FOVEA_KEEP_MS_MAX", FV_OPTION_INT, "MS", "600000",
     "maximum time a conversation is kept after an answer; 0: never", 0, 86400000},
    {"keep-bytes", "FOVEA_KEEP_BYTES", FV_OPTION_INT, "N", "0",
     "share of the KV pool for kept conversations, in bytes; 0: half of --kv-bytes", 0, 9e15},
    FV_WORKER_DEVICE_OPTIONS,
};

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
    opt.batch_max = (int32_t)fv_options_int(o, "batch");
    opt.prompt_tokens = (int32_t)fv_options_int(o, "prompt-tokens");
    opt.queue_max = (int32_t)fv_options_int(o, "queue");
    opt.keep_s_max = 1e-3 * (double)fv_options_int(o, "keep-ms-max");
    opt.keep_bytes = (size_t)fv_options_int(o, "keep-bytes");
    opt.probe_s = 1e-3 * (double)fv_options_int(o, "probe-ms");
    opt.waiting_max = (int32_t)fv_options_int(o, "waiting");
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
                                        .signs = signs,
                                        .load = load,
                                        .record = record,
                                        .limits = limits,
                                        .drain = drain,
                                        .idle = idle,
                                        .close = close_worker};
    return fv_worker_run(o, &kind);
}

int main(int argc, char **argv) {
    static const fv_daemon_program self = {
        .name = "fovea-decode",
        .usage = "fovea-decode --checkpoint DIR --fleet-token-file FILE --router HOST:PORT "
                 "[options]",
        .about = "Receives prefilled requests from prefill workers and generates their answers.",
        .table = table,
        .n_option = sizeof table / sizeof *table,
        .run = run};
    return fv_daemon_main(&self, argc, argv);
}
