/* The program fovea-prefill: its options, and the prefill worker that it opens with them. */
#include "auth/fleet_secret.h"
#include "common/limits.h"
#include "common/log.h"
#include "kv/tier/disk.h"
#include "kv/tier/store.h"
#include "prefill-worker/image/image.h"
#include "prefill-worker/service/worker.h"
#include "serving/worker/program.h"
#include "serving/worker/room.h"
#include "telemetry/metrics.h"
#include "video/video.h"

/* Bytes for KV that is kept of prompts. A GPU's memory is not this process's: there a fixed size is taken. */
static size_t prefix_bytes(const fv_worker_program *p) {
    int64_t given = fv_options_int(p->o, "prefix-bytes");
    if (given >= 0) return (size_t)given;
    if (p->engine.be.device != fv_device_host()) return (size_t)1 << 30;
    return fv_worker_spare_memory(fv_engine_weight_bytes(&p->engine),
                                  (size_t)fv_options_int(p->o, "kv-bytes"), fv_memory_limit());
}

/* The tiers of --kv-disk and --kv-store. */
static fv_kv_tier *tier[FV_PREFILL_TIERS_MAX];
static int32_t n_tier;

static fv_status open_disk(const fv_options *o, const fv_key *secret) {
    const char *dir = fv_options_string(o, "kv-disk");
    if (!dir) return FV_OK;
    FV_TRY(
        fv_kv_disk_open(dir, (uint64_t)fv_options_int(o, "kv-disk-bytes"), secret, &tier[n_tier]));
    n_tier++;
    return FV_OK;
}

static fv_status open_store(const fv_options *o, const fv_key *secret) {
    const char *url = fv_options_string(o, "kv-store"),
               *fleet = fv_options_string(o, "fleet-token-file");
    fv_key key = {0};
    if (!url) return FV_OK;
    if (!secret && !fleet)
        return FV_FAIL(FV_EINVAL,
                       "--kv-store needs a secret that all workers share, as what others "
                       "can write is authenticated with it: --kv-key-file or "
                       "--fleet-token-file");
    if (!secret) FV_TRY(fv_fleet_secret_read(fleet, &key));
    fv_kv_store_options opt = {.url = url,
                               .ca = fv_options_string(o, "kv-store-ca"),
                               .deadline_ms = fv_options_int(o, "kv-store-ms"),
                               .secret = secret ? secret : &key};
    fv_status st = fv_kv_store_open(&opt, &tier[n_tier]);
    fv_key_wipe(&key);
    n_tier += st == FV_OK;
    return st;
}

static fv_status open_tiers(const fv_options *o, size_t prefix_bytes) {
    const char *file = fv_options_string(o, "kv-key-file");
    fv_key key = {0};
    bool wanted = fv_options_string(o, "kv-disk") || fv_options_string(o, "kv-store");
    if (!wanted) return FV_OK;
    if (prefix_bytes == 0)
        return FV_FAIL(FV_EINVAL,
                       "--kv-disk and --kv-store extend the memory of --prefix-bytes, which is 0");
    if (file) FV_TRY(fv_fleet_secret_read(file, &key));
    fv_status st = open_disk(o, file ? &key : NULL);
    if (st == FV_OK) st = open_store(o, file ? &key : NULL);
    fv_key_wipe(&key);
    return st;
}

static void close_tiers(void) {
    while (n_tier > 0) {
        fv_kv_tier *t = tier[--n_tier];
        t->ops->close(t);
    }
}

static fv_status open_worker(fv_worker_program *p) {
    const fv_options *o = p->o;
    fv_prefill_worker *worker;
    FV_TRY(open_tiers(o, prefix_bytes(p)));
    fv_prefill_worker_options opt = {.bridge = fv_daemon_bridge(p->daemon),
                                     .engine = &p->engine,
                                     .callers = fv_registration_callers(&p->place),
                                     .tls = fv_daemon_tls(p->daemon),
                                     .name = p->name,
                                     .kv_dtype = p->engine.kv_dtype,
                                     .kv_bytes = (size_t)fv_options_int(o, "kv-bytes"),
                                     .cache_bytes = (size_t)fv_options_int(o, "cache-bytes"),
                                     .prefix_bytes = prefix_bytes(p),
                                     .tier = {tier[0], tier[1]},
                                     .n_tier = n_tier,
                                     .pixels = fv_options_int(o, "pixels"),
                                     .pixels_request = fv_options_int(o, "request-pixels"),
                                     .queue = (int32_t)fv_options_int(o, "queue"),
                                     .batch = (int32_t)fv_options_int(o, "batch"),
                                     .chunk = (int32_t)fv_options_int(o, "chunk"),
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

static fv_kept_log *kept(void *worker) { return fv_prefill_worker_kept(worker); }

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
                                        .kept = kept,
                                        .signs = signs,
                                        .load = load,
                                        .limits = limits,
                                        .close = close_worker};
    fv_status st = fv_worker_run(o, &kind);
    close_tiers();
    return st;
}

int main(int argc, char **argv) { return fv_daemon_main(FV_PROGRAM_PREFILL, run, argc, argv); }
