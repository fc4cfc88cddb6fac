/* gateway/fetch/fetch.h against a server on the same loop. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "gateway/fetch/fetch.h"
#include "gateway/http/http.h"
#include "tests/support/certs.h"
#include "tests/support/tensor_file.h"

enum { BYTES_MAX = 10000 };

static uv_loop_t loop;
static fv_http *server;
static fv_fetcher *fetcher;
static char host[64], moved[128]; /* moved: where /moved leads */
static fv_tls *files;             /* of the server; NULL: it speaks http */
static const char *ca;            /* trusted by the fetcher */
static const char *hosts[] = {host};
static int32_t n_seen, n_over;
static fv_status result;
static char got[BYTES_MAX], why[512];
static size_t n_got;
static bool closed;

/* ---- a server --------------------------------------------------------------------------- */

static void on_request(void *user, fv_http_request *r) {
    static char many[2 * BYTES_MAX];
    const char *path = fv_http_path(r);
    (void)user;
    n_seen++;
    if (strcmp(path, "/image") == 0) {
        fv_http_reply(r, 200, "image/png", "pixels", 6);
    } else if (strcmp(path, "/moved") == 0 || strcmp(path, "/round") == 0) {
        fv_http_add(r, "Location", strcmp(path, "/round") == 0 ? "/round" : moved);
        fv_http_reply(r, 302, "text/plain", "elsewhere", 9);
    } else if (strcmp(path, "/twice") == 0) {
        fv_http_add(r, "Location", "moved");
        fv_http_reply(r, 307, "text/plain", "", 0);
    } else if (strcmp(path, "/large") == 0) {
        fv_http_reply(r, 200, "image/png", many, sizeof many);
    } else if (strcmp(path, "/stream") == 0) { /* without a Content-Length */
        fv_http_stream(r, "image/png");
        fv_http_write(r, many, sizeof many);
        fv_http_end_stream(r);
    } else if (strcmp(path, "/half") == 0) {
        fv_http_stream(r, "image/png");
        fv_http_write(r, many, BYTES_MAX / 2);
        fv_http_end_stream(r);
    } else if (strcmp(path, "/never") != 0) {
        fv_http_reply(r, 404, "text/plain", "none", 4);
    }
}

static void on_request_event(void *user, fv_http_request *r) {
    (void)user;
    (void)r;
}

/* ---- the fetcher ------------------------------------------------------------------------ */

static bool any_address(const struct sockaddr *a) { return a != NULL; }

static void open_fetcher(bool (*may_connect)(const struct sockaddr *a), int64_t ms,
                         size_t bytes_all) {
    fv_fetcher_options opt = {.loop = &loop,
                              .hosts = hosts,
                              .n_host = 1,
                              .bytes_max = BYTES_MAX,
                              .bytes_all = bytes_all,
                              .ms = ms,
                              .ca = ca,
                              .may_connect = may_connect};
    cr_assert_eq(fv_fetcher_open(&opt, &fetcher), FV_OK, "%s", fv_last_error());
}

static void open_server(void) {
    fv_http_options opt = {.loop = &loop,
                           .listen = "127.0.0.1:0",
                           .tls = files,
                           .body_max = 1000,
                           .bodies_max = 1000,
                           .connections = 16,
                           .read_ms = 60000,
                           .on_request = on_request,
                           .on_writable = on_request_event,
                           .on_end = on_request_event};
    cr_assert_eq(fv_http_open(&opt, &server), FV_OK, "%s", fv_last_error());
    snprintf(host, sizeof host, "%s", fv_http_address(server));
}

static void on_closed(void *user) {
    (void)user;
    closed = true;
}

static void wait_closed(void) {
    while (!closed) uv_run(&loop, UV_RUN_ONCE);
    closed = false;
}

static void close_server(void) {
    fv_http_close(server, on_closed, NULL);
    wait_closed();
    fv_tls_close(files);
    files = NULL;
}

static void close_fetcher(void) {
    fv_fetcher_close(fetcher, on_closed, NULL);
    wait_closed();
}

static void close_all(void) {
    close_fetcher();
    close_server();
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

static void open_plain_server(void) {
    cr_assert_eq(uv_loop_init(&loop), 0);
    open_server();
}

TestSuite(fetch, .init = open_plain_server, .fini = close_all, .timeout = 240);

static void on_fetched(void *user, fv_status st, const uint8_t *bytes, size_t n) {
    (void)user;
    result = st;
    n_over++;
    snprintf(why, sizeof why, "%s", st == FV_OK ? "" : fv_last_error());
    memcpy(got, bytes ? (const void *)bytes : "", n_got = n);
}

static void wait_for(const int32_t *count, int32_t at_least) {
    double until = fv_clock_s() + 60;
    while (*count < at_least) {
        cr_assert_lt(fv_clock_s(), until, "it never happens");
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(100);
    }
}

static fv_status begin(const char *url, fv_fetch **out) {
    fv_status st = fv_fetch_start(fetcher, url, on_fetched, NULL, out);
    if (st != FV_OK) snprintf(why, sizeof why, "%s", fv_last_error());
    return st;
}

/* Fetches a URL to the end; returns its failure. */
static fv_status get(const char *url) {
    fv_fetch *t;
    int32_t before = n_over;
    fv_status st = begin(url, &t);
    if (st != FV_OK) return st;
    wait_for(&n_over, before + 1);
    fv_fetch_free(t);
    return result;
}

static fv_status get_path(const char *path) {
    char url[256];
    snprintf(url, sizeof url, "http://%s%s", host, path);
    return get(url);
}

static void expect_refusal(fv_status st, fv_status expected, const char *words) {
    cr_assert_eq(st, expected, "%s", why);
    cr_assert(strstr(why, words), "%s", why);
}

/* ---- cases ------------------------------------------------------------------------------ */

Test(fetch, gives_the_bytes_at_a_listed_host_whatever_proxy_the_environment_names) {
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("all_proxy", "http://127.0.0.1:1", 1);
    open_fetcher(any_address, 60000, 1 << 20);
    cr_assert_eq(get_path("/image"), FV_OK, "%s", why);
    cr_assert_eq(n_got, 6);
    cr_assert_eq(memcmp(got, "pixels", 6), 0);
    cr_assert_eq(get_path("/half"), FV_OK, "%s", why);
    cr_assert_eq(n_got, BYTES_MAX / 2);
}

Test(fetch, connects_to_public_addresses_only) {
    open_fetcher(NULL, 60000, 1 << 20);
    expect_refusal(get_path("/image"), FV_EINVAL, "not public");
    char port[16], url[128];
    snprintf(port, sizeof port, "%s", strrchr(host, ':'));
    snprintf(host, sizeof host, "localhost%s", port); /* a name of this machine */
    snprintf(url, sizeof url, "http://%s/image", host);
    expect_refusal(get(url), FV_EINVAL, "not public");
    cr_assert_eq(n_seen, 0);
}

Test(fetch, refuses_what_is_not_on_the_list_before_anything_is_sent) {
    static const char *const urls[] = {"http://other.example/a.png",
                                       "http://127.0.0.1/image", /* another port */
                                       "http://127.1/image",
                                       "http://2130706433/image",
                                       "ftp://127.0.0.1/a.png",
                                       "file:///etc/passwd",
                                       "http://",
                                       "http:///image",
                                       "127.0.0.1/image",
                                       ""};
    char url[128];
    open_fetcher(any_address, 60000, 1 << 20);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        cr_assert_eq(get(urls[i]), FV_EINVAL, "%s", urls[i]);
    snprintf(url, sizeof url, "http://user:password@%s/image", host);
    expect_refusal(get(url), FV_EINVAL, "not a valid");
    snprintf(url, sizeof url, "http://%s@evil.example/image", host);
    cr_assert_eq(get(url), FV_EINVAL);
    snprintf(url, sizeof url, "http://%s.evil.example/image", host);
    cr_assert_eq(get(url), FV_EINVAL);
    cr_assert_eq(n_seen, 0);
}

Test(fetch, a_host_without_a_port_allows_the_schemes_own) {
    static const char *const good[] = {"a.example", "a.example:8080", "127.0.0.1", "[::1]:80"};
    static const char *const bad[] = {
        "", "https://a.example", "a.example/", "u@a.example", "a b", "a:port", "a.example:99999"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert_eq(fv_fetch_host_check(good[i]), FV_OK, "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(fv_fetch_host_check(bad[i]), FV_EINVAL, "%s", bad[i]);
    fv_fetch *t;
    snprintf(host, sizeof host, "127.0.0.1");
    open_fetcher(NULL, 60000, 1 << 20);
    cr_assert_eq(begin("http://127.0.0.1/", &t), FV_OK, "%s", why);
    fv_fetch_free(t);
    cr_assert_eq(begin("HTTPS://127.0.0.1:443/", &t), FV_OK, "%s", why);
    fv_fetch_free(t);
    expect_refusal(get("http://127.0.0.1:443/"), FV_EINVAL, "127.0.0.1:443");
}

Test(fetch, redirects_are_followed_by_the_same_rules) {
    open_fetcher(any_address, 60000, 1 << 20);
    snprintf(moved, sizeof moved, "/image");
    cr_assert_eq(get_path("/twice"), FV_OK, "%s", why);
    cr_assert_eq(n_got, 6);
    cr_assert_eq(n_seen, 3);
    static const char *const elsewhere[] = {"http://127.0.0.1:1/image", "http://other.example/",
                                            "file:///etc/passwd", "ftp://127.0.0.1/a"};
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        snprintf(moved, sizeof moved, "%s", elsewhere[i]);
        cr_assert_eq(get_path("/moved"), FV_EINVAL, "%s", elsewhere[i]);
    }
    expect_refusal(get_path("/round"), FV_EINVAL, "more than 3 times");
}

static bool first_address(const struct sockaddr *a) {
    static int32_t n;
    return a && n++ == 0;
}

Test(fetch, the_address_of_a_redirect_is_checked_too) {
    open_fetcher(first_address, 60000, 1 << 20);
    snprintf(moved, sizeof moved, "/image");
    expect_refusal(get_path("/moved"), FV_EINVAL, "not public");
    cr_assert_eq(n_seen, 1);
}

Test(fetch, size_is_bounded_each_and_all_together) {
    open_fetcher(any_address, 60000, BYTES_MAX / 2 + 6);
    expect_refusal(get_path("/large"), FV_ENOMEM, "larger than 10000 bytes");
    expect_refusal(get_path("/stream"), FV_ENOMEM, "larger than 10000 bytes");
    fv_fetch *held;
    char url[128];
    snprintf(url, sizeof url, "http://%s/half", host);
    cr_assert_eq(begin(url, &held), FV_OK);
    wait_for(&n_over, 3);
    cr_assert_eq(result, FV_OK, "%s", why);
    cr_assert_eq(get_path("/image"), FV_OK, "%s", why);
    expect_refusal(get_path("/half"), FV_EBUSY, "too many");
    fv_fetch_free(held);
    cr_assert_eq(get_path("/half"), FV_OK, "%s", why);
}

/* Fetches an image from a server with the certificate NAME. */
static fv_status get_https(const char *dir, const char *name) {
    char cert[300], key[300], url[128];
    close_server();
    snprintf(cert, sizeof cert, "%s", certs_path(dir, name, "crt"));
    snprintf(key, sizeof key, "%s", certs_path(dir, name, "key"));
    cr_assert_eq(fv_tls_open(&(fv_tls_files){.cert = cert, .key = key}, &files), FV_OK);
    open_server();
    snprintf(url, sizeof url, "https://%s/image", host);
    return get(url);
}

Test(fetch, https_is_checked_against_the_file_that_is_named_or_the_systems_authorities) {
    char dir[256], path[300];
    scratch_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s", certs_path(dir, "ca", "crt"));
    certs_authority(dir, "ca");
    certs_authority(dir, "other");
    certs_issue(dir, "ca", "good", "IP:127.0.0.1", 1);
    certs_issue(dir, "ca", "elsewhere", "IP:127.0.0.2", 1);
    certs_issue(dir, "ca", "expired", "IP:127.0.0.1", -1);
    certs_issue(dir, "other", "stranger", "IP:127.0.0.1", 1);
    ca = path;
    open_fetcher(any_address, 60000, 1 << 20);
    cr_assert_eq(get_https(dir, "good"), FV_OK, "%s", why);
    cr_assert_eq(n_got, 6);
    static const char *const bad[] = {"elsewhere", "expired", "stranger"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_refusal(get_https(dir, bad[i]), FV_EINVAL, "certificate");
        cr_assert_eq(n_got, 0);
    }
    certs_replace(dir, "other", "ca"); /* it is read again */
    cr_assert_eq(get_https(dir, "stranger"), FV_OK, "%s", why);
    expect_refusal(get_https(dir, "good"), FV_EINVAL, "certificate");
    close_fetcher();
    ca = NULL;
    open_fetcher(any_address, 60000, 1 << 20);
    expect_refusal(get_https(dir, "stranger"), FV_EINVAL, "certificate");
    cr_assert_eq(n_seen, 2);
}

Test(fetch, an_error_and_a_server_that_is_not_there_are_failures) {
    open_fetcher(any_address, 60000, 1 << 20);
    expect_refusal(get_path("/else"), FV_EINVAL, "status 404");
    cr_assert_eq(n_got, 0);
    snprintf(host, sizeof host, "127.0.0.1:1");
    expect_refusal(get_path("/image"), FV_EINVAL, "cannot be fetched from 127.0.0.1");
}

Test(fetch, time_is_bounded) {
    open_fetcher(any_address, 50, 1 << 20);
    expect_refusal(get_path("/never"), FV_EINVAL, "within 50 ms");
}

Test(fetch, one_that_is_freed_is_never_over) {
    fv_fetch *t;
    char url[128];
    open_fetcher(any_address, 60000, 1 << 20);
    snprintf(url, sizeof url, "http://%s/never", host);
    cr_assert_eq(begin(url, &t), FV_OK);
    wait_for(&n_seen, 1);
    fv_fetch_free(t);
    cr_assert_eq(get_path("/image"), FV_OK, "%s", why);
    cr_assert_eq(n_over, 1);
}

Test(fetch, so_many_run_at_a_time) {
    static fv_fetch *t[FV_FETCH_RUNNING_MAX];
    char url[128];
    open_fetcher(any_address, 60000, 1 << 20);
    snprintf(url, sizeof url, "http://%s/never", host);
    for (int i = 0; i < FV_FETCH_RUNNING_MAX; i++) cr_assert_eq(begin(url, &t[i]), FV_OK);
    fv_fetch *more;
    expect_refusal(begin(url, &more), FV_EBUSY, "too many");
    for (int i = 0; i < FV_FETCH_RUNNING_MAX; i++) fv_fetch_free(t[i]);
    cr_assert_eq(get_path("/image"), FV_OK, "%s", why);
}
