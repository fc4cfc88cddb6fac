/* redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DB] */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "redis/internal.h"

static fv_status wrong(const char *what) {
    return FV_FAIL(FV_EINVAL,
                   "the URL of a Redis server is redis://HOST[:PORT][/DB], with TLS "
                   "rediss://, and for a password redis://[USER]:PASSWORD@HOST: %s",
                   what);
}

static int hex(char c) {
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10
                                        : -1;
}

/* Copies s[n] and resolves %XX. */
static bool unescape(const char *s, size_t n, char *out, size_t cap) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (k + 1 >= cap) return false;
        char c = s[i];
        if (c == '%') {
            if (i + 2 >= n || hex(s[i + 1]) < 0 || hex(s[i + 2]) < 0) return false;
            c = (char)(hex(s[i + 1]) * 16 + hex(s[i + 2]));
            i += 2;
        }
        if (!c) return false;
        out[k++] = c;
    }
    out[k] = '\0';
    return true;
}

static bool copy(const char *s, size_t n, char *out, size_t cap) {
    if (n == 0 || n >= cap) return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

/* A number of at most `most`. */
static bool copy_number(const char *s, size_t n, long most, char *out, size_t cap) {
    if (!copy(s, n, out, cap) || strspn(out, "0123456789") != n) return false;
    return strtol(out, NULL, 10) <= most;
}

static fv_status read_user(const char *s, size_t n, fv_redis_url *u) {
    const char *colon = memchr(s, ':', n);
    const size_t n_user = colon ? (size_t)(colon - s) : 0;
    if (!colon || !unescape(s, n_user, u->user, sizeof u->user) ||
        !unescape(colon + 1, n - n_user - 1, u->password, sizeof u->password))
        return wrong("the password is too long, or has a wrong escape");
    return FV_OK;
}

fv_status fv_redis_url_read(const char *text, fv_redis_url *out) {
    fv_redis_url u = {.port = "6379", .db = "0"};
    u.tls = strncmp(text, "rediss://", 9) == 0;
    if (!u.tls && strncmp(text, "redis://", 8) != 0)
        return wrong("it begins with redis:// or rediss://");
    const char *s = text + (u.tls ? 9 : 8), *slash = strrchr(s, '/'), *at = strrchr(s, '@');
    if (slash && at && slash < at) slash = NULL; /* part of the password */
    size_t n = slash ? (size_t)(slash - s) : strlen(s);
    if (slash && slash[1] && !copy_number(slash + 1, strlen(slash + 1), 65535, u.db, sizeof u.db))
        return wrong("the database is a number");
    if (at) {
        FV_TRY(read_user(s, (size_t)(at - s), &u));
        n -= (size_t)(at + 1 - s);
        s = at + 1;
    }
    const bool v6 = n > 0 && *s == '[';
    const char *end = v6 ? memchr(s, ']', n) : NULL;
    if (v6 && !end) return wrong("']' is missing");
    const char *port = memchr(v6 ? end : s, ':', n - (v6 ? (size_t)(end - s) : 0));
    const size_t n_host = port ? (size_t)(port - s) : n;
    if (port && !copy_number(port + 1, n - n_host - 1, 65535, u.port, sizeof u.port))
        return wrong("the port is a number");
    if (!(v6 ? copy(s + 1, n_host - 2, u.host, sizeof u.host) && end == s + n_host - 1
             : copy(s, n_host, u.host, sizeof u.host)))
        return wrong("the host is missing, or too long");
    *out = u;
    return FV_OK;
}
