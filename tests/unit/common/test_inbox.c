/* common/inbox.c */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "common/clock.h"
#include "common/inbox.h"

typedef struct letter {
    fv_inbox_item item; /* first */
    int number;
} letter;

static void count_ring(void *user) { ++*(int *)user; }

Test(inbox, gives_items_in_the_order_in_which_they_came) {
    fv_inbox box;
    cr_assert_eq(fv_inbox_init(&box, 0, NULL, NULL), FV_OK);
    letter l[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
    for (int i = 0; i < 3; i++) cr_assert_eq(fv_inbox_post(&box, &l[i].item), FV_OK);
    int want = 1;
    for (fv_inbox_item *it = fv_inbox_take(&box, NULL); it; it = it->next)
        cr_assert_eq(((letter *)it)->number, want++);
    cr_assert_eq(want, 4);
    cr_assert_null(fv_inbox_take(&box, NULL), "what was taken is gone");
    fv_inbox_fini(&box);
}

Test(inbox, rings_when_the_first_item_comes_and_not_for_those_after_it) {
    fv_inbox box;
    int rings = 0;
    fv_inbox_init(&box, 0, count_ring, &rings);
    letter l[4];
    fv_inbox_post(&box, &l[0].item);
    fv_inbox_post(&box, &l[1].item);
    cr_assert_eq(rings, 1);
    fv_inbox_take(&box, NULL);
    fv_inbox_post(&box, &l[2].item);
    cr_assert_eq(rings, 2);
    fv_inbox_fini(&box);
}

Test(inbox, refuses_more_than_its_limit_until_some_are_taken) {
    fv_inbox box;
    fv_inbox_init(&box, 2, NULL, NULL);
    letter l[3];
    cr_assert_eq(fv_inbox_post(&box, &l[0].item), FV_OK);
    cr_assert_eq(fv_inbox_post(&box, &l[1].item), FV_OK);
    cr_assert_eq(fv_inbox_post(&box, &l[2].item), FV_EBUSY);
    cr_assert(fv_inbox_take(&box, NULL) == &l[0].item);
    cr_assert_eq(fv_inbox_post(&box, &l[2].item), FV_OK);
    fv_inbox_fini(&box);
}

Test(inbox, a_closed_one_gives_what_it_has_and_takes_no_more) {
    fv_inbox box;
    int rings = 0;
    fv_inbox_init(&box, 0, count_ring, &rings);
    letter l[2];
    bool closed;
    fv_inbox_post(&box, &l[0].item);
    fv_inbox_close(&box);
    cr_assert_eq(rings, 1, "the bell that was rung serves both");
    cr_assert_eq(fv_inbox_post(&box, &l[1].item), FV_ECANCELLED);
    cr_assert(fv_inbox_take(&box, &closed) == &l[0].item);
    cr_assert(closed);
    fv_inbox_fini(&box);
}

Test(inbox, closing_an_empty_one_rings) {
    fv_inbox box;
    int rings = 0;
    fv_inbox_init(&box, 0, count_ring, &rings);
    fv_inbox_close(&box);
    fv_inbox_close(&box);
    cr_assert_eq(rings, 1);
    fv_inbox_fini(&box);
}

Test(inbox, a_wait_ends_after_its_time, .timeout = 240) {
    fv_inbox box;
    bool closed = true;
    fv_inbox_init(&box, 0, NULL, NULL);
    double begin = fv_clock_s();
    cr_assert_null(fv_inbox_wait(&box, 0.02, &closed));
    cr_assert(fv_clock_s() - begin >= 0.02);
    cr_assert_not(closed);
    fv_inbox_fini(&box);
}

static void *post_later(void *arg) {
    fv_inbox *box = arg;
    static letter late;
    struct timespec t = {0, 5000000};
    nanosleep(&t, NULL);
    fv_inbox_post(box, &late.item);
    return NULL;
}

Test(inbox, a_wait_ends_when_another_thread_posts, .timeout = 240) {
    fv_inbox box;
    pthread_t thread;
    fv_inbox_init(&box, 0, NULL, NULL);
    pthread_create(&thread, NULL, post_later, &box);
    cr_assert_not_null(fv_inbox_wait(&box, -1, NULL));
    pthread_join(thread, NULL);
    fv_inbox_fini(&box);
}

static void *close_later(void *arg) {
    struct timespec t = {0, 5000000};
    nanosleep(&t, NULL);
    fv_inbox_close(arg);
    return NULL;
}

Test(inbox, a_wait_ends_when_another_thread_closes, .timeout = 240) {
    fv_inbox box;
    pthread_t thread;
    bool closed = false;
    fv_inbox_init(&box, 0, NULL, NULL);
    pthread_create(&thread, NULL, close_later, &box);
    cr_assert_null(fv_inbox_wait(&box, -1, &closed));
    cr_assert(closed);
    pthread_join(thread, NULL);
    fv_inbox_fini(&box);
}
