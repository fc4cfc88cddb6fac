#ifndef FOVEA_AUTH_ROLE_H
#define FOVEA_AUTH_ROLE_H

/* ROLES: what a member of a fleet is, as its certificate says. Each has a DNS name, the same for
 * all members of that role, because workers are called by their IP addresses: who connects checks
 * the role's name instead of the host's. */
#include <stdint.h>

typedef enum fv_role { FV_MEMBER_ROUTER = 1, FV_MEMBER_PREFILL = 2, FV_MEMBER_DECODE = 4 } fv_role;

/* For a method that any peer may call. */
#define FV_MEMBER_ANY UINT32_MAX

/* "fovea-router", "fovea-prefill", "fovea-decode": a subject alternative name, and the end of a
 * SPIFFE id. */
const char *fv_role_name(fv_role role);

#endif
