#include "gateway/http/authority.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

static bool is_in(char c, const char *set) { return c != '\0' && strchr(set, c); }

static bool is_alnum(char c) { return isalnum((unsigned char)c) && (unsigned char)c < 0x80; }

static bool is_hex(char c) { return isxdigit((unsigned char)c) != 0; }

/* unreserved or sub-delims */
static bool is_plain(char c) { return is_alnum(c) || is_in(c, "-._~!$&'()*+,;="); }

static bool is_name(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (is_plain(text[i])) continue;
        if (text[i] != '%' || n - i < 3 || !is_hex(text[i + 1]) || !is_hex(text[i + 2]))
            return false;
        i += 2;
    }
    return n > 0;
}

/* "v" hex... "." (unreserved, sub-delims or ":")... */
static bool is_future(const char *text, size_t n) {
    size_t i = 1;
    if (n == 0 || !is_in(text[0], "vV")) return false;
    while (i < n && is_hex(text[i])) i++;
    if (i == 1 || i + 1 >= n || text[i] != '.') return false;
    while (++i < n)
        if (!is_plain(text[i]) && text[i] != ':') return false;
    return true;
}

static bool is_literal(const char *text, size_t n) {
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (is_future(text, n)) return true;
    if (n >= sizeof copy) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return strlen(copy) == n && inet_pton(AF_INET6, copy, &address) == 1;
}

/* "" or ":" and any number of digits, none included. */
static bool is_port(const char *text, size_t n) {
    unsigned port = 0;
    if (n == 0) return true;
    if (text[0] != ':') return false;
    for (size_t i = 1; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        port = 10 * port + (unsigned)(text[i] - '0');
        if (port > 65535) return false;
    }
    return true;
}

bool fv_http_is_authority(const char *text, size_t n) {
    const char *end = n > 0 && text[0] == '[' ? memchr(text, ']', n) : memchr(text, ':', n);
    if (n > 0 && text[0] == '[')
        return end && is_literal(text + 1, (size_t)(end - text) - 1) &&
               is_port(end + 1, n - (size_t)(end - text) - 1);
    size_t host = end ? (size_t)(end - text) : n;
    return is_name(text, host) && is_port(text + host, n - host);
}
