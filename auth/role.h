#ifndef FOVEA_AUTH_ROLE_H
#define FOVEA_AUTH_ROLE_H

/* ROLES of a fleet's members, from their certificates. Each role has a DNS name, the same for all
 * its members: workers are called by their IP addresses, so a client checks the role's name instead
 * of the host's. */
#include <stdint.h>

typedef enum fv_role { FV_MEMBER_ROUTER = 1, FV_MEMBER_PREFILL = 2, FV_MEMBER_DECODE = 4 } fv_role;

/* Allows any peer to call a method. */
#define FV_MEMBER_ANY UINT32_MAX

/* "fovea-router", "fovea-prefill", "fovea-decode": a subject alternative name, and the end of a
 * SPIFFE id. */
const char *fv_role_name(fv_role role);

#endif
