#ifndef FOVEA_PREFILL_WORKER_EXPORT_EXPORT_H
#define FOVEA_PREFILL_WORKER_EXPORT_EXPORT_H

/* EXPORT: sends a prefilled request to a decode worker, layer group by layer group, through a
 * transport (handoff/transport.h), as a KV packet (handoff/kv_packet.h).
 *
 *   begin  asks the other side for a grant
 *   layers sends layers that are final: group after group while later ones are computed, and the
 *          last after prefill. Frames point into the store's memory.
 *   end    sends the first token and commits; done reports the result
 *
 * Until a closed export is gone, layers of the store that were sent must not change. For the
 * thread that owns the store. */
#include "handoff/transport.h"
#include "kv/cache/chain.h"
#include "kv/kv.h"
#include "policy/plan/plan.h"

/* An export's inputs: all are borrowed until close, the store until `gone`. */
typedef struct fv_export_request {
    const char *model; /* fingerprint of the checkpoint */
    const char *sums;  /* fv_engine_sums of the engine that has computed kv; NULL: f32 */
    const fv_kv *kv;
    const fv_plan *plan;
    int32_t n;          /* prompt tokens */
    const int32_t *ids; /* [n] */
    const uint8_t *seg; /* [n] fv_kv_segment */
    /* The prompt's segments, if all layers hold all of its rows as they were computed: the other side may have kept
     * some, which are then not sent. Read by `begin` only; 0: everything is sent. */
    int32_t n_chain;
    const fv_chain_link *chain; /* [n_chain] */
    bool may_leave_rest;        /* fv_export_leave_rest may follow the grant */
    int32_t max_tokens;         /* rows that the answer may add on the other side */
    fv_wire_sampling sampling;
    fv_grant_request asking;
} fv_export_request;

typedef struct fv_export_report {
    uint64_t bytes, sections, frames, rows;
    uint64_t tokens_kept,
        bytes_kept; /* prompt tokens that the other side had, and bytes of their KV: not sent */
    fv_transfer_counts ways;
    double granted_s, committed_s; /* when the replies came, by fv_clock_s; 0: not yet */
} fv_export_report;

typedef struct fv_export fv_export; /* opaque */

/* Asks for a grant. A refusal that is known at once is returned with the other side's sentence. */
fv_status fv_export_begin(fv_transport *t, const fv_export_request *req, fv_export **out);

/* *granted: the other side has reserved memory, and KV may be sent. A refusal is returned with its
 * sentence. */
fv_status fv_export_granted(const fv_export *s, bool *granted);

/* Sends the layers below n_layer that were not sent yet. FV_EBUSY while the grant has not come:
 * call again later. Any other failure means that the hand-off is lost: close it. */
fv_status fv_export_layers(fv_export *s, int32_t n_layer);

/* Sends the first token and commits, after all layers were sent. Errors as above. */
fv_status fv_export_end(fv_export *s, const fv_first_token *first);

/* After the grant: how many tokens the other side has, and *rest: how many follow, if it can compute these; 0: it cannot.
 * FV_EDATA: the grant makes no sense. */
fv_status fv_export_rest(const fv_export *s, int32_t *n_kept, int32_t *rest);

/* Commits without KV: the other side computes the rest of the prompt, and the first token. */
fv_status fv_export_leave_rest(fv_export *s);

/* *done: the other side has everything, verified, and waits for its ticket to be attached to. A
 * refusal is returned with its sentence. */
fv_status fv_export_done(const fv_export *s, bool *done);

/* When it was granted: the ticket, and the bytes that the other side has reserved (0: it does not say). */
const fv_ticket *fv_export_ticket(const fv_export *s);
uint64_t fv_export_reserved(const fv_export *s);

/* Why the other side refused the hand-off; FV_REFUSED_NONE: it has not. */
fv_refusal fv_export_refusal(const fv_export *s);

fv_export_report fv_export_get_report(const fv_export *s);

/* Closes an export and cancels the hand-off, unless it is committed and `keep` is set. `gone` (or NULL) is
 * called, perhaps at once, when nothing points into the store any more; all else that the request borrows
 * is unused when this returns. NULL is fine. */
void fv_export_close(fv_export *s, bool keep, void (*gone)(void *user), void *user);

#endif
