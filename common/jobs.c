/* The computing thread takes its whole inbox at once, runs the jobs in order, and does the standing
 * work in between. The limit is counted here, not by the inbox: the inbox does not count items that
 * were taken but have not begun, and cannot exempt jobs that must not be refused. */
#include "common/jobs.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

struct fv_jobs {
    fv_jobs_options opt;
    fv_inbox inbox;
    pthread_t thread;
    atomic_size_t waiting;
    atomic_ullong busy_ns;
};

static void run_all(fv_jobs *j, fv_inbox_item *item) {
    while (item) {
        fv_job *job = (fv_job *)item;
        item = item->next; /* `run` may free the job, or post it again */
        if (job->counted) atomic_fetch_sub(&j->waiting, 1);
        job->run(job);
    }
}

static void *jobs_main(void *arg) {
    fv_jobs *j = arg;
    pthread_setname_np(pthread_self(), j->opt.name ? j->opt.name : "fovea-compute");
    double pause = j->opt.work ? 0 : -1; /* the first call of work() is immediate */
    bool closed = false;
    while (!closed) {
        fv_inbox_item *item = pause == 0 ? fv_inbox_take(&j->inbox, &closed)
                                         : fv_inbox_wait(&j->inbox, pause, &closed);
        double t = fv_clock_s();
        run_all(j, item);
        if (j->opt.work && !closed) pause = j->opt.work(j->opt.user);
        atomic_fetch_add(&j->busy_ns, (unsigned long long)((fv_clock_s() - t) * 1e9));
    }
    return NULL;
}

fv_status fv_jobs_start(const fv_jobs_options *opt, fv_jobs **out) {
    fv_jobs *j = calloc(1, sizeof *j);
    if (!j) return FV_FAIL(FV_ENOMEM, "no memory for a thread");
    j->opt = *opt;
    fv_status st = fv_inbox_init(&j->inbox, 0, NULL, NULL);
    if (st != FV_OK) {
        free(j);
        return st;
    }
    int err = pthread_create(&j->thread, NULL, jobs_main, j);
    if (err != 0) {
        fv_inbox_fini(&j->inbox);
        free(j);
        return FV_FAIL(FV_EIO, "cannot start a thread: %s", strerror(err));
    }
    *out = j;
    return FV_OK;
}

fv_status fv_jobs_post(fv_jobs *j, fv_job *job) {
    size_t n = atomic_fetch_add(&j->waiting, 1);
    fv_status st;
    job->counted = true;
    if (n >= j->opt.limit)
        st = FV_FAIL(FV_EBUSY, "%zu requests are waiting already", j->opt.limit);
    else
        st = fv_inbox_post(&j->inbox, &job->item);
    if (st != FV_OK) atomic_fetch_sub(&j->waiting, 1);
    return st;
}

void fv_jobs_post_followup(fv_jobs *j, fv_job *job) {
    job->counted = false;
    fv_status st = fv_inbox_post(&j->inbox, &job->item);
    assert(st == FV_OK && "posted to a thread that is being stopped");
    (void)st;
}

void fv_jobs_catch_up(fv_jobs *j) { run_all(j, fv_inbox_take(&j->inbox, NULL)); }

size_t fv_jobs_waiting(const fv_jobs *j) { return atomic_load(&j->waiting); }

double fv_jobs_busy_s(const fv_jobs *j) { return 1e-9 * (double)atomic_load(&j->busy_ns); }

void fv_jobs_stop(fv_jobs *j) {
    if (!j) return;
    fv_inbox_close(&j->inbox);
    pthread_join(j->thread, NULL);
    fv_inbox_fini(&j->inbox);
    free(j);
}
