/* redis/: replies and URLs as bytes; operations against a server that answers what a test says; and, where there is one,
 * against redis-server, with a password and over TLS. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "redis/internal.h"

/* ---- bytes ------------------------------------------------------------------------------- */

static fv_reply_kind kind_of(const char *s, size_t n) { return fv_reply_read(s, n, 100).kind; }

Test(redis, replies_are_read_when_they_are_complete) {
    static const char value[] = "$5\r\na\r\nbc\r\n:1\r\n";
    const fv_reply a = fv_reply_read(value, sizeof value - 1, 5);
    cr_assert_eq(a.kind, FV_REPLY_VALUE);
    cr_assert(a.n == 5 && memcmp(a.text, "a\r\nbc", 5) == 0 && a.size == 11);
    for (size_t n = 0; n < 11; n++) cr_assert_eq(kind_of(value, n), FV_REPLY_MORE, "%zu", n);
    cr_assert_eq(fv_reply_read(value, 11, 4).kind, FV_REPLY_BIG);
    cr_assert_eq(kind_of("$-1\r\n", 5), FV_REPLY_NONE);
    cr_assert_eq(kind_of("$0\r\n\r\n", 6), FV_REPLY_VALUE);
    const fv_reply e = fv_reply_read("-ERR no\r\n", 9, 0);
    cr_assert(e.kind == FV_REPLY_ERROR && e.n == 6 && memcmp(e.text, "ERR no", 6) == 0);
    cr_assert_eq(kind_of("+OK\r\n", 5), FV_REPLY_TEXT);
}

Test(redis, what_no_server_sends_is_no_reply) {
    static const char *const wrong[] = {"*1000000000\r\n", "HTTP/1.1 400\r\n",
                                        "$-2\r\n",         "$\r\n",
                                        "$1x\r\n",         "$99999999999999999999\r\n"};
    static char line[2000] = "+";
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(kind_of(wrong[i], strlen(wrong[i])), FV_REPLY_WRONG, "%s", wrong[i]);
    cr_expect_eq(kind_of("$1\r\nabc", 7), FV_REPLY_WRONG);
    memset(line + 1, 'a', sizeof line - 1);
    cr_expect_eq(kind_of(line, sizeof line), FV_REPLY_WRONG, "a line without end");
}

Test(redis, urls) {
    fv_redis_url u;
    cr_assert_eq(fv_redis_url_read("redis://cache", &u), FV_OK, "%s", fv_last_error());
    cr_assert(!u.tls && !strcmp(u.host, "cache") && !strcmp(u.port, "6379") && !strcmp(u.db, "0"));
    cr_assert_eq(fv_redis_url_read("rediss://me:a%2Fb@[::1]:7000/3", &u), FV_OK);
    cr_assert(u.tls && !strcmp(u.host, "::1") && !strcmp(u.port, "7000") && !strcmp(u.db, "3"));
    cr_assert(!strcmp(u.user, "me") && !strcmp(u.password, "a/b"));
    cr_assert_eq(fv_redis_url_read("redis://:p@h/", &u), FV_OK);
    cr_assert(!u.user[0] && !strcmp(u.password, "p") && !strcmp(u.db, "0"));
    static const char *const wrong[] = {"http://h",       "redis://",        "redis://h:x",
                                        "redis://h/x",    "redis://[::1",    "redis://p@h",
                                        "redis://:%zz@h", "redis://h:99999", "redis://:80"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(fv_redis_url_read(wrong[i], &u), FV_EINVAL, "%s", wrong[i]);
}

/* ---- a server that says what it is told --------------------------------------------------- */

static uv_loop_t loop;
static fv_redis *redis;

static struct {
    int fd, port;
    const char *say; /* once something has come; NULL: nothing */
    pthread_t thread;
} fake;

static void *answer(void *unused) {
    char in[4096];
    int c = accept(fake.fd, NULL, NULL);
    (void)unused;
    if (read(c, in, sizeof in) > 0 && fake.say && write(c, fake.say, strlen(fake.say)) < 0)
        return NULL;
    while (read(c, in, sizeof in) > 0) {
    }
    close(c);
    return NULL;
}

static void open_redis(const char *format, int port, int64_t deadline_ms) {
    char url[256];
    snprintf(url, sizeof url, format, port);
    uv_loop_init(&loop);
    const fv_redis_options opt = {.loop = &loop,
                                  .url = url,
                                  .ca = getenv("TEST_CA"),
                                  .deadline_ms = deadline_ms,
                                  .value_max = 1 << 20};
    cr_assert_eq(fv_redis_open(&opt, &redis), FV_OK, "%s", fv_last_error());
}

static void open_fake_as(const char *format, const char *say, int64_t deadline_ms) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    fake.say = say;
    fake.fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(fake.fd, (struct sockaddr *)&a, n), 0);
    cr_assert_eq(listen(fake.fd, 4), 0);
    getsockname(fake.fd, (struct sockaddr *)&a, &n);
    fake.port = ntohs(a.sin_port);
    pthread_create(&fake.thread, NULL, answer, NULL);
    open_redis(format, fake.port, deadline_ms);
}

static void open_fake(const char *say, int64_t deadline_ms) {
    open_fake_as("redis://127.0.0.1:%d", say, deadline_ms);
}

static void close_redis(void) {
    fv_redis_close(redis);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "nothing is left in the loop");
}

static void close_fake(void) {
    close_redis();
    close(fake.fd);
    pthread_join(fake.thread, NULL);
}

typedef struct result {
    bool over;
    fv_status st;
    char value[256], why[512];
    size_t n;
} result;

static void on_done(void *user, fv_status st, const void *value, size_t n) {
    result *x = user;
    cr_assert_not(x->over, "once");
    x->over = true;
    x->st = st;
    x->n = n;
    if (st != FV_OK) snprintf(x->why, sizeof x->why, "%s", fv_last_error());
    if (value) snprintf(x->value, sizeof x->value, "%.*s", (int)n, (const char *)value);
}

static void wait_for(const result *x) {
    while (!x->over) uv_run(&loop, UV_RUN_ONCE);
}

/* Runs a get to its end; a refusal at once is its result too. */
static result get(const char *name) {
    result x = {0};
    fv_redis_op *op;
    fv_status st = fv_redis_get(redis, name, strlen(name), on_done, &x, &op);
    if (st != FV_OK) {
        on_done(&x, st, NULL, 0);
        return x;
    }
    cr_assert_not(x.over, "not from within the call");
    wait_for(&x);
    return x;
}

static void expect_failure(const char *say, const char *why) {
    open_fake(say, 300);
    result x = get("a");
    cr_expect_eq(x.st, FV_EIO);
    cr_expect(strstr(x.why, why), "'%s' should say '%s'", x.why, why);
    x = get("a");
    cr_expect_eq(x.st, FV_EIO, "it rests");
    cr_expect(strstr(x.why, why), "%s", x.why);
    close_fake();
}

TestSuite(redis, .timeout = 240);

Test(redis, a_reply_is_what_was_asked_for) {
    open_fake("+OK\r\n$3\r\nabc\r\n$-1\r\n", 5000);
    result a = {0}, b = {0};
    fv_redis_op *op;
    cr_assert_eq(fv_redis_get(redis, "a", 1, on_done, &a, &op), FV_OK);
    cr_assert_eq(fv_redis_get(redis, "b", 1, on_done, &b, &op), FV_OK);
    wait_for(&b);
    cr_expect(a.st == FV_OK && !strcmp(a.value, "abc"));
    cr_expect_eq(b.st, FV_ENOTFOUND);
    close_fake();
}

Test(redis, a_server_that_is_silent_costs_the_deadline_once) {
    expect_failure(NULL, "did not answer within 300 ms");
    expect_failure("+OK\r\n$3\r\na", "did not answer within 300 ms");
}

Test(redis, a_server_that_sends_rubbish_is_left) {
    expect_failure("HTTP/1.1 400 Bad Request\r\n\r\n", "no reply of Redis");
    expect_failure("+OK\r\n*3\r\n", "no reply of Redis");
    expect_failure("-NOAUTH Authentication required.\r\n", "refuses the connection: NOAUTH");
}

Test(redis, a_value_that_is_too_large_is_not_read) {
    open_fake("+OK\r\n$1048577\r\n", 5000);
    result x = get("a");
    cr_expect_eq(x.st, FV_EDATA, "%s", x.why);
    close_fake();
}

Test(redis, nobody_is_told_of_what_was_dropped) {
    open_fake("+OK\r\n$1\r\na\r\n$1\r\nb\r\n", 5000);
    result a = {0}, b = {0};
    fv_redis_op *op;
    cr_assert_eq(fv_redis_get(redis, "a", 1, on_done, &a, &op), FV_OK);
    fv_redis_drop(op);
    cr_assert_eq(fv_redis_get(redis, "b", 1, on_done, &b, &op), FV_OK);
    wait_for(&b);
    cr_expect(!a.over && !strcmp(b.value, "b"));
    cr_assert_eq(fv_redis_get(redis, "c", 1, on_done, &a, &op), FV_OK);
    close_fake();
    cr_expect(!a.over, "closing drops it");
}

Test(redis, nobody_listens) {
    open_redis("redis://127.0.0.1:%d", 1, 5000);
    cr_expect_eq(get("a").st, FV_EIO);
    close_redis();
}

Test(redis, names_and_values_have_limits) {
    static char large[(1 << 20) + 1];
    result x = {0};
    fv_redis_op *op;
    open_redis("redis://127.0.0.1:%d", 1, 5000);
    cr_expect_eq(fv_redis_get(redis, large, FV_REDIS_NAME_MAX + 1, on_done, &x, &op), FV_EINVAL);
    cr_expect_eq(fv_redis_set(redis, "a", 1, large, sizeof large, 1000, on_done, &x, &op),
                 FV_EINVAL);
    close_redis();
}

Test(redis, bytes_that_wait_are_bounded) {
    static char large[1 << 20];
    static result x[128];
    int n = 0;
    fv_redis_op *op;
    fv_status st;
    open_redis("redis://127.0.0.1:%d", 1, 60000); /* the loop does not run: all wait */
    while ((st = fv_redis_set(redis, "a", 1, large, sizeof large, 1000, on_done, &x[n], &op)) ==
           FV_OK)
        cr_assert_lt(++n, 128, "no bound");
    cr_expect_eq(st, FV_EBUSY);
    cr_expect(n >= 32 && n <= FV_REDIS_WAITING_BYTES_MAX >> 20, "%d values", n);
    close_redis();
}

Test(redis, a_password_is_not_repeated) {
    open_fake_as("redis://me:s3cret@127.0.0.1:%d",
                 "-ERR unknown command 'AUTH', with args beginning with: 'me' 's3cret'\r\n", 5000);
    result x = get("a");
    cr_expect_eq(x.st, FV_EIO);
    cr_expect(strstr(x.why, "refuses the connection"), "%s", x.why);
    cr_expect_not(strstr(x.why, "s3cret"), "%s", x.why);
    close_fake();
}

Test(redis, certificates_without_tls_are_refused) {
    fv_redis *r = NULL;
    uv_loop_init(&loop);
    const fv_redis_options opt = {.loop = &loop, .url = "redis://h", .ca = "ca.pem"};
    cr_expect_eq(fv_redis_open(&opt, &r), FV_EINVAL);
    cr_expect(strstr(fv_last_error(), "rediss://"), "%s", fv_last_error());
    uv_loop_close(&loop);
}

/* ---- redis-server ------------------------------------------------------------------------- */

/* Starts it; 0: there is none. */
static pid_t start_server(char *const args[]) {
    if (system("command -v redis-server >/dev/null") != 0) return 0;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execvp("redis-server", args);
        _exit(127);
    }
    return pid;
}

static result set(const char *name, const char *value, int64_t ms) {
    result x = {0};
    fv_redis_op *op;
    fv_status st =
        fv_redis_set(redis, name, strlen(name), value, strlen(value), ms, on_done, &x, &op);
    if (st != FV_OK) on_done(&x, st, NULL, 0);
    if (st == FV_OK) wait_for(&x);
    return x;
}

/* Waits until the server is up. */
static void wait_up(void) {
    result x = {0};
    for (int i = 0; i < 300 && (x = set("up", "1", 1000)).st != FV_OK; i++) usleep(100000);
    cr_assert_eq(x.st, FV_OK, "%s", x.why);
}

static void check_server(void) {
    fv_redis_op *op;
    result x = {0};
    wait_up();
    cr_expect_eq(get("none").st, FV_ENOTFOUND);
    cr_expect_eq(set("a", "one\r\ntwo", 60000).st, FV_OK);
    cr_expect_str_eq(get("a").value, "one\r\ntwo");
    cr_expect_eq(set("b", "x", 1).st, FV_OK);
    usleep(50000);
    cr_expect_eq(get("b").st, FV_ENOTFOUND, "its time is over");
    cr_assert_eq(fv_redis_delete(redis, "a", 1, on_done, &x, &op), FV_OK);
    wait_for(&x);
    cr_expect_eq(get("a").st, FV_ENOTFOUND);
    close_redis();
}

static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&a, n), 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    close(fd);
    return ntohs(a.sin_port);
}

static void end_server(pid_t pid) {
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

Test(redis, a_server_with_a_password) {
    char port[8];
    const int p = free_port();
    snprintf(port, sizeof port, "%d", p);
    pid_t pid = start_server((char *[]){"redis-server", "--bind", "127.0.0.1", "--port", port,
                                        "--save", "", "--requirepass", "a/b", NULL});
    if (!pid) cr_skip("no redis-server");
    open_redis("redis://:a%%2Fb@127.0.0.1:%d/2", p, 5000);
    check_server();
    open_redis("redis://:wrong@127.0.0.1:%d", p, 5000);
    const result x = get("a");
    cr_expect(x.st == FV_EIO && strstr(x.why, "refuses the connection"), "%s", x.why);
    close_redis();
    end_server(pid);
}

Test(redis, a_server_over_tls) {
    char port[8], cert[300], key[300], command[1200], dir[] = "/tmp/fovea-redis-XXXXXX";
    const int p = free_port();
    cr_assert_not_null(mkdtemp(dir));
    snprintf(port, sizeof port, "%d", p);
    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
             "/CN=redis "
             "-addext subjectAltName=IP:127.0.0.1 -keyout %s -out %s 2>/dev/null",
             key, cert);
    if (system(command) != 0) cr_skip("no openssl");
    pid_t pid = start_server((char *[]){
        "redis-server", "--bind", "127.0.0.1", "--port", "0", "--tls-port", port, "--tls-cert-file",
        cert, "--tls-key-file", key, "--tls-auth-clients", "no", "--save", "", NULL});
    if (!pid) cr_skip("no redis-server");
    setenv("TEST_CA", cert, 1);
    open_redis("rediss://127.0.0.1:%d", p, 5000);
    check_server();
    open_redis("rediss://localhost:%d", p, 5000);
    result x = get("a");
    cr_expect(x.st == FV_EIO && strstr(x.why, "TLS: "), "another name: %s", x.why);
    close_redis();
    unsetenv("TEST_CA");
    open_redis("rediss://127.0.0.1:%d", p, 5000);
    x = get("a");
    cr_expect(x.st == FV_EIO && strstr(x.why, "TLS: "), "nobody whom the system trusts: %s", x.why);
    close_redis();
    end_server(pid);
    snprintf(command, sizeof command, "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}
