/* gateway/http/origin.h */
#include <criterion/criterion.h>

#include "gateway/http/origin.h"

static bool is_allowed(const char *host, const char *origin, bool local, const char *const *hosts,
                       int32_t n) {
    static const char *const origins[] = {"https://app.example:8443"};
    return fv_origin_allowed(&(fv_origin_rules){local, hosts, n, origins, 1}, host, origin);
}

Test(origin, on_loopback_only_the_machines_own_names_are_hosts) {
    cr_assert(is_allowed("localhost:8080", NULL, true, NULL, 0));
    cr_assert(is_allowed("127.0.0.1", NULL, true, NULL, 0));
    cr_assert(is_allowed("[::1]:8080", NULL, true, NULL, 0));
    cr_assert(is_allowed(NULL, NULL, true, NULL, 0), "HTTP/1.0");
    cr_assert(!is_allowed("evil.example:8080", NULL, true, NULL, 0));
    cr_assert(!is_allowed("localhost.evil.example", NULL, true, NULL, 0));
    cr_assert(!is_allowed("", NULL, true, NULL, 0));
}

Test(origin, elsewhere_any_host_unless_there_is_a_list) {
    static const char *const list[] = {"api.example"};
    cr_assert(is_allowed("anything", NULL, false, NULL, 0));
    cr_assert(is_allowed("API.example:443", NULL, false, list, 1));
    cr_assert(!is_allowed("other.example", NULL, false, list, 1));
    cr_assert(!is_allowed("localhost", NULL, false, list, 1));
    cr_assert(is_allowed("api.example", NULL, true, list, 1));
    cr_assert(is_allowed("localhost", NULL, true, list, 1));
}

Test(origin, pages_of_other_sites_are_refused) {
    cr_assert(is_allowed("localhost:8080", "http://localhost:8080", true, NULL, 0));
    cr_assert(is_allowed("a.example", "https://a.example", false, NULL, 0));
    cr_assert(!is_allowed("localhost:8080", "http://evil.example", true, NULL, 0));
    cr_assert(!is_allowed("localhost:8080", "http://localhost:9", true, NULL, 0));
    cr_assert(!is_allowed("localhost:8080", "null", true, NULL, 0));
    cr_assert(!is_allowed(NULL, "http://localhost", true, NULL, 0));
}

Test(origin, pages_of_listed_origins_are_allowed_and_no_others_like_them) {
    cr_assert(is_allowed("localhost:8080", "https://app.example:8443", true, NULL, 0));
    cr_assert(is_allowed("localhost:8080", "HTTPS://APP.example:8443", true, NULL, 0));
    cr_assert(!is_allowed("evil.example", "https://app.example:8443", true, NULL, 0), "the host");
    cr_assert(!is_allowed("localhost:8080", "http://app.example:8443", true, NULL, 0));
    cr_assert(!is_allowed("localhost:8080", "https://app.example", true, NULL, 0));
    cr_assert(
        !is_allowed("localhost:8080", "https://app.example:8443.evil.example", true, NULL, 0));
    cr_assert_eq(fv_origin_check("https://app.example"), FV_OK);
    static const char *const bad[] = {"",         "*",    "null",      "app.example",
                                      "https://", "://a", "https://a/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(fv_origin_check(bad[i]), FV_EINVAL, "%s", bad[i]);
}
