/* Memory and steps of a run; growing texts. */
#include <string.h>
#include <utf8proc.h>

#include "common/clock.h"
#include "text/jinja/internal.h"

enum { CHUNK = 1 << 16, ALIGN = 16, STEPS_A_LOOK = 1 << 14 };

bool fv_jj_spend(fv_jj_run *r, size_t n) {
    r->steps += (int64_t)n;
    if (r->steps >= r->look_at) {
        r->look_at = r->steps + STEPS_A_LOOK;
        r->late |= r->until_s > 0 && fv_clock_s() >= r->until_s;
    }
    return r->steps <= FV_JINJA_STEPS && !r->late;
}

fv_status fv_jj_steps(fv_jj_run *r, size_t n) {
    if (fv_jj_spend(r, n)) return FV_OK;
    if (r->late)
        return FV_JJ_FAIL(r, FV_EDEADLINE,
                          "the template has taken %lld steps when its time is over",
                          (long long)r->steps);
    return FV_JJ_FAIL(r, FV_EINVAL, "the template does not end within %d steps", FV_JINJA_STEPS);
}

fv_status fv_jj_alloc(fv_jj_run *r, size_t bytes, void **out) {
    if (bytes > FV_JINJA_RUN_BYTES || r->bytes + bytes > FV_JINJA_RUN_BYTES)
        return FV_JJ_FAIL(r, FV_EINVAL, "the template makes more than %d MiB of text and values",
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
    FV_TRY(fv_jj_steps(r, fv_jj_copying(n)));
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
