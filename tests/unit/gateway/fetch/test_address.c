/* gateway/fetch/address.h */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <sys/un.h>

#include "gateway/fetch/address.h"

static bool is_public(const char *text) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return fv_address_is_public((struct sockaddr *)&v4);
    cr_assert_eq(inet_pton(AF_INET6, text, &v6.sin6_addr), 1, "%s", text);
    return fv_address_is_public((struct sockaddr *)&v6);
}

Test(address, public_ones_are_those_outside_of_every_special_block) {
    static const char *const public[] = {
        "1.1.1.1",      "9.255.255.255",  "11.0.0.0",        "100.63.255.255",   "100.128.0.0",
        "126.0.0.1",    "128.0.0.1",      "169.253.255.255", "172.15.255.255",   "172.32.0.0",
        "192.167.1.1",  "192.169.0.0",    "198.17.255.255",  "198.20.0.0",       "223.255.255.255",
        "2606:4700::1", "::ffff:8.8.8.8", "2a00:1450::1",    "64:ff9b::808:808",
    };
    for (size_t i = 0; i < sizeof public / sizeof *public; i++)
        cr_assert(is_public(public[i]), "%s", public[i]);
}

Test(address, private_local_reserved_and_disguised_ones_are_refused) {
    static const char *const others[] = {"0.0.0.0",
                                         "0.1.2.3",
                                         "10.0.0.1",
                                         "10.255.255.255",
                                         "100.64.0.1",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.255.255.255",
                                         "169.254.169.254",
                                         "172.16.0.1",
                                         "172.31.255.255",
                                         "192.0.0.192",
                                         "192.0.2.1",
                                         "192.88.99.1",
                                         "192.168.0.1",
                                         "198.18.0.1",
                                         "198.19.255.255",
                                         "198.51.100.1",
                                         "203.0.113.9",
                                         "224.0.0.1",
                                         "239.255.255.255",
                                         "240.0.0.1",
                                         "255.255.255.255",
                                         "::",
                                         "::1",
                                         "::127.0.0.1",
                                         "::8.8.8.8",
                                         "::ffff:127.0.0.1",
                                         "::ffff:10.0.0.1",
                                         "::ffff:169.254.169.254",
                                         "64:ff9b::7f00:1",
                                         "64:ff9b::a00:1",
                                         "64:ff9b:1::1",
                                         "100::1",
                                         "2001::1",
                                         "2001:db8::1",
                                         "2002:7f00:1::",
                                         "3fff::1",
                                         "fc00::1",
                                         "fd00:ec2::254",
                                         "fe80::1",
                                         "fec0::1",
                                         "ff02::1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert(!is_public(others[i]), "%s", others[i]);
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    cr_assert(!fv_address_is_public((struct sockaddr *)&path));
}
