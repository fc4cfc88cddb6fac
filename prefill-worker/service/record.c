/* Records a successful task in the metrics. On the loop thread. */
#include "prefill-worker/service/internal.h"
#include "telemetry/metrics.h"

static void step(int32_t which, double seconds) {
    fv_metric_observe(FV_METRIC_STEP_TIME, which, seconds, NULL);
}

static void phase(int32_t which, double seconds) {
    fv_metric_observe(FV_METRIC_HANDOFF_TIME, which, seconds, NULL);
}

/* Records factors only: codes have no rank. */
static void tensor(int32_t which, uint32_t rank, float error) {
    if (rank == 0) return;
    fv_metric_observe(FV_METRIC_RANK, which, rank, NULL);
    fv_metric_observe(FV_METRIC_ERROR, which, (double)error, NULL);
}

static void record_packed(const fv_report_message *r) {
    if (r->n_packed == 0) return;
    step(FV_STEP_PACK, r->seconds_pack);
    for (size_t i = 0; i < r->n_packed; i++) {
        const Fovea__Inference__V1__PackedLayer *l = r->packed[i];
        tensor(FV_TENSOR_KEYS, l->rank_k, l->error_k);
        tensor(FV_TENSOR_VALUES, l->rank_v, l->error_v);
        tensor(FV_TENSOR_TEXT_KEYS, l->rank_text, l->error_text);
    }
}

static void record_transfer(const Fovea__Inference__V1__Transfer *x) {
    if (!x) return;
    phase(FV_PHASE_OPEN, x->seconds_open);
    phase(FV_PHASE_SEND, x->seconds_send);
    phase(FV_PHASE_EXPOSED, x->seconds_exposed);
    phase(FV_PHASE_COMMIT, x->seconds_commit);
    fv_metric_add(FV_METRIC_HANDOFF_FRAMES, 0, (double)x->n_frames);
}

/* Records what was kept of the prompt. */
static void record_prefix(const fv_task *t, const fv_report_message *r) {
    bool off = !t->prefill.prefixes || t->worker->opt.prefix_bytes == 0;
    int32_t outcome = off                  ? FV_PROMPT_OFF
                      : !t->prefix.taken   ? FV_PROMPT_APART
                      : r->n_prompt_cached ? FV_PROMPT_HIT
                                           : FV_PROMPT_MISS;
    fv_metric_add(FV_METRIC_PROMPT_LOOKUPS, outcome, 1);
    fv_metric_add(FV_METRIC_PROMPT_CACHED, 0, r->n_prompt_cached);
    fv_metric_add(FV_METRIC_PROMPT_FETCHED, 0, r->n_prompt_fetched);
    fv_metric_add(FV_METRIC_PROMPT_SAVED, 0, r->seconds_saved);
}

void fv_task_record(const fv_task *t, const fv_report_message *r) {
    step(FV_STEP_QUEUE, r->seconds_queued);
    if (r->n_images) step(FV_STEP_PREPROCESS, r->seconds_preprocess);
    if (r->n_images) step(FV_STEP_VISION, r->seconds_vision);
    step(FV_STEP_PREFILL, r->seconds_prefill);
    fv_metric_add(FV_METRIC_IMAGES, 0, r->n_images);
    fv_metric_add(FV_METRIC_IMAGES_CACHED, 0, r->n_images_cached);
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_stage_stats_stage *stage = &t->prefill.stats.stage[s];
        fv_metric_add(FV_METRIC_ENTRIES_IN, s, (double)stage->entries_in);
        fv_metric_add(FV_METRIC_ENTRIES_KEPT, s, (double)stage->entries_out);
    }
    record_prefix(t, r);
    record_packed(r);
    record_transfer(r->transfer);
}
