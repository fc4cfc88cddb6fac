/* KEPT PROMPTS: how long finding the longest kept beginning of a prompt takes, by the number of prompts that are kept:
 * in the cache of a prefill worker (kv/cache/prefix.h), and in the table of a decode worker, where also keeping one more
 * is measured when the limit makes another one go (decode-worker/keep/prefixes.h).
 *
 * All prompts begin with the same 64 tokens, go on with 64 of their own, and end with a question. The rows are tiny: they
 * are not looked at. One thread; times are CPU time a call, the median of several rounds.
 *
 *     bench_prefixes --rounds 5 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"
#include "decode-worker/keep/prefixes.h"
#include "eval/scenes/random.h"
#include "kv/cache/prefix.h"

enum {
    ROWS = 130,
    SHARED = 128,
    LINKS = 4,
    FINDS = 20000,
    KEEPS = 200,
    ROUNDS_MAX = 64,
    LARGEST = 100000
};

static const fv_kv_shape shape = {.n_layer = 1, .n_kv = 1, .d_head = 4, .dtype = FV_F32};
static fv_kv_pool *pool;
static fv_chain_link link[LINKS];
static int32_t n_link;
static fv_chain_link asked[FINDS][LINKS];
static fv_wire_link asked_wire[FINDS][LINKS];

/* Makes the chain of prompt `i`. */
static void name_prompt(int32_t i) {
    static int32_t ids[ROWS];
    const fv_chain_base base = {.tenant = "bench"};
    for (int32_t r = 0; r < ROWS; r++) ids[r] = r < 64 ? r : i;
    bench_must(fv_chain_make(&base, &(fv_chain_prompt){.n = ROWS, .ids = ids}, link, &n_link));
}

static void name_links(fv_wire_link *out) {
    for (int32_t i = 0; i < n_link; i++) {
        out[i] = (fv_wire_link){.n_text = (uint32_t)link[i].n_text};
        memcpy(out[i].key, link[i].key.bytes, sizeof out[i].key);
    }
}

static fv_kv *open_store(void) {
    fv_kv *kv;
    bench_must(fv_kv_open(pool, &kv));
    bench_must(fv_kv_reserve(kv, 0, ROWS));
    for (int32_t r = 0; r < ROWS; r++) bench_must(fv_kv_append(kv, 0, FV_SEG_TEXT, &r, 1));
    return kv;
}

/* Draws prompts among the first n, to be found. */
static void draw_asked(int32_t n) {
    uint64_t state = (uint64_t)n;
    for (int i = 0; i < FINDS; i++) {
        name_prompt((int32_t)(fv_random_splitmix(&state) % (uint64_t)n));
        memcpy(asked[i], link, sizeof link);
        name_links(asked_wire[i]);
    }
}

/* ---- a prefill worker's ------------------------------------------------------------------------ */

static fv_prefix_cache *fill_cache(int32_t n) {
    const fv_prefix_cost cost = {.text = 1};
    fv_prefix_cache *c;
    fv_kv *kv = open_store();
    bench_must(fv_prefix_cache_open(fv_device_host(), &shape, SIZE_MAX / 2, &c));
    for (int32_t i = 0; i < n; i++) {
        name_prompt(i);
        fv_prefix_keep(c, "bench", link, n_link, &cost, kv);
    }
    fv_kv_close(kv);
    return c;
}

static double find_in_cache(const fv_prefix_cache *c) {
    int64_t rows = 0;
    double begin = bench_cpu_s(0);
    for (int i = 0; i < FINDS; i++) rows += fv_prefix_rows(c, asked[i], n_link, ROWS - 1);
    double s = bench_cpu_s(0) - begin;
    if (rows != (int64_t)FINDS * SHARED) abort();
    return s / FINDS;
}

/* ---- a decode worker's -------------------------------------------------------------------------- */

static void keep(fv_prefixes *p, int32_t i, double *s) {
    fv_wire_link wire[LINKS];
    fv_kv_share *share;
    name_prompt(i);
    name_links(wire);
    uint32_t n = (uint32_t)n_link;
    uint32_t found = fv_prefixes_find(p, "bench", wire, n, ROWS, &share);
    fv_kv *kv;
    if (found) {
        const fv_kv_prefix prefix = {.n_text = (int32_t)wire[found - 1].n_text};
        bench_must(fv_kv_open(pool, &kv));
        bench_must(fv_kv_adopt(kv, share, &prefix));
        bench_must(fv_kv_reserve(kv, 0, ROWS));
        for (int32_t r = prefix.n_text; r < ROWS; r++)
            bench_must(fv_kv_append(kv, 0, FV_SEG_TEXT, &r, 1));
    } else {
        kv = open_store();
    }
    double begin = bench_cpu_s(0);
    fv_prefixes_keep(p, "bench", wire, n, found, ROWS, kv);
    *s += bench_cpu_s(0) - begin;
    fv_kv_close(kv);
}

static fv_prefixes *fill_prefixes(int32_t n) {
    fv_prefixes *p;
    double s = 0;
    const fv_prefixes_options opt = {.pool = pool, .bytes_max = SIZE_MAX / 2};
    bench_must(fv_prefixes_open(&opt, &p));
    for (int32_t i = 0; i < n; i++) keep(p, i, &s);
    return p;
}

static double find_in_prefixes(fv_prefixes *p) {
    fv_kv_share *share;
    int64_t links = 0;
    double begin = bench_cpu_s(0);
    for (int i = 0; i < FINDS; i++)
        links += fv_prefixes_find(p, "bench", asked_wire[i], (uint32_t)n_link, ROWS, &share);
    double s = bench_cpu_s(0) - begin;
    if (links != 2 * (int64_t)FINDS) abort();
    return s / FINDS;
}

/* Keeps more prompts in a table that is full with n of them. */
static double keep_in_full(int32_t n) {
    double s = 0, filling = 0;
    fv_prefixes *p = fill_prefixes(n);
    size_t bytes = (size_t)fv_prefixes_count(p).bytes_now;
    fv_prefixes_close(p);
    const fv_prefixes_options opt = {.pool = pool, .bytes_max = bytes};
    bench_must(fv_prefixes_open(&opt, &p));
    for (int32_t i = 0; i < n; i++) keep(p, i, &filling);
    uint64_t before = fv_prefixes_count(p).n_given_up;
    for (int32_t i = 0; i < KEEPS; i++) keep(p, LARGEST + i, &s);
    if (fv_prefixes_count(p).n_given_up <= before) abort();
    fv_prefixes_close(p);
    return s / KEEPS;
}

/* ---- the table ------------------------------------------------------------------------------------ */

static double microseconds(double *seconds, int n) { return 1e6 * bench_median(seconds, n); }

static void measure(int32_t n, int rounds) {
    double cache_s[ROUNDS_MAX], find_s[ROUNDS_MAX], keep_s[ROUNDS_MAX];
    draw_asked(n);
    fv_prefix_cache *c = fill_cache(n);
    for (int r = 0; r < rounds; r++) cache_s[r] = find_in_cache(c);
    fv_prefix_cache_close(c);
    fv_prefixes *p = fill_prefixes(n);
    for (int r = 0; r < rounds; r++) find_s[r] = find_in_prefixes(p);
    fv_prefixes_close(p);
    for (int r = 0; r < rounds; r++) keep_s[r] = keep_in_full(n);
    printf("%10d %16.2f %16.2f %16.2f\n", n, microseconds(cache_s, rounds),
           microseconds(find_s, rounds), microseconds(keep_s, rounds));
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"rounds", NULL, FV_OPTION_INT, "N", "5", "of which the median counts", 1, ROUNDS_MAX},
    };
    fv_options *o = bench_options(table, 1, argc, argv, "bench_prefixes [--rounds N]",
                                  "Time of finding and keeping prompts, by the number kept.");
    int rounds = (int)fv_options_int(o, "rounds");
    bench_must(fv_kv_pool_open(fv_device_host(), &shape, 0, &pool));
    printf("%10s %16s %16s %16s\n%10s %16s %16s %16s\n", "prompts", "prefill: find", "decode: find",
           "decode: keep", "", "microseconds", "microseconds", "microseconds");
    for (int32_t n = 1000; n <= LARGEST; n *= 10) measure(n, rounds);
    fv_kv_pool_close(pool);
    fv_options_free(o);
    return 0;
}
