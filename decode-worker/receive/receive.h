#ifndef FOVEA_DECODE_WORKER_RECEIVE_RECEIVE_H
#define FOVEA_DECODE_WORKER_RECEIVE_RECEIVE_H

/* RECEIVE: hand-offs from prefill workers become requests that can be decoded.
 *
 *   offer  checks that the sender is compatible, reserves memory for prompt and answer, and gives a
 *          grant
 *   frame  is checked against the grant; its sections are checked and copied to their places
 *   commit releases reserved memory that is not needed; the request waits for its ticket, and its prompt is kept
 *          for later ones that begin alike (decode-worker/keep/prefixes.h)
 *   attach gives the request to the caller with the ticket
 *
 * The first three are called by a transport, through the sink. Any error ends the hand-off, frees
 * everything it held, and is counted by reason; so does a deadline that passes without a message from the
 * peer. Memory is limited to what was granted, whatever a sender sends.
 *
 * One thread, that of the pool, owns a receiver. */
#include "decode-worker/keep/prefixes.h"
#include "handoff/transport.h"
#include "model/net/adapter.h"
#include "model/net/text_codes.h"
#include "policy/plan/decode.h"
#include "text/sample.h"

typedef struct fv_receiver_options {
    fv_kv_pool *pool;            /* borrowed; for the memory of requests */
    const char *model;           /* fingerprint of the checkpoint; borrowed */
    const char *sums;            /* fv_engine_sums of the engine that decodes; NULL: f32 */
    int32_t n_vocab;             /* text tokens have ids below it */
    int32_t n_group;             /* query heads of a KV head */
    int32_t max_position;        /* of the checkpoint */
    const fv_adapters *adapters; /* of the engine that decodes; borrowed; NULL: none */
    fv_prefixes *prefixes; /* prompts that were received before; borrowed; NULL: none are kept */
    int32_t
        rest_most; /* tokens at the end of a prompt that this worker computes if all others are kept; 0: none */
    fv_grants_options grants;
} fv_receiver_options;

/* Sensible limits: 1 MiB frames, 30 s of silence, 30 s to attach. */
fv_grants_options fv_grants_options_default(void);

typedef struct fv_receiver_counters {
    uint64_t granted, committed, attached, aborted, expired;
    uint64_t refused[FV_N_REFUSAL]; /* offers, frames, commits and attaches, by reason */
    uint64_t bytes;                 /* bytes of accepted frames */
    uint64_t bytes_oob;             /* bytes of those that came from device to device */
    /* Prompt tokens of committed hand-offs that were not sent, as they were kept here, and bytes of their KV. */
    uint64_t tokens_kept, bytes_kept;
    /* Committed hand-offs that came with links, of raw KV: with tokens that were kept here, and without. */
    uint64_t prompts_found, prompts_missed;
} fv_receiver_counters;
enum { FV_N_HANDOFF_COUNT = sizeof(fv_receiver_counters) / sizeof(uint64_t) };

typedef struct fv_receiver fv_receiver; /* opaque */

fv_status fv_receiver_open(const fv_receiver_options *opt, fv_receiver **out);
void fv_receiver_close(fv_receiver *r); /* ends all hand-offs; NULL is fine */

fv_sink *fv_receiver_sink(fv_receiver *r); /* borrowed, lives as long as the receiver */

/* The sink's offer in parts, for a queue of waiting offers (decode-worker/schedule/opens.h): check fails if
 * the offer could never be granted, and gives its decode plan; offer reserves its memory now, or fails with
 * NO_ROOM; bytes returns its bytes of the pool. None of these counts a refusal. */
fv_status fv_receiver_check(const fv_receiver *r, const fv_hello *hello, fv_decode_plan *plan);
fv_status fv_receiver_offer(fv_receiver *r, const fv_hello *hello, const fv_decode_plan *plan,
                            fv_grant *out);
/* Whether a hand-off that has been granted and not committed brings much of what this one lacks, so that less would have to
 * be sent after it: an image, or half of the tokens that are not kept here. */
bool fv_receiver_brings(fv_receiver *r, const fv_hello *hello);
uint64_t fv_receiver_bytes(const fv_receiver *r, const fv_hello *hello, const fv_decode_plan *plan);
void fv_receiver_count_refusal(fv_receiver *r, fv_status st); /* FV_OK is fine */

/* Ends the hand-offs that are past their deadlines; returns how many. Every call does so first; the caller
 * needs a timer for times without calls. */
int32_t fv_receiver_expire(fv_receiver *r);
double fv_receiver_next_deadline(const fv_receiver *r); /* HUGE_VAL: none */
double fv_receiver_now(const fv_receiver *r);           /* now, by the same clock */

const fv_receiver_counters *fv_receiver_get_counters(const fv_receiver *r);
int32_t fv_receiver_live(const fv_receiver *r);     /* hand-offs that hold memory */
uint64_t fv_receiver_granted(const fv_receiver *r); /* bytes promised and not yet committed */

/* ---- a received request ----------------------------------------------------------------- */

typedef struct fv_received {
    fv_kv *kv;      /* owned, until it is taken out */
    int32_t n;      /* prompt tokens */
    int32_t n_held; /* of these, in kv; if not all, `first` has no token */
    int32_t *ids;   /* [n] owned; unchecked at image tokens */
    uint8_t *seg;   /* [n] owned; fv_kv_segment */
    int32_t next;   /* position of the first generated token */
    int32_t max_tokens;
    int32_t n_reserved; /* rows of the answer that memory is reserved for; at most max_tokens */
    bool whole;         /* that was asked for: hello.tokens_reserved is 0 */
    double arrived_s;   /* hello.arrived_s */
    fv_first_token first;
    fv_sampling sampling;
    fv_decode_plan plan;
    /* The quantization of text. All tokens count as the prompt until the caller sets how many are a resumed
     * answer, and reserves memory for that (fv_text_codes_reserve). */
    fv_text_codes text;
    char *policy;       /* the policy's text as it came, owned; for reports */
    fv_wire_link *link; /* [n_link] of the prompt, owned; NULL: it is not for later ones to use */
    uint32_t n_link;
    size_t bytes_surplus; /* reserved at grant time and released */
} fv_received;            /* {0} is empty and may be freed */

void fv_received_free(fv_received *r);

/* Takes the committed request of this ticket, once. PENDING: it is not committed yet, ask again. */
fv_status fv_receiver_attach(fv_receiver *r, const fv_ticket *ticket, fv_received *out);

#endif
