/* Checks addresses against tables of prefixes. */
#include "gateway/fetch/address.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

typedef struct prefix {
    uint8_t bytes[16];
    int bits;
} prefix;

#define V4(a, b, c, bits)                                                                          \
    { {a, b, c}, bits }

/* The special-purpose blocks of IPv4. */
static const prefix special_v4[] = {
    V4(0, 0, 0, 8),       /* this network */
    V4(10, 0, 0, 8),      /* private */
    V4(100, 64, 0, 10),   /* carrier NAT */
    V4(127, 0, 0, 8),     /* loopback */
    V4(169, 254, 0, 16),  /* link-local, metadata services */
    V4(172, 16, 0, 12),   /* private */
    V4(192, 0, 0, 24),    /* protocol assignments */
    V4(192, 0, 2, 24),    /* documentation */
    V4(192, 88, 99, 24),  /* 6to4 relays */
    V4(192, 168, 0, 16),  /* private */
    V4(198, 18, 0, 15),   /* benchmarks */
    V4(198, 51, 100, 24), /* documentation */
    V4(203, 0, 113, 24),  /* documentation */
    V4(224, 0, 0, 3),     /* multicast, reserved, broadcast */
};

/* IPv6 prefixes that embed an IPv4 address, and the byte where it begins. */
static const struct carrier {
    prefix at;
    int offset;
} carriers[] = {
    {{{[10] = 0xff, [11] = 0xff}, 96}, 12}, /* ::ffff:a.b.c.d, mapped */
    {{{0, 0x64, 0xff, 0x9b}, 96}, 12},      /* 64:ff9b::a.b.c.d, NAT64 */
};

/* Apart from the carriers, only global unicast (2000::/3) without these blocks is public. */
static const prefix global_v6 = {{0x20}, 3};
static const prefix special_v6[] = {
    {{0x20, 0x01, 0x00}, 23},       /* protocol assignments, Teredo */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x20, 0x02}, 16},             /* 6to4 */
    {{0x3f, 0xff, 0x00}, 20},       /* documentation */
};

static bool is_in(const uint8_t *address, const prefix *p) {
    int whole = p->bits / 8, rest = p->bits % 8;
    if (memcmp(address, p->bytes, (size_t)whole) != 0) return false;
    return rest == 0 || (address[whole] ^ p->bytes[whole]) >> (8 - rest) == 0;
}

static bool is_public_v4(const uint8_t address[4]) {
    for (size_t i = 0; i < sizeof special_v4 / sizeof *special_v4; i++)
        if (is_in(address, &special_v4[i])) return false;
    return true;
}

static bool is_public_v6(const uint8_t address[16]) {
    for (size_t i = 0; i < sizeof carriers / sizeof *carriers; i++)
        if (is_in(address, &carriers[i].at)) return is_public_v4(address + carriers[i].offset);
    if (!is_in(address, &global_v6)) return false;
    for (size_t i = 0; i < sizeof special_v6 / sizeof *special_v6; i++)
        if (is_in(address, &special_v6[i])) return false;
    return true;
}

bool fv_address_is_public(const struct sockaddr *a) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (a->sa_family == AF_INET) {
        memcpy(&v4, a, sizeof v4);
        return is_public_v4((const uint8_t *)&v4.sin_addr);
    }
    if (a->sa_family != AF_INET6) return false;
    memcpy(&v6, a, sizeof v6);
    return is_public_v6(v6.sin6_addr.s6_addr);
}
