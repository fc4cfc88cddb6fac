/* gateway/http/origin.h */
#include <criterion/criterion.h>

#include "gateway/http/origin.h"

Test(origin, on_loopback_only_the_machines_own_names_are_hosts) {
    cr_assert(fv_origin_allowed("localhost:8080", NULL, true, NULL, 0));
    cr_assert(fv_origin_allowed("127.0.0.1", NULL, true, NULL, 0));
    cr_assert(fv_origin_allowed("[::1]:8080", NULL, true, NULL, 0));
    cr_assert(fv_origin_allowed(NULL, NULL, true, NULL, 0), "HTTP/1.0");
    cr_assert(!fv_origin_allowed("evil.example:8080", NULL, true, NULL, 0));
    cr_assert(!fv_origin_allowed("localhost.evil.example", NULL, true, NULL, 0));
    cr_assert(!fv_origin_allowed("", NULL, true, NULL, 0));
}

Test(origin, elsewhere_any_host_unless_there_is_a_list) {
    static const char *const list[] = {"api.example"};
    cr_assert(fv_origin_allowed("anything", NULL, false, NULL, 0));
    cr_assert(fv_origin_allowed("API.example:443", NULL, false, list, 1));
    cr_assert(!fv_origin_allowed("other.example", NULL, false, list, 1));
    cr_assert(!fv_origin_allowed("localhost", NULL, false, list, 1));
    cr_assert(fv_origin_allowed("api.example", NULL, true, list, 1));
    cr_assert(fv_origin_allowed("localhost", NULL, true, list, 1));
}

Test(origin, pages_of_other_sites_are_refused) {
    cr_assert(fv_origin_allowed("localhost:8080", "http://localhost:8080", true, NULL, 0));
    cr_assert(fv_origin_allowed("a.example", "https://a.example", false, NULL, 0));
    cr_assert(!fv_origin_allowed("localhost:8080", "http://evil.example", true, NULL, 0));
    cr_assert(!fv_origin_allowed("localhost:8080", "http://localhost:9", true, NULL, 0));
    cr_assert(!fv_origin_allowed("localhost:8080", "null", true, NULL, 0));
    cr_assert(!fv_origin_allowed(NULL, "http://localhost", true, NULL, 0));
}
