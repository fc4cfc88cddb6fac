/* decode-worker/conversations/conversations.c: leases, names, which conversation is dropped when
 * memory is short, and that nothing is left in the pool. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/conversations/conversations.h"

static double now;
static double fake_clock(void *user) {
    (void)user;
    return now;
}

static fv_kv_pool *pool;
static fv_conversations *table;
static size_t one; /* bytes of a conversation of a page */

static void open_table(size_t n_fit, double keep_s_max) {
    fv_kv_shape shape = {.n_layer = 2, .n_kv = 1, .d_head = 4, .dtype = FV_F32};
    one = fv_kv_text_bytes(&shape, 1, 0);
    now = 100;
    cr_assert_eq(fv_kv_pool_open(fv_device_host(), &shape, 0, &pool), FV_OK);
    fv_conversations_options opt = {
        .bytes_max = n_fit * one, .keep_s_max = keep_s_max, .clock = fake_clock};
    cr_assert_eq(fv_conversations_open(&opt, &table), FV_OK);
}

static void close_table(void) {
    fv_conversations_close(table);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_pool_close(pool);
}

/* Begins a conversation that holds `rows` tokens; memory for more is reserved, as for generation. */
static fv_conversation *begin(int32_t rows) {
    fv_conversation *x;
    int32_t pos[256];
    for (int32_t i = 0; i < rows; i++) pos[i] = i;
    cr_assert_eq(fv_conversations_begin(table, &x), FV_OK);
    cr_assert_eq(fv_kv_open(pool, &x->kv), FV_OK);
    for (int32_t l = 0; l < 2; l++) {
        cr_assert_eq(fv_kv_reserve(x->kv, l, rows + 500), FV_OK);
        cr_assert_eq(fv_kv_append(x->kv, l, FV_SEG_TEXT, pos, rows), FV_OK);
    }
    return x;
}

typedef struct name {
    uint8_t id[16];
} name;

static size_t owner_bytes; /* for keep; 0: no limit */

static name keep(fv_conversation *x, double asked_s, double granted_s) {
    static const int32_t ids[] = {7, 8, 9};
    name out = {{0}};
    cr_assert_eq(fv_conversations_keep(table, x, ids, 3, asked_s, owner_bytes), granted_s);
    if (granted_s > 0) memcpy(out.id, x->id, sizeof out.id);
    return out;
}

static name keep_new(int32_t rows) { return keep(begin(rows), 10, 10); }

static fv_conversation *resume(const name *n) {
    fv_conversation *x;
    cr_assert_eq(fv_conversations_resume(table, n->id, "", &x), FV_OK, "%s", fv_last_error());
    return x;
}

static fv_status resumes(const name *n) {
    fv_conversation *x;
    fv_status st = fv_conversations_resume(table, n->id, "", &x);
    if (st == FV_OK) fv_conversations_pause(table, x);
    return st;
}

Test(conversations, one_belongs_to_its_owner_alone) {
    fv_conversation *x;
    open_table(0, 60);
    fv_conversation *mine = begin(3);
    cr_assert_eq(fv_kv_set_owner(mine->kv, "acme"), FV_OK);
    name a = keep(mine, 10, 10);
    cr_assert_eq(fv_conversations_resume(table, a.id, "", &x), FV_ENOTFOUND);
    cr_assert_eq(fv_conversations_resume(table, a.id, "acm", &x), FV_ENOTFOUND);
    cr_assert_eq(fv_conversations_resume(table, a.id, "acme", &x), FV_OK);
    fv_conversations_pause(table, x);
    close_table();
}

static name keep_of(const char *owner) {
    fv_conversation *x = begin(3);
    cr_assert_eq(fv_kv_set_owner(x->kv, owner), FV_OK);
    return keep(x, 10, 10);
}

Test(conversations, an_owners_own_oldest_make_place_within_its_limit) {
    fv_conversation *x;
    open_table(0, 60);
    owner_bytes = 2 * one;
    name other = keep_of("lab"), a = keep_of("acme"), b = keep_of("acme"), c = keep_of("acme");
    cr_assert_eq(fv_kv_pool_owned(pool, "acme"), 2 * one);
    cr_assert_eq(fv_kv_pool_owned(pool, "lab"), one);
    cr_assert_eq(fv_conversations_resume(table, a.id, "acme", &x), FV_ENOTFOUND);
    cr_assert_eq(fv_conversations_resume(table, b.id, "acme", &x), FV_OK);
    fv_conversations_pause(table, x);
    cr_assert_eq(fv_conversations_resume(table, other.id, "lab", &x), FV_OK);
    fv_conversations_pause(table, x);
    owner_bytes = one - 1; /* too large by itself: nothing is dropped for it */
    keep(begin(3), 10, 0);
    cr_assert_eq(fv_conversations_resume(table, c.id, "acme", &x), FV_OK);
    fv_conversations_pause(table, x);
    close_table();
}

Test(conversations, what_is_kept_has_its_ids_and_only_the_memory_of_its_tokens) {
    open_table(0, 60);
    name a = keep_new(3);
    cr_assert_eq(fv_conversations_kept(table), 1);
    cr_assert_eq(fv_conversations_bytes(table), one);
    cr_assert_eq(fv_kv_pool_used(pool), one);
    fv_conversation *x = resume(&a);
    cr_assert_eq(x->n, 3);
    cr_assert_eq(x->ids[2], 9);
    cr_assert_eq(fv_conversations_kept(table), 0, "it is in use");
    cr_assert_eq(fv_conversations_bytes(table), 0);
    fv_conversations_end(table, x);
    cr_assert_eq(resumes(&a), FV_ENOTFOUND);
    close_table();
}

Test(conversations, a_lease_is_the_shorter_of_asked_and_granted_and_ends_by_itself) {
    open_table(0, 60);
    name longer = keep(begin(1), 1000, 60), shorter = keep(begin(1), 5, 5);
    cr_assert_eq(fv_conversations_next_s(table), 5);
    now += 4.9;
    cr_assert_eq(fv_conversations_expire(table), 0);
    now += 0.2;
    cr_assert_eq(resumes(&shorter), FV_ENOTFOUND);
    cr_assert_eq(fv_conversations_kept(table), 1);
    cr_assert_eq(resumes(&longer), FV_OK);
    now += 60;
    cr_assert_eq(fv_conversations_expire(table), 1);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    cr_assert_eq(fv_conversations_next_s(table), HUGE_VAL);
    close_table();
}

Test(conversations, one_in_use_stays_beyond_its_lease_and_serves_one_at_a_time) {
    open_table(0, 60);
    name a = keep_new(1);
    fv_conversation *x = resume(&a);
    cr_assert_eq(resumes(&a), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "another request is continuing"));
    now += 11;
    cr_assert_eq(fv_conversations_expire(table), 0);
    fv_conversations_pause(table, x); /* nothing was generated, and its lease ran on meanwhile */
    cr_assert_eq(fv_conversations_kept(table), 0);
    cr_assert_eq(resumes(&a), FV_ENOTFOUND);
    close_table();
}

Test(conversations, after_the_next_answer_it_has_another_name) {
    open_table(0, 60);
    name a = keep_new(1), b = keep(resume(&a), 10, 10);
    cr_assert_neq(memcmp(&a, &b, sizeof a), 0);
    cr_assert_eq(resumes(&a), FV_ENOTFOUND);
    cr_assert_eq(resumes(&b), FV_OK);
    close_table();
}

Test(conversations, the_oldest_are_dropped_first) {
    open_table(3, 60);
    name a = keep_new(1), b = keep_new(1), c = keep_new(1);
    name again = keep(resume(&a), 10, 10); /* now b is the oldest */
    name d = keep_new(1);
    cr_assert_eq(resumes(&b), FV_ENOTFOUND);
    cr_assert_eq(resumes(&c), FV_OK);
    cr_assert_eq(resumes(&again), FV_OK);
    name large = keep_new(FV_KV_BLOCK + 1); /* two pages a layer */
    cr_assert_eq(resumes(&c), FV_ENOTFOUND);
    cr_assert_eq(resumes(&again), FV_ENOTFOUND);
    cr_assert_eq(resumes(&d), FV_OK);
    cr_assert_eq(resumes(&large), FV_OK);
    cr_assert_eq(fv_conversations_bytes(table), 3 * one);
    close_table();
}

Test(conversations, one_in_use_is_not_dropped_and_one_too_large_is_not_kept) {
    open_table(1, 60);
    name a = keep_new(1);
    fv_conversation *x = resume(&a);
    name b = keep_new(1);
    keep(begin(FV_KV_BLOCK + 1), 10, 0);
    cr_assert_eq(resumes(&b), FV_OK, "nobody goes for one that is not kept anyway");
    fv_conversations_end(table, x);
    close_table();
}

Test(conversations, dropping_works_at_once_or_when_it_is_released) {
    open_table(0, 60);
    name a = keep_new(1), b = keep_new(1), c = keep_new(1), none = {{1}};
    fv_conversations_forget(table, a.id);
    fv_conversations_forget(table, a.id);
    fv_conversations_forget(table, none.id);
    cr_assert_eq(resumes(&a), FV_ENOTFOUND);
    fv_conversation *x = resume(&b), *y = resume(&c);
    fv_conversations_forget(table, b.id);
    fv_conversations_forget(table, c.id);
    fv_conversations_pause(table, x);
    cr_assert_eq(resumes(&b), FV_ENOTFOUND);
    name next = keep(y, 10, 10); /* it has continued, so it has a new name */
    cr_assert_eq(resumes(&next), FV_OK);
    close_table();
}

Test(conversations, a_worker_that_leaves_keeps_nothing) {
    open_table(0, 60);
    name a = keep_new(1), b = keep_new(1);
    fv_conversation *x = resume(&a);
    fv_conversations_stop(table);
    cr_assert_eq(resumes(&b), FV_ENOTFOUND);
    keep(x, 10, 0);
    keep(begin(1), 10, 0);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    close_table();
}

Test(conversations, a_limit_of_zero_seconds_keeps_none) {
    open_table(0, 0);
    keep(begin(1), 10, 0);
    close_table();
}
