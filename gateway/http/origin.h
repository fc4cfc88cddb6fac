#ifndef FOVEA_GATEWAY_HTTP_ORIGIN_H
#define FOVEA_GATEWAY_HTTP_ORIGIN_H

/* ORIGIN: decides whether a browser's request may be answered. Otherwise pages of other sites could
 * use a gateway on the loopback interface through their readers' browsers. Pure functions. */
#include <stdint.h>

#include "common/status.h"

typedef struct fv_origin_rules {
    bool local;               /* only this machine can connect */
    const char *const *hosts; /* [n_host] names allowed in Host */
    int32_t n_host;
    const char *const *origins; /* [n_origin] other sites whose pages may use the gateway */
    int32_t n_origin;
} fv_origin_rules;

/* FV_EINVAL unless `origin` may be one of `origins`: "SCHEME://HOST[:PORT]". */
fv_status fv_origin_check(const char *origin);

/* host, origin: the headers; NULL: none. The host must be in `hosts` or, where `local`, be a
 * loopback name; where not `local` and `hosts` is empty, any host is allowed. An origin must be
 * that host or in `origins`. */
bool fv_origin_allowed(const fv_origin_rules *r, const char *host, const char *origin);

/* Tells whether an origin is in `origins`: its pages may then read answers (CORS). */
bool fv_origin_listed(const fv_origin_rules *r, const char *origin);

#endif
