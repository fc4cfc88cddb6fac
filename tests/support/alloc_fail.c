/* The linker redirects malloc and its kin here (--wrap). */
#include "tests/support/alloc_fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t n_left; /* allocations until one fails; below 1: none fails */
static int64_t n_live;
static bool counting;

void alloc_fail_begin(int64_t n) {
    n_left = n;
    counting = true;
}

bool alloc_fail_end(void) {
    counting = false;
    return n_left <= 0;
}

static bool fails(void) {
    if (!counting || --n_left != 0) return false;
    errno = ENOMEM;
    return true;
}

int64_t alloc_live(void) { return n_live; }

static void *made(void *p) {
    n_live += p != NULL;
    return p;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
FILE *__real_open_memstream(char **text, size_t *n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
FILE *__wrap_open_memstream(char **text, size_t *n);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n) { return fails() ? NULL : made(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : made(__real_calloc(n, size)); }
void *__wrap_aligned_alloc(size_t align, size_t n) {
    return fails() ? NULL : made(__real_aligned_alloc(align, n));
}
char *__wrap_strdup(const char *s) { return fails() ? NULL : made(__real_strdup(s)); }
char *__wrap_strndup(const char *s, size_t n) {
    return fails() ? NULL : made(__real_strndup(s, n));
}

void *__wrap_realloc(void *p, size_t n) {
    if (fails()) return NULL;
    bool grows = p != NULL;
    void *to = __real_realloc(p, n);
    return grows ? to : made(to);
}

/* The text is allocated by libc and freed by us. */
FILE *__wrap_open_memstream(char **text, size_t *n) {
    FILE *f = fails() ? NULL : __real_open_memstream(text, n);
    n_live += f != NULL;
    return f;
}

void __wrap_free(void *p) {
    n_live -= p != NULL;
    __real_free(p);
}
/* NOLINTEND(bugprone-reserved-identifier) */
