#ifndef FOVEA_COMMON_JOBS_H
#define FOVEA_COMMON_JOBS_H

/* JOBS: one thread that owns everything that computes (backend, weights, KV store), and a bounded
 * queue of jobs from other threads.
 *
 *   any thread -- fv_jobs_post, fv_jobs_post_followup --> queue --> [the computing thread]
 *                                                             job->run(job), one after the other;
 *                                                             then work(user), if none waits
 *   the asker's inbox <----- whatever `run` and `work` post there ------'
 *
 * A job is embedded in the object that it works on, which must stay valid until `run` has begun. It
 * answers by posting to the asker's inbox (for an event loop: fv_bridge_post).
 *
 * When no job waits, the thread calls `work`: a step of the running answers, or a batch of the
 * waiting prompts. It must return soon, because jobs wait meanwhile.
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
    size_t limit; /* largest number of posted jobs that wait */
    /* Does a piece of the standing work on the computing thread. Returns the seconds until it must
     * be called again if no job comes first: 0: at once; below 0: only after a job. NULL: no
     * standing work. */
    double (*work)(void *user);
    void *user;
    const char *name; /* thread name, for top and gdb; NULL: "fovea-compute" */
} fv_jobs_options;

typedef struct fv_jobs fv_jobs; /* opaque */

/* Starts the thread. */
fv_status fv_jobs_start(const fv_jobs_options *opt, fv_jobs **out);

/* Posts a job. Any thread. FV_EBUSY if `limit` jobs wait, FV_ECANCELLED if the thread is being
 * stopped: the job is the caller's again and has not run. Jobs posted by one thread run in the
 * order of posting. */
fv_status fv_jobs_post(fv_jobs *j, fv_job *job);

/* Posts a job that belongs to an earlier one (its next frame, its cancellation): it does not count
 * towards the limit and is never refused. Any thread, but not while the thread is being stopped. */
void fv_jobs_post_followup(fv_jobs *j, fv_job *job);

/* Runs the jobs that have come meanwhile. The thread itself calls it, in the middle of a long `run` or
 * `work`. */
void fv_jobs_catch_up(fv_jobs *j);

size_t fv_jobs_waiting(const fv_jobs *j); /* posted jobs that have not begun; any thread */
double fv_jobs_busy_s(const fv_jobs *j);  /* seconds of computing so far; any thread */

/* Runs the waiting jobs, ends the thread and frees `j`. Call it from another thread; it blocks, so
 * no running job may wait for the caller. NULL is fine. */
void fv_jobs_stop(fv_jobs *j);

#endif
