#ifndef FOVEA_TESTS_SUPPORT_JWT_H
#define FOVEA_TESTS_SUPPORT_JWT_H

/* Keys and signed tokens for tests, made with libjose. Any error aborts. */
#include <jansson.h>

/* A new private key for "RS256", "ES256", "HS256" ... with this id (NULL: none); json_decref it. */
json_t *jwt_key(const char *alg, const char *kid);

/* A JWK set of the public halves of n keys; free it. */
char *jwt_set(json_t *const *keys, int n);

/* A token with these claims (JSON text), signed by the key; the header is {"alg": alg} and what
 * `header` has (JSON text, or NULL). Free it. */
char *jwt_token(const json_t *key, const char *alg, const char *header, const char *claims);

#endif
