#ifndef FOVEA_AUTH_FLEET_SECRET_H
#define FOVEA_AUTH_FLEET_SECRET_H

/* THE FLEET'S SECRET: one file, the same for the router and all workers. Every process that knows
 * it is a member of the fleet. The secret is never sent: keys are derived from it, and proofs are
 * made with the keys.
 *
 * The file holds at least 32 bytes, not counting white space at both ends. It must be random: an
 * observer of a proof could guess a secret that a person made up:
 *
 *     head -c 32 /dev/urandom | base64 > fleet.token */
#include "auth/mac.h"
#include "common/options.h"

enum { FV_FLEET_SECRET_MIN = 32, FV_FLEET_SECRET_MAX = 1024 }; /* bytes */

/* Makes the fleet's key from n bytes. FV_EINVAL: they are too few. */
fv_status fv_fleet_secret_key(const char *secret, size_t n, fv_key *out);

/* Reads the key from a file. FV_EINVAL, with what to do: the file is missing, too short or too
 * long. A file that all users of the machine can read is accepted with a warning in the log. */
fv_status fv_fleet_secret_read(const char *path, fv_key *out);

/* Reads the key from the file that the option names; FV_EINVAL if it names none. With
 * `certificates` members are identified by these, and the option may be absent: the key is then the
 * same everywhere and proves nothing. */
fv_status fv_fleet_secret_of(const fv_options *o, bool certificates, fv_key *out);

#endif
