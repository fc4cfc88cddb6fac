#include "gateway/http/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a. A client that chooses colliding addresses makes a chain no longer than the number of
 * connections. */
static fv_http_place **bucket_of(fv_http_places *p, const char *address) {
    uint32_t hash = 2166136261u;
    for (; *address; address++) hash = (hash ^ (uint8_t)*address) * 16777619u;
    return &p->buckets[hash % (sizeof p->buckets / sizeof *p->buckets)];
}

fv_status fv_http_place_take(fv_http_places *p, const char *address, int32_t most,
                             fv_http_place **out) {
    fv_http_place **first = bucket_of(p, address), *place = *first;
    while (place && strcmp(place->address, address) != 0) place = place->next;
    if (place && most > 0 && place->n >= most)
        return FV_FAIL(FV_EBUSY, "%s already has %d connections or requests", address,
                       (int)place->n);
    if (!place) {
        place = calloc(1, sizeof *place);
        if (!place) return FV_FAIL(FV_ENOMEM, "out of memory for an address");
        snprintf(place->address, sizeof place->address, "%s", address);
        place->next = *first;
        *first = place;
    }
    place->n++;
    *out = place;
    return FV_OK;
}

void fv_http_place_give(fv_http_places *p, fv_http_place *place) {
    if (!place || --place->n > 0) return;
    fv_http_place **at = bucket_of(p, place->address);
    while (*at != place) at = &(*at)->next;
    *at = place->next;
    free(place);
}
