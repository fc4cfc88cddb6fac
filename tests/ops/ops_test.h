#ifndef FOVEA_TESTS_OPS_OPS_TEST_H
#define FOVEA_TESTS_OPS_OPS_TEST_H

/* Shared by the programs in tests/ops: random input, comparison, counting. libc only.
 *
 * A program calls group("...") before each family of checks, and returns summary(). */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends/open.h"
#include "tests/support/thorough.h"

/* How many of n random cases are taken. */
static inline int cases(int n) { return thorough() ? n : (n + 2) / 3; }

/* ---- counting -------------------------------------------------------------------------- */

/* Weak: one of each, however many files a program has. */
__attribute__((weak)) int n_passed, n_failed, group_passed, group_failed;
__attribute__((weak)) const char *group_name;

static inline void group_end(void) {
    if (group_name)
        printf("%-66s %6d ok%s\n", group_name, group_passed, group_failed ? "  FAILED" : "");
    n_passed += group_passed;
    n_failed += group_failed;
    group_passed = group_failed = 0;
    group_name = NULL;
}

static inline void group(const char *name) {
    group_end();
    group_name = name;
    fflush(stdout);
}

/* The first few failures of a group are described; the rest are counted. */
__attribute__((format(printf, 2, 3))) static inline bool check(bool ok, const char *fmt, ...) {
    if (ok) {
        group_passed++;
        return true;
    }
    if (group_failed++ < 5) {
        va_list ap;
        va_start(ap, fmt);
        printf("  FAILED: ");
        vprintf(fmt, ap);
        printf("\n");
        va_end(ap);
    }
    return false;
}

static inline int summary(void) {
    group_end();
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}

/* For set-up errors. */
static inline void must(fv_status s) {
    if (s == FV_OK) return;
    printf("FAILED: %s: %s\n", fv_status_name(s), fv_last_error());
    exit(1);
}

/* ---- random numbers (splitmix64) ------------------------------------------------------- */

__attribute__((weak)) uint64_t random_state = 1;

static inline uint64_t random_bits(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* A random number in [lo, hi]. */
static inline int random_int(int lo, int hi) {
    return lo + (int)(random_bits() % (uint64_t)(hi - lo + 1));
}

/* Roughly normal, variance 1. */
static inline float random_normal(void) {
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += (double)(random_bits() >> 11) * 0x1p-53;
    return (float)((sum - 3) * sqrt(2));
}

/* Picks a random size of a list. */
#define PICK(...)                                                                                  \
    ((const int[]){__VA_ARGS__}[random_int(0, sizeof((int[]){__VA_ARGS__}) / sizeof(int) - 1)])

/* ---- memory ---------------------------------------------------------------------------- */

/* Exactly `bytes` bytes, so that a sanitizer detects an overrun; bytes = 0 is fine. */
static inline void *room(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) exit(1);
    return p;
}

static inline size_t tensor_bytes(const fv_tensor *t) {
    if (t->rows == 0 || t->cols == 0) return 0;
    return ((size_t)(t->rows - 1) * (size_t)t->ld + (size_t)t->cols) * fv_dtype_bytes(t->dtype);
}

/* [rows, cols] with `gap` unused elements between rows; contents undefined. */
static inline fv_tensor tensor_new(fv_dtype dtype, int rows, int cols, int gap) {
    fv_tensor t = {.dtype = dtype, .rows = rows, .cols = cols, .ld = cols + gap};
    t.data = room(tensor_bytes(&t));
    return t;
}

/* The bits of `f` in another type, truncated: good enough for inputs. */
static inline uint16_t half_bits(float f, fv_dtype t) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if (t == FV_BF16) return (uint16_t)(u >> 16);
    uint32_t sign = u >> 16 & 0x8000, e = u >> 23 & 255, m = u >> 13 & 0x3ff;
    if (e == 255) return (uint16_t)(sign | 0x7c00 | (u & 0x7fffff ? 0x200 : 0));
    if (e < 113) return (uint16_t)(sign | (e > 102 ? (0x400 | m) >> (113 - e) : 0));
    if (e > 142) return (uint16_t)(sign | 0x7bff);
    return (uint16_t)(sign | (e - 112) << 10 | m);
}

static inline void put(const fv_tensor *t, int row, int col, float f) {
    size_t at = (size_t)row * (size_t)t->ld + (size_t)col;
    if (t->dtype == FV_F32)
        ((float *)t->data)[at] = f;
    else
        ((uint16_t *)t->data)[at] = half_bits(f, t->dtype);
}

/* The element as a number; written differently from common/convert.h on purpose. */
static inline double get(const fv_tensor *t, int row, int col) {
    size_t at = (size_t)row * (size_t)t->ld + (size_t)col;
    if (t->dtype == FV_F32) return (double)((float *)t->data)[at];
    unsigned h = ((uint16_t *)t->data)[at], shift = t->dtype == FV_BF16 ? 7 : 10;
    int bias = t->dtype == FV_BF16 ? 127 : 15,
        e = (int)(h >> shift & (t->dtype == FV_BF16 ? 255 : 31));
    double m = h & ((1u << shift) - 1), sign = h & 0x8000 ? -1 : 1;
    if (e == 2 * bias + 1) return m > 0 ? (double)NAN : sign * (double)INFINITY;
    double unit = ldexp(1, -(int)shift);
    return sign * (e ? ldexp(1 + m * unit, e - bias) : ldexp(m * unit, 1 - bias));
}

static inline void fill_normal(const fv_tensor *t, float scale) {
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) put(t, r, c, random_normal() * scale);
}

/* Replaces about one element in `one_in` by a value that breaks careless code. */
static inline void fill_specials(const fv_tensor *t, int one_in) {
    static const float specials[] = {0.0f,    -0.0f,    INFINITY, -INFINITY, NAN,     1e-41f,
                                     -1e-45f, 1e-38f,   3e38f,    -3e38f,    65519.f, 65520.f,
                                     6e-8f,   2.98e-8f, -1e-40f,  1e-20f,    88.8f,   -104.f};
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++)
            if (random_int(1, one_in) == 1)
                put(t, r, c, specials[random_int(0, sizeof specials / sizeof *specials - 1)]);
}

/* ---- comparison ------------------------------------------------------------------------ */

/* The same bits, or NaN on both sides. */
static inline bool same_f32(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

/* Index of the first element of a that differs from b, or -1. */
static inline long first_difference(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!same_f32(a[i], b[i])) return (long)i;
    return -1;
}

/* ---- backends -------------------------------------------------------------------------- */

typedef struct variant {
    fv_backend be;
    char name[32];
} variant;

/* Opens ISAs of this machine with every number of threads of the list, "plain" with one
 * thread first; not amx, whose operations in f32 are avx512's. Returns how many; says which ISA is
 * skipped. */
static inline int variants_open(variant *v, const int *threads, int n_threads) {
    static const char *const isa[] = {"plain", "avx2", "avx512", "avx512bf16"};
    int n = 0;
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < n_threads; t++) {
            fv_backend_options opt = {.isa = isa[i], .n_threads = threads[t]};
            fv_status s = fv_backend_open(&v[n].be, "cpu", &opt);
            if (s == FV_EUNSUPPORTED) {
                printf("skip: %s not on this CPU\n", isa[i]);
                break;
            }
            must(s);
            snprintf(v[n].name, sizeof v[n].name, "%s/%d", isa[i], threads[t]);
            n++;
        }
    return n;
}

static inline void variants_close(variant *v, int n) {
    for (int i = 0; i < n; i++) fv_backend_close(&v[i].be);
}

#endif
