#ifndef FOVEA_AUTH_TENANTS_H
#define FOVEA_AUTH_TENANTS_H

/* TENANTS: which tenant a caller belongs to, and what each tenant may use; a JSON file:
 *
 *     {
 *       "routers": 2,
 *       "jwt": {"issuer": "https://id.example", "audience": "fovea", "keys": "/etc/fovea/jwks.json",
 *               "claim": "tenant"},
 *       "tenants": {
 *         "acme": {"keys": ["<SHA-256 of an API key, 64 hexadecimal digits>"],
 *                  "requests_per_s": 20, "megapixels_per_s": 100, "concurrent": 8,
 *                  "kv_bytes": 4e9, "weight": 2, "policies": ["", "quality"]},
 *         "lab": {}
 *       }
 *     }
 *
 * A caller presents an API key, or a JWT (auth/jwt.h) whose claim (default "tenant") names the tenant.
 * Keys must be random (32 bytes, base64): a hash without salt does not protect a key that can be guessed.
 * Each of the `routers` (default 1) grants an equal part of the rates and of `concurrent`, because routers
 * do not know of each other. Calls of Tokenize and Detokenize have the same rate, counted separately. KV
 * is counted by each decode worker, for all routers. A limit that a tenant does not have in the file is
 * infinite, and a missing weight is 1. */
#include "common/status.h"

enum { FV_TENANT_NAME_MAX = 32, FV_TENANTS_BYTES_MAX = 8 << 20 };

typedef struct fv_tenant {
    char name[FV_TENANT_NAME_MAX + 1]; /* letters, digits and "._-" */
    double requests_per_s;             /* at this router; 0: no limit */
    double megapixels_per_s; /* 10^6 decoded pixels of images, at this router; 0: no limit */
    int32_t concurrent;      /* requests at this router; 0: no limit */
    uint64_t kv_bytes;       /* on each decode worker; 0: no limit */
    double weight;           /* > 0 */
    char **policies;         /* [n_policy] policies that it may use; NULL: all */
    int32_t n_policy;
} fv_tenant;

typedef struct fv_tenants fv_tenants; /* opaque; immutable */

/* Reads the file of tenants, and the file of the issuer's keys. FV_EDATA, FV_ENOTFOUND, FV_EIO: the message
 * says what is wrong and where. */
fv_status fv_tenants_read(const char *path, fv_tenants **out);
void fv_tenants_free(fv_tenants *t); /* NULL is fine */

/* Prints a file with one tenant, without limits, that has these API keys [n]. Gives *out (free it).
 * FV_EINVAL: a key that is empty, or not printable ASCII without spaces, which no header could have. */
fv_status fv_tenants_print(const char *name, const char *const *keys, int32_t n, char **out);

int32_t fv_tenants_all(const fv_tenants *t, const fv_tenant **out); /* their number; borrowed */

/* Returns the path of the file of the issuer's keys, borrowed; NULL: JWTs are not accepted. */
const char *fv_tenants_keys_path(const fv_tenants *t);

/* Finds the tenant of a credential (an API key or a JWT, n bytes) at Unix time unix_s. *out is borrowed.
 * *until_s (NULL: not wanted): the Unix time at which the credential expires, infinity for a key.
 * FV_EAUTH: the credential is not valid, and why; FV_EDENIED: a valid token of a tenant that is not in the
 * file. */
fv_status fv_tenants_find(const fv_tenants *t, const char *credential, size_t n, double unix_s,
                          const fv_tenant **out, double *until_s);

#endif
