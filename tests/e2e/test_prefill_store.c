/* Prefill workers share the KV of prompts through a Redis server: one computes, another reads; a server that lies, or is
 * gone, costs no answer. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/tier/store.h"
#include "tests/e2e/prefill_rig.h"

#define LONG LONG_QUESTION

static heard p;
static asking a;
static fv_kv_tier *store;
static pid_t server;
static int port;

static int free_port(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof to;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&to, &n), 0);
    close(fd);
    return ntohs(to.sin_port);
}

/* Runs redis-cli with these arguments; 0: it worked. */
static int cli(const char *args) {
    char line[600];
    snprintf(line, sizeof line, "redis-cli -p %d %s >/dev/null 2>&1", port, args);
    return system(line);
}

/* Starts a server on a port that was free just now; false: somebody else was quicker. */
static bool try_server(void) {
    char text[8];
    port = free_port();
    snprintf(text, sizeof text, "%d", port);
    server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execlp("redis-server", "redis-server", "--bind", "127.0.0.1", "--port", text, "--save", "",
               "--enable-debug-command", "yes", NULL);
        _exit(127);
    }
    for (int i = 0; i < 2000 && waitpid(server, NULL, WNOHANG) == 0; i++, usleep(50000))
        if (cli("ping") == 0) return true;
    return false;
}

static void start_server(void) {
    for (int i = 0; i < 5; i++)
        if (try_server()) return;
    server = 0;
    cr_assert_fail("redis-server does not answer");
}

static void prepare(void) { make_checkpoint(); }

static void end(void) {
    if (server) kill(server, SIGKILL);
    drop_checkpoint();
}

static void open_worker(uint8_t secret) {
    fv_key key = {{secret}};
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d/1", port);
    fv_kv_store_options to = {.url = url, .deadline_ms = 2000, .secret = &key};
    cr_assert_eq(fv_kv_store_open(&to, &store), FV_OK, "%s", fv_last_error());
    open_workers_with_tier(store);
    ask_about_image(&a, workers.target);
}

static void close_worker(void) {
    close_workers();
    store->ops->close(store);
}

static const Fovea__Inference__V1__Report *ask(const char *text) { return ask_text(&p, &a, text); }

/* Lets a worker compute the prompt and write it to the store; returns the digest of its answer. */
static uint64_t compute(void) {
    open_worker(1);
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    uint64_t digest = first_digest(&p);
    wait_for_writes();
    close_worker();
    return digest;
}

static bool no_server(void) { return system("command -v redis-server >/dev/null") != 0; }

TestSuite(prefill_store, .init = prepare, .fini = end, .timeout = 240);

Test(prefill_store, another_worker_reads_what_one_has_computed) {
    if (no_server()) cr_skip("no redis-server");
    start_server();
    uint64_t digest = compute();
    open_worker(1);
    const Fovea__Inference__V1__Report *r = ask(LONG);
    cr_assert_str_eq(r->cache_tier, "redis");
    cr_assert_geq(r->n_prompt_fetched, r->n_visual);
    cr_assert_eq(r->seconds_vision, 0, "the image is not encoded");
    cr_assert_eq(first_digest(&p), digest);
    cr_assert_gt(prefill_load().bytes_tier_read, 0);
    cr_assert_str_eq(ask(LONG)->cache_tier, "prefill");
    close_worker();
    open_worker(2);
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0, "another secret finds nothing");
    cr_assert_eq(first_digest(&p), digest);
    close_worker();
}

Test(prefill_store, rubbish_and_swapped_values_are_computed_anew) {
    if (no_server()) cr_skip("no redis-server");
    static const char *const harm[] = {
        /* each value becomes that of the next name */
        "-n 1 eval \"local k = redis.call('keys', '*') table.sort(k) local v = {} for i = 1, #k do "
        "v[i] = "
        "redis.call('get', k[i]) end for i = 1, #k do redis.call('set', k[i], v[i % #k + 1]) end\" "
        "0",
        "-n 1 eval \"for _, k in ipairs(redis.call('keys', '*')) do redis.call('setrange', k, 20, "
        "'rubbish') "
        "end\" 0",
        "-n 1 eval \"for _, k in ipairs(redis.call('keys', '*')) do redis.call('set', k, '') end\" "
        "0",
        "-n 1 eval \"for _, k in ipairs(redis.call('keys', '*:0')) do redis.call('del', k) end\" 0",
        "-n 1 eval \"for _, k in ipairs(redis.call('keys', '*')) do redis.call('del', k) "
        "redis.call('lpush', k, 'a', 'list') end\" 0"};
    start_server();
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++) {
        cr_assert_eq(cli("flushall"), 0);
        uint64_t digest = compute();
        cr_assert_eq(cli(harm[i]), 0, "%s", harm[i]);
        open_worker(1);
        cr_assert_eq(ask(LONG)->n_prompt_fetched, 0, "harm %zu", i);
        cr_assert_eq(first_digest(&p), digest);
        close_worker();
    }
}

Test(prefill_store, a_server_that_is_gone_or_stands_still_costs_no_answer) {
    if (no_server()) cr_skip("no redis-server");
    start_server();
    uint64_t digest = compute();
    open_worker(1);
    kill(server, SIGSTOP);
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    cr_assert_eq(first_digest(&p), digest);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    server = 0;
    a.g.cache_salt = (char *)"other";
    cr_assert_eq(ask(LONG)->n_prompt_cached, 0);
    cr_assert_eq(first_digest(&p), digest);
    cr_assert_gt(prefill_load().n_tier_failed, 0);
    close_worker();
}
