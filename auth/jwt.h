#ifndef FOVEA_AUTH_JWT_H
#define FOVEA_AUTH_JWT_H

/* JSON Web Tokens (RFC 7519) of one issuer, signed with RS256 or ES256 (RFC 7518 §3.3, §3.4) by a
 * key of a JWK set (RFC 7517). The algorithm follows from the key (RFC 8725 §3.1): an RSA key, of at
 * least 2048 bits, is for RS256 alone, a P-256 key for ES256 alone, and other keys are ignored. What a
 * token's header says must agree with it. */
#include "common/status.h"

enum { FV_JWT_MAX = 8192 }; /* characters of a token */

typedef struct fv_jwt fv_jwt; /* opaque: an issuer and its keys; does not change */

/* `set` is the text of a JWK set, n bytes. FV_EDATA: it is none, or has no key that can be used. */
fv_status fv_jwt_open(const char *issuer, const char *audience, const char *set, size_t n,
                      fv_jwt **out);
void fv_jwt_close(fv_jwt *j); /* NULL is fine */

/* Three parts, as a token has: not another kind of secret? */
bool fv_jwt_looks_like(const char *token, size_t n);

/* Checks the token at a Unix time in seconds: signature, `iss`, `aud`, `exp` and `nbf`, all of them
 * required, the times with a minute's tolerance. Writes the string of the claim `claim` into
 * out[cap], and `exp` to *exp_s (NULL: not wanted). FV_EAUTH and why: it is not valid, or has no such claim. */
fv_status fv_jwt_check(const fv_jwt *j, const char *token, size_t n, double unix_s,
                       const char *claim, char *out, size_t cap, double *exp_s);

#endif
