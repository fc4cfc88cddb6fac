#include "tests/support/jwt.h"

#include <jose/b64.h>
#include <jose/jwk.h>
#include <jose/jws.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SURE(x) sure((x) != 0, #x, __LINE__)
static void sure(int good, const char *what, int line) {
    if (good) return;
    fprintf(stderr, "jwt.c:%d: %s\n", line, what);
    abort();
}

json_t *jwt_key(const char *alg, const char *kid) {
    json_t *key = json_pack("{s:s, s:s*}", "alg", alg, "kid", kid);
    SURE(key && jose_jwk_gen(NULL, key));
    return key;
}

char *jwt_set(json_t *const *keys, int n) {
    json_t *list = json_array(), *set = json_pack("{s:o}", "keys", list);
    for (int i = 0; i < n; i++) {
        json_t *copy = json_deep_copy(keys[i]);
        if (json_object_get(copy, "k") == NULL) SURE(jose_jwk_pub(NULL, copy));
        SURE(json_array_append_new(list, copy) == 0);
    }
    char *text = json_dumps(set, 0);
    json_decref(set);
    SURE(text);
    return text;
}

char *jwt_token(const json_t *key, const char *alg, const char *header, const char *claims) {
    json_t *protected = json_pack("{s:s}", "alg", alg);
    if (header) {
        json_t *more = json_loads(header, 0, NULL);
        SURE(more && json_object_update(protected, more) == 0);
        json_decref(more);
    }
    json_t *jws = json_pack("{s:o}", "payload", jose_b64_enc(claims, strlen(claims)));
    json_t *sig = json_pack("{s:o}", "protected", protected);
    SURE(jws && sig && jose_jws_sig(NULL, jws, sig, key));
    const char *part[3];
    static const char *const names[3] = {"protected", "payload", "signature"};
    size_t n = 3;
    for (int i = 0; i < 3; i++) {
        part[i] = json_string_value(json_object_get(jws, names[i]));
        SURE(part[i]);
        n += strlen(part[i]);
    }
    char *token = malloc(n);
    SURE(token);
    snprintf(token, n, "%s.%s.%s", part[0], part[1], part[2]);
    json_decref(jws);
    json_decref(sig);
    return token;
}
