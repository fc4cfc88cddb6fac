/* common/jobs.c: one thread that runs jobs posted by others. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common/jobs.h"

TestSuite(jobs, .timeout = 240);

enum { N = 500 };

typedef struct task {
    fv_job job; /* first */
    int number;
} task;

static task tasks[N];
static int order[N];
static atomic_int n_run, n_work;
static atomic_bool gate; /* jobs wait for it */

static void run(fv_job *job) {
    order[atomic_load(&n_run)] = ((task *)job)->number;
    atomic_fetch_add(&n_run, 1);
}

static void run_after_gate(fv_job *job) {
    while (!atomic_load(&gate)) usleep(100);
    run(job);
}

static task *make(int i, void (*f)(fv_job *)) {
    tasks[i] = (task){.job = {.run = f}, .number = i};
    return &tasks[i];
}

static fv_jobs *start(size_t limit, double (*work)(void *)) {
    fv_jobs *j;
    cr_assert_eq(fv_jobs_start(&(fv_jobs_options){.limit = limit, .work = work}, &j), FV_OK);
    return j;
}

static void wait_for(atomic_int *n, int at_least) {
    while (atomic_load(n) < at_least) usleep(100);
}

Test(jobs, run_in_the_order_of_posting) {
    fv_jobs *j = start(N, NULL);
    for (int i = 0; i < N; i++) cr_assert_eq(fv_jobs_post(j, &make(i, run)->job), FV_OK);
    wait_for(&n_run, N);
    for (int i = 0; i < N; i++) cr_assert_eq(order[i], i);
    cr_assert_eq(fv_jobs_waiting(j), 0);
    fv_jobs_stop(j);
}

Test(jobs, stopping_runs_what_waits) {
    fv_jobs *j = start(N, NULL);
    for (int i = 0; i < N; i++) cr_assert_eq(fv_jobs_post(j, &make(i, run)->job), FV_OK);
    fv_jobs_stop(j);
    cr_assert_eq(atomic_load(&n_run), N);
}

Test(jobs, stopping_without_any_job_ends) {
    fv_jobs_stop(start(1, NULL));
    fv_jobs_stop(NULL);
}

/* The limit includes jobs that the thread has taken from the queue but not started. */
Test(jobs, more_than_the_limit_are_refused_until_one_has_begun) {
    fv_jobs *j = start(3, NULL);
    cr_assert_eq(fv_jobs_post(j, &make(0, run_after_gate)->job), FV_OK);
    while (fv_jobs_waiting(j) > 0) usleep(100); /* it has started */
    for (int i = 1; i <= 3; i++) cr_assert_eq(fv_jobs_post(j, &make(i, run)->job), FV_OK);
    cr_assert_eq(fv_jobs_post(j, &make(4, run)->job), FV_EBUSY);
    cr_assert_eq(fv_jobs_waiting(j), 3);
    atomic_store(&gate, true);
    wait_for(&n_run, 4);
    cr_assert_eq(fv_jobs_post(j, &tasks[4].job), FV_OK, "there is room again");
    wait_for(&n_run, 5);
    fv_jobs_stop(j);
}

Test(jobs, what_follows_is_never_refused_and_keeps_its_place) {
    fv_jobs *j = start(1, NULL);
    cr_assert_eq(fv_jobs_post(j, &make(0, run_after_gate)->job), FV_OK);
    while (fv_jobs_waiting(j) > 0) usleep(100);
    cr_assert_eq(fv_jobs_post(j, &make(1, run)->job), FV_OK);
    for (int i = 2; i < 50; i++) fv_jobs_post_followup(j, &make(i, run)->job);
    cr_assert_eq(fv_jobs_waiting(j), 1);
    atomic_store(&gate, true);
    wait_for(&n_run, 50);
    for (int i = 0; i < 50; i++) cr_assert_eq(order[i], i);
    fv_jobs_stop(j);
}

/* ---- standing work ---------------------------------------------------------------------- */

static double work_five_times(void *user) {
    (void)user;
    return atomic_fetch_add(&n_work, 1) < 4 ? 0 : -1;
}

Test(jobs, standing_work_runs_as_long_as_it_asks_and_again_after_a_job) {
    fv_jobs *j = start(8, work_five_times);
    wait_for(&n_work, 5);
    usleep(20000);
    cr_assert_eq(atomic_load(&n_work), 5, "it has said that it waits for a job");
    cr_assert_eq(fv_jobs_post(j, &make(0, run)->job), FV_OK);
    wait_for(&n_work, 6);
    cr_assert_eq(atomic_load(&n_run), 1);
    fv_jobs_stop(j);
}

static double work_for_ever(void *user) {
    (void)user;
    atomic_fetch_add(&n_work, 1);
    return 0;
}

Test(jobs, work_that_never_ends_lets_jobs_in_and_the_thread_stop) {
    fv_jobs *j = start(8, work_for_ever);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(fv_jobs_post(j, &make(i, run)->job), FV_OK);
        wait_for(&n_run, i + 1);
    }
    cr_assert_gt(fv_jobs_busy_s(j), 0);
    fv_jobs_stop(j);
}

static double work_on_time(void *user) {
    (void)user;
    atomic_fetch_add(&n_work, 1);
    return 0.005;
}

Test(jobs, work_is_called_again_when_its_time_has_come) {
    fv_jobs *j = start(8, work_on_time);
    cr_assert_eq(fv_jobs_post(j, &make(0, run)->job), FV_OK);
    wait_for(&n_work, 4);
    fv_jobs_stop(j);
}
