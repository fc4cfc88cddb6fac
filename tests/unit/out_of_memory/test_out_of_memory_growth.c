/* Answers that grow in a pool which is too small for both, while the n-th allocation fails, for every n: an answer
 * ends with FV_ENOMEM, or is preempted, or has its usual tokens; and nothing is left. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/clock.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/scheduler_rig.h"

enum { TOKENS = 60, STEPS = 4, ALLOCATIONS_MAX = 2000 };

TestSuite(out_of_memory_growth, .timeout = 240);

static scheduler_rig rig;
static asked want, older, younger;

static void ask(asked *a, double arrived_s) {
    *a = (asked){.answer = {.max_tokens = TOKENS, .ignore_eos = true}};
    scheduler_ask(
        &rig, a,
        &(asked_prompt){
            .policy = "", .sampling = fv_sampling_default(), .reserve = 8, .arrived_s = arrived_s});
}

static void run(int steps) {
    for (int i = 0; i < steps; i++) fv_scheduler_step(rig.answers);
}

static void assert_right(const asked *a) {
    cr_assert_eq(a->over, 1);
    if (a->status == FV_ENOMEM) return;
    if (a->status == FV_EBUSY) cr_assert_eq(a->report.refusal, FV_REFUSED_PREEMPTED);
    if (a->status == FV_OK) cr_assert_eq(a->n, want.n);
    cr_assert(a->status == FV_OK || a->status == FV_EBUSY, "%s", fv_last_error());
    for (int32_t i = 0; i < a->n; i++) cr_assert_eq(a->token[i].id, want.token[i].id);
}

/* Fails the n-th allocation in the steps around which memory is needed. Returns whether there were so many. */
static bool fail(int64_t n) {
    ask(&older, 1);
    ask(&younger, 2);
    for (int i = 0; i < 100 && older.answer.n_run + 2 < older.answer.rows_end; i++) run(1);
    alloc_fail_begin(n);
    run(STEPS);
    bool reached = alloc_fail_end();
    run(4 * TOKENS);
    assert_right(&older);
    assert_right(&younger);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    return reached;
}

Test(out_of_memory_growth, costs_an_answer_at_most_and_leaks_nothing) {
    scheduler_rig_open(&rig, 2);
    ask(&want, 1);
    run(2 * TOKENS);
    cr_assert_eq(want.status, FV_OK);
    ask(&older, 1);
    size_t page = fv_kv_bytes_held(older.answer.session->kv); /* prompt and reserve fill one */
    fv_scheduler_drop(rig.answers, &older.answer);
    scheduler_rig_close(&rig);

    scheduler_rig_open_with(&rig, 2, 5 * page / 2);
    int64_t n = 1;
    while (n < ALLOCATIONS_MAX && fail(n)) n++;
    cr_assert_gt(n, 1, "steps allocate nothing");
    cr_assert_lt(n, ALLOCATIONS_MAX);
    cr_assert_gt(fv_scheduler_preempted_for_memory(rig.answers), 0);
    scheduler_rig_close(&rig);
}
