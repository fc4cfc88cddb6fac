/* kv/cache/prefix.h: what is read is what was computed, whatever was kept and given up before; memory and shares. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv/cache/prefix.h"
#include "kv/cache/segments.h"
#include "tests/support/thorough.h"

enum { N = 2, HKV = 2, D = 4, ROWS = 300, LINKS = 32 };

static const fv_kv_shape shape = {.n_layer = N, .n_kv = HKV, .d_head = D, .dtype = FV_F32};
static const size_t per_row = (size_t)N * HKV * 2 * D * sizeof(float);

/* A prompt whose KV is a function of its chain. */
typedef struct sample {
    const char *tenant;
    int32_t n, n_link;
    fv_chain_link link[LINKS];
} sample;

/* A prompt of n rows with an image of 70 rows, number `image`, after 80; a changed id at row `odd`. */
static sample make(const char *tenant, int32_t n, int image, int32_t odd) {
    int32_t ids[ROWS];
    sample s = {.tenant = tenant, .n = n};
    fv_chain_visual visual = {.first = 80, .n = 70, .digest = {(uint8_t)image}};
    fv_chain_base base = {.tenant = tenant};
    fv_chain_prompt prompt = {.n = n, .ids = ids, .visual = &visual, .n_visual = n >= 150};
    for (int32_t i = 0; i < n; i++) ids[i] = i + (i == odd);
    cr_assert_leq(fv_chain_links_max(n, 1), LINKS);
    cr_assert_eq(fv_chain_make(&base, &prompt, s.link, &s.n_link), FV_OK);
    return s;
}

static int32_t link_of(const sample *s, int32_t row) {
    int32_t i = 0;
    while (s->link[i].end <= row) i++;
    return i;
}

/* A number that the row of a key or value would hold. */
static float number(const sample *s, int32_t row, int32_t layer, int32_t part) {
    uint32_t x;
    memcpy(&x, s->link[link_of(s, row)].key.bytes + 8, sizeof x);
    return (float)(x % 4096) + (float)row * 4096 + (float)(layer * 2 * HKV + part) / 16;
}

static bool is_visual(const sample *s, int32_t row) {
    int32_t i = link_of(s, row);
    return s->link[i].n_visual > (i ? s->link[i - 1].n_visual : 0);
}

/* The row's place in a store that holds the whole prompt in order. */
static float *place(fv_kv *kv, const sample *s, int32_t row, int32_t layer, int32_t part) {
    fv_kv_segment seg = is_visual(s, row) ? FV_SEG_VISUAL : FV_SEG_TEXT;
    int32_t at = 0;
    void *p;
    for (int32_t r = 0; r < row; r++) at += is_visual(s, r) == (seg == FV_SEG_VISUAL);
    cr_assert_eq(fv_kv_contiguous(kv, layer, part / 2, seg, part % 2, at, at + 1, &p), 1);
    cr_assert_eq(fv_kv_positions(kv, layer, part / 2, seg)[at], row);
    return p;
}

static fv_kv *open_store(fv_kv_pool *pool, const sample *s) {
    fv_kv *kv;
    cr_assert_eq(fv_kv_open(pool, &kv), FV_OK);
    for (int32_t l = 0; l < N; l++)
        cr_assert_eq(fv_kv_extent(kv, l, s->link[s->n_link - 1].n_visual), FV_OK);
    return kv;
}

/* Computes rows from `from` on, after those that the store holds. */
static void compute(fv_kv *kv, const sample *s, int32_t from) {
    for (int32_t l = 0; l < N; l++) {
        cr_assert_eq(fv_kv_reserve(kv, l, s->n), FV_OK);
        for (int32_t r = from; r < s->n; r++) {
            cr_assert_eq(fv_kv_append(kv, l, is_visual(s, r) ? FV_SEG_VISUAL : FV_SEG_TEXT, &r, 1),
                         FV_OK);
            for (int32_t part = 0; part < 2 * HKV; part++)
                for (int d = 0; d < D; d++)
                    place(kv, s, r, l, part)[d] = number(s, r, l, part) + (float)d * 0.001f;
        }
    }
}

static void expect(fv_kv *kv, const sample *s, int32_t rows) {
    for (int32_t l = 0; l < N; l++) {
        cr_assert_eq(fv_kv_len(kv, l, 0, FV_SEG_TEXT) + fv_kv_len(kv, l, 0, FV_SEG_VISUAL), rows);
        for (int32_t r = 0; r < rows; r++)
            for (int32_t part = 0; part < 2 * HKV; part++)
                for (int d = 0; d < D; d++)
                    cr_assert_eq(place(kv, s, r, l, part)[d],
                                 number(s, r, l, part) + (float)d * 0.001f, "row %d", r);
    }
}

static fv_prefix_cache *open_cache(size_t bytes) {
    fv_prefix_cache *c;
    cr_assert_eq(fv_prefix_cache_open(fv_device_host(), &shape, bytes, &c), FV_OK);
    return c;
}

static fv_kv_pool *open_pool(void) {
    fv_kv_pool *pool;
    cr_assert_eq(fv_kv_pool_open(fv_device_host(), &shape, 0, &pool), FV_OK);
    return pool;
}

/* Answers a prompt: takes what is kept, computes the rest, keeps it. Returns the rows that were kept. */
static int32_t answer(fv_prefix_cache *c, fv_kv_pool *pool, const sample *s) {
    static const fv_prefix_cost cost = {.text = 1, .visual = 10};
    fv_prefix prefix;
    fv_kv *kv = open_store(pool, s);
    cr_assert_eq(fv_prefix_take(c, s->link, s->n_link, s->n - 1, &prefix), FV_OK);
    int32_t rows = prefix.rows;
    cr_assert_lt(rows, s->n);
    cr_assert_float_eq(prefix.seconds, prefix.n_text + 10 * prefix.n_visual, 1e-9);
    for (int32_t l = 0; l < N; l++) cr_assert_eq(fv_prefix_read(c, &prefix, kv, l, l + 1), FV_OK);
    expect(kv, s, rows);
    compute(kv, s, rows);
    expect(kv, s, s->n);
    fv_prefix_keep(c, s->tenant, s->link, s->n_link, &cost, kv);
    fv_prefix_give(c, &prefix);
    fv_kv_close(kv);
    return rows;
}

Test(prefix, the_longest_kept_prefix_is_read_and_never_the_last_row) {
    fv_prefix_cache *c = open_cache(1 << 24);
    fv_kv_pool *pool = open_pool();
    sample a = make("", 250, 1, -1), again = make("", 250, 1, 200), other = make("", 250, 2, -1),
           cut = make("", 150, 1, -1), longer = make("", 290, 1, -1), first = make("", 250, 1, 0);
    cr_assert_eq(answer(c, pool, &a), 0);
    cr_assert_eq(answer(c, pool, &a), 198, "up to the end of the last page before the last row");
    cr_assert_eq(answer(c, pool, &again), 198 - 0, "ids differ in the last run");
    cr_assert_eq(answer(c, pool, &other), 80);
    cr_assert_eq(answer(c, pool, &cut), 80, "the image is the prompt's end");
    cr_assert_eq(answer(c, pool, &longer), 198);
    cr_assert_eq(answer(c, pool, &first), 0);
    cr_assert_eq(answer(c, pool, &first), 198);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, segments_are_kept_once) {
    fv_prefix_cache *c = open_cache(1 << 24);
    fv_kv_pool *pool = open_pool();
    sample a = make("", 250, 1, -1), b = make("", 250, 1, 240);
    (void)answer(c, pool, &a);
    fv_prefix_counters before = fv_prefix_cache_count(c);
    cr_assert_eq(before.n_segment, a.n_link);
    (void)answer(c, pool, &a);
    cr_assert_eq(fv_prefix_cache_count(c).bytes, before.bytes);
    (void)answer(c, pool, &b);
    cr_assert_eq(fv_prefix_cache_count(c).n_segment, before.n_segment + 1);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, a_cache_of_no_bytes_keeps_nothing) {
    fv_prefix_cache *c = open_cache(0);
    fv_kv_pool *pool = open_pool();
    sample a = make("", 250, 1, -1);
    for (int i = 0; i < 2; i++) cr_assert_eq(answer(c, pool, &a), 0);
    cr_assert_eq(fv_prefix_cache_count(c).bytes, 0);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, what_was_used_longest_ago_goes_first_and_the_end_of_a_chain_before_its_beginning) {
    fv_prefix_cache *c = open_cache(700 * per_row); /* two prompts, and some */
    fv_kv_pool *pool = open_pool();
    sample a = make("", 290, 1, 0), b = make("", 290, 2, 1), d = make("", 290, 3, 2);
    (void)answer(c, pool, &a);
    (void)answer(c, pool, &b);
    (void)answer(c, pool, &a); /* a is used, b is not */
    (void)answer(c, pool, &d);
    int32_t rows = fv_prefix_rows(c, b.link, b.n_link, b.n);
    cr_assert_lt(rows, 290);
    cr_assert_gt(rows, 0, "its end was given up alone");
    cr_assert_eq(fv_prefix_rows(c, a.link, a.n_link, a.n), 290);
    cr_assert_eq(fv_prefix_rows(c, d.link, d.n_link, d.n), 290);
    cr_assert_gt(fv_prefix_cache_count(c).given_up, 0);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, what_is_taken_stays) {
    fv_prefix_cache *c = open_cache(300 * per_row + 4096);
    fv_kv_pool *pool = open_pool();
    sample a = make("", 290, 1, 0), b = make("", 290, 2, 1);
    fv_prefix prefix;
    (void)answer(c, pool, &a);
    cr_assert_eq(fv_prefix_take(c, a.link, a.n_link, 200, &prefix), FV_OK);
    cr_assert_eq(prefix.rows, 198);
    for (int i = 0; i < 3; i++) (void)answer(c, pool, &b);
    fv_kv *kv = open_store(pool, &a);
    cr_assert_eq(fv_prefix_read(c, &prefix, kv, 0, N), FV_OK);
    expect(kv, &a, 198);
    fv_kv_close(kv);
    fv_prefix_give(c, &prefix);
    for (int i = 0; i < 3; i++) (void)answer(c, pool, &b);
    cr_assert_lt(fv_prefix_rows(c, a.link, a.n_link, a.n), 198);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, a_tenant_that_sends_much_takes_nothing_from_one_that_sends_little) {
    fv_prefix_cache *c = open_cache(6 * 300 * per_row);
    fv_kv_pool *pool = open_pool();
    sample quiet = make("quiet", 290, 1, -1);
    (void)answer(c, pool, &quiet);
    size_t owned = fv_prefix_cache_owned(c, "quiet");
    for (int i = 0; i < 40; i++) {
        sample loud = make("loud", 290, i, i % 60);
        (void)answer(c, pool, &loud);
    }
    cr_assert_eq(fv_prefix_cache_owned(c, "quiet"), owned);
    cr_assert_gt(fv_prefix_cache_owned(c, "loud"), 4 * 290 * per_row);
    cr_assert_eq(answer(c, pool, &quiet), 262);
    sample same = make("loud", 290, 1, -1);
    cr_assert_eq(fv_prefix_rows(c, quiet.link, quiet.n_link, 290), 290);
    cr_assert_eq(fv_prefix_rows(c, same.link, 1, 290), 0, "the same prompt of another tenant");
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, one_long_prompt_takes_no_more_than_its_tenants_part) {
    fv_prefix_cache *c = open_cache(600 * per_row);
    fv_kv_pool *pool = open_pool();
    sample quiet = make("quiet", 230, 1, -1),
           large[2] = {make("loud", 300, 2, 0), make("loud", 300, 3, 1)};
    fv_prefix_draft d[2];
    (void)answer(c, pool, &quiet);
    for (int i = 0; i < 2; i++)
        fv_prefix_draft_open(c, "loud", large[i].link, large[i].n_link, &d[i]);
    cr_assert_eq(d[0].n_link, large[0].n_link);
    cr_assert_lt(d[1].n_link, large[1].n_link, "it could only be had from the other tenant");
    cr_assert_eq(fv_prefix_rows(c, quiet.link, quiet.n_link, 230), 230);
    for (int i = 0; i < 2; i++) fv_prefix_draft_drop(c, &d[i]);
    cr_assert_eq(fv_prefix_cache_count(c).n_tenant, 1);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, a_tenant_that_holds_all_makes_room_for_another) {
    fv_prefix_cache *c = open_cache(600 * per_row);
    fv_kv_pool *pool = open_pool();
    sample loud[2] = {make("loud", 290, 1, 0), make("loud", 290, 2, 1)},
           quiet = make("quiet", 290, 3, -1);
    for (int i = 0; i < 2; i++) (void)answer(c, pool, &loud[i]);
    (void)answer(c, pool, &quiet);
    cr_assert_geq(fv_prefix_rows(c, quiet.link, quiet.n_link, 290), 198);
    cr_assert_gt(fv_prefix_cache_owned(c, "loud"), 198 * per_row);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, rows_are_right_after_any_history_and_memory_stays_within_its_limit) {
    static const char *const tenants[] = {"", "a", "b"};
    fv_kv_pool *pool = open_pool();
    srand(11);
    for (int round = 0; round < 12; round += sanitized_step(6)) {
        size_t most = (size_t)(rand() % 1200) * per_row;
        int64_t hits = 0;
        fv_prefix_cache *c = open_cache(most);
        for (int i = 0; i < 60; i++) {
            int32_t n = 1 + rand() % 299, odd = rand() % 2 ? -1 : rand() % n;
            sample s = make(tenants[rand() % 3], n, rand() % 3, odd);
            hits += answer(c, pool, &s) > 0;
            fv_prefix_counters now = fv_prefix_cache_count(c);
            cr_assert_leq(now.bytes, most);
            cr_assert_eq((uint64_t)now.n_segment, now.kept - now.given_up);
        }
        cr_assert(hits > 0 || most < 400 * per_row);
        fv_prefix_cache_close(c);
    }
    fv_kv_pool_close(pool);
}

Test(prefix, prompts_that_come_once_do_not_push_out_those_that_come_again) {
    fv_prefix_cache *c = open_cache(1500 * per_row); /* five prompts */
    fv_kv_pool *pool = open_pool();
    sample hot[2] = {make("", 290, 1, 0), make("", 290, 2, 1)};
    for (int i = 0; i < 4; i++) (void)answer(c, pool, &hot[i % 2]);
    for (int i = 0; i < 20; i++) {
        sample once = make("", 290, 3 + i, 2 + i);
        cr_assert_eq(answer(c, pool, &once), 0);
    }
    for (int i = 0; i < 2; i++)
        cr_assert_geq(fv_prefix_rows(c, hot[i].link, hot[i].n_link, 290), 262, "prompt %d", i);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, what_came_again_long_ago_goes_in_the_end) {
    fv_prefix_cache *c = open_cache(1500 * per_row);
    fv_kv_pool *pool = open_pool();
    sample old = make("", 290, 1, 0);
    for (int i = 0; i < 2; i++) (void)answer(c, pool, &old);
    for (int i = 0; i < 40; i++) {
        sample s = make("", 290, 2 + i / 2 % 8, 1 + i / 2 % 8);
        (void)answer(c, pool, &s);
    }
    cr_assert_eq(fv_prefix_rows(c, old.link, old.n_link, 290), 0);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

/* ---- drafts ------------------------------------------------------------------------------ */

Test(prefix, a_draft_is_found_when_it_is_kept_and_not_when_it_is_dropped) {
    static const fv_prefix_cost cost = {.text = 1, .visual = 10};
    fv_prefix_cache *c = open_cache(1 << 24);
    fv_kv_pool *pool = open_pool();
    sample a = make("", 250, 1, -1);
    fv_kv *kv = open_store(pool, &a);
    compute(kv, &a, 0);
    for (int keeps = 0; keeps < 2; keeps++) {
        fv_prefix_draft d;
        fv_prefix_draft_open(c, "", a.link, a.n_link, &d);
        cr_assert_gt(fv_prefix_cache_count(c).bytes, 250 * per_row, "a draft counts");
        for (int32_t l = 0; l < N; l++) fv_prefix_draft_copy(c, &d, kv, l, l + 1);
        cr_assert_eq(fv_prefix_rows(c, a.link, a.n_link, a.n), 0, "not yet");
        if (keeps)
            fv_prefix_draft_keep(c, &d, &cost);
        else
            fv_prefix_draft_drop(c, &d);
        cr_assert_eq(fv_prefix_rows(c, a.link, a.n_link, a.n), keeps ? 250 : 0);
        cr_assert_eq(fv_prefix_cache_count(c).n_segment, keeps ? a.n_link : 0);
        if (!keeps) cr_assert_eq(fv_prefix_cache_count(c).bytes, 0);
    }
    fv_kv_close(kv);
    cr_assert_eq(answer(c, pool, &a), 198);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, of_two_drafts_with_segments_in_common_each_is_kept_once) {
    static const fv_prefix_cost cost = {.text = 1, .visual = 10};
    fv_prefix_cache *c = open_cache(1 << 24);
    fv_kv_pool *pool = open_pool();
    sample s[2] = {make("", 250, 1, 240), make("", 290, 1, 200)};
    fv_prefix_draft d[2];
    for (int i = 0; i < 2; i++) {
        fv_kv *kv = open_store(pool, &s[i]);
        compute(kv, &s[i], 0);
        fv_prefix_draft_open(c, "", s[i].link, s[i].n_link, &d[i]);
        fv_prefix_draft_copy(c, &d[i], kv, 0, N);
        fv_kv_close(kv);
    }
    for (int i = 0; i < 2; i++) fv_prefix_draft_keep(c, &d[i], &cost);
    cr_assert_eq(fv_chain_common(s[0].link, s[0].n_link, s[1].link, s[1].n_link), 4);
    cr_assert_eq(fv_prefix_cache_count(c).n_segment, s[0].n_link + s[1].n_link - 4);
    for (int i = 0; i < 2; i++) cr_assert_gt(answer(c, pool, &s[i]), 190);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

Test(prefix, drafts_stay_within_the_limit_together) {
    fv_prefix_cache *c = open_cache(400 * per_row);
    fv_kv_pool *pool = open_pool();
    sample s[3] = {make("", 290, 1, 0), make("", 290, 2, 1), make("", 290, 3, 2)};
    fv_prefix_draft d[3];
    (void)answer(c, pool, &s[0]);
    for (int i = 0; i < 3; i++) {
        fv_prefix_draft_open(c, "", s[i].link, s[i].n_link, &d[i]);
        cr_assert_leq(fv_prefix_cache_count(c).bytes, 400 * per_row);
    }
    cr_assert_eq(d[0].n_old, s[0].n_link, "what a draft begins with stays");
    for (int i = 0; i < 3; i++) fv_prefix_draft_drop(c, &d[i]);
    cr_assert_eq(fv_prefix_rows(c, s[0].link, s[0].n_link, 290), 290);
    fv_prefix_cache_close(c);
    fv_kv_pool_close(pool);
}

/* Reads the next change; its tokens, or -1: there is none. */
static int32_t next_change(fv_kept_log *log, uint64_t *cursor, uint64_t *name) {
    fv_kept_change change = {0};
    if (fv_kept_log_read(log, cursor, &change, 1) == 0) return -1;
    *name = change.digest;
    cr_assert(change.tokens == 0 || change.seconds > 0);
    return (int32_t)change.tokens;
}

Test(prefix, routers_are_told_of_links_with_names_that_are_kept_and_given_up) {
    const size_t one = 230 * per_row + 6 * 300;
    fv_prefix_cache *c = open_cache(one + one / 2); /* room for one prompt */
    fv_kv_pool *pool = open_pool();
    fv_kept_log *log;
    uint64_t cursor = 0, name = 0;
    sample a = make("", 230, 1, -1), b = make("", 230, 2, 0);
    cr_assert_eq(fv_kept_log_open(16, &log), FV_OK);
    fv_prefix_cache_log(c, log);
    const int32_t image = link_of(&a, 149);
    a.link[image].name = 11;
    b.link[image].name = 12;
    fv_prefix_tell(c, a.link, a.n_link); /* nothing is kept yet */
    cr_assert_eq(next_change(log, &cursor, &name), -1);
    (void)answer(c, pool, &a);
    fv_prefix_tell(c, a.link, a.n_link);
    cr_assert(next_change(log, &cursor, &name) == 150 && name == 11);
    cr_assert_eq(next_change(log, &cursor, &name), -1);
    (void)answer(c, pool, &b);
    fv_prefix_tell(c, b.link, b.n_link);
    cr_assert(next_change(log, &cursor, &name) == 0 && name == 11);
    cr_assert(next_change(log, &cursor, &name) == 150 && name == 12);
    fv_prefix_cache_close(c);
    fv_kept_log_close(log);
    fv_kv_pool_close(pool);
}
