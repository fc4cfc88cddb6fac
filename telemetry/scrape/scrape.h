#ifndef FOVEA_TELEMETRY_SCRAPE_SCRAPE_H
#define FOVEA_TELEMETRY_SCRAPE_SCRAPE_H

/* SCRAPE: an HTTP server for GET /metrics, with its own port and thread: a scrape neither waits for
 * the daemon's loop nor delays it. With TLS it presents the daemon's current certificate and
 * requests none from clients. Answers in OpenMetrics if the client accepts it, else in Prometheus'
 * text format. Clients are untrusted, so a connection serves one request and has
 *
 *   FV_SCRAPE_HEADER   bytes for the request and its headers
 *   FV_SCRAPE_S        seconds in total
 *
 * and there are at most FV_SCRAPE_CONNECTIONS, FV_SCRAPE_PER_ADDRESS from one address. */
#include "rpc/tls.h"

enum {
    FV_SCRAPE_HEADER = 8 << 10,
    FV_SCRAPE_S = 10,
    FV_SCRAPE_CONNECTIONS = 32,
    FV_SCRAPE_PER_ADDRESS = 8,
};

typedef struct fv_scrape fv_scrape; /* opaque */

/* Listens on "HOST:PORT"; a port alone, or ":PORT", is on the loopback interface. `tls` is borrowed
 * and has a certificate; NULL: plain HTTP. */
fv_status fv_scrape_open(const char *listen, fv_tls *tls, fv_scrape **out);
bool fv_scrape_is_local(const char *listen); /* reachable from this machine only */
void fv_scrape_close(fv_scrape *s);          /* NULL is fine */

const char *fv_scrape_address(const fv_scrape *s); /* with the actual port */

/* Ends connections whose time is over, and switches to new certificates; call it about once a
 * second. */
void fv_scrape_tick(fv_scrape *s, double now_s); /* by fv_clock_s */

#endif
