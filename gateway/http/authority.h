#ifndef FOVEA_GATEWAY_HTTP_AUTHORITY_H
#define FOVEA_GATEWAY_HTTP_AUTHORITY_H

/* Tells whether a text is host[:port] by RFC 3986 (section 3.2), with a host that is not empty,
 * without user information, and with a port of at most 16 bits. Pure. */
#include <stdbool.h>
#include <stddef.h>

bool fv_http_is_authority(const char *text, size_t n);

#endif
