#ifndef FOVEA_COMMON_CLIENT_ADDRESS_H
#define FOVEA_COMMON_CLIENT_ADDRESS_H

/* CLIENT ADDRESS: the address that a client is counted by, for limits by address and for logs.
 *
 *   peer of the connection --- not a trusted proxy ---> the peer
 *                          '-- trusted ----> X-Forwarded-For, from right to left: the first address
 *                                            that is no trusted proxy
 *
 * Only the right end of X-Forwarded-For was written by trusted proxies; anything to the left of the
 * client's address was written by the client. IPv6 is counted by its /64, because one client usually has a
 * whole one. An IPv4 address in IPv6 (::ffff:192.0.2.1) counts as that IPv4 address. For any thread. */
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FV_CLIENT_ADDRESS_MAX = 64 }; /* bytes of the text, with its end */

typedef struct fv_trusted fv_trusted; /* opaque: the trusted proxies */

/* Opens a list of trusted proxies. list [n]: each item is ADDRESS or ADDRESS/BITS, IPv4 or IPv6, or several
 * of these with commas between them. n may be 0. FV_EINVAL names an item that is neither, or that has bits
 * beyond its prefix. */
fv_status fv_trusted_open(const char *const *list, int n, fv_trusted **out);
void fv_trusted_close(fv_trusted *t); /* NULL is fine */

/* Whether `peer` is a trusted proxy. t: NULL trusts none. peer: as below. */
bool fv_trusted_has(const fv_trusted *t, const char *peer);

/* Writes the client's address to `out` as text, "192.0.2.7" or "2001:db8:0:1::/64". Both are accepted in
 * `forwarded`, too.
 *
 * peer: the other end of the connection: an address, "ADDRESS:PORT" or "[ADDRESS]:PORT", or the result of
 * grpc_call_get_peer. For a peer without an address (a Unix socket), `out` is its text up to the first
 * colon, and it is not trusted.
 * forwarded: the values of X-Forwarded-For in their order, with commas between them; NULL: none. A value
 * that is no address ends the search: the client is then the proxy that sent it. */
void fv_client_address(const fv_trusted *t, const char *peer, const char *forwarded,
                       char out[FV_CLIENT_ADDRESS_MAX]);

#ifdef __cplusplus
}
#endif
#endif
