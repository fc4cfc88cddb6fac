/* The bridge: a thread moves events from gRPC's completion queue into the inbox of the loop.
 * gRPC's callback queue is not used: in this version nothing polls it on Linux, and it is marked
 * experimental. */
#include "rpc/bridge.h"

#include <assert.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <malloc.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/tsan.h"

struct fv_bridge {
    grpc_completion_queue *queue;
    uv_loop_t *loop; /* borrowed */
    uv_async_t bell;
    uv_thread_t pump;
    fv_inbox inbox; /* emptied by the loop thread */
    void (*after_event)(void *user);
    void *after_user;
    void (*closed)(void *user);
    void *user;
};

/* Adds gRPC's log lines to ours, its errors one level lower: failures reach the caller as a status, and are
 * logged where that is handled. */
static void log_line(gpr_log_func_args *args) {
    switch (args->severity) {
    case GPR_LOG_SEVERITY_ERROR:
        FV_LOG(INFO, WIRE, "grpc=%s:%d text=%s", args->file, args->line, args->message);
        break;
    case GPR_LOG_SEVERITY_INFO:
    case GPR_LOG_SEVERITY_DEBUG:
        FV_LOG(DEBUG, WIRE, "grpc=%s:%d text=%s", args->file, args->line, args->message);
        break;
    }
}

static void ring(void *user) {
    fv_bridge *b = user;
    uv_async_send(&b->bell);
}

void fv_bridge_post(fv_bridge *b, fv_rpc_op *op, bool ok) {
    op->ok = ok;
    fv_status st = fv_inbox_post(&b->inbox, &op->item);
    assert(st == FV_OK && "posted to a bridge that is closed");
    (void)st;
}

static void pump_main(void *arg) {
    fv_bridge *b = arg;
    for (;;) {
        grpc_event ev =
            grpc_completion_queue_next(b->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN) break;
        if (ev.type != GRPC_OP_COMPLETE) continue;
        FV_TSAN_ACQUIRE(ev.tag);
        fv_bridge_post(b, ev.tag, ev.success != 0);
    }
    fv_inbox_close(&b->inbox); /* the loop sees it after the last event */
}

static void on_bell_closed(uv_handle_t *h) {
    fv_bridge *b = h->data;
    void (*closed)(void *) = b->closed;
    void *user = b->user;
    fv_inbox_fini(&b->inbox);
    free(b);
    grpc_shutdown();
    if (closed) closed(user);
}

static void on_bell(uv_async_t *h) {
    fv_bridge *b = h->data;
    bool drained;
    fv_inbox_item *item = fv_inbox_take(&b->inbox, &drained);
    while (item) {
        fv_rpc_op *op = (fv_rpc_op *)item;
        item = item->next; /* `done` may free the op, or post it again */
        op->done(op, op->ok);
        if (b->after_event) b->after_event(b->after_user);
    }
    if (drained) {
        uv_thread_join(&b->pump); /* the thread may still be in `ring` */
        grpc_completion_queue_destroy(b->queue);
        uv_close((uv_handle_t *)&b->bell, on_bell_closed);
    }
}

enum { MALLOC_MAPS = 32 << 20, MALLOC_TRIMS = 256 << 20 };

/* Keeps freed memory in the process. gRPC reads into short-lived blocks; by default each large block, and the
 * end of the heap, returns to the system, and the next block has page faults again: a fifth of the
 * processor time of receiving a hand-off (bench/bench_handoff.c). */
static void keep_memory(void) {
    mallopt(M_MMAP_THRESHOLD, MALLOC_MAPS);
    mallopt(M_TRIM_THRESHOLD, MALLOC_TRIMS);
}

fv_status fv_bridge_open(uv_loop_t *loop, fv_bridge **out) {
    keep_memory();
    fv_bridge *b = calloc(1, sizeof *b);
    if (!b) return FV_FAIL(FV_ENOMEM, "no memory for a bridge");
    gpr_set_log_function(log_line);
    grpc_init();
    b->loop = loop;
    fv_status st = FV_OK;
    FV_TRY_GOTO(fv_inbox_init(&b->inbox, 0, ring, b), st, free_bridge);
    int err = uv_async_init(loop, &b->bell, on_bell);
    if (err != 0) {
        st = FV_FAIL(FV_EIO, "cannot wake the event loop: %s", uv_strerror(err));
        goto fini_inbox;
    }
    b->bell.data = b;
    b->queue = grpc_completion_queue_create_for_next(NULL);
    err = uv_thread_create(&b->pump, pump_main, b);
    if (err != 0) {
        grpc_completion_queue_shutdown(b->queue);
        grpc_completion_queue_destroy(b->queue);
        /* The loop has the handle: the rest is freed when that is closed. */
        uv_close((uv_handle_t *)&b->bell, on_bell_closed);
        return FV_FAIL(FV_EIO, "cannot start a thread: %s", uv_strerror(err));
    }
    *out = b;
    return FV_OK;
fini_inbox:
    fv_inbox_fini(&b->inbox);
free_bridge:
    free(b);
    grpc_shutdown();
    return st;
}

uv_loop_t *fv_bridge_loop(const fv_bridge *b) { return b->loop; }

grpc_completion_queue *fv_bridge_queue(const fv_bridge *b) { return b->queue; }

void fv_bridge_set_after_event(fv_bridge *b, void (*after)(void *user), void *user) {
    assert(!after || !b->after_event);
    b->after_event = after;
    b->after_user = user;
}

void fv_bridge_close(fv_bridge *b, void (*closed)(void *user), void *user) {
    b->closed = closed;
    b->user = user;
    grpc_completion_queue_shutdown(b->queue);
}
