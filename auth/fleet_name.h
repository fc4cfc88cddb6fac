#ifndef FOVEA_AUTH_FLEET_NAME_H
#define FOVEA_AUTH_FLEET_NAME_H

/* Syntax of worker names and addresses in a fleet. Both come from other machines and are used in
 * logs, tokens and connections, so every reader checks them; characters with a special meaning in
 * any of these are not allowed. */
#include "common/status.h"

enum { FV_WORKER_NAME_MAX = 64, FV_ADDRESS_MAX = 255, FV_ROUTER_ID_MAX = 16 }; /* bytes */

/* FV_EINVAL unless the name has 1 to 64 letters, digits and characters of "._:-[]". */
fv_status fv_worker_name_check(const char *name);

/* FV_EINVAL unless the name of a zone is empty or has up to 64 of the same characters. */
fv_status fv_zone_check(const char *zone);

/* FV_EINVAL unless the address is "HOST:PORT" or "[HOST]:PORT" with a port from 1 to 65535.
 * Programs connect to it, so neither a path ("unix:...") nor any other of gRPC's schemes is
 * allowed. */
fv_status fv_address_check(const char *address);

#endif
