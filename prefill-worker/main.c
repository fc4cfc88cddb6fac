/* The program fovea-prefill: its options, and the prefill worker that it opens with them. */
#include "common/log.h"
#include "prefill-worker/image/image.h"
#include "prefill-worker/service/worker.h"
#include "serving/worker/program.h"
#include "telemetry/metrics.h"
#include "video/video.h"

/* clang-format off */
static const fv_option table[] = {
    FV_WORKER_OPTIONS,
    {"kv-bytes", "FOVEA_KV_BYTES", FV_OPTION_INT, "N", "0",
     "size of the KV pool in bytes; 0: unlimited", 0, 9e15},
    {"cache-bytes", "FOVEA_CACHE_BYTES", FV_OPTION_INT, "N", "268435456",
     "size of the cache of encoded images in bytes; 0: no cache", 0, 9e15},
    {"pixels", "FOVEA_PIXELS", FV_OPTION_INT, "N", "536870912",
     "limit of pixels waiting to be decoded; excess requests are rejected", 1, 1e12},
    {"request-pixels", "FOVEA_REQUEST_PIXELS", FV_OPTION_INT, "N", "268435456",
     "limit of pixels per request, over all its images", 1, 1e12},
    {"queue", "FOVEA_QUEUE", FV_OPTION_INT, "N", "32",
     "maximum number of requests; excess requests are rejected", 1, 65536},
    {"batch", "FOVEA_BATCH", FV_OPTION_INT, "N", "4",
     "maximum number of requests in a prefill batch", 1, FV_PREFILL_BATCH_MAX},
    {"chunk", "FOVEA_CHUNK", FV_OPTION_INT, "N", "512",
     "prefill chunk size in tokens; 0: the whole prompt; affects memory and speed, never the result", 0, 1 << 20},
    {"export-layers", "FOVEA_EXPORT_LAYERS", FV_OPTION_INT, "N", "0",
     "layers sent together, while later ones are computed; 0: an eighth of them", 0, 256},
    FV_WORKER_DEVICE_OPTIONS,
};
/* clang-format on */

static fv_status open_worker(fv_worker_program *p) {
    const fv_options *o = p->o;
    fv_prefill_worker *worker;
    fv_prefill_worker_options opt = {.bridge = fv_daemon_bridge(p->daemon),
                                     .engine = &p->engine,
                                     .callers = fv_registration_callers(&p->place),
                                     .tls = fv_daemon_tls(p->daemon),
                                     .name = p->name,
                                     .kv_dtype = p->engine.kv_dtype,
                                     .kv_bytes = (size_t)fv_options_int(o, "kv-bytes"),
                                     .cache_bytes = (size_t)fv_options_int(o, "cache-bytes"),
                                     .pixels = fv_options_int(o, "pixels"),
                                     .pixels_request = fv_options_int(o, "request-pixels"),
                                     .queue = (int32_t)fv_options_int(o, "queue"),
                                     .batch = (int32_t)fv_options_int(o, "batch"),
                                     .chunk = (int32_t)fv_options_int(o, "chunk"),
                                     .export_layers = (int32_t)fv_options_int(o, "export-layers"),
                                     .pairs = {.ops = p->pairs.ops,
                                               .most = p->pairs.most,
                                               .join_s = p->pairs.join_s,
                                               .late_s = p->pairs.late_s,
                                               .wait = p->pairs.wait},
                                     .probe_s = 1e-3 * (double)fv_options_int(o, "probe-ms"),
                                     .on_change = fv_worker_program_touch,
                                     .user = p};
    FV_TRY(fv_prefill_worker_open(&opt, &worker));
    if (fv_video_check_helper() != FV_OK)
        FV_LOG(WARN, PREFILL, "event=no-image-decoder reason=\"%s\"", fv_last_error());
    p->worker = worker;
    return FV_OK;
}

static int32_t services(void *worker, fv_rpc_service out[FV_WORKER_SERVICES_MAX]) {
    out[0] = fv_prefill_worker_service(worker);
    return 1;
}

static fv_pulse *pulse(void *worker) { return fv_prefill_worker_pulse(worker); }

static fv_vital_signs signs(void *worker) { return fv_prefill_worker_signs(worker); }

static void load(void *worker, Fovea__Inference__V1__Load *out) {
    fv_prefill_worker_load(worker, out);
}

static void limits(const fv_options *o, Fovea__Inference__V1__Limits *out) {
    fv_image_limits image = fv_image_limits_default();
    out->bytes_image = image.bytes_max;
    out->side_max = (uint32_t)image.side_max;
    out->pixels_max = (uint64_t)image.pixels_max;
    out->pixels_request = (uint64_t)fv_options_int(o, "request-pixels");
}

static void close_worker(void *worker, void (*closed)(void *user), void *user) {
    fv_prefill_worker_close(worker, closed, user);
}

static fv_status run(const fv_options *o) {
    static const fv_worker_kind kind = {.role = "prefill",
                                        .fleet_role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL,
                                        .vision = true,
                                        .metrics = FV_DAEMON_PREFILL,
                                        .open = open_worker,
                                        .services = services,
                                        .pulse = pulse,
                                        .signs = signs,
                                        .load = load,
                                        .limits = limits,
                                        .close = close_worker};
    return fv_worker_run(o, &kind);
}

int main(int argc, char **argv) {
    static const fv_daemon_program self = {
        .name = "fovea-prefill",
        .usage = "fovea-prefill --checkpoint DIR --fleet-token-file FILE --router HOST:PORT "
                 "[options]",
        .about = "Prefills requests: computes the first token from images and prompt, and sends "
                 "the KV to a decode worker.",
        .table = table,
        .n_option = sizeof table / sizeof *table,
        .run = run};
    return fv_daemon_main(&self, argc, argv);
}
