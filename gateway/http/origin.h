#ifndef FOVEA_GATEWAY_HTTP_ORIGIN_H
#define FOVEA_GATEWAY_HTTP_ORIGIN_H

/* WHOSE PAGE: may a browser's request be answered? Pages of other sites could otherwise use a gateway on
 * the loopback interface through the browser of whoever reads them. Pure functions. */
#include <stdint.h>

#include "common/status.h"

typedef struct fv_origin_rules {
    bool local;               /* only this machine can connect */
    const char *const *hosts; /* [n_host] names that it may be called by */
    int32_t n_host;
    const char *const *origins; /* [n_origin] of other sites whose pages may use it */
    int32_t n_origin;
} fv_origin_rules;

/* FV_EINVAL unless it can be one of `origins`: "SCHEME://HOST[:PORT]". */
fv_status fv_origin_check(const char *origin);

/* host, origin: the headers, NULL where there is none. The host must be in `hosts` or, where only this
 * machine can connect, a name of it; elsewhere, and without a list, any is fine. An origin must be that
 * host, or in `origins`. */
bool fv_origin_allowed(const fv_origin_rules *r, const char *host, const char *origin);

/* Is it in `origins`? Its pages then read answers by CORS. */
bool fv_origin_listed(const fv_origin_rules *r, const char *origin);

#endif
