/* Serves GET /metrics. libmicrohttpd runs the connections on its thread and limits their number,
 * memory and idle time. The total time is limited here, since a client that sends a byte now and
 * then is never idle. */
#include "telemetry/scrape/scrape.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "rpc/listen.h"
#include "telemetry/metrics.h"

typedef struct visitor {
    int fd; /* -1: the slot is free */
    double since_s;
} visitor;

/* When the certificate changes, a new server takes over and the old one finishes its
 * connections. */
typedef struct server {
    struct MHD_Daemon *http; /* NULL: none */
    int fd;                  /* listening socket; MHD's */
    fv_tls_pem pem;          /* {0}: plain text */
} server;

struct fv_scrape {
    server now, before;
    double until_s; /* deadline of `before` */
    fv_tls *tls;
    char address[272];
    pthread_mutex_t mutex; /* protects the slots against MHD's thread */
    visitor visitors[FV_SCRAPE_CONNECTIONS];
};

/* ---- requests --------------------------------------------------------------------------- */

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type,
                             char *text, size_t n, enum MHD_ResponseMemoryMode mode) {
    struct MHD_Response *r = MHD_create_response_from_buffer(n, text, mode);
    if (!r) {
        if (mode == MHD_RESPMEM_MUST_FREE) free(text);
        return MHD_NO; /* closes the connection */
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, char *text) {
    return reply(c, status, "text/plain; charset=utf-8", text, strlen(text),
                 MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result send_metrics(struct MHD_Connection *c) {
    const char *accept = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    bool openmetrics = accept && strstr(accept, "application/openmetrics-text");
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return MHD_NO;
    fv_metrics_print(f, openmetrics);
    if (fclose(f) != 0) {
        free(text);
        return MHD_NO;
    }
    return reply(c, MHD_HTTP_OK,
                 openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                             : "text/plain; version=0.0.4; charset=utf-8",
                 text, n, MHD_RESPMEM_MUST_FREE);
}

/* Answers after the headers; does not read a body. */
static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n_upload, void **state) {
    (void)user, (void)version, (void)upload, (void)n_upload, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only\n");
    if (strcmp(url, "/metrics") != 0)
        return refuse(c, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n");
    return send_metrics(c);
}

/* ---- connections ------------------------------------------------------------------------ */

static visitor *find_visitor(fv_scrape *s, int fd) {
    for (int i = 0; i < FV_SCRAPE_CONNECTIONS; i++)
        if (s->visitors[i].fd == fd) return &s->visitors[i];
    return NULL;
}

/* MHD calls this before it closes a connection's descriptor, so descriptors in the slots are
 * open. */
static void on_connection(void *user, struct MHD_Connection *c, void **state,
                          enum MHD_ConnectionNotificationCode what) {
    fv_scrape *s = user;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    (void)state;
    if (!info) return;
    pthread_mutex_lock(&s->mutex);
    bool begins = what == MHD_CONNECTION_NOTIFY_STARTED;
    visitor *v = find_visitor(s, begins ? -1 : info->connect_fd);
    if (v) *v = (visitor){.fd = begins ? info->connect_fd : -1, .since_s = fv_clock_s()};
    pthread_mutex_unlock(&s->mutex);
}

/* Client errors are logged at DEBUG only. */
static void on_message(void *user, const char *fmt, va_list ap) {
    char text[256];
    (void)user;
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    FV_LOG(DEBUG, WIRE, "event=metrics-http reason=\"%s\"", text);
}

/* ---- opening and closing ---------------------------------------------------------------- */

static void write_address(const char *listen, char out[272]) {
    if (strspn(listen, "0123456789") == strlen(listen))
        snprintf(out, 272, "127.0.0.1:%s", listen);
    else
        snprintf(out, 272, "%s%s", *listen == ':' ? "127.0.0.1" : "", listen);
}

bool fv_scrape_is_local(const char *listen) {
    char address[272];
    write_address(listen, address);
    return fv_rpc_listen_is_local(address);
}

/* Starts a server; takes fd on success. */
static fv_status start(fv_scrape *s, int fd, server *out) {
    server v = {.fd = fd};
    if (s->tls) FV_TRY(fv_tls_pem_copy(s->tls, &v.pem));
    struct MHD_OptionItem pair[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, v.pem.cert},
                                    {MHD_OPTION_HTTPS_MEM_KEY, 0, v.pem.key},
                                    {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ERROR_LOG | MHD_USE_ITC;
    v.http = MHD_start_daemon(s->tls ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, on_request, s,
                              MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL,
                              MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                              (unsigned)FV_SCRAPE_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                              (unsigned)FV_SCRAPE_PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
                              (unsigned)FV_SCRAPE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                              (size_t)FV_SCRAPE_HEADER, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
                              s, MHD_OPTION_ARRAY, s->tls ? pair : pair + 2, MHD_OPTION_END);
    if (!v.http) {
        fv_tls_pem_free(&v.pem);
        return FV_FAIL(FV_EIO, "--metrics: cannot serve on %s", s->address);
    }
    *out = v;
    return FV_OK;
}

static void stop(server *v) {
    if (v->http) MHD_stop_daemon(v->http);
    fv_tls_pem_free(&v->pem);
    *v = (server){0};
}

/* Starts the new server before stopping the old one: both accept connections for a moment, so none
 * is refused. */
static void renew(fv_scrape *s, double now_s) {
    server next;
    int fd = fcntl(s->now.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return;
    if (start(s, fd, &next) != FV_OK) {
        FV_LOG(WARN, WIRE, "event=tls-kept reason=\"%s\"", fv_last_error());
        close(fd);
        s->now.pem.version = fv_tls_version(s->tls); /* the next certificate may work */
        return;
    }
    close(MHD_quiesce_daemon(s->now.http));
    stop(&s->before);
    s->before = s->now;
    s->now = next;
    s->until_s = now_s + FV_SCRAPE_S;
}

void fv_scrape_tick(fv_scrape *s, double now_s) {
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; i < FV_SCRAPE_CONNECTIONS; i++) {
        const visitor *v = &s->visitors[i];
        if (v->fd >= 0 && now_s - v->since_s > FV_SCRAPE_S) shutdown(v->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&s->mutex);
    if (s->before.http && now_s > s->until_s) stop(&s->before);
    if (s->tls && fv_tls_version(s->tls) != s->now.pem.version) renew(s, now_s);
}

fv_status fv_scrape_open(const char *listen, fv_tls *tls, fv_scrape **out) {
    int fd, port;
    fv_scrape *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for a server of metrics");
    s->tls = tls;
    write_address(listen, s->address);
    fv_status st = fv_rpc_listen_socket(s->address, &fd, &port);
    if (st != FV_OK) {
        free(s);
        return fv_fail_prefix(st, "--metrics");
    }
    snprintf(strrchr(s->address, ':'), 8, ":%d", port);
    pthread_mutex_init(&s->mutex, NULL);
    for (int i = 0; i < FV_SCRAPE_CONNECTIONS; i++) s->visitors[i].fd = -1;
    st = start(s, fd, &s->now);
    if (st != FV_OK) {
        close(fd);
        pthread_mutex_destroy(&s->mutex);
        free(s);
        return st;
    }
    *out = s;
    return FV_OK;
}

const char *fv_scrape_address(const fv_scrape *s) { return s->address; }

void fv_scrape_close(fv_scrape *s) {
    if (!s) return;
    stop(&s->before);
    stop(&s->now);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}
