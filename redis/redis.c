/* The operations of a server in one list, in the order in which they are sent, which is that of their deadlines and of the
 * replies. A connection begins with AUTH and SELECT, whose replies come first. Whatever is wrong with a connection ends
 * it, and all operations that wait with it: which of them the server has carried out is then unknown. */
#include "redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/grow.h"
#include "redis/internal.h"

enum { REST_MS = 100, REST_MAX_MS = 5000, ARGS_MAX = 5 };

struct fv_redis_op {
    fv_redis *redis;
    fv_redis_op *next;
    fv_redis_done done; /* NULL: nobody waits */
    void *user;
    double until_s;
    size_t bytes; /* of its name and value, counted in n_waiting */
};

struct fv_redis {
    fv_redis_options opt;
    fv_redis_url url;
    char address[300];
    fv_redis_tls *tls; /* NULL: plain */
    uv_timer_t timer;
    fv_connection *connection; /* NULL: none */
    int32_t n_greeting;        /* replies to come before those of operations */
    fv_redis_op *first, **tail;
    int32_t n_op;
    size_t n_waiting; /* bytes of the operations */
    char *in;         /* [n] bytes of a reply that is not complete */
    size_t n, cap;
    double rest_until_s; /* operations fail at once until then */
    int64_t rest_ms;     /* of the next failure */
    char why[512];       /* of the last one */
};

const char *fv_redis_address(const fv_redis *r) { return r->address; }

/* ---- failures ---------------------------------------------------------------------------- */

static fv_status gone(const fv_redis *r) {
    return FV_FAIL(FV_EIO, "the Redis server %s cannot be used now: %s", r->address, r->why);
}

static void finish(fv_redis_op *op, fv_status st, const void *value, size_t n) {
    if (op->done) op->done(op->user, st, value, n);
    free(op);
}

static void disconnect(fv_redis *r) {
    fv_connection_close(r->connection);
    r->connection = NULL;
    r->n = 0;
    r->n_greeting = 0;
    uv_timer_stop(&r->timer);
}

/* Ends the connection and all operations by the last error. */
static void lose(void *user) {
    fv_redis *r = user;
    fv_redis_op *op = r->first, *next;
    snprintf(r->why, sizeof r->why, "%s", fv_last_error());
    disconnect(r);
    r->first = NULL;
    r->tail = &r->first;
    r->n_op = 0;
    r->n_waiting = 0;
    r->rest_until_s = fv_clock_s() + 1e-3 * (double)r->rest_ms;
    r->rest_ms = 2 * r->rest_ms < REST_MAX_MS ? 2 * r->rest_ms : REST_MAX_MS;
    for (; op; op = next) { /* they may begin new ones, which fail at once */
        next = op->next;
        finish(op, gone(r), NULL, 0);
    }
}

/* ---- deadlines --------------------------------------------------------------------------- */

static void watch(fv_redis *r);

static void on_time(uv_timer_t *t) {
    fv_redis *r = t->data;
    if (r->first && fv_clock_s() >= r->first->until_s) {
        (void)FV_FAIL(FV_EIO, "it did not answer within %lld ms", (long long)r->opt.deadline_ms);
        lose(r);
    } else {
        watch(r);
    }
}

/* Sets the timer to the first operation's deadline. */
static void watch(fv_redis *r) {
    if (!r->first) {
        uv_timer_stop(&r->timer);
        return;
    }
    const double left_ms = 1e3 * (r->first->until_s - fv_clock_s());
    uv_timer_start(&r->timer, on_time, left_ms > 0 ? (uint64_t)left_ms + 1 : 1, 0);
}

/* ---- replies ----------------------------------------------------------------------------- */

static fv_redis_op *pop(fv_redis *r) {
    fv_redis_op *op = r->first;
    r->first = op->next;
    if (!r->first) r->tail = &r->first;
    r->n_op--;
    r->n_waiting -= op->bytes;
    return op;
}

/* Servers that know no AUTH repeat its arguments, and the reason goes to logs and to callers. */
static bool refuse_greeting(const fv_redis *r, const fv_reply *a) {
    const char *password = r->url.password;
    const bool repeats = *password && memmem(a->text, a->n, password, strlen(password));
    if (repeats)
        (void)FV_FAIL(FV_EIO, "it refuses the connection, and repeats the password in its reason");
    else
        (void)FV_FAIL(FV_EIO, "it refuses the connection: %.*s", (int)a->n, a->text);
    return false;
}

/* Takes a complete reply; false: the connection is over. */
static bool take(fv_redis *r, const fv_reply *a) {
    if (r->n_greeting == 0 && !r->first) {
        (void)FV_FAIL(FV_EIO, "it sends replies that nobody asked for");
        return false;
    }
    if (r->n_greeting > 0) {
        if (a->kind == FV_REPLY_ERROR) return refuse_greeting(r, a);
        r->n_greeting--;
        return true;
    }
    fv_redis_op *op = pop(r);
    r->rest_ms = REST_MS;
    if (a->kind == FV_REPLY_ERROR)
        finish(op,
               FV_FAIL(FV_EIO, "the Redis server %s refuses: %.*s", r->address, (int)a->n, a->text),
               NULL, 0);
    else if (a->kind == FV_REPLY_NONE)
        finish(op, FV_FAIL(FV_ENOTFOUND, "the Redis server has no such value"), NULL, 0);
    else
        finish(op, FV_OK, a->kind == FV_REPLY_VALUE ? a->text : NULL, a->n);
    return true;
}

/* A value that is too large is the fault of one operation, but the rest of the stream cannot be told from it. */
static void refuse_value(fv_redis *r) {
    if (r->n_greeting == 0 && r->first) {
        fv_redis_op *op = pop(r);
        finish(op, FV_FAIL(FV_EDATA, "the value has more than %zu bytes", r->opt.value_max), NULL,
               0);
    }
    (void)FV_FAIL(FV_EIO, "it sent a value of more than %zu bytes", r->opt.value_max);
    lose(r);
}

static void on_received(void *user, const char *bytes, size_t n) {
    fv_redis *r = user;
    fv_connection *now = r->connection;
    size_t at = 0;
    if (fv_grow(&r->in, &r->cap, r->n + n, 1) != FV_OK) {
        lose(r);
        return;
    }
    memcpy(r->in + r->n, bytes, n);
    r->n += n;
    while (at < r->n) {
        const fv_reply a = fv_reply_read(r->in + at, r->n - at, r->opt.value_max);
        if (a.kind == FV_REPLY_MORE) break;
        if (a.kind == FV_REPLY_BIG) {
            refuse_value(r);
            return;
        }
        if (a.kind == FV_REPLY_WRONG) (void)FV_FAIL(FV_EIO, "it sends what is no reply of Redis");
        if (a.kind == FV_REPLY_WRONG || !take(r, &a)) {
            lose(r);
            return;
        }
        if (r->connection != now) return; /* closed meanwhile */
        at += a.size;
    }
    if (at > 0) memmove(r->in, r->in + at, r->n - at);
    r->n -= at;
    watch(r);
}

static const fv_connection_events events = {.received = on_received, .lost = lose};

/* ---- commands ---------------------------------------------------------------------------- */

typedef struct argument {
    const void *bytes;
    size_t n;
} argument;

#define WORD(s) ((argument){(s), strlen(s)})

/* Sends a command as a list of its arguments. */
static fv_status send_command(fv_redis *r, const argument *args, int n) {
    size_t size = 32;
    for (int i = 0; i < n; i++) size += args[i].n + 32;
    char *text = malloc(size);
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for a message to Redis");
    size_t k = (size_t)sprintf(text, "*%d\r\n", n);
    for (int i = 0; i < n; i++) {
        k += (size_t)sprintf(text + k, "$%zu\r\n", args[i].n);
        if (args[i].n) memcpy(text + k, args[i].bytes, args[i].n);
        k += args[i].n;
        memcpy(text + k, "\r\n", 2);
        k += 2;
    }
    fv_status st = fv_connection_send(r->connection, text, k);
    free(text);
    return st;
}

static fv_status greet(fv_redis *r) {
    const fv_redis_url *u = &r->url;
    if (u->password[0] && u->user[0]) {
        const argument auth[] = {WORD("AUTH"), WORD(u->user), WORD(u->password)};
        FV_TRY(send_command(r, auth, 3));
    } else if (u->password[0]) {
        const argument auth[] = {WORD("AUTH"), WORD(u->password)};
        FV_TRY(send_command(r, auth, 2));
    }
    r->n_greeting = (u->password[0] != '\0') + 1;
    const argument select[] = {WORD("SELECT"), WORD(u->db)};
    return send_command(r, select, 2);
}

static fv_status connect_now(fv_redis *r) {
    if (r->connection) return FV_OK;
    if (fv_clock_s() < r->rest_until_s) return gone(r);
    FV_TRY(fv_connection_open(r->opt.loop, &r->url, r->tls, &events, r, &r->connection));
    fv_status st = greet(r);
    if (st != FV_OK) disconnect(r); /* a half of the greeting would be replied to as an operation */
    return st;
}

static fv_status begin(fv_redis *r, const argument *args, int n, fv_redis_done done, void *user,
                       fv_redis_op **out) {
    if (args[1].n == 0 || args[1].n > FV_REDIS_NAME_MAX)
        return FV_FAIL(FV_EINVAL, "a name in Redis has 1..%d bytes", FV_REDIS_NAME_MAX);
    if (r->n_op >= FV_REDIS_WAITING_MAX)
        return FV_FAIL(FV_EBUSY, "%d operations wait for the Redis server %s", r->n_op, r->address);
    const size_t bytes = args[1].n + (n > 2 ? args[2].n : 0);
    if (r->n_waiting > 0 && bytes > FV_REDIS_WAITING_BYTES_MAX - r->n_waiting)
        return FV_FAIL(FV_EBUSY, "%zu bytes wait for the Redis server %s; at most %d may",
                       r->n_waiting, r->address, FV_REDIS_WAITING_BYTES_MAX);
    fv_redis_op *op = calloc(1, sizeof *op);
    if (!op) return FV_FAIL(FV_ENOMEM, "out of memory for an operation");
    fv_status st = connect_now(r);
    if (st == FV_OK) st = send_command(r, args, n);
    if (st != FV_OK) {
        free(op);
        return st;
    }
    *op = (fv_redis_op){.redis = r,
                        .done = done,
                        .user = user,
                        .bytes = bytes,
                        .until_s = fv_clock_s() + 1e-3 * (double)r->opt.deadline_ms};
    *r->tail = op;
    r->tail = &op->next;
    r->n_op++;
    r->n_waiting += bytes;
    if (r->first == op) watch(r);
    *out = op;
    return FV_OK;
}

fv_status fv_redis_get(fv_redis *r, const void *name, size_t n_name, fv_redis_done done, void *user,
                       fv_redis_op **op) {
    const argument args[] = {WORD("GET"), {name, n_name}};
    return begin(r, args, 2, done, user, op);
}

fv_status fv_redis_set(fv_redis *r, const void *name, size_t n_name, const void *value,
                       size_t n_value, int64_t ms, fv_redis_done done, void *user,
                       fv_redis_op **op) {
    char time[24];
    if (n_value > r->opt.value_max)
        return FV_FAIL(FV_EINVAL, "a value of %zu bytes; the limit is %zu", n_value,
                       r->opt.value_max);
    snprintf(time, sizeof time, "%lld", (long long)ms);
    const argument args[ARGS_MAX] = {
        WORD("SET"), {name, n_name}, {value, n_value}, WORD("PX"), WORD(time)};
    return begin(r, args, ARGS_MAX, done, user, op);
}

fv_status fv_redis_delete(fv_redis *r, const void *name, size_t n_name, fv_redis_done done,
                          void *user, fv_redis_op **op) {
    const argument args[] = {WORD("DEL"), {name, n_name}};
    return begin(r, args, 2, done, user, op);
}

void fv_redis_drop(fv_redis_op *op) {
    if (op) op->done = NULL;
}

/* ---- open and close ---------------------------------------------------------------------- */

fv_status fv_redis_open(const fv_redis_options *opt, fv_redis **out) {
    fv_redis_url url;
    fv_redis_tls *tls = NULL;
    FV_TRY(fv_redis_url_read(opt->url, &url));
    if (opt->ca && !url.tls)
        return FV_FAIL(FV_EINVAL, "certificates are given for a Redis server without TLS: its URL "
                                  "must begin with rediss://, or leave them out");
    if (url.tls) FV_TRY(fv_redis_tls_open(opt->ca, &tls));
    fv_redis *r = calloc(1, sizeof *r);
    if (!r) {
        fv_redis_tls_close(tls);
        return FV_FAIL(FV_ENOMEM, "out of memory for Redis");
    }
    r->opt = *opt;
    r->url = url;
    r->tls = tls;
    r->tail = &r->first;
    r->rest_ms = REST_MS;
    snprintf(r->address, sizeof r->address, "%s:%s", url.host, url.port);
    uv_timer_init(opt->loop, &r->timer);
    uv_unref((uv_handle_t *)&r->timer);
    r->timer.data = r;
    *out = r;
    return FV_OK;
}

static void on_closed(uv_handle_t *h) {
    fv_redis *r = h->data;
    fv_redis_tls_close(r->tls);
    free(r->in);
    free(r);
}

void fv_redis_close(fv_redis *r) {
    if (!r) return;
    disconnect(r);
    while (r->first) free(pop(r));
    uv_close((uv_handle_t *)&r->timer, on_closed);
}
