#ifndef FOVEA_AUTH_FLEET_SECRET_H
#define FOVEA_AUTH_FLEET_SECRET_H

/* THE FLEET'S SECRET: one file, the same for the router and all workers. Whoever knows it is a
 * member of the fleet. It is never sent: keys are derived from it, and proofs are made with those.
 *
 * The file holds at least 32 bytes, not counting white space at both ends. A secret made up by a
 * person could be guessed by whoever has seen a proof, so it must be random:
 *
 *     head -c 32 /dev/urandom | base64 > fleet.token */
#include "auth/mac.h"
#include "common/options.h"

enum { FV_FLEET_SECRET_MIN = 32, FV_FLEET_SECRET_MAX = 1024 }; /* bytes */

/* A table's row. */
/* clang-format off */
#define FV_FLEET_SECRET_OPTION                                                                     \
    {"fleet-token-file", "FOVEA_FLEET_TOKEN_FILE", FV_OPTION_STRING, "FILE", NULL,                 \
     "file with the fleet's shared secret; create one with: "                                      \
     "head -c 32 /dev/urandom | base64", 0, 0}
/* clang-format on */

/* The fleet's key, made of these n bytes. FV_EINVAL: they are too few. */
fv_status fv_fleet_secret_key(const char *secret, size_t n, fv_key *out);

/* Of the file. FV_EINVAL and what to do: it is missing, too short or too long. One that every user
 * of the machine may read is taken, and the log warns of it. */
fv_status fv_fleet_secret_read(const char *path, fv_key *out);

/* Of the file that the option names; FV_EINVAL when it names none. Where certificates identify the
 * fleet's members it need not name one: the key is then the same for all, and proves nothing. */
fv_status fv_fleet_secret_of(const fv_options *o, bool certificates, fv_key *out);

#endif
