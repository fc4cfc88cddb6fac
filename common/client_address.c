/* Keeps all addresses as IPv6, IPv4 ones in ::ffff:0:0/96, so that prefixes are compared in one way. */
#include "common/client_address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/grow.h"

enum { TEXT_MAX = 64, V4_BITS = 96, COUNTED_V6_BITS = 64 };

typedef struct address {
    uint8_t bytes[16];
} address;

typedef struct prefix {
    address at;
    int bits;
} prefix;

struct fv_trusted {
    prefix *list;
    size_t n, cap;
};

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const address *a) { return memcmp(a->bytes, v4_prefix, sizeof v4_prefix) == 0; }

static bool read_plain(const char *text, address *out) {
    if (inet_pton(AF_INET6, text, out->bytes) == 1) return true;
    memcpy(out->bytes, v4_prefix, sizeof v4_prefix);
    return inet_pton(AF_INET, text, out->bytes + sizeof v4_prefix) == 1;
}

/* Reads an address with or without brackets and port. */
static bool read_address(const char *text, size_t n, address *out) {
    char copy[TEXT_MAX];
    if (n >= sizeof copy) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *host = copy, *colon = strchr(copy, ':');
    if (copy[0] == '[') {
        char *end = strchr(copy, ']');
        if (!end || (end[1] != '\0' && end[1] != ':')) return false;
        *end = '\0';
        host++;
    } else if (colon && !strchr(colon + 1, ':')) {
        *colon = '\0';
    }
    host[strcspn(host, "%")] = '\0';     /* the zone of a link-local address */
    char *counted = strstr(host, "/64"); /* as fv_client_address writes it */
    if (counted && counted[3] == '\0') *counted = '\0';
    return read_plain(host, out);
}

/* Reads gRPC's forms of an address, too: "ipv4:192.0.2.1:80" and "ipv6:%5B2001:db8::1%5D:80". */
static bool read_peer(const char *peer, address *out) {
    char text[TEXT_MAX + 8];
    size_t n = 0;
    if (strncmp(peer, "ipv4:", 5) == 0 || strncmp(peer, "ipv6:", 5) == 0) peer += 5;
    for (const char *p = peer; *p && n < sizeof text - 1; n++) {
        bool opens = strncasecmp(p, "%5B", 3) == 0, closes = strncasecmp(p, "%5D", 3) == 0;
        text[n] = (char)(opens ? '[' : closes ? ']' : *p);
        p += opens || closes ? 3 : 1;
    }
    return read_address(text, n, out);
}

static bool is_in(const address *a, const prefix *p) {
    size_t whole = (size_t)p->bits / 8;
    int rest = p->bits % 8;
    if (memcmp(a->bytes, p->at.bytes, whole) != 0) return false;
    return rest == 0 || (a->bytes[whole] ^ p->at.bytes[whole]) >> (8 - rest) == 0;
}

/* Clears the bits beyond the prefix. */
static address cut(address a, int bits) {
    for (int i = 0; i < 16; i++) {
        int keep = bits - 8 * i;
        if (keep < 8) a.bytes[i] &= (uint8_t)(keep <= 0 ? 0 : 0xff << (8 - keep));
    }
    return a;
}

static bool trusts(const fv_trusted *t, const address *a) {
    for (size_t i = 0; t && i < t->n; i++)
        if (is_in(a, &t->list[i])) return true;
    return false;
}

/* ---- the list --------------------------------------------------------------------------- */

static fv_status read_prefix(const char *text, size_t n, prefix *out) {
    char copy[TEXT_MAX] = "", *end = copy;
    if (n < sizeof copy) memcpy(copy, text, n);
    char *slash = strchr(copy, '/');
    if (slash) *slash = '\0';
    bool ok = read_plain(copy, &out->at), v4 = ok && !strchr(copy, ':');
    long bits = 128, most = v4 ? 32 : 128;
    if (slash) {
        bits = strtol(slash + 1, &end, 10);
        ok = ok && slash[1] >= '0' && slash[1] <= '9' && *end == '\0' && bits <= most;
        if (v4 && ok) bits += V4_BITS;
    }
    if (!ok)
        return FV_FAIL(FV_EINVAL,
                       "'%.*s' is no address: write ADDRESS or ADDRESS/BITS, such as 10.0.0.0/8 or "
                       "2001:db8::/32",
                       (int)(n < TEXT_MAX ? n : TEXT_MAX), text);
    out->bits = (int)bits;
    address whole = cut(out->at, out->bits);
    if (memcmp(&whole, &out->at, sizeof whole) != 0)
        return FV_FAIL(FV_EINVAL,
                       "'%.*s': the address has bits beyond /%s; make them 0, or give "
                       "the address alone",
                       (int)n, text, slash + 1);
    return FV_OK;
}

static fv_status add_items(fv_trusted *t, const char *item) {
    for (;;) {
        item += strspn(item, " ");
        size_t n = strcspn(item, ","), trimmed = n;
        while (trimmed > 0 && item[trimmed - 1] == ' ') trimmed--;
        FV_TRY(fv_grow(&t->list, &t->cap, t->n + 1, sizeof *t->list));
        FV_TRY(read_prefix(item, trimmed, &t->list[t->n]));
        t->n++;
        if (!item[n]) return FV_OK;
        item += n + 1;
    }
}

fv_status fv_trusted_open(const char *const *list, int n, fv_trusted **out) {
    fv_trusted *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for a list of proxies");
    for (int i = 0; i < n; i++) {
        fv_status st = add_items(t, list[i]);
        if (st == FV_OK) continue;
        fv_trusted_close(t);
        return st;
    }
    *out = t;
    return FV_OK;
}

void fv_trusted_close(fv_trusted *t) {
    if (!t) return;
    free(t->list);
    free(t);
}

bool fv_trusted_has(const fv_trusted *t, const char *peer) {
    address a;
    return read_peer(peer, &a) && trusts(t, &a);
}

/* ---- the client ------------------------------------------------------------------------- */

/* Follows X-Forwarded-For from a trusted proxy to the address that it named, as long as that is a trusted
 * proxy, too. */
static address follow(const fv_trusted *t, address at, const char *forwarded) {
    size_t end = strlen(forwarded);
    while (trusts(t, &at)) {
        size_t begin = end, stop = end;
        address next;
        while (begin > 0 && forwarded[begin - 1] != ',') begin--;
        end = begin > 0 ? begin - 1 : 0;
        bool last = begin == 0;
        while (begin < stop && strchr(" \t", forwarded[begin])) begin++;
        while (stop > begin && strchr(" \t", forwarded[stop - 1])) stop--;
        if (!read_address(forwarded + begin, stop - begin, &next)) return at;
        at = next;
        if (last) return at;
    }
    return at;
}

static void write_address(const address *a, char out[FV_CLIENT_ADDRESS_MAX]) {
    if (is_v4(a)) {
        inet_ntop(AF_INET, a->bytes + sizeof v4_prefix, out, FV_CLIENT_ADDRESS_MAX);
        return;
    }
    address counted = cut(*a, COUNTED_V6_BITS);
    inet_ntop(AF_INET6, counted.bytes, out, FV_CLIENT_ADDRESS_MAX);
    strcat(out, "/64");
}

void fv_client_address(const fv_trusted *t, const char *peer, const char *forwarded,
                       char out[FV_CLIENT_ADDRESS_MAX]) {
    address a;
    if (!read_peer(peer, &a)) {
        size_t n = strcspn(peer, ":");
        if (n > FV_CLIENT_ADDRESS_MAX - 1) n = FV_CLIENT_ADDRESS_MAX - 1;
        memcpy(out, peer, n);
        out[n] = '\0';
        return;
    }
    if (forwarded) a = follow(t, a, forwarded);
    write_address(&a, out);
}
