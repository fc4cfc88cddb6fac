/* Sets a metric series from each field of a load. */
#include "serving/worker/load_metrics.h"

#include "telemetry/metrics.h"

static double share(const Fovea__Inference__V1__Load *l) {
    uint64_t used = l->bytes_held + l->bytes_granted;
    return l->bytes_capacity ? (double)used / (double)l->bytes_capacity : 0;
}

void fv_load_record(const Fovea__Inference__V1__Load *l) {
    const struct {
        fv_metric metric;
        int32_t series;
        double value;
    } rows[] = {
        {FV_METRIC_WAITING, 0, l->n_queued},
        {FV_METRIC_RUNNING, 0, l->n_running},
        {FV_METRIC_KV_USAGE, 0, share(l)},
        {FV_METRIC_KV_CAPACITY, 0, (double)l->bytes_capacity},
        {FV_METRIC_KV_POOL_HELD, 0, (double)l->bytes_held},
        {FV_METRIC_KV_POOL_GRANTED, 0, (double)l->bytes_granted},
        {FV_METRIC_KV_POOL_WAITING, 0, (double)l->bytes_waiting},
        {FV_METRIC_KV_POOL_KEPT, 0, (double)l->bytes_kept},
        {FV_METRIC_CONVERSATIONS, 0, l->n_kept},
        {FV_METRIC_KEPT_PROMPTS, 0, l->n_prefixes},
        {FV_METRIC_KEPT_PROMPT_BYTES, 0, (double)l->bytes_prefixes},
        {FV_METRIC_KEPT_PROMPT_IDLE, 0, (double)l->bytes_prefixes_idle},
        {FV_METRIC_KEPT_PROMPT_LOOKUPS, FV_FOUND_HIT, (double)l->n_prefixes_found},
        {FV_METRIC_KEPT_PROMPT_LOOKUPS, FV_FOUND_MISS, (double)l->n_prefixes_missed},
        {FV_METRIC_KEPT_PROMPTS_GIVEN_UP, 0, (double)l->n_prefixes_given_up},
        {FV_METRIC_UNSENT_TOKENS, 0, (double)l->tokens_kept},
        {FV_METRIC_UNSENT_BYTES, 0, (double)l->bytes_not_sent},
        {FV_METRIC_SLOTS, 0, l->slots},
        {FV_METRIC_PAUSED, 0, l->n_paused},
        {FV_METRIC_UNREAD, 0, l->n_unread},
        {FV_METRIC_PREEMPTIONS, 0, (double)l->n_preempted},
        {FV_METRIC_KV_PREEMPTIONS, 0, (double)l->n_preempted_for_kv},
        {FV_METRIC_EXPECTED, 0, l->tokens_expected},
        {FV_METRIC_PIXELS, 0, (double)l->pixels_held},
        {FV_METRIC_PROMPT_BYTES, 0, (double)l->bytes_prefix},
        {FV_METRIC_PROMPT_GIVEN_UP, 0, (double)l->n_prefix_given_up},
        {FV_METRIC_DISK_SEGMENTS, 0, (double)l->n_disk_segments},
        {FV_METRIC_DISK_BYTES, 0, (double)l->bytes_disk},
        {FV_METRIC_TIER_READ, 0, (double)l->bytes_tier_read},
        {FV_METRIC_TIER_WRITTEN, 0, (double)l->bytes_tier_written},
        {FV_METRIC_TIER_DAMAGED, 0, (double)l->n_tier_damaged},
        {FV_METRIC_DISK_GIVEN_UP, 0, (double)l->n_disk_given_up},
        {FV_METRIC_TIER_FAILED, 0, (double)l->n_tier_failed},
        {FV_METRIC_WORKER_REQUESTS, 0, (double)l->n_done},
        {FV_METRIC_WORKER_FAILURES, 0, (double)l->n_failed},
        {FV_METRIC_WORKER_TOKENS_IN, 0, (double)l->tokens_in},
        {FV_METRIC_WORKER_TOKENS_OUT, 0, (double)l->tokens_out},
        {FV_METRIC_BUSY, 0, l->seconds_busy},
        {FV_METRIC_EVICTED, 0, (double)l->entries_evicted},
        {FV_METRIC_RECOMPRESSED, 0, (double)l->tokens_recompressed},
        {FV_METRIC_HANDOFF_BYTES, FV_TRANSPORT_GRPC, (double)l->bytes_grpc},
        {FV_METRIC_HANDOFF_BYTES, FV_TRANSPORT_NCCL, (double)l->bytes_nccl},
        {FV_METRIC_HANDOFF_RETRIES, 0, (double)l->n_fallback},
        {FV_METRIC_PEER_LINKS, 0, l->n_pairs},
        {FV_METRIC_PEER_LINKS_FAILED, 0, (double)l->n_pairs_failed},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fv_metric_set(rows[i].metric, rows[i].series, rows[i].value);
}
