/* Calls: the queue of outgoing messages, the reads of incoming messages, and the reference count
 * that says when a call is over. Loop thread. internal.h draws the states. */
#include "rpc/call.h"

#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/log.h"
#include "common/tsan.h"
#include "rpc/internal.h"
#include "rpc/message.h"

/* ---- calls on behalf of calls ----------------------------------------------------------- */

void fv_rpc_call_adopt(fv_rpc_call *parent, fv_rpc_call *child) {
    child->parent = parent;
    child->sibling = parent->first_child;
    parent->first_child = child;
}

static void leave_parent(fv_rpc_call *c) {
    if (!c->parent) return;
    fv_rpc_call **at = &c->parent->first_child;
    while (*at != c) at = &(*at)->sibling;
    *at = c->sibling;
    c->parent = NULL;
}

static void cancel_children(fv_rpc_call *c) {
    while (c->first_child) {
        fv_rpc_call *child = c->first_child;
        leave_parent(child);
        fv_rpc_call_cancel(child);
    }
}

/* ---- beginning and end ------------------------------------------------------------------ */

void fv_rpc_call_init(fv_rpc_call *c, const fv_rpc_side *side, fv_bridge *bridge,
                      const fv_rpc_events *events, size_t queue_max, size_t message_max) {
    *c = (fv_rpc_call){.side = side,
                       .bridge = bridge,
                       .events = events,
                       .refs = 1,
                       .queue_max = queue_max,
                       .message_max = message_max,
                       .deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC)};
    c->out_tail = &c->out_first;
    grpc_metadata_array_init(&c->metadata);
}

static void drop_queue(fv_rpc_call *c) {
    while (c->out_first) {
        fv_rpc_queued *q = c->out_first;
        c->out_first = q->next;
        grpc_byte_buffer_destroy(q->message);
        free(q);
    }
    c->out_tail = &c->out_first;
    c->bytes_queued = 0;
}

void fv_rpc_call_fini(fv_rpc_call *c) {
    cancel_children(c);
    leave_parent(c);
    drop_queue(c);
    if (c->rpc) grpc_call_unref(c->rpc);
    grpc_metadata_array_destroy(&c->metadata); /* after the call, which owns its elements */
    gpr_free(c->peer);
    fv_arena_fini(&c->scratch);
    fv_arena_fini(&c->arena);
}

void fv_rpc_call_unref(fv_rpc_call *c) {
    assert(c->refs > 0);
    if (--c->refs == 0) c->side->over(c);
}

void fv_rpc_call_start(fv_rpc_call *c, const grpc_op *ops, size_t n, fv_rpc_op *op,
                       fv_rpc_done done) {
    *op = (fv_rpc_op){.done = done, .owner = c};
    c->refs++;
    FV_TSAN_RELEASE(op);
    grpc_call_error err = grpc_call_start_batch(c->rpc, ops, n, op, NULL);
    if (err == GRPC_CALL_OK) return;
    /* A batch that gRPC refuses is our own mistake. The call is cancelled, and the op completes as
     * failed. */
    FV_LOG(ERROR, WIRE, "path=%s event=batch-refused reason=%s", c->path,
           grpc_call_error_to_string(err));
    grpc_call_cancel_with_status(c->rpc, GRPC_STATUS_INTERNAL, "a batch was refused", NULL);
    fv_bridge_post(c->bridge, op, false);
}

/* ---- out -------------------------------------------------------------------------------- */

static void on_sent(fv_rpc_op *op, bool ok) {
    fv_rpc_call *c = op->owner;
    if (c->sending) {
        grpc_byte_buffer_destroy(c->sending); /* gRPC has taken the slices, but not the buffer */
        c->sending = NULL;
        c->bytes_queued -= c->bytes_sending;
        c->n_sent++;
    }
    c->in_send = false;
    if (!ok)
        fv_rpc_call_drop_queue(c); /* another op brings the call's status */
    else
        fv_rpc_call_send_next(c);
    if (c->stalled && !c->closing && !c->closed && c->bytes_queued <= c->queue_max / 2) {
        c->stalled = false;
        if (c->events->on_writable) c->events->on_writable(c);
    }
    fv_rpc_call_unref(c);
}

void fv_rpc_call_send_next(fv_rpc_call *c) {
    if (c->in_send || c->closed) return;
    fv_rpc_queued *q = c->out_first;
    if (!q && !c->closing && (c->headers_sent || c->side->server)) return;
    grpc_op ops[3] = {0};
    size_t n = 0;
    if (!c->headers_sent) {
        ops[n].op = GRPC_OP_SEND_INITIAL_METADATA;
        c->side->fill_headers(c, &ops[n++]);
        c->headers_sent = true;
    }
    if (q) {
        c->out_first = q->next;
        if (!q->next) c->out_tail = &c->out_first;
        c->sending = q->message;
        c->bytes_sending = q->bytes;
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = q->message;
        free(q);
    }
    if (c->closing && !c->out_first) {
        c->side->fill_end(c, &ops[n++]);
        c->closed = true;
    }
    c->in_send = true;
    fv_rpc_call_start(c, ops, n, &c->send, on_sent);
}

void fv_rpc_call_drop_queue(fv_rpc_call *c) {
    c->closed = true;
    size_t in_flight = c->sending ? c->bytes_sending : 0;
    drop_queue(c);
    c->bytes_queued = in_flight;
}

bool fv_rpc_call_writable(const fv_rpc_call *c) {
    return !c->closing && !c->closed && c->bytes_queued < c->queue_max;
}

size_t fv_rpc_call_bytes_queued(const fv_rpc_call *c) { return c->bytes_queued; }

uint64_t fv_rpc_call_sent(const fv_rpc_call *c) { return c->n_sent; }

static fv_status may_queue(fv_rpc_call *c) {
    if (c->closing || c->closed) return FV_FAIL(FV_ECANCELLED, "%s: the call is over", c->path);
    if (c->bytes_queued >= c->queue_max)
        return FV_FAIL(FV_EBUSY, "%s: the send queue is full, because the peer reads too slowly",
                       c->path);
    return FV_OK;
}

fv_status fv_rpc_call_queue(fv_rpc_call *c, grpc_byte_buffer *b) {
    fv_rpc_queued *q = malloc(sizeof *q);
    if (!q) {
        grpc_byte_buffer_destroy(b);
        return FV_FAIL(FV_ENOMEM, "no memory to send a message");
    }
    *q = (fv_rpc_queued){.message = b, .bytes = grpc_byte_buffer_length(b)};
    c->bytes_queued += q->bytes;
    if (c->bytes_queued >= c->queue_max) c->stalled = true;
    *c->out_tail = q;
    c->out_tail = &q->next;
    return FV_OK;
}

fv_status fv_rpc_call_send_buffer(fv_rpc_call *c, grpc_byte_buffer *b) {
    fv_status st = may_queue(c);
    if (st != FV_OK) {
        grpc_byte_buffer_destroy(b);
        return st;
    }
    FV_TRY(fv_rpc_call_queue(c, b));
    fv_rpc_call_send_next(c);
    return FV_OK;
}

fv_status fv_rpc_call_send(fv_rpc_call *c, const ProtobufCMessage *m) {
    FV_TRY(may_queue(c));
    grpc_byte_buffer *b;
    FV_TRY(fv_rpc_pack(m, &b));
    return fv_rpc_call_send_buffer(c, b);
}

/* ---- in --------------------------------------------------------------------------------- */

static fv_status deliver(fv_rpc_call *c, grpc_byte_buffer *message) {
    size_t n = grpc_byte_buffer_length(message);
    if (n > c->message_max)
        return FV_FAIL(FV_ENOMEM, "%s: a message of %zu bytes exceeds the limit of %zu", c->path, n,
                       c->message_max);
    if (!c->events->on_message) return FV_OK;
    fv_status st = c->events->on_message(c, message);
    fv_arena_reset(&c->scratch);
    return st;
}

static void on_read(fv_rpc_op *op, bool ok) {
    fv_rpc_call *c = op->owner;
    grpc_byte_buffer *message = c->incoming;
    c->incoming = NULL;
    c->in_read = false;
    if (message) {
        if (c->side->message_came) c->side->message_came(c);
        if (!c->read_done) {
            /* Set before the handler runs, which may pause and resume. */
            if (c->one_message) c->read_done = true;
            fv_status st = deliver(c, message);
            if (st != FV_OK) c->side->fail(c, st);
        }
        grpc_byte_buffer_destroy(message);
        fv_rpc_call_read_next(c);
    } else if (!c->read_done) {
        c->read_done = true;
        /* An empty read ends the stream, unless it is an oversized message (!ok) or a broken
         * call: then cancellation reports the rest. */
        if (ok && !grpc_call_failed_before_recv_message(c->rpc)) c->side->read_done(c);
    }
    fv_rpc_call_unref(c);
}

void fv_rpc_call_read_next(fv_rpc_call *c) {
    if (c->in_read || c->paused || c->read_done) return;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &c->incoming;
    c->in_read = true;
    fv_rpc_call_start(c, &op, 1, &c->read, on_read);
}

void fv_rpc_call_pause(fv_rpc_call *c) { c->paused = true; }

void fv_rpc_call_resume(fv_rpc_call *c) {
    c->paused = false;
    fv_rpc_call_read_next(c);
}

fv_status fv_rpc_call_unpack(fv_rpc_call *c, const ProtobufCMessageDescriptor *d,
                             grpc_byte_buffer *message, ProtobufCMessage **out) {
    fv_status st = fv_rpc_unpack(d, message, &c->scratch, out);
    return st == FV_EDATA && c->side->server ? FV_EINVAL : st;
}

/* ---- properties ------------------------------------------------------------------------- */

void *fv_rpc_call_user(const fv_rpc_call *c) { return c->user; }

void fv_rpc_call_set_user(fv_rpc_call *c, void *user) { c->user = user; }

const char *fv_rpc_call_path(const fv_rpc_call *c) { return c->path; }

fv_arena *fv_rpc_call_arena(fv_rpc_call *c) { return &c->arena; }

int64_t fv_rpc_call_left_ms(const fv_rpc_call *c) {
    gpr_timespec never = gpr_inf_future(c->deadline.clock_type);
    if (gpr_time_cmp(c->deadline, never) == 0) return INT64_MAX;
    gpr_timespec left = gpr_time_sub(c->deadline, gpr_now(c->deadline.clock_type));
    if (gpr_time_cmp(left, gpr_time_0(GPR_TIMESPAN)) <= 0) return 0;
    return left.tv_sec * 1000 + left.tv_nsec / 1000000;
}

const char *fv_rpc_call_peer(fv_rpc_call *c) {
    if (!c->peer) c->peer = grpc_call_get_peer(c->rpc);
    return c->peer ? c->peer : "";
}

/* gRPC sets these properties from a certificate that it has verified, and from nothing else. */
static bool peer_has(const fv_rpc_call *c, const char *property, const char *value,
                     int (*compare)(const char *, const char *, size_t)) {
    grpc_auth_context *context = grpc_call_auth_context(c->rpc);
    if (!context) return false;
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(context, property);
    const grpc_auth_property *p;
    bool found = false;
    size_t n = strlen(value);
    while (!found && (p = grpc_auth_property_iterator_next(&it)))
        found = p->value_length == n && compare(p->value, value, n) == 0;
    grpc_auth_context_release(context);
    return found;
}

bool fv_rpc_call_peer_named(const fv_rpc_call *c, const char *dns_name) {
    return peer_has(c, GRPC_PEER_DNS_PROPERTY_NAME, dns_name, strncasecmp);
}

bool fv_rpc_call_peer_spiffe(const fv_rpc_call *c, const char *id) {
    return peer_has(c, GRPC_PEER_SPIFFE_ID_PROPERTY_NAME, id, strncmp);
}

bool fv_rpc_call_metadata(const fv_rpc_call *c, const char *key, const char **value, size_t *n) {
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        if (grpc_slice_str_cmp(m->key, key) != 0) continue;
        *value = (const char *)GRPC_SLICE_START_PTR(m->value);
        *n = GRPC_SLICE_LENGTH(m->value);
        return true;
    }
    return false;
}

/* Writes `text` and, unless it is the last value, a separator so that they end at *at, and moves *at to their
 * beginning. False: only the end of them fits. */
static bool put_in_front(char *out, size_t *at, const char *text, size_t n, bool last) {
    static const char comma[] = ", ";
    size_t n_comma = last ? 0 : sizeof comma - 1;
    if (*at < n_comma) return false;
    *at -= n_comma;
    memcpy(out + *at, comma, n_comma);
    size_t fits = n < *at ? n : *at;
    *at -= fits;
    memcpy(out + *at, text + n - fits, fits);
    return fits == n;
}

bool fv_rpc_call_metadata_joined(const fv_rpc_call *c, const char *key, char *out, size_t size) {
    size_t at = size - 1;
    bool any = false, whole = true;
    for (size_t i = c->metadata.count; i-- > 0 && whole;) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        if (grpc_slice_str_cmp(m->key, key) != 0) continue;
        whole = put_in_front(out, &at, (const char *)GRPC_SLICE_START_PTR(m->value),
                             GRPC_SLICE_LENGTH(m->value), !any);
        any = true;
    }
    if (!whole) { /* a truncated first value is useless */
        const char *comma = memchr(out + at, ',', size - 1 - at);
        at = comma ? (size_t)(comma - out) + 1 : size - 1;
    }
    memmove(out, out + at, size - 1 - at);
    out[size - 1 - at] = '\0';
    return any;
}

fv_trace_context fv_rpc_call_trace(const fv_rpc_call *c) {
    const char *text;
    size_t n;
    fv_trace_context t = {0};
    if (fv_rpc_call_metadata(c, FV_TRACE_KEY, &text, &n)) (void)fv_trace_parse(text, n, &t);
    return t;
}
