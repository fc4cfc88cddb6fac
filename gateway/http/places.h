#ifndef FOVEA_GATEWAY_HTTP_PLACES_H
#define FOVEA_GATEWAY_HTTP_PLACES_H

/* How many places each address has taken: connections, or behind a proxy requests. An address without one costs
 * no memory. Loop thread. */
#include "common/client_address.h"

typedef struct fv_http_place {
    struct fv_http_place *next;
    int32_t n;
    char address[FV_CLIENT_ADDRESS_MAX];
} fv_http_place;

typedef struct fv_http_places {
    fv_http_place *buckets[1024];
} fv_http_places;

/* *out is given back once. FV_EBUSY: the address has `most` already (0: no limit); FV_ENOMEM. */
fv_status fv_http_place_take(fv_http_places *p, const char *address, int32_t most,
                             fv_http_place **out);
void fv_http_place_give(fv_http_places *p, fv_http_place *place); /* NULL is fine */

#endif
