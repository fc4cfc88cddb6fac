#ifndef FOVEA_COMMON_JOBS_H
#define FOVEA_COMMON_JOBS_H

/* JOBS: one thread that owns what computes (backend, weights, KV store), and a bounded queue of
 * what the others want of it.
 *
 *   any thread -- fv_jobs_post, fv_jobs_follow --> queue --> [the computing thread]
 *                                                             job->run(job), one after the other;
 *                                                             then work(user), when none waits
 *   the asker's inbox <----- whatever `run` and `work` post there ------'
 *
 * A job is embedded in whatever it is about, and stays there until `run` has begun. It answers by
 * posting to the asker's inbox (for an event loop: fv_bridge_post).
 *
 * What is there when the thread has nothing to do is done by `work`: a step of the answers that
 * run, a batch of the prompts that have gathered. It comes back soon, because jobs wait meanwhile.
 */
#include "common/inbox.h"

typedef struct fv_job fv_job;
struct fv_job {
    fv_inbox_item item;       /* private; first, so that an item is its job */
    void (*run)(fv_job *job); /* on the computing thread; may free the job, or post it again */
    void *owner;              /* borrowed; for `run` */
    bool counted;             /* private */
};

typedef struct fv_jobs_options {
    size_t limit; /* posted jobs that wait at a time */
    /* A piece of the standing work, on the computing thread. Says in how many seconds it wants to
     * be called again, if no job comes before: 0: at once; below 0: not before a job came. NULL:
     * there is none. */
    double (*work)(void *user);
    void *user;
    const char *name; /* of the thread, for top and gdb; NULL: "fovea-compute" */
} fv_jobs_options;

typedef struct fv_jobs fv_jobs; /* opaque */

/* Starts the thread. */
fv_status fv_jobs_start(const fv_jobs_options *opt, fv_jobs **out);

/* Any thread. FV_EBUSY when `limit` jobs wait, FV_ECANCELLED when the thread is being stopped: the
 * job is the caller's again, and did not run. Jobs of one thread run in the order of posting. */
fv_status fv_jobs_post(fv_jobs *j, fv_job *job);

/* Any thread. The same for what belongs to a job that was taken before (its next frame, its
 * cancellation): it does not count, and is never refused. Not while the thread is being stopped. */
void fv_jobs_follow(fv_jobs *j, fv_job *job);

/* The thread itself, in the middle of a long `run` or `work`: runs what has come meanwhile. */
void fv_jobs_catch_up(fv_jobs *j);

size_t fv_jobs_waiting(const fv_jobs *j); /* any thread; posted jobs that have not begun */
double fv_jobs_busy_s(const fv_jobs *j);  /* any thread; seconds that it has computed so far */

/* Another thread. Runs what waits, ends the thread and frees `j`; blocks meanwhile, so nothing that
 * still runs may wait for the caller. NULL is fine. */
void fv_jobs_stop(fv_jobs *j);

#endif
