/* A hand-off whose prompt's beginning was kept from an earlier one, and whose n-th allocation fails, for every n: it
 * arrives as it was sent, or fails with FV_ENOMEM; what was kept stays, and nothing else is left. */
#include <criterion/criterion.h>

#include "kv/share.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/handoff.h"
#include "tests/support/thorough.h"

enum { MORE = 20, POOL = 1 << 20 };

static void make_prompts(handoff_rig *rig, tiny_prompt *first, tiny_prompt *second) {
    const int32_t more[] = {3, 4, 5};
    tiny_prompt_make(&rig->net, first, 70, RIG_VISUAL, 9, 11, "");
    tiny_prompt_again(&rig->net, second, first, "", more, 3);
    cr_assert_eq(tiny_prefill(&rig->net, first, 1, 0), FV_OK);
    cr_assert_eq(tiny_prefill(&rig->net, second, 1, 0), FV_OK);
}

static void send_well(handoff_rig *rig, tiny_prompt *p, bool kept) {
    fv_received got;
    fv_export_report report;
    cr_assert_eq(rig_send(rig, p, MORE, 1, &got, &report), FV_OK, "%s", fv_last_error());
    cr_assert(same_store(p->kv, got.kv));
    cr_assert_eq(report.tokens_kept > 0, kept);
    fv_received_free(&got);
}

/* Returns whether the n-th allocation was reached. */
static bool attempt(int64_t n, bool again, fv_status *st) {
    int64_t live = alloc_live();
    handoff_rig rig;
    tiny_prompt p, q;
    fv_received got;
    rig_open(&rig, &(rig_options){.dtype = FV_BF16, .pool_bytes = POOL, .keep_bytes = POOL});
    make_prompts(&rig, &p, &q);
    if (again) send_well(&rig, &p, false);
    alloc_fail_begin(n);
    *st = rig_send(&rig, &q, MORE, 1, &got, NULL);
    bool came = alloc_fail_end();
    if (*st == FV_OK) {
        cr_assert(same_store(q.kv, got.kv));
        fv_received_free(&got);
    }
    cr_assert_eq(fv_kv_pool_used(rig.pool), fv_kv_pool_idle(rig.pool));
    cr_assert_eq(fv_kv_pool_used(rig.pool), fv_prefixes_count(rig.prefixes).bytes_now);
    if (again) send_well(&rig, &q, true);
    tiny_prompt_free(&q);
    rig_finish(&rig, &p);
    cr_assert_eq(alloc_live(), live, "allocation %lld: %lld are left", (long long)n,
                 (long long)(alloc_live() - live));
    return came;
}

TestSuite(out_of_memory_prefixes, .timeout = 300);

Test(out_of_memory_prefixes, every_allocation_of_a_hand_off_may_fail) {
    for (int again = 0; again < 2; again++) {
        int32_t n_failed = 0;
        fv_status st;
        for (int64_t n = 1; attempt(n, again, &st); n += sanitized_step(3)) {
            n_failed += st != FV_OK;
            cr_assert(st == FV_OK || st == FV_ENOMEM, "allocation %lld: %s, %s", (long long)n,
                      fv_status_name(st), fv_last_error());
        }
        cr_assert_gt(n_failed * sanitized_step(3), 30, "the hand-off allocates");
    }
}
