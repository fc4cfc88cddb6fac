/* The RPC layer under ThreadSanitizer: gRPC's threads, the pump, the loop, and a thread of our own
 * that computes and responds through the bridge. Calls of every kind at once, half of them
 * cancelled, over several lifetimes of server and loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/message.h"
#include "tests/support/net.h"

/* gRPC is not built for ThreadSanitizer: its own threads' accesses are invisible, and the order it
 * gives ours is declared by FV_TSAN_RELEASE and FV_TSAN_ACQUIRE. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "ignore_noninstrumented_modules=1"; }

enum { CALLS = 24, ROUNDS = 6, JOBS = 200 };

/* ---- a thread that computes ------------------------------------------------------------- */

typedef struct job {
    fv_inbox_item item; /* first; to the computing thread */
    fv_rpc_op done;     /* and back */
    int question, answer;
} job;

typedef struct worker {
    pthread_t thread;
    fv_inbox inbox;
    fv_bridge *bridge;
    int answered;
    net *net;
} worker;

static void *compute(void *arg) {
    worker *w = arg;
    bool closed = false;
    while (!closed) {
        fv_inbox_item *item = fv_inbox_wait(&w->inbox, -1, &closed);
        while (item) {
            job *j = (job *)item;
            item = item->next;
            j->answer = 2 * j->question;
            fv_bridge_post(w->bridge, &j->done, true);
        }
    }
    return NULL;
}

static void on_answer(fv_rpc_op *op, bool ok) {
    worker *w = op->owner;
    job *j = (job *)((char *)op - offsetof(job, done));
    NET_CHECK(ok && j->answer == 2 * j->question);
    w->answered++;
    free(j);
}

static void give_jobs(worker *w, int n) {
    for (int i = 0; i < n; i++) {
        job *j = calloc(1, sizeof *j);
        NET_CHECK(j != NULL);
        j->question = i;
        j->done = (fv_rpc_op){.done = on_answer, .owner = w};
        NET_CHECK(fv_inbox_post(&w->inbox, &j->item) == FV_OK);
    }
}

/* ---- memory that is borrowed ---------------------------------------------------------------- */

static char reused[64 << 10];

static void give_back(void *user) { __atomic_fetch_add((int *)user, 1, __ATOMIC_RELEASE); }

static void send_reused(fv_rpc_call *c, int *released) {
    fv_piece piece = {reused, sizeof reused};
    grpc_byte_buffer *b;
    NET_CHECK(fv_rpc_wrap("", 0, &piece, 1, give_back, released, &b) == FV_OK);
    NET_CHECK(fv_rpc_call_send_buffer(c, b) == FV_OK);
}

/* ---- one lifetime ----------------------------------------------------------------------- */

static void run(void) {
    static const char *const paths[] = {NET_ECHO, NET_COUNT, NET_COLLECT, NET_SESSION, NET_FAIL};
    static net n;
    static net_heard heard[CALLS];
    memset(&n, 0, sizeof n);
    memset(heard, 0, sizeof heard);
    net_open(&n);
    worker w = {.bridge = n.bridge, .net = &n};
    NET_CHECK(fv_inbox_init(&w.inbox, 0, NULL, NULL) == FV_OK);
    NET_CHECK(pthread_create(&w.thread, NULL, compute, &w) == 0);

    int released = 0, sent = 0;
    for (int i = 0; i < CALLS; i++) {
        const char *path = paths[i % 5];
        if (path == paths[2]) {
            net_call(&n, &heard[i], path, 20000);
            send_reused(heard[i].call, &released);
            sent++;
            fv_rpc_call_close_send(heard[i].call);
        } else {
            net_ask(&n, &heard[i], path, 20000, (uint32_t[]){200, 500}, 8);
        }
        give_jobs(&w, JOBS / CALLS + 1);
        if (i % 4 == 3) fv_rpc_call_cancel(heard[i].call);
        uv_run(&n.loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < CALLS; i++) {
        net_wait(&n, &heard[i].over);
        if (i % 4 == 3) continue;
        if (i % 5 == 1 && heard[i].n != 200)
            fprintf(stderr, "call %d: %d messages, %s: %s\n", i, heard[i].n,
                    fv_rpc_code_name(heard[i].end.code), heard[i].text);
        if (i % 5 == 1) NET_CHECK(heard[i].end.status == FV_OK && heard[i].n == 200);
        if (i % 5 == 2) NET_CHECK(heard[i].numbers[1] == sizeof reused);
        if (i % 5 == 4) NET_CHECK(heard[i].end.status != FV_OK);
    }
    fv_inbox_close(&w.inbox);
    NET_CHECK(pthread_join(w.thread, NULL) == 0);
    fv_inbox_fini(&w.inbox);
    net_close(&n, 1000);
    NET_CHECK(w.answered == CALLS * (JOBS / CALLS + 1));
    NET_CHECK(__atomic_load_n(&released, __ATOMIC_ACQUIRE) == sent);
}

int main(void) {
    for (int i = 0; i < ROUNDS; i++) run();
    puts("ok");
    return 0;
}
