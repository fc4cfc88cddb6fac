/* Converts a fleet's report to the report of the one-process path. Counts that do not fit make the
 * message invalid. Pure function. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/remote.h"

typedef Fovea__Inference__V1__Report report_message;

/* A static copy of the transport's name: the report borrows it. */
static const char *transport_name(const Fovea__Inference__V1__Transfer *t) {
    static const char *const names[] = {"grpc", "inproc", "nccl"};
    for (size_t i = 0; t && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], t->transport) == 0) return names[i];
    return t && t->transport[0] ? "other" : "none";
}

static fv_finish finish_of(Fovea__Inference__V1__FinishReason reason) {
    switch (reason) {
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH: return FV_FINISH_LENGTH;
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS: return FV_FINISH_EOS;
    case FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_STOP: return FV_FINISH_STOP;
    default: return FV_FINISH_NOT;
    }
}

/* FV_N_STAGE for an unknown stage: a note of the router, or of a newer fleet. */
static int stage_of(const char *name) {
    int s = 0;
    while (s < FV_N_STAGE && strcmp(name, fv_stage_name((fv_stage)s)) != 0) s++;
    return s;
}

static void take_stages(const report_message *m, fv_report *out) {
    for (size_t i = 0; i < m->n_notes; i++) {
        int s = stage_of(m->notes[i]->stage);
        if (s == FV_N_STAGE) continue;
        char *to = m->notes[i]->decided ? out->decided[s] : out->note[s];
        snprintf(to, FV_PLAN_NOTE_MAX, "%s", m->notes[i]->text);
    }
    for (size_t i = 0; i < m->n_stages; i++) {
        int s = stage_of(m->stages[i]->stage);
        if (s < FV_N_STAGE)
            out->account.stage[s] =
                (fv_stage_stats_stage){.entries_in = m->stages[i]->entries_in,
                                       .entries_out = m->stages[i]->entries_out,
                                       .n_layer = (int32_t)m->stages[i]->n_layer};
    }
}

static void take_mapped(const report_message *m, fv_report *out) {
    for (size_t i = 0; i < m->n_mapped && i < FV_PLAN_MAX_MAPPED; i++) {
        const Fovea__Inference__V1__MappedLayer *from = m->mapped[i];
        fv_report_mapped *to = &out->mapped[out->n_mapped++];
        snprintf(to->stage, sizeof to->stage, "%s", from->stage);
        snprintf(to->param, sizeof to->param, "%s", from->parameter);
        snprintf(to->written, sizeof to->written, "%s", from->written);
        snprintf(to->mapping, sizeof to->mapping, "%s", from->mapping);
        to->layer = (int32_t)from->layer;
    }
}

static fv_status take_packed(const report_message *m, fv_report *out) {
    fv_pack_report *packed = &out->packed;
    if (m->n_packed > FV_PLAN_MAX_LAYERS)
        return FV_FAIL(FV_EDATA, "the fleet reports %zu packed layers", m->n_packed);
    packed->n_layer = (int32_t)m->n_packed;
    packed->bytes_raw = m->bytes_packed_raw;
    packed->bytes = m->bytes_packed;
    packed->unsent = m->bytes_unsent;
    packed->seconds = m->seconds_pack;
    for (size_t l = 0; l < m->n_packed; l++)
        packed->layer[l] = (fv_packed_layer){
            .rank = {(int32_t)m->packed[l]->rank_k, (int32_t)m->packed[l]->rank_v},
            .error = {m->packed[l]->error_k, m->packed[l]->error_v},
            .rank_text = (int32_t)m->packed[l]->rank_text,
            .code_text = (int32_t)m->packed[l]->text_bits,
            .error_text = m->packed[l]->error_text,
            .code = (int32_t)m->packed[l]->code_bits,
            .merged = m->packed[l]->merged,
            .row_bits = (int32_t)m->packed[l]->row_bits,
            .n_own = (int32_t)m->packed[l]->own_directions,
            .code_keys = (int32_t)m->packed[l]->key_bits};
    return FV_OK;
}

static fv_recompress_report recompressed_of(const Fovea__Inference__V1__Recompressed *m) {
    if (!m) return (fv_recompress_report){0};
    return (fv_recompress_report){.n_layer = (int32_t)m->n_layer,
                                  .rows = m->tokens,
                                  .bytes = m->bytes_freed,
                                  .error = m->error,
                                  .seconds = m->seconds};
}

static fv_status take_lists(const report_message *m, fv_report *out) {
    if (m->n_visual_tokens > FV_PLAN_MAX_LAYERS)
        return FV_FAIL(FV_EDATA, "the fleet reports %zu layers", m->n_visual_tokens);
    if (m->n_digests != m->n_generated)
        return FV_FAIL(FV_EDATA, "the fleet reports %zu digests for %u tokens", m->n_digests,
                       m->n_generated);
    if (m->n_visual_tokens_held > m->n_visual_tokens)
        return FV_FAIL(FV_EDATA, "the fleet reports %zu layers that hold and %zu",
                       m->n_visual_tokens_held, m->n_visual_tokens);
    for (size_t l = 0; l < m->n_visual_tokens_held; l++)
        out->account.visual_tokens_held[l] = (int32_t)m->visual_tokens_held[l];
    out->n_layer = (int32_t)m->n_visual_tokens;
    for (size_t l = 0; l < m->n_visual_tokens; l++)
        out->visual_tokens[l] = (int32_t)m->visual_tokens[l];
    out->digest = calloc(m->n_digests + 1, sizeof *out->digest);
    if (!out->digest) return FV_FAIL(FV_ENOMEM, "out of memory for the report");
    if (m->n_digests) memcpy(out->digest, m->digests, m->n_digests * sizeof *m->digests);
    return FV_OK;
}

fv_status fv_kept_map_from_message(const report_message *m, fv_arena *arena, fv_kept_map *out) {
    fv_kept_map kept = {.n_visual = (int32_t)m->n_encoded};
    uint32_t next = 0;
    FV_TRY(FV_ARENA_NEW(arena, m->n_kept, kept.group));
    for (size_t i = 0; i < m->n_kept; i++) {
        const Fovea__Inference__V1__KeptTokens *k = m->kept[i];
        bool scored = k->score.len > 0;
        if (k->layer != next || k->n_layer == 0 || k->n_layer > FV_PLAN_MAX_LAYERS ||
            k->heads.len != m->n_encoded || (scored && k->score.len != m->n_encoded))
            return FV_FAIL(FV_EDATA, "the fleet's report of kept tokens is inconsistent");
        next += k->n_layer;
        kept.group[kept.n_group++] = (fv_kept_map_group){.layer = (int32_t)k->layer,
                                                         .n_layer = (int32_t)k->n_layer,
                                                         .heads = k->heads.data,
                                                         .score = scored ? k->score.data : NULL};
    }
    if (next != m->n_visual_tokens)
        return FV_FAIL(FV_EDATA,
                       "the fleet reports kept tokens of %u layers, but the model has %zu", next,
                       m->n_visual_tokens);
    *out = kept;
    return FV_OK;
}

fv_status fv_report_from_message(const report_message *m, Fovea__Inference__V1__FinishReason finish,
                                 fv_report *out) {
    if (!m) return FV_FAIL(FV_EDATA, "the fleet sent no report");
    fv_report r = {.n_prompt = (int32_t)m->n_prompt,
                   .n_visual = (int32_t)m->n_visual,
                   .n_encoded = (int32_t)m->n_encoded,
                   .n_text = (int32_t)m->n_text,
                   .n_image = (int32_t)m->n_images,
                   .n_image_cached = (int32_t)m->n_images_cached,
                   .n_prompt_cached = (int32_t)m->n_prompt_cached,
                   .n_from_disk = (int32_t)m->n_prompt_fetched,
                   .s_saved = m->seconds_saved,
                   .n_drafted = m->n_drafted,
                   .n_drafts_kept = m->n_drafts_kept,
                   .s_drafts_saved = m->seconds_drafts_saved,
                   .n_generated = (int32_t)m->n_generated,
                   .bytes_raw = m->bytes_raw,
                   .bytes_bound = m->bytes_bound,
                   .bytes_visual = m->bytes_visual,
                   .bytes_text = m->bytes_text,
                   .bytes_visual_end = m->bytes_visual_end,
                   .bytes_text_end = m->bytes_text_end,
                   .bytes_tables_end = m->bytes_tables_end,
                   .entries_evicted = m->entries_evicted,
                   .recompressed = recompressed_of(m->recompressed),
                   .transport = transport_name(m->transfer),
                   .s_preprocess = m->seconds_preprocess,
                   .s_vision = m->seconds_vision,
                   .s_prefill = m->seconds_prefill,
                   .s_first_token = m->seconds_first_token,
                   .s_decode = m->seconds_decode,
                   .finish = finish_of(finish)};
    if (m->transfer) {
        r.bytes_sent = m->transfer->bytes_sent;
        r.frames = m->transfer->n_frames;
        r.bytes_pair = m->transfer->bytes_pair;
        r.n_fallback = m->transfer->n_fallback;
        r.tokens_unsent = m->transfer->tokens_kept;
        r.bytes_unsent = m->transfer->bytes_kept;
        r.s_handoff = m->transfer->seconds_open + m->transfer->seconds_exposed;
    }
    snprintf(r.policy, sizeof r.policy, "%s", m->policy);
    take_stages(m, &r);
    take_mapped(m, &r);
    FV_TRY(take_packed(m, &r));
    FV_TRY(take_lists(m, &r));
    *out = r;
    return FV_OK;
}
