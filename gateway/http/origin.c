/* Host and Origin (RFC 6454). The page of another site has another origin; one whose name was made to lead
 * here (DNS rebinding) has another host. */
#include "gateway/http/origin.h"

#include <string.h>
#include <strings.h>

/* Bytes of the name in "NAME", "NAME:PORT", "[ADDRESS]:PORT". */
static size_t name_of(const char *host) {
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    return end ? (size_t)(end - host) + 1 : strcspn(host, ":");
}

static bool is_name(const char *host, const char *name) {
    size_t n = name_of(host);
    return strlen(name) == n && strncasecmp(host, name, n) == 0;
}

static bool is_allowed(const char *host, bool local, const char *const *allowed, int32_t n) {
    static const char *const own[] = {"localhost", "127.0.0.1", "[::1]"};
    for (int32_t i = 0; i < n; i++)
        if (is_name(host, allowed[i])) return true;
    for (size_t i = 0; local && i < sizeof own / sizeof *own; i++)
        if (is_name(host, own[i])) return true;
    return !local && n == 0;
}

bool fv_origin_allowed(const char *host, const char *origin, bool local, const char *const *allowed,
                       int32_t n) {
    if (host && !is_allowed(host, local, allowed, n)) return false;
    if (!origin) return true;
    const char *at = strstr(origin, "://");
    return host && at && strcasecmp(at + 3, host) == 0;
}
