#ifndef FOVEA_AUTH_TENANTS_H
#define FOVEA_AUTH_TENANTS_H

/* TENANTS: whom callers belong to, and what each tenant may use; a JSON file:
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
 * A caller shows an API key or a JWT (auth/jwt.h), whose claim (default "tenant") names the tenant.
 * Keys must be random (32 bytes, base64): a hash without salt protects nothing that can be guessed. Of
 * the rates and numbers, each of the `routers` (default 1) grants its share: routers do not
 * know each other. Calls of Tokenize and Detokenize have the same rate once more, for themselves. KV is counted by each decode worker, for all routers. What a tenant does not have is not limited; its weight is 1. */
#include "common/status.h"

enum { FV_TENANT_NAME_MAX = 32, FV_TENANTS_BYTES_MAX = 8 << 20 };

typedef struct fv_tenant {
    char name[FV_TENANT_NAME_MAX + 1]; /* letters, digits and "._-" */
    double requests_per_s;             /* here; 0: no limit */
    double megapixels_per_s;           /* of images, 10^6 decoded pixels each; likewise */
    int32_t concurrent;                /* here; 0: no limit */
    uint64_t kv_bytes;                 /* on each decode worker; 0: no limit */
    double weight;                     /* > 0 */
    char **policies;                   /* [n_policy] texts; NULL: all */
    int32_t n_policy;
} fv_tenant;

typedef struct fv_tenants fv_tenants; /* opaque; does not change */

/* Reads the file, and the one with the issuer's keys. FV_EDATA, FV_ENOTFOUND, FV_EIO say what is wrong
 * and where. */
fv_status fv_tenants_read(const char *path, fv_tenants **out);
void fv_tenants_free(fv_tenants *t); /* NULL is fine */

int32_t fv_tenants_all(const fv_tenants *t, const fv_tenant **out); /* [returned] borrowed */

/* The file with the issuer's keys; NULL: no tokens are taken. Borrowed. */
const char *fv_tenants_keys_path(const fv_tenants *t);

/* Whose credential is it (an API key or a JWT, n bytes), at this Unix time? FV_EAUTH: nobody's, and
 * why; FV_EDENIED: a valid token of a tenant that is not in the file. *out is borrowed. *until_s (NULL: not wanted):
 * the Unix time at which it expires, infinity for a key. */
fv_status fv_tenants_find(const fv_tenants *t, const char *credential, size_t n, double unix_s,
                          const fv_tenant **out, double *until_s);

#endif
