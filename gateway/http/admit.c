/* Admits connections within the limits per address and in total, and opens their TLS session. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "gateway/http/internal.h"

enum { UNSENT_MAX = 64 << 10 }; /* unsent bytes of an answer in the kernel */

static void write_peer(const struct sockaddr *from, char out[INET6_ADDRSTRLEN]) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, from, sizeof v4);
    if (from->sa_family == AF_INET) inet_ntop(AF_INET, &v4.sin_addr, out, INET6_ADDRSTRLEN);
    if (from->sa_family != AF_INET6) return;
    memcpy(&v6, from, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, out, INET6_ADDRSTRLEN);
}

/* Counts a connection for its address. A proxy's connections carry many clients: request.c counts
 * their requests instead. */
static fv_status take_place(fv_http_connection *c) {
    fv_http *h = c->http;
    char client[FV_CLIENT_ADDRESS_MAX];
    c->proxy = fv_trusted_has(h->opt.trusted, c->peer);
    if (c->proxy) return FV_OK;
    fv_client_address(NULL, c->peer, NULL, client);
    return fv_http_place_take(&h->peers, client, h->opt.per_address, &c->place);
}

/* Closes the connection that has been idle longest where all are taken. */
static fv_status make_room(fv_http *h) {
    if (h->n_connection < h->opt.connections) return FV_OK;
    if (TAILQ_EMPTY(&h->idle)) return FV_FAIL(FV_EBUSY, "all --connections are in use");
    fv_http_connection_close(TAILQ_FIRST(&h->idle));
    return FV_OK;
}

static fv_status admit(fv_http_connection *c) {
    fv_http *h = c->http;
    FV_TRY(take_place(c));
    FV_TRY(make_room(h));
    if (h->tls) FV_TRY(fv_http_session_open(h->tls, &c->session));
    if (uv_poll_init(h->opt.loop, &c->poll, c->fd) == 0) return FV_OK;
    return FV_FAIL(FV_EIO, "the socket cannot be watched");
}

static void set_options(int fd) {
    int on = 1, unsent = UNSENT_MAX;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

/* Logs once a second at most: a refused client may reconnect at once. */
void fv_http_log_refused(fv_http *h, const char *peer) {
    double now_s = fv_clock_s();
    if (now_s - h->refused_s < 1) return;
    h->refused_s = now_s;
    FV_LOG(WARN, WIRE, "event=connection-refused client=%s reason=\"%s\"", peer, fv_last_error());
}

void fv_http_connection_open(fv_http *h, int fd, const struct sockaddr *from) {
    fv_http_connection *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->http = h;
    c->fd = fd;
    write_peer(from, c->peer);
    set_options(fd);
    if (admit(c) == FV_OK) {
        fv_http_connection_begin(c);
        return;
    }
    fv_http_log_refused(h, c->peer);
    fv_http_place_give(&h->peers, c->place);
    fv_http_session_close(c->session);
    free(c);
    close(fd);
}
