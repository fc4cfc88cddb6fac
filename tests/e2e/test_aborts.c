/* Thousands of requests of all kinds are aborted at random points. Afterwards the fleet holds
 * nothing of them and answers as before. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/abuser.h"
#include "tests/support/answer.h"
#include "tests/support/crew.h"
#include "tests/support/sanitized.h"

#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

/* Memory may grow by what caches, slabs and arenas keep: 2 to 7 MiB were seen, and no more after
 * four times as many requests. */
enum { ROUND = SANITIZED ? 50 : 250, PARALLEL = 24, GROWTH_KIB = 16 << 10 };

static crew c;

static void close_crew(void) { crew_close(&c); }

TestSuite(aborts, .fini = close_crew, .timeout = 600);

static long memory_of(int i) {
    if (i == 0) return program_rss_kib(&c.router);
    return i <= c.n_prefill ? program_rss_kib(&c.prefill[i - 1])
                            : program_rss_kib(&c.decode[i - 1 - c.n_prefill]);
}

static void leave_nothing(const char *name, int n_prefill, int n_decode, int rounds) {
    long before[1 + 2 * CREW_MAX];
    abuse sum = {0};
    int n = 1 + n_prefill + n_decode;
    crew_open(&c, name, "tiny");
    crew_start(&c, n_prefill, n_decode);
    for (int i = 0; i < rounds; i++) {
        abuse_run(c.f.address, IMAGE, (uint64_t)i + 1, ROUND, PARALLEL, &sum);
        if (i == rounds / 4)
            for (int k = 0; k < n; k++) before[k] = memory_of(k);
    }
    printf("%d begun: %d done, %d cancelled, %d by deadline, %d aborted, %d dropped, %d busy\n",
           sum.begun, sum.done, sum.cancelled, sum.deadline, sum.aborted, sum.dropped, sum.busy);
    cr_assert_eq(sum.other, 0);
    cr_assert_eq(sum.begun, rounds * ROUND);
    /* Each kind of ending occurs. How many requests finish, and how many are aborted by id (which
     * needs the token that Accepted brings), depends on the machine's speed. */
    int part = sum.begun / 100;
    cr_assert_gt(sum.cancelled, part);
    cr_assert_gt(sum.deadline, part);
    cr_assert(sum.aborted > 0 || SANITIZED);
    cr_assert_gt(sum.done + sum.dropped, part);
    crew_wait_idle(&c, n_prefill, n_decode);
    for (int k = 0; k < n && !SANITIZED; k++) {
        long now = memory_of(k);
        printf("process %d: %ld KiB, then %ld KiB\n", k, before[k], now);
        cr_assert_lt(now, before[k] + GROWTH_KIB, "process %d holds %ld KiB, and held %ld", k, now,
                     before[k]);
    }
    answer_assert_one_process(c.f.dir, c.f.address,
                              "--image " IMAGE " --ignore-eos --max-tokens 12 'and now?'");
    crew_wait_idle(&c, n_prefill, n_decode);
    crew_stop(&c); /* with a sanitizer: no leaks either */
}

Test(aborts, leave_nothing_behind_in_one_pair) {
    leave_nothing("aborts-1", 1, 1, SANITIZED ? 8 : 20);
}

Test(aborts, leave_nothing_behind_in_two_pairs) {
    leave_nothing("aborts-2", 2, 2, SANITIZED ? 8 : 20);
}
