/* Records the worker's metrics. On the loop thread. */
#include "decode-worker/service/internal.h"
#include "telemetry/metrics.h"

void fv_answer_record(const fv_answer_report *r, bool follows) {
    if (follows) {
        fv_metric_observe(FV_METRIC_STEP_TIME, FV_STEP_QUEUE, r->s_attach, NULL);
        fv_metric_observe(FV_METRIC_STEP_TIME, FV_STEP_PREFILL, r->s_prefill, NULL);
    } else {
        fv_metric_observe(FV_METRIC_HANDOFF_TIME, FV_PHASE_ATTACH, r->s_attach, NULL);
    }
    fv_metric_observe(FV_METRIC_STEP_TIME, FV_STEP_DECODE, r->s_decode, NULL);
    fv_metric_add(FV_METRIC_DRAFTS, FV_DRAFTS_KEPT, (double)r->n_drafts_kept);
    fv_metric_add(FV_METRIC_DRAFTS, FV_DRAFTS_REJECTED, (double)(r->n_drafted - r->n_drafts_kept));
    if (r->s_drafts_saved > 0) fv_metric_add(FV_METRIC_DRAFTS_SAVED, 0, r->s_drafts_saved);
    if (r->recompressed.rows)
        fv_metric_observe(FV_METRIC_STEP_TIME, FV_STEP_RECOMPRESS, r->recompressed.seconds, NULL);
}

void fv_decode_worker_record(const fv_decode_worker *w) {
    fv_receiver_counters c = fv_decode_worker_handoffs(w);
    fv_metric_set(FV_METRIC_HANDOFFS, FV_OUTCOME_GRANTED, (double)c.granted);
    fv_metric_set(FV_METRIC_HANDOFFS, FV_OUTCOME_COMMITTED, (double)c.committed);
    fv_metric_set(FV_METRIC_HANDOFFS, FV_OUTCOME_ATTACHED, (double)c.attached);
    fv_metric_set(FV_METRIC_HANDOFFS, FV_OUTCOME_ABORTED, (double)c.aborted);
    fv_metric_set(FV_METRIC_HANDOFFS, FV_OUTCOME_EXPIRED, (double)c.expired);
    for (int i = 0; i < FV_N_REFUSAL; i++)
        fv_metric_set(FV_METRIC_HANDOFFS_REFUSED, i, (double)c.refused[i]);
}
