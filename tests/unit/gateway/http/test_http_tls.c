/* gateway/http/tls.h: accepted clients, and certificates that change. The client is curl. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "gateway/http/http.h"
#include "tests/support/certs.h"
#include "tests/support/tensor_file.h"

enum { PIECES = 200, PIECE = 4096 };

static uv_loop_t loop;
static fv_tls *files;
static fv_http *server;
static int32_t n_piece;
static bool closed;
static char dir[256];

static void flood(void *user, fv_http_request *r) {
    static const char piece[PIECE] = {0};
    (void)user;
    while (n_piece < PIECES && !fv_http_full(r)) {
        fv_http_write(r, piece, sizeof piece);
        n_piece++;
    }
    if (n_piece == PIECES) fv_http_end_stream(r);
}

static void on_request(void *user, fv_http_request *r) {
    n_piece = 0;
    fv_http_stream(r, "text/plain");
    flood(user, r);
}

static void on_end(void *user, fv_http_request *r) {
    (void)user;
    (void)r;
}

static void issue(const char *authority, const char *name) {
    certs_authority(dir, authority);
    certs_issue(dir, authority, name, "DNS:localhost", 1);
}

static void open_server(const char *client_ca) {
    char paths[3][300];
    scratch_dir(dir, sizeof dir);
    issue("ca", "server");
    issue("clients", "client");
    issue("others", "stranger");
    snprintf(paths[0], 300, "%s", certs_path(dir, "server", "crt"));
    snprintf(paths[1], 300, "%s", certs_path(dir, "server", "key"));
    if (client_ca) snprintf(paths[2], 300, "%s", certs_path(dir, client_ca, "crt"));
    fv_tls_files names = {.cert = paths[0], .key = paths[1], .ca = client_ca ? paths[2] : NULL};
    cr_assert_eq(fv_tls_open(&names, &files), FV_OK, "%s", fv_last_error());
    fv_http_options opt = {.loop = &loop,
                           .listen = "127.0.0.1:0",
                           .tls = files,
                           .body_max = 1000,
                           .bodies_max = 1000,
                           .connections = 16,
                           .read_ms = 1500,
                           .on_request = on_request,
                           .on_writable = flood,
                           .on_end = on_end};
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(fv_http_open(&opt, &server), FV_OK, "%s", fv_last_error());
}

static void on_closed(void *user) {
    (void)user;
    closed = true;
}

static void close_server(void) {
    if (!server) return;
    fv_http_close(server, on_closed, NULL);
    while (!closed) uv_run(&loop, UV_RUN_ONCE);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    fv_tls_close(files);
}

TestSuite(http_tls, .fini = close_server, .timeout = 240);

static void turn(void) {
    uv_run(&loop, UV_RUN_NOWAIT);
    usleep(200);
}

/* Runs curl and returns its exit status; who: the name of its certificate, NULL: none. */
static int get(const char *authority, const char *who) {
    char command[1500], shows[700] = "";
    int status;
    if (who)
        snprintf(shows, sizeof shows, "--cert %s --key %s", certs_path(dir, who, "crt"),
                 certs_path(dir, who, "key"));
    snprintf(command, sizeof command,
             "exec curl -sS --max-time 60 --noproxy '*' %s --cacert %s https://localhost%s/ "
             ">%s/got 2>/dev/null",
             shows, certs_path(dir, authority, "crt"), strrchr(fv_http_address(server), ':'), dir);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &status, WNOHANG) == 0) turn();
    cr_assert(WIFEXITED(status));
    if (WEXITSTATUS(status) == 127) cr_skip("no curl");
    return WEXITSTATUS(status);
}

static long bytes_got(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/got", dir);
    FILE *f = fopen(path, "rb");
    cr_assert(f && fseek(f, 0, SEEK_END) == 0);
    long n = ftell(f);
    fclose(f);
    return n;
}

enum { UNTRUSTED = 60 }; /* curl's status: not the authority of its certificate */

Test(http_tls, a_stream_arrives_at_clients_that_trust_the_certificate) {
    open_server(NULL);
    cr_assert_eq(get("ca", NULL), 0);
    cr_assert_eq(bytes_got(), PIECES * PIECE);
    cr_assert_eq(get("others", NULL), UNTRUSTED);
    cr_assert_eq(get("ca", "stranger"), 0, "nobody asks for it");
}

Test(http_tls, clients_show_a_certificate_where_one_is_required) {
    open_server("clients");
    cr_assert_eq(get("ca", "client"), 0);
    cr_assert_neq(get("ca", NULL), 0);
    cr_assert_neq(get("ca", "stranger"), 0);
    cr_assert_eq(get("ca", "client"), 0);
}

Test(http_tls, a_new_certificate_is_used_from_the_next_connection_on) {
    open_server(NULL);
    cr_assert_eq(get("ca", NULL), 0);
    certs_replace(dir, "stranger", "server");
    double until = fv_clock_s() + 60;
    while (get("others", NULL) != 0) cr_assert_lt(fv_clock_s(), until);
    cr_assert_eq(get("ca", NULL), UNTRUSTED);
}

static int connect_to_server(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(fv_http_address(server), ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Sends only the first message of a handshake. */
static int begin_handshake(void) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *out = BIO_new(BIO_s_mem());
    char hello[4096];
    int fd = connect_to_server();
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    cr_assert_lt(SSL_connect(ssl), 0);
    int n = BIO_read(out, hello, sizeof hello);
    cr_assert_gt(n, 0);
    cr_assert_eq(write(fd, hello, (size_t)n), n);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return fd;
}

Test(http_tls, one_who_stops_in_a_handshake_holds_up_nobody_and_is_shut_out) {
    char bytes[4096];
    ssize_t n;
    open_server(NULL);
    int fd = begin_handshake();
    for (int i = 0; i < 3; i++) cr_assert_eq(get("ca", NULL), 0);
    double until = fv_clock_s() + 60;
    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) != 0 && (n > 0 || errno == EAGAIN)) {
        cr_assert_lt(fv_clock_s(), until);
        turn();
    }
    close(fd);
}

Test(http_tls, one_who_never_shakes_hands_is_shut_out) {
    char byte;
    open_server(NULL);
    int silent = connect_to_server(), plain = connect_to_server();
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    cr_assert_eq(write(plain, request, sizeof request - 1), (ssize_t)sizeof request - 1);
    double until = fv_clock_s() + 60;
    while (recv(silent, &byte, 1, MSG_DONTWAIT) < 0 || recv(plain, &byte, 1, MSG_DONTWAIT) < 0) {
        cr_assert_lt(fv_clock_s(), until);
        turn();
    }
    close(silent);
    close(plain);
}
