/* Names and addresses, character by character. Pure functions; any thread. */
#include "auth/fleet_name.h"

#include <stdlib.h>
#include <string.h>

#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#define DIGITS "0123456789"

fv_status fv_worker_name_check(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > FV_WORKER_NAME_MAX || strspn(name, ALNUM "._:-[]") != n)
        return FV_FAIL(FV_EINVAL, "a worker's name has 1 to %d letters, digits and \"._:-[]\"",
                       FV_WORKER_NAME_MAX);
    return FV_OK;
}

fv_status fv_zone_check(const char *zone) {
    if (!*zone || fv_worker_name_check(zone) == FV_OK) return FV_OK;
    return FV_FAIL(FV_EINVAL, "a zone's name has 1 to %d letters, digits and \"._:-[]\"",
                   FV_WORKER_NAME_MAX);
}

/* Length of the host at the beginning; 0: no host. */
static size_t host_length(const char *address) {
    if (address[0] != '[') return strspn(address, ALNUM ".-_");
    size_t n = strspn(address + 1, "0123456789abcdefABCDEF:.");
    return n > 0 && address[1 + n] == ']' ? n + 2 : 0;
}

fv_status fv_address_check(const char *address) {
    size_t n = host_length(address);
    const char *port = address + n + 1;
    /* gRPC would read "unix:8200" as the path of a socket. */
    bool path = strncmp(address, "unix:", 5) == 0;
    if (n == 0 || path || strlen(address) > FV_ADDRESS_MAX || address[n] != ':' ||
        strspn(port, DIGITS) != strlen(port) || strlen(port) > 5 || atoi(port) < 1 ||
        atoi(port) > 65535)
        return FV_FAIL(FV_EINVAL, "not an address; write HOST:PORT, such as 10.0.0.7:8201");
    return FV_OK;
}
