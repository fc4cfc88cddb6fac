#ifndef FOVEA_AUTH_JWT_H
#define FOVEA_AUTH_JWT_H

/* JSON Web Tokens (RFC 7519) of one issuer, signed with RS256 or ES256 (RFC 7518 §3.3, §3.4) by a
 * key of a JWK set (RFC 7517). The algorithm follows from the key (RFC 8725 §3.1): an RSA key, of
 * at least 2048 bits, is only for RS256, a P-256 key only for ES256, and other keys are ignored. A
 * token's header must agree with it. */
#include "common/status.h"

enum { FV_JWT_MAX = 8192 }; /* characters per token */

typedef struct fv_jwt fv_jwt; /* opaque: an issuer and its keys; immutable */

/* Opens an issuer with `set`, the n bytes of a JWK set. FV_EDATA: it is invalid or has no usable
 * key. */
fv_status fv_jwt_open(const char *issuer, const char *audience, const char *set, size_t n,
                      fv_jwt **out);
void fv_jwt_close(fv_jwt *j); /* NULL is fine */

/* Returns whether the token has three parts like a JWT, unlike other secrets. */
bool fv_jwt_looks_like(const char *token, size_t n);

/* Checks the token at a Unix time in seconds: signature, `iss`, `aud`, `exp` and `nbf` are all
 * required, times with a tolerance of one minute. Writes the string of claim `claim` into out[cap],
 * and `exp` to *exp_s unless that is NULL. FV_EAUTH with the reason: the token is invalid or lacks
 * the claim. */
fv_status fv_jwt_check(const fv_jwt *j, const char *token, size_t n, double unix_s,
                       const char *claim, char *out, size_t cap, double *exp_s);

#endif
