#include <criterion/criterion.h>
#include <stdatomic.h>
#include <unistd.h>

#include "kernels/cpu/threads.h"

enum { MOST = 1000 };

typedef struct seen {
    _Atomic int times[MOST], bad_thread, chunks;
    int n_thread;
} seen;

static void count(void *arg, int thread, int64_t begin, int64_t end) {
    seen *s = arg;
    if (thread < 0 || thread >= s->n_thread) s->bad_thread++;
    for (int64_t i = begin; i < end; i++) s->times[i]++;
}

/* Includes more threads than shares, and fewer chunks than threads. */
Test(threads, each_index_is_done_once_by_any_number_of_threads) {
    static const int n_thread[] = {1, 2, 3, 16, 17, 40};
    static const int64_t n_item[] = {1, 2, 15, 16, 17, 100, 999, MOST}, grain[] = {1, 3, 64, 5000};
    for (size_t t = 0; t < sizeof n_thread / sizeof *n_thread; t++) {
        fv_threads *pool;
        cr_assert_eq(fv_threads_open(n_thread[t], &pool), FV_OK);
        for (size_t i = 0; i < sizeof n_item / sizeof *n_item; i++)
            for (size_t g = 0; g < sizeof grain / sizeof *grain; g++) {
                static seen s;
                s = (seen){.n_thread = n_thread[t]};
                fv_threads_for(pool, n_item[i], grain[g], count, &s);
                cr_expect_eq(s.bad_thread, 0);
                for (int64_t k = 0; k < MOST; k++)
                    cr_expect_eq(s.times[k], k < n_item[i],
                                 "%d threads, %d items, %d at a time: %d", n_thread[t],
                                 (int)n_item[i], (int)grain[g], (int)k);
            }
        fv_threads_close(pool);
    }
}

/* Thread 0 waits until all other chunks are done: others must do the chunks of its share. */
static void hold_back(void *arg, int thread, int64_t begin, int64_t end) {
    seen *s = arg;
    for (int64_t i = begin; i < end; i++) s->times[i]++;
    if (thread == 0)
        for (int ms = 0; ms < 10000 && s->chunks < MOST - 1; ms++) usleep(1000);
    s->chunks++;
}

Test(threads, chunks_of_a_thread_that_is_held_back_are_done_by_the_others) {
    static seen s;
    fv_threads *pool;
    cr_assert_eq(fv_threads_open(2, &pool), FV_OK);
    fv_threads_for(pool, MOST, 1, hold_back, &s);
    cr_expect_eq(s.chunks, MOST);
    for (int i = 0; i < MOST; i++) cr_expect_eq(s.times[i], 1, "%d: %d times", i, s.times[i]);
    fv_threads_close(pool);
}
