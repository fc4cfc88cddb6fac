/* Memory of a run, and text as it grows. */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/internal.h"

enum { CHUNK = 1 << 16, ALIGN = 16 };

bool fv_jj_spend(fv_jj_run *r, size_t n) {
    r->steps += (int64_t)n;
    return r->steps <= FV_JINJA_STEPS;
}

fv_status fv_jj_steps(fv_jj_run *r, size_t n) {
    if (fv_jj_spend(r, n)) return FV_OK;
    return FV_JJ_FAIL(r, FV_ENOMEM, "the template does not end within %d steps", FV_JINJA_STEPS);
}

fv_status fv_jj_alloc(fv_jj_run *r, size_t bytes, void **out) {
    if (bytes > FV_JINJA_RUN_BYTES || r->bytes + bytes > FV_JINJA_RUN_BYTES)
        return FV_JJ_FAIL(r, FV_ENOMEM, "the template makes more than %d MiB of text and values",
                          FV_JINJA_RUN_BYTES >> 20);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    r->bytes += bytes;
    FV_TRY(fv_jj_steps(r, bytes / 64 + 1));
    if (bytes > CHUNK / 4) return fv_arena_alloc(&r->arena, bytes, out);
    if (bytes > r->chunk_left) {
        FV_TRY(fv_arena_alloc(&r->arena, CHUNK, (void **)&r->chunk));
        r->chunk_left = CHUNK;
    }
    *out = r->chunk;
    r->chunk += bytes;
    r->chunk_left -= bytes;
    return FV_OK;
}

static fv_status grow(fv_jj_run *r, fv_jj_out *out, size_t n, bool user) {
    size_t cap = out->cap;
    if (out->n + n > cap) {
        char *s;
        cap = 2 * (out->n + n) + 64;
        FV_TRY(fv_jj_alloc(r, cap, (void **)&s));
        if (out->n) memcpy(s, out->s, out->n);
        out->s = s;
    }
    if (out->user ? cap != out->cap : user) {
        uint8_t *marks;
        FV_TRY(fv_jj_alloc(r, cap, (void **)&marks));
        if (out->user && out->n) memcpy(marks, out->user, out->n);
        out->user = marks;
    }
    out->cap = cap;
    return FV_OK;
}

fv_status fv_jj_put(fv_jj_run *r, fv_jj_out *out, const char *s, size_t n, const uint8_t *user) {
    if (n == 0) return FV_OK;
    FV_TRY(fv_jj_steps(r, n / 64));
    FV_TRY(grow(r, out, n, user != NULL));
    memcpy(out->s + out->n, s, n);
    if (user)
        memcpy(out->user + out->n, user, n);
    else if (out->user)
        memset(out->user + out->n, 0, n);
    out->n += n;
    return FV_OK;
}

fv_status fv_jj_put_text(fv_jj_run *r, fv_jj_out *out, const char *s) {
    return fv_jj_put(r, out, s, strlen(s), NULL);
}

fv_status fv_jj_put_char(fv_jj_run *r, fv_jj_out *out, int32_t cp, bool user) {
    static const uint8_t marks[4] = {1, 1, 1, 1};
    utf8proc_uint8_t bytes[4];
    size_t n = (size_t)utf8proc_encode_char(cp, bytes);
    return fv_jj_put(r, out, (const char *)bytes, n, user ? marks : NULL);
}

fv_jj_value fv_jj_taken(const fv_jj_out *out) {
    return fv_jj_of((fv_jj_str){.s = out->s ? out->s : "", .n = out->n, .user = out->user});
}

/* ---- lists and dicts ---- */

fv_status fv_jj_push(fv_jj_run *r, fv_jj_list *list, fv_jj_value v) {
    if (list->n == list->cap) {
        fv_jj_value *more;
        int32_t cap = 2 * list->cap + 8;
        FV_TRY(fv_jj_alloc(r, (size_t)cap * sizeof *more, (void **)&more));
        if (list->n) memcpy(more, list->v, (size_t)list->n * sizeof *more);
        list->v = more;
        list->cap = cap;
    }
    list->v[list->n++] = v;
    return fv_jj_steps(r, 1);
}

fv_status fv_jj_new_list(fv_jj_run *r, fv_jj_kind kind, fv_jj_value *out) {
    fv_jj_value v = {.kind = kind};
    FV_TRY(fv_jj_alloc(r, sizeof *v.list, (void **)&v.list));
    *out = v;
    return FV_OK;
}

fv_status fv_jj_new_dict(fv_jj_run *r, fv_jj_kind kind, fv_jj_value *out) {
    fv_jj_value v = {.kind = kind};
    FV_TRY(fv_jj_alloc(r, sizeof *v.dict, (void **)&v.dict));
    *out = v;
    return FV_OK;
}

const fv_jj_value *fv_jj_dict_find(fv_jj_run *r, const fv_jj_dict *d, const fv_jj_value *key) {
    for (int32_t i = 0; i < d->keys.n; i++)
        if (fv_jj_equal(r, &d->keys.v[i], key)) return &d->values.v[i];
    return NULL;
}

const fv_jj_value *fv_jj_dict_get(fv_jj_run *r, const fv_jj_dict *d, const char *key) {
    fv_jj_value k = fv_jj_text(key);
    return fv_jj_dict_find(r, d, &k);
}

fv_status fv_jj_dict_put(fv_jj_run *r, fv_jj_dict *d, const fv_jj_value *key, fv_jj_value v) {
    const fv_jj_value *old = fv_jj_dict_find(r, d, key);
    if (old) {
        d->values.v[old - d->values.v] = v;
        return FV_OK;
    }
    FV_TRY(fv_jj_push(r, &d->keys, *key));
    return fv_jj_push(r, &d->values, v);
}

/* ---- characters ---- */

size_t fv_jj_char(const char *s, size_t n, int32_t *cp) {
    utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, cp);
    if (len > 0) return (size_t)len;
    *cp = 0xfffd;
    return 1;
}

int64_t fv_jj_chars(fv_jj_str s) {
    int64_t n = 0;
    int32_t cp;
    for (size_t at = 0; at < s.n; n++) at += fv_jj_char(s.s + at, s.n - at, &cp);
    return n;
}

size_t fv_jj_byte_of(fv_jj_str s, int64_t index) {
    size_t at = 0;
    int32_t cp;
    for (; index > 0 && at < s.n; index--) at += fv_jj_char(s.s + at, s.n - at, &cp);
    return at;
}

bool fv_jj_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

fv_jj_str fv_jj_sub(fv_jj_str s, size_t from, size_t to) {
    return (fv_jj_str){.s = s.s + from, .n = to - from, .user = s.user ? s.user + from : NULL};
}

static bool among(fv_jj_str s, size_t at, size_t len, const fv_jj_str *set) {
    int32_t cp, other;
    fv_jj_char(s.s + at, s.n - at, &cp);
    if (!set) return fv_jj_is_space(cp);
    for (size_t i = 0, n; i < set->n; i += n) {
        n = fv_jj_char(set->s + i, set->n - i, &other);
        if (n == len && memcmp(s.s + at, set->s + i, n) == 0) return true;
    }
    return false;
}

fv_jj_str fv_jj_strip(fv_jj_str s, const fv_jj_str *set, bool left, bool right) {
    size_t from = 0, to = s.n, at;
    int32_t cp;
    while (left && from < to) {
        size_t len = fv_jj_char(s.s + from, to - from, &cp);
        if (!among(s, from, len, set)) break;
        from += len;
    }
    while (right && to > from) {
        at = to - 1;
        while (at > from && to - at < 4 && ((unsigned char)s.s[at] & 0xc0) == 0x80) at--;
        if (fv_jj_char(s.s + at, to - at, &cp) != to - at) at = to - 1;
        if (!among(fv_jj_sub(s, 0, to), at, to - at, set)) break;
        to = at;
    }
    return fv_jj_sub(s, from, to);
}

size_t fv_jj_find(fv_jj_str s, fv_jj_str what, size_t from) {
    if (from > s.n || what.n > s.n - from) return SIZE_MAX;
    if (what.n == 0) return from;
    const char *at = memmem(s.s + from, s.n - from, what.s, what.n);
    return at ? (size_t)(at - s.s) : SIZE_MAX;
}

bool fv_jj_str_is(fv_jj_str s, const char *word) {
    return s.n == strlen(word) && memcmp(s.s, word, s.n) == 0;
}
