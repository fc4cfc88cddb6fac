/* A peer link and the thread that polls it. Between polls it sleeps, longer and longer while nothing
 * happens, and until woken if there is nothing to wait for. */
#include "transport/link_thread.h"

#include <stdio.h>
#include <stdlib.h>

static const double look_first_s = 20e-6, look_last_s = 2e-3;

struct fv_link_thread {
    fv_link_thread_options opt;
    fv_jobs *jobs;
    /* the link's thread */
    fv_peer *pair;
    bool joined, failed;
    fv_link_thread_move *waiting, **tail;           /* not yet begun */
    fv_link_thread_move *under_way, **last_of_them; /* begun, oldest first */
    double look_s;
    fv_job open, close;
    /* its messages to the loop */
    fv_rpc_op says_joined, says_failed, says_closed;
    char text[512];
    char *buffer; /* set before says_joined */
    /* loop thread */
    bool closing;
};

/* ---- the link's thread ----------------------------------------------------------------- */

static void fail(fv_link_thread *l) {
    l->failed = true;
    snprintf(l->text, sizeof l->text, "%s", fv_last_error());
    fv_bridge_post(l->opt.bridge, &l->says_failed, true);
}

static void run_open(fv_job *job) {
    fv_link_thread *l = job->owner;
    if (l->opt.ops->open(l->opt.device, l->opt.id, l->opt.rank, l->opt.buffer_bytes, &l->pair) !=
        FV_OK)
        fail(l);
}

static void run_close(fv_job *job) {
    fv_link_thread *l = job->owner;
    l->opt.ops->close(l->pair);
    l->pair = NULL;
    fv_bridge_post(l->opt.bridge, &l->says_closed, true);
}

static void run_move(fv_job *job) {
    fv_link_thread_move *m = job->owner;
    fv_link_thread *l = m->line;
    m->next = NULL;
    *l->tail = m;
    l->tail = &m->next;
    l->look_s = look_first_s;
}

static void take_news(fv_link_thread *l, const fv_peer_news *news) {
    if (news->joined && !l->joined) {
        l->joined = true;
        l->buffer = l->opt.ops->buffer(l->pair);
        fv_bridge_post(l->opt.bridge, &l->says_joined, true);
    }
    if (!news->done) return;
    fv_link_thread_move *m = l->under_way;
    l->under_way = m->next;
    if (!l->under_way) l->last_of_them = &l->under_way;
    m->crc = news->crc;
    fv_bridge_post(l->opt.bridge, &m->back, true);
}

/* Begins the next move, if the link takes it now. */
static fv_status begin_next(fv_link_thread *l, bool *begun) {
    const fv_peer_ops *ops = l->opt.ops;
    fv_link_thread_move *m = l->waiting;
    *begun = false;
    if (!m || !l->joined) return FV_OK;
    fv_status st =
        l->opt.rank ? ops->recv(l->pair, m->data, m->bytes) : ops->send(l->pair, m->data, m->bytes);
    if (st == FV_EBUSY) return FV_OK;
    FV_TRY(st);
    l->waiting = m->next;
    if (!l->waiting) l->tail = &l->waiting;
    m->next = NULL;
    *l->last_of_them = m;
    l->last_of_them = &m->next;
    *begun = true;
    return FV_OK;
}

static double work(void *user) {
    fv_link_thread *l = user;
    fv_peer_news news;
    bool begun = false, was_joined = l->joined;
    if (!l->pair || l->failed) return -1;
    fv_status st = l->opt.ops->poll(l->pair, &news);
    if (st == FV_OK) {
        take_news(l, &news);
        st = begin_next(l, &begun);
    }
    if (st != FV_OK) {
        fail(l);
        return -1;
    }
    if (l->joined && !l->waiting && !l->under_way) return -1;
    bool moved = news.done || begun || l->joined != was_joined;
    l->look_s = moved ? look_first_s : 2 * l->look_s < look_last_s ? 2 * l->look_s : look_last_s;
    return moved ? 0 : l->look_s;
}

/* ---- the loop's thread ----------------------------------------------------------------- */

static void on_joined(fv_rpc_op *op, bool ok) {
    fv_link_thread *l = op->owner;
    (void)ok;
    if (!l->closing) l->opt.joined(l->opt.user);
}

static void on_failed(fv_rpc_op *op, bool ok) {
    fv_link_thread *l = op->owner;
    (void)ok;
    if (!l->closing) l->opt.failed(l->opt.user, l->text);
}

static void on_over(fv_rpc_op *op, bool ok) {
    fv_link_thread_move *m = op->owner;
    fv_link_thread *l = m->line;
    (void)ok;
    if (!l->closing) l->opt.over(l->opt.user, m);
}

/* Joins the thread, which has posted its last message and ends at once. */
static void on_closed(fv_rpc_op *op, bool ok) {
    fv_link_thread *l = op->owner;
    void (*closed)(void *) = l->opt.closed;
    void *user = l->opt.user;
    (void)ok;
    fv_jobs_stop(l->jobs);
    free(l);
    closed(user);
}

fv_status fv_link_thread_open(const fv_link_thread_options *opt, fv_link_thread **out) {
    fv_link_thread *l = calloc(1, sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for a pair");
    l->opt = *opt;
    l->tail = &l->waiting;
    l->last_of_them = &l->under_way;
    l->look_s = look_first_s;
    l->open = (fv_job){.run = run_open, .owner = l};
    l->close = (fv_job){.run = run_close, .owner = l};
    l->says_joined = (fv_rpc_op){.done = on_joined, .owner = l};
    l->says_failed = (fv_rpc_op){.done = on_failed, .owner = l};
    l->says_closed = (fv_rpc_op){.done = on_closed, .owner = l};
    fv_status st = fv_jobs_start(&(fv_jobs_options){.limit = 1, .work = work, .user = l}, &l->jobs);
    if (st != FV_OK) {
        free(l);
        return st;
    }
    fv_jobs_post_followup(l->jobs, &l->open);
    *out = l;
    return FV_OK;
}

char *fv_link_thread_buffer(const fv_link_thread *l) { return l->buffer; }

void fv_link_thread_begin(fv_link_thread *l, fv_link_thread_move *m) {
    m->line = l;
    m->there = (fv_job){.run = run_move, .owner = m};
    m->back = (fv_rpc_op){.done = on_over, .owner = m};
    fv_jobs_post_followup(l->jobs, &m->there);
}

void fv_link_thread_close(fv_link_thread *l) {
    l->closing = true;
    fv_jobs_post_followup(l->jobs, &l->close);
}
