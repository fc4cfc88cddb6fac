#ifndef FOVEA_GATEWAY_FETCH_ADDRESS_H
#define FOVEA_GATEWAY_FETCH_ADDRESS_H

/* Is an address on the public internet? Not private, loopback, link-local (cloud metadata), carrier NAT,
 * multicast, documentation or otherwise reserved (IANA's special-purpose registries, RFC 6890), nor an IPv6
 * address that carries such an IPv4 address. Pure; any thread. */
#include <stdbool.h>
#include <sys/socket.h>

/* AF_INET or AF_INET6; any other family is not. */
bool fv_address_is_public(const struct sockaddr *a);

#endif
