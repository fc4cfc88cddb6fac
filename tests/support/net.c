#include "tests/support/net.h"

#include <dirent.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sanitized.h"

void net_check(bool good, const char *what, const char *file, int line) {
    if (good) return;
    fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", file, line, what, fv_last_error());
    abort();
}

void net_loop_close(uv_loop_t *loop) {
    for (int ms = 0; ms < 60000 && uv_run(loop, UV_RUN_NOWAIT); ms++) uv_sleep(1);
    int left = uv_loop_close(loop);
    if (left) uv_print_all_handles(loop, stderr);
    NET_CHECK(left == 0);
}

grpc_byte_buffer *net_bytes(const void *p, size_t n) {
    grpc_slice s = grpc_slice_from_copied_buffer(p, n);
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&s, 1);
    grpc_slice_unref(s);
    return b;
}

grpc_byte_buffer *net_zeros(size_t n) {
    grpc_slice s = grpc_slice_malloc(n);
    memset(GRPC_SLICE_START_PTR(s), 0, n);
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&s, 1);
    grpc_slice_unref(s);
    return b;
}

/* The first n bytes of a message; the rest of `out` is left alone. */
static void lookahead(grpc_byte_buffer *b, void *out, size_t n) {
    grpc_byte_buffer_reader r;
    NET_CHECK(grpc_byte_buffer_reader_init(&r, b) != 0);
    grpc_slice all = grpc_byte_buffer_reader_readall(&r);
    if (GRPC_SLICE_LENGTH(all) < n) n = GRPC_SLICE_LENGTH(all);
    memcpy(out, GRPC_SLICE_START_PTR(all), n);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&r);
}

/* ---- the service ------------------------------------------------------------------------ */

typedef struct counting {
    uint32_t n, bytes;
} counting;

static net_seen *seen(fv_rpc_call *c) { return fv_rpc_call_service(c); }

static void note_queue(fv_rpc_call *c) {
    size_t n = fv_rpc_call_bytes_queued(c);
    if (n > seen(c)->queue_most) seen(c)->queue_most = n;
}

static void copy_text(char *out, size_t cap, const char *s, size_t n) {
    if (n >= cap) n = cap - 1;
    memcpy(out, s, n);
    out[n] = '\0';
}

static fv_status on_start(fv_rpc_call *c) {
    net_seen *s = seen(c);
    s->started++;
    s->left_ms = fv_rpc_call_left_ms(c);
    const char *value;
    size_t n;
    if (fv_rpc_call_metadata(c, "traceparent", &value, &n))
        copy_text(s->traceparent, sizeof s->traceparent, value, n);
    if (fv_rpc_call_metadata(c, "x-forwarded-for", &value, &n))
        copy_text(s->forwarded, sizeof s->forwarded, value, n);
    copy_text(s->peer, sizeof s->peer, fv_rpc_call_peer(c), strlen(fv_rpc_call_peer(c)));
    void *state;
    FV_TRY(fv_arena_alloc(fv_rpc_call_arena(c), sizeof(counting), &state));
    fv_rpc_call_set_user(c, state);
    return FV_OK;
}

static void on_cancel(fv_rpc_call *c) { seen(c)->cancelled++; }

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    seen(c)->ended++;
    seen(c)->end = *end;
    if (seen(c)->stalled == c) seen(c)->stalled = NULL;
}

static fv_status echo(fv_rpc_call *c, grpc_byte_buffer *m) {
    seen(c)->messages++;
    FV_TRY(fv_rpc_call_send_buffer(c, grpc_byte_buffer_copy(m)));
    fv_rpc_call_trailer(c, "test-trailer", "here");
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

/* Sends while the buffer has space, and continues when it has again. */
static void count_on(fv_rpc_call *c) {
    counting *k = fv_rpc_call_user(c);
    while (k->n > 0 && fv_rpc_call_writable(c)) {
        NET_CHECK(fv_rpc_call_send_buffer(c, net_zeros(k->bytes)) == FV_OK);
        note_queue(c);
        k->n--;
    }
    if (k->n == 0) fv_rpc_call_finish(c, FV_OK);
}

static fv_status count(fv_rpc_call *c, grpc_byte_buffer *m) {
    seen(c)->messages++;
    lookahead(m, fv_rpc_call_user(c), sizeof(counting));
    count_on(c);
    return FV_OK;
}

static fv_status collect(fv_rpc_call *c, grpc_byte_buffer *m) {
    counting *k = fv_rpc_call_user(c);
    seen(c)->messages++;
    k->n++;
    k->bytes += (uint32_t)grpc_byte_buffer_length(m);
    return FV_OK;
}

static fv_status collected(fv_rpc_call *c) {
    seen(c)->half_closed++;
    FV_TRY(fv_rpc_call_send_buffer(c, net_bytes(fv_rpc_call_user(c), sizeof(counting))));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static fv_status session(fv_rpc_call *c, grpc_byte_buffer *m) {
    seen(c)->messages++;
    return fv_rpc_call_send_buffer(c, grpc_byte_buffer_copy(m));
}

static fv_status talked(fv_rpc_call *c) {
    seen(c)->half_closed++;
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static fv_status stall(fv_rpc_call *c, grpc_byte_buffer *m) {
    (void)m;
    seen(c)->messages++;
    seen(c)->stalled = c;
    return FV_OK;
}

static void relay_end(fv_rpc_call *c, const fv_rpc_end *end) {
    net_seen *s = fv_rpc_call_user(c);
    s->relay_ended++;
    s->relay_status = end->status;
}

static fv_status relay_start(fv_rpc_call *c) {
    static const fv_rpc_events events = {.on_end = relay_end};
    FV_TRY(on_start(c));
    fv_rpc_call_options opt = {
        .path = NET_STALL, .events = &events, .user = seen(c), .deadline_ms = 3600000, .parent = c};
    fv_rpc_call *child;
    FV_TRY(fv_rpc_call_open(seen(c)->channel, &opt, &child));
    FV_TRY(fv_rpc_call_send_buffer(child, net_bytes("x", 1)));
    fv_rpc_call_close_send(child);
    return FV_OK;
}

static fv_status fail(fv_rpc_call *c, grpc_byte_buffer *m) {
    uint8_t st = FV_EINVAL;
    lookahead(m, &st, 1);
    if (st == FV_EBUSY) fv_rpc_call_retry_after(c, 1234);
    return fv_fail_origin(FV_FAIL((fv_status)st, "it failed: 100%% \xc3\xa4"),
                          (fv_origin)(st % FV_N_ORIGIN));
}

static const fv_rpc_method methods[] = {
    {.path = NET_ECHO,
     .kind = FV_RPC_UNARY,
     .message_max = NET_MESSAGE_MAX,
     .events = {on_start, echo, NULL, NULL, on_cancel, on_end}},
    {.path = NET_COUNT,
     .kind = FV_RPC_SERVER_STREAM,
     .queue_max = NET_QUEUE_MAX,
     .events = {on_start, count, NULL, count_on, on_cancel, on_end}},
    {.path = NET_COLLECT,
     .kind = FV_RPC_CLIENT_STREAM,
     .message_max = NET_MESSAGE_MAX,
     .events = {on_start, collect, collected, NULL, on_cancel, on_end}},
    {.path = NET_SESSION,
     .kind = FV_RPC_BIDI,
     .events = {on_start, session, talked, NULL, on_cancel, on_end}},
    {.path = NET_STALL,
     .kind = FV_RPC_SERVER_STREAM,
     .calls_max = 1,
     .events = {on_start, stall, NULL, NULL, on_cancel, on_end}},
    {.path = NET_RELAY,
     .kind = FV_RPC_BIDI,
     .events = {relay_start, NULL, talked, NULL, on_cancel, on_end}},
    {.path = NET_FAIL,
     .kind = FV_RPC_UNARY,
     .events = {on_start, fail, NULL, NULL, on_cancel, on_end}},
};

/* ---- the net ---------------------------------------------------------------------------- */

static void on_alarm(uv_timer_t *t) { ((net *)t->data)->rang = true; }

static int count_threads(void) {
    DIR *d = opendir("/proc/self/task");
    NET_CHECK(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Waits for gRPC's threads, which gRPC does not join: OpenSSL frees a thread's memory when the
 * thread ends, and LeakSanitizer would report it as leaked. */
static void wait_for_threads(void) {
    for (int ms = 0; ms < 5000 && count_threads() > 1; ms += 5) uv_sleep(5);
}

void net_open(net *r) {
    if (SANITIZED) atexit(wait_for_threads);
    NET_CHECK(uv_loop_init(&r->loop) == 0);
    uv_timer_init(&r->loop, &r->alarm);
    r->alarm.data = r;
    NET_CHECK(fv_bridge_open(&r->loop, &r->bridge) == FV_OK);
    r->services[r->n_service++] =
        (fv_rpc_service){methods, sizeof methods / sizeof methods[0], &r->seen, NULL};
    fv_rpc_server_options opt = {.listen = "127.0.0.1:0",
                                 .services = r->services,
                                 .n_service = r->n_service,
                                 .n_accept = 2,
                                 .limits = r->limits,
                                 .tls = r->server_tls,
                                 .admit = r->admit,
                                 .user = r};
    NET_CHECK(fv_rpc_server_open(r->bridge, &opt, &r->server) == FV_OK);
    snprintf(r->target, sizeof r->target, "127.0.0.1:%d", fv_rpc_server_port(r->server));
    fv_rpc_channel_options ch = {
        .message_max = NET_MESSAGE_MAX, .tls = r->channel_tls, .server_name = r->server_name};
    NET_CHECK(fv_rpc_channel_open(r->bridge, r->target, &ch, &r->channel) == FV_OK);
    r->seen.channel = r->channel;
}

/* Far more than a machine that runs sixteen programs at once needs. */
enum { WAIT_MS = 100000 };

static void set_alarm(net *r, int32_t ms) {
    r->rang = false;
    uv_update_time(&r->loop); /* what came before may have taken longer than that */
    uv_timer_start(&r->alarm, on_alarm, (uint64_t)ms, 0);
}

void net_wait_for(net *r, const int32_t *value, int32_t at_least) {
    set_alarm(r, WAIT_MS);
    while (*value < at_least && !r->rang) uv_run(&r->loop, UV_RUN_ONCE);
    uv_timer_stop(&r->alarm);
    NET_CHECK(*value >= at_least);
}

void net_wait(net *r, const bool *flag) {
    set_alarm(r, WAIT_MS);
    while (!*flag && !r->rang) uv_run(&r->loop, UV_RUN_ONCE);
    uv_timer_stop(&r->alarm);
    NET_CHECK(*flag);
}

void net_sleep(net *r, int32_t ms) {
    set_alarm(r, ms);
    while (!r->rang) uv_run(&r->loop, UV_RUN_ONCE);
}

static void set_flag(void *flag) { *(bool *)flag = true; }

static void on_server_done(void *user) {
    net *r = user;
    r->server_done = true;
    fv_bridge_close(r->bridge, set_flag, &r->bridge_done);
}

void net_close(net *r, int32_t grace_ms) {
    uv_close((uv_handle_t *)&r->alarm, NULL);
    fv_rpc_channel_close(r->channel);
    if (r->server)
        fv_rpc_server_stop(r->server, grace_ms, on_server_done, r);
    else
        fv_bridge_close(r->bridge, set_flag, &r->bridge_done);
    net_loop_close(&r->loop);
    NET_CHECK(r->bridge_done);
    NET_CHECK(r->server_done || !r->server);
    NET_CHECK(r->seen.started == r->seen.ended);
}

/* ---- the caller ------------------------------------------------------------------------- */

static fv_status hear(fv_rpc_call *c, grpc_byte_buffer *m) {
    net_heard *h = fv_rpc_call_user(c);
    h->n++;
    h->bytes += grpc_byte_buffer_length(m);
    lookahead(m, h->numbers, sizeof h->numbers);
    if (h->pause_each) fv_rpc_call_pause(c);
    if (h->n == h->fail_at) return FV_FAIL(FV_EDATA, "that is enough");
    return FV_OK;
}

static void hear_writable(fv_rpc_call *c) { ((net_heard *)fv_rpc_call_user(c))->writable++; }

static void hear_end(fv_rpc_call *c, const fv_rpc_end *end) {
    net_heard *h = fv_rpc_call_user(c);
    const char *value;
    size_t n;
    NET_CHECK(!h->over);
    h->over = true;
    h->end = *end;
    snprintf(h->text, sizeof h->text, "%s", end->text);
    h->end.text = h->text;
    if (fv_rpc_call_metadata(c, "test-trailer", &value, &n))
        copy_text(h->trailer, sizeof h->trailer, value, n);
    h->call = NULL;
}

static const fv_rpc_events caller = {
    .on_message = hear, .on_writable = hear_writable, .on_end = hear_end};

void net_call_with(net *r, net_heard *h, const char *path, int64_t deadline_ms,
                   const fv_rpc_metadata *metadata) {
    fv_rpc_call_options opt = {.path = path,
                               .events = &caller,
                               .user = h,
                               .deadline_ms = deadline_ms,
                               .forwarded_for = "192.0.2.7",
                               .metadata = metadata,
                               .n_metadata = 1,
                               .queue_max = NET_QUEUE_MAX};
    NET_CHECK(fv_rpc_call_open(r->channel, &opt, &h->call) == FV_OK);
}

void net_call(net *r, net_heard *h, const char *path, int64_t deadline_ms) {
    static const fv_rpc_metadata metadata = {"traceparent", "00-ab-cd-01"};
    net_call_with(r, h, path, deadline_ms, &metadata);
}

void net_ask(net *r, net_heard *h, const char *path, int64_t deadline_ms, const void *p, size_t n) {
    net_call(r, h, path, deadline_ms);
    NET_CHECK(fv_rpc_call_send_buffer(h->call, net_bytes(p, n)) == FV_OK);
    fv_rpc_call_close_send(h->call);
}

void net_ask_wait(net *r, net_heard *h, const char *path, const void *p, size_t n) {
    net_ask(r, h, path, 10000, p, n);
    net_wait(r, &h->over);
}
