/* Merges the two halves of a report: fields about the decoding replace those of the prefill worker's half.
 * Pure functions. */
#include "router/merge.h"

#include <string.h>

typedef Fovea__Inference__V1__Report report_message;

static fv_status join_transfer(const report_message *b, fv_arena *arena, report_message *out) {
    if (!out->transfer || !b->transfer) return FV_OK;
    Fovea__Inference__V1__Transfer *t;
    FV_TRY(FV_ARENA_NEW(arena, 1, t));
    *t = *out->transfer;
    t->seconds_attach = b->transfer->seconds_attach;
    out->transfer = t;
    return FV_OK;
}

static fv_status add_decode(const report_message *b, fv_arena *arena, report_message *out) {
    FV_TRY(join_transfer(b, arena, out));
    out->bytes_visual_end = b->bytes_visual_end;
    out->bytes_text_end = b->bytes_text_end;
    out->bytes_tables_end = b->bytes_tables_end;
    out->entries_evicted = b->entries_evicted;
    out->recompressed = b->recompressed;
    out->seconds_decode = b->seconds_decode;
    if (b->seconds_prefill > 0) { /* the end of the prompt was computed there */
        out->seconds_prefill = b->seconds_prefill;
        out->bytes_visual = b->bytes_visual;
        out->bytes_text = b->bytes_text;
    }
    out->n_drafted = b->n_drafted;
    out->n_drafts_kept = b->n_drafts_kept;
    out->seconds_drafts_saved = b->seconds_drafts_saved;
    return FV_OK;
}

static fv_status add_note(const char *text, fv_arena *arena, report_message *out) {
    Fovea__Inference__V1__StageNote *note, **all;
    FV_TRY(FV_ARENA_NEW(arena, 1, note));
    FV_TRY(FV_ARENA_NEW(arena, out->n_notes + 1, all));
    fovea__inference__v1__stage_note__init(note);
    note->stage = (char *)"report";
    note->text = (char *)(uintptr_t)text;
    if (out->n_notes) memcpy(all, out->notes, out->n_notes * sizeof *all);
    all[out->n_notes++] = note;
    out->notes = all;
    return FV_OK;
}

fv_status fv_report_merge(const report_message *prefill, const report_message *decode,
                          const fv_relay_facts *facts, fv_arena *arena, report_message *out) {
    report_message r = FOVEA__INFERENCE__V1__REPORT__INIT;
    if (prefill) r = *prefill;
    if (prefill && decode) FV_TRY(add_decode(decode, arena, &r));
    if (!prefill && decode) r = *decode;
    if (*facts->missing) FV_TRY(add_note(facts->missing, arena, &r));
    r.n_generated = facts->n_generated;
    r.n_replays = facts->n_replay;
    r.n_digests = facts->n_digest;
    r.digests = facts->digest;
    r.seconds_first_token = facts->seconds_first_token;
    r.seconds_queued = facts->seconds_queued;
    r.prefill_worker = (char *)facts->prefill_worker;
    r.decode_worker = (char *)facts->decode_worker;
    *out = r;
    return FV_OK;
}
