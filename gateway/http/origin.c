/* Checks Host and Origin (RFC 6454). A page of another site has another origin; a site whose name
 * was made to resolve to this machine (DNS rebinding) has another host. */
#include "gateway/http/origin.h"

#include <string.h>
#include <strings.h>

/* Length of the name in "NAME", "NAME:PORT", "[ADDRESS]:PORT". */
static size_t name_of(const char *host) {
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    return end ? (size_t)(end - host) + 1 : strcspn(host, ":");
}

static bool is_name(const char *host, const char *name) {
    size_t n = name_of(host);
    return strlen(name) == n && strncasecmp(host, name, n) == 0;
}

static bool host_allowed(const fv_origin_rules *r, const char *host) {
    static const char *const own[] = {"localhost", "127.0.0.1", "[::1]"};
    for (int32_t i = 0; i < r->n_host; i++)
        if (is_name(host, r->hosts[i])) return true;
    for (size_t i = 0; r->local && i < sizeof own / sizeof *own; i++)
        if (is_name(host, own[i])) return true;
    return !r->local && r->n_host == 0;
}

fv_status fv_origin_check(const char *origin) {
    const char *at = strstr(origin, "://");
    if (at && at > origin && at[3] && !strpbrk(at + 3, "/*?# ,")) return FV_OK;
    return FV_FAIL(FV_EINVAL, "--allow-origin %s: must be SCHEME://HOST or SCHEME://HOST:PORT",
                   origin);
}

bool fv_origin_listed(const fv_origin_rules *r, const char *origin) {
    for (int32_t i = 0; i < r->n_origin; i++)
        if (strcasecmp(r->origins[i], origin) == 0) return true;
    return false;
}

bool fv_origin_allowed(const fv_origin_rules *r, const char *host, const char *origin) {
    if (host && !host_allowed(r, host)) return false;
    if (!origin || fv_origin_listed(r, origin)) return true;
    const char *at = strstr(origin, "://");
    return host && at && strcasecmp(at + 3, host) == 0;
}
