#ifndef FOVEA_GATEWAY_HTTP_PLACES_H
#define FOVEA_GATEWAY_HTTP_PLACES_H

/* Counts the places each address takes: its connections, or behind a proxy its requests. An address
 * without places takes no memory. Loop thread. */
#include "common/client_address.h"

typedef struct fv_http_place {
    struct fv_http_place *next;
    int32_t n;
    char address[FV_CLIENT_ADDRESS_MAX];
} fv_http_place;

typedef struct fv_http_places {
    fv_http_place *buckets[1024];
} fv_http_places;

/* _take gives *out, to be returned by _give. FV_EBUSY: the address has `most` places already (0: no
 * limit). FV_ENOMEM. */
fv_status fv_http_place_take(fv_http_places *p, const char *address, int32_t most,
                             fv_http_place **out);
void fv_http_place_give(fv_http_places *p, fv_http_place *place); /* NULL is fine */

#endif
