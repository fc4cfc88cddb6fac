#ifndef FOVEA_TESTS_SUPPORT_HANDOFF_H
#define FOVEA_TESTS_SUPPORT_HANDOFF_H

/* Both ends of a hand-off in one process, with a clock that does not advance by itself: for tests
 * of the wire format and of the path from prefill to decode. */
#include "decode-worker/receive/receive.h"
#include "kv/cache/chain.h"
#include "tests/support/tiny_net.h"
#include "tests/support/transport_fault.h"

enum { RIG_POSITIONS = 4096, RIG_VISUAL = 70, RIG_REST = 64 /* fv_receiver_options.rest_most */ };

typedef struct handoff_rig {
    tiny_net net;          /* the prefill side; net.pool is its pool */
    fv_kv_pool *pool;      /* the decode side's */
    fv_prefixes *prefixes; /* NULL: prompts are not kept */
    fv_chain_link *chain;  /* scratch of rig_request, with prefixes */
    fv_receiver *receiver;
    fv_transport *transport;
    double now;    /* seconds, as the receiver sees them */
    int32_t fired; /* faults */
} handoff_rig;

typedef struct rig_options {
    tiny_shape shape; /* {0}: the default */
    fv_dtype dtype;
    uint32_t frame_max;            /* 0: 1 MiB */
    size_t pool_bytes;             /* limit of the decode side's pool; 0: none */
    int32_t capacity;              /* maximum grants; 0: many */
    size_t keep_bytes;             /* of prompts that are kept; 0: none, and no links are sent */
    const fv_fault_options *fault; /* NULL: none; its delay and its counter are the rig's */
} rig_options;

/* Aborts on failure, as tiny_net does. */
void rig_open(handoff_rig *rig, const rig_options *opt);
void rig_close(handoff_rig *rig);

/* A rig with one prompt, prefilled: RIG_VISUAL image tokens between 5 and 9 text tokens. Closing
 * asserts that nothing is left of either side. */
void rig_start(handoff_rig *rig, const rig_options *opt, tiny_prompt *p, const char *policy);
void rig_finish(handoff_rig *rig, tiny_prompt *p);

/* Asserts that nothing of a hand-off is left on the decode side. */
void rig_assert_baseline(const handoff_rig *rig, const char *what);

/* The arguments of fv_export_begin for a prefilled prompt; its chain is valid until the next call. */
fv_export_request rig_request(const handoff_rig *rig, const tiny_prompt *p, int32_t max_tokens);

/* Sends a prefilled prompt, `group` layers at a time (0: all), and attaches to it. FV_EIO when the
 * transport never responds. report may be NULL. */
fv_status rig_send(handoff_rig *rig, const tiny_prompt *p, int32_t max_tokens, int32_t group,
                   fv_received *out, fv_export_report *report);

/* Refusals so far, for any reason. */
uint64_t rig_refused(const handoff_rig *rig);

/* A stream as bytes, and its grant's offer. */
typedef struct rig_stream {
    fv_hello hello;
    char policy[FV_POLICY_TEXT_MAX];
    uint8_t *bytes; /* [n] owned */
    size_t n;
} rig_stream;

/* The stream that rig_send would send. The caller frees s->bytes. */
void rig_capture(const handoff_rig *rig, const tiny_prompt *p, int32_t max_tokens, rig_stream *s);

/* Bytes of the pool that its offer asks for. */
size_t rig_room(const handoff_rig *rig, const rig_stream *s);

/* Offers, feeds the bytes in frames of `cut`, commits and attaches: FV_REFUSED_NONE when all of
 * that was accepted. */
fv_status rig_deliver(fv_receiver *r, const fv_hello *hello, const uint8_t *bytes, size_t n,
                      size_t cut, fv_received *out);

/* True when both hold the same tokens at the same positions, bit for bit, with one rope map. */
bool same_store(fv_kv *a, fv_kv *b);

#endif
