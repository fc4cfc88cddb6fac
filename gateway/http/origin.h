#ifndef FOVEA_GATEWAY_HTTP_ORIGIN_H
#define FOVEA_GATEWAY_HTTP_ORIGIN_H

/* WHOSE PAGE: may a browser's request be answered? Pages of other sites could otherwise use a gateway on
 * the loopback interface through the browser of whoever reads them. Pure functions. */
#include <stdbool.h>
#include <stdint.h>

/* host, origin: the headers, NULL where there is none. The host must be in allowed [n] or, where only
 * this machine can connect (`local`), a name of it; elsewhere, and without a list, any is fine. An origin
 * must be that host. */
bool fv_origin_allowed(const char *host, const char *origin, bool local, const char *const *allowed,
                       int32_t n);

#endif
