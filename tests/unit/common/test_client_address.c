/* common/client_address: lists of proxies, and the clients that they forward for. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/client_address.h"

static fv_trusted *trusted;

static void open_list(void) {
    static const char *const list[] = {"10.0.0.0/8", "192.0.2.1, 2001:db8:ffff::/48", "::1"};
    cr_assert_eq(fv_trusted_open(list, 3, &trusted), FV_OK, "%s", fv_last_error());
}

static void close_list(void) { fv_trusted_close(trusted); }

TestSuite(client_address, .init = open_list, .fini = close_list);

Test(client_address, a_peer_has_many_forms) {
    static const char *const rows[][2] = {
        {"198.51.100.7", "198.51.100.7"},
        {"198.51.100.7:4711", "198.51.100.7"},
        {"ipv4:198.51.100.7:4711", "198.51.100.7"},
        {"::ffff:198.51.100.7", "198.51.100.7"},
        {"[::ffff:198.51.100.7]:80", "198.51.100.7"},
        {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
        {"[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"},
        {"ipv6:[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"},
        {"ipv6:%5B2001:db8:1:2:3:4:5:6%5D:80", "2001:db8:1:2::/64"},
        {"ipv6:%5bfe80::1%25eth0%5d:80", "fe80::/64"},
        {"unix:/run/fovea.sock", "unix"},
        {"", ""},
    };
    char out[FV_CLIENT_ADDRESS_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fv_client_address(trusted, rows[i][0], NULL, out);
        cr_assert_str_eq(out, rows[i][1], "%s: %s", rows[i][0], out);
        fv_client_address(NULL, rows[i][0], "192.0.2.99", out);
        cr_assert_str_eq(out, rows[i][1], "%s: %s", rows[i][0], out);
    }
}

Test(client_address, only_trusted_proxies_speak_for_others) {
    static const char *const rows[][3] = {
        {"198.51.100.7", "203.0.113.5", "198.51.100.7"}, /* no trusted proxy: ignored */
        {"10.1.2.3", "203.0.113.5", "203.0.113.5"},
        {"10.1.2.3", NULL, "10.1.2.3"},
        {"10.1.2.3", "", "10.1.2.3"},
        {"11.1.2.3", "203.0.113.5", "11.1.2.3"},
        {"192.0.2.1", "203.0.113.5", "203.0.113.5"},
        {"192.0.2.2", "203.0.113.5", "192.0.2.2"},
        {"unix:/x", "203.0.113.5", "unix"},
        {"2001:db8:ffff:1::9", "203.0.113.5", "203.0.113.5"},
        {"2001:db8:fffe:1::9", "203.0.113.5", "2001:db8:fffe:1::/64"},
        {"ipv6:%5B::1%5D:80", "2001:db8::5", "2001:db8::/64"},
        /* Entries written by the client itself are on the left. */
        {"10.1.2.3", "8.8.8.8, 203.0.113.5", "203.0.113.5"},
        {"10.1.2.3", "8.8.8.8,203.0.113.5 , 10.9.9.9,192.0.2.1", "203.0.113.5"},
        {"10.1.2.3", "10.0.0.1, 10.0.0.2", "10.0.0.1"}, /* a proxy is the client */
        {"10.1.2.3", "203.0.113.5:1234", "203.0.113.5"},
        {"10.1.2.3", "[2001:db8::5]:1234", "2001:db8::/64"},
        {"10.1.2.3", "203.0.113.5, ", "10.1.2.3"}, /* not an address: the peer */
        {"10.1.2.3", "203.0.113.5, unknown", "10.1.2.3"},
        {"10.1.2.3", "203.0.113.5, unknown, 10.9.9.9", "10.9.9.9"},
        {"10.1.2.3", "203.0.113.5.6", "10.1.2.3"},
        {"10.1.2.3", "2001:db8:1:2::/64", "2001:db8:1:2::/64"}, /* from another gateway */
        {"10.1.2.3", "2001:db8:1:2::/65", "10.1.2.3"},
        {"10.1.2.3", "[::1", "10.1.2.3"},
        {"10.1.2.3", "[::1]x", "10.1.2.3"},
        {"10.1.2.3", ",,,,", "10.1.2.3"},
    };
    char out[FV_CLIENT_ADDRESS_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fv_client_address(trusted, rows[i][0], rows[i][1], out);
        cr_assert_str_eq(out, rows[i][2], "%s, %s: %s", rows[i][0], rows[i][1], out);
    }
    char shouted[4096];
    memset(shouted, 'x', sizeof shouted - 1);
    shouted[sizeof shouted - 1] = '\0';
    fv_client_address(trusted, shouted, shouted, out);
    cr_assert_eq(strlen(out), FV_CLIENT_ADDRESS_MAX - 1);
    fv_client_address(trusted, "10.1.2.3", shouted, out);
    cr_assert_str_eq(out, "10.1.2.3");
}

Test(client_address, a_proxy_is_in_the_list_or_not) {
    cr_assert(fv_trusted_has(trusted, "10.255.0.1:80"));
    cr_assert(fv_trusted_has(trusted, "::ffff:10.0.0.1"));
    cr_assert(fv_trusted_has(trusted, "[::1]:80"));
    cr_assert_not(fv_trusted_has(trusted, "::2"));
    cr_assert_not(fv_trusted_has(trusted, "unix:/x"));
    cr_assert_not(fv_trusted_has(NULL, "10.0.0.1"));
}

Test(client_address, prefixes_have_any_length) {
    static const struct {
        const char *list, *in, *out;
    } rows[] = {
        {"0.0.0.0/0", "1.2.3.4", "::1"},
        {"::/0", "1.2.3.4", "unix:x"},
        {"198.51.100.128/25", "198.51.100.255", "198.51.100.127"},
        {"198.51.100.4/31", "198.51.100.5", "198.51.100.6"},
        {"198.51.100.4/32", "198.51.100.4", "198.51.100.5"},
        {"2001:db8:8000::/33", "2001:db8:ffff::1", "2001:db8:7fff::1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fv_trusted *t;
        cr_assert_eq(fv_trusted_open(&rows[i].list, 1, &t), FV_OK, "%s", fv_last_error());
        cr_assert(fv_trusted_has(t, rows[i].in), "%s", rows[i].list);
        cr_assert_not(fv_trusted_has(t, rows[i].out), "%s", rows[i].list);
        fv_trusted_close(t);
    }
}

Test(client_address, what_is_no_prefix_is_named) {
    static const char *const wrong[] = {
        "",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/",
        "10.0.0.0/8x",
        "10.0.0.1/8",
        "proxy",
        "10.0.0",
        "10.0.0.0/8,",
        "[::1]",
        "::1/129",
        "2001:db8::1/32",
        "10.0.0.1:80",
        "10.0.0.0/ 8",
        "10.0.0.0/99999999999999999999999999999999999999999999999999999",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_trusted *t = NULL;
        cr_assert_eq(fv_trusted_open(&wrong[i], 1, &t), FV_EINVAL, "%s", wrong[i]);
        cr_assert_not_null(strstr(fv_last_error(), "address"), "%s", fv_last_error());
        cr_assert_null(t);
    }
}
