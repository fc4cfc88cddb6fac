#ifndef FOVEA_TESTS_SUPPORT_GATEWAY_RIG_H
#define FOVEA_TESTS_SUPPORT_GATEWAY_RIG_H

/* A gateway before a router with fake workers, all on one loop that the test runs, and clients that
 * send text. What must come is waited for, at most a minute. */
#include "gateway/gateway.h"
#include "tests/support/router_rig.h"

typedef struct gateway_rig {
    router_rig router;
    fv_gateway *gateway;
    char log[512]; /* the file that has what was written to stderr */
    int said;      /* stderr as it was */
    bool closed;
} gateway_rig;

/* opt: of the gateway; `bridge`, `listen` and `router` are set here, limits of 0 become generous.
 * stderr goes to a file until the rig is closed. */
void gateway_rig_open(gateway_rig *g, const fv_gateway_options *opt);
void gateway_rig_close(gateway_rig *g);
const char *gateway_rig_log(const gateway_rig *g); /* all of it so far; valid until the next call */

typedef struct gateway_client {
    gateway_rig *rig;
    int fd;
    size_t n;
    char got[1 << 18]; /* [n], and a '\0' */
} gateway_client;

/* Sends a request with these further lines of its head ("A: b\r\n"), and a body; NULL: none. */
void gateway_send(gateway_client *c, gateway_rig *g, const char *method, const char *path,
                  const char *lines, const char *body);
void gateway_raw(gateway_client *c, gateway_rig *g, const char *text);
void gateway_await(gateway_client *c, const char *text); /* reads until it is in `got` */
void gateway_await_end(gateway_client *c);               /* reads until the connection closes */
void gateway_turn(gateway_client *c, int32_t ms);        /* reads for so long */
int gateway_count(const gateway_client *c, const char *text);
void gateway_leave(gateway_client *c);

/* Sends a request with "Connection: close" and reads the whole answer. */
void gateway_ask(gateway_client *c, gateway_rig *g, const char *method, const char *path,
                 const char *lines, const char *body);

#endif
