/* auth/fleet_name.c: names and addresses received from peers. */
#include <criterion/criterion.h>
#include <string.h>

#include "auth/fleet_name.h"

static void names(fv_status want, const char *const *name) {
    for (; *name; name++) cr_assert_eq(fv_worker_name_check(*name), want, "'%s'", *name);
}

Test(fleet_name, a_name_is_plain) {
    names(FV_OK, (const char *const[]){"a", "prefill-0", "decode-127.0.0.1:8202", "x_y.z",
                                       "decode-[::1]:8202", NULL});
    names(FV_EINVAL, (const char *const[]){"", "a b", "a\nb", "a=b", "a\"b", "a/b", "\xc3\xa4",
                                           "a\x1b[31m", NULL});
}

Test(fleet_name, a_name_has_64_characters_at_most) {
    char name[70];
    memset(name, 'x', sizeof name);
    name[64] = '\0';
    cr_assert_eq(fv_worker_name_check(name), FV_OK);
    name[64] = 'x';
    name[65] = '\0';
    cr_assert_eq(fv_worker_name_check(name), FV_EINVAL);
}

static void addresses(fv_status want, const char *const *address) {
    for (; *address; address++) cr_assert_eq(fv_address_check(*address), want, "'%s'", *address);
}

Test(fleet_name, an_address_is_host_and_port) {
    addresses(FV_OK, (const char *const[]){"127.0.0.1:1", "localhost:65535", "[::1]:8201",
                                           "fovea-router-fleet.ns.svc:8203", NULL});
    addresses(FV_EINVAL, (const char *const[]){"",
                                               ":",
                                               "host",
                                               "host:",
                                               ":80",
                                               "host:0",
                                               "host:65536",
                                               "host:80x",
                                               "host:-1",
                                               "host:+1",
                                               "host: 1",
                                               "host:000080",
                                               "unix:80",
                                               "unix:/tmp/x:80",
                                               "dns:host:80",
                                               "dns:///host:80",
                                               "ipv4:1.2.3.4:80",
                                               "[::1]",
                                               "[]:80",
                                               "[host]:80",
                                               "::1:80",
                                               "a b:80",
                                               "user@host:80",
                                               NULL});
}
