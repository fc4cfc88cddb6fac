#ifndef FOVEA_GATEWAY_FETCH_ADDRESS_H
#define FOVEA_GATEWAY_FETCH_ADDRESS_H

/* Tells whether an address is on the public internet: not private, loopback, link-local (cloud
 * metadata), carrier NAT, multicast, documentation or otherwise reserved (IANA's special-purpose
 * registries, RFC 6890), nor an IPv6 address that carries such an IPv4 address. Pure; any
 * thread. */
#include <stdbool.h>
#include <sys/socket.h>

/* False for families other than AF_INET and AF_INET6. */
bool fv_address_is_public(const struct sockaddr *a);

#endif
