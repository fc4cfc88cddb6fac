/* Signatures are libjose's; what is signed, by which key, and what it says is checked here. */
#include "auth/jwt.h"

#include <jansson.h>
#include <jose/b64.h>
#include <jose/jws.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOLERANCE_S = 60, RSA_BYTES_MIN = 256, N_PART = 3 };

struct fv_jwt {
    char *issuer, *audience;
    json_t *keys; /* those that can be used */
};

/* ---- keys ------------------------------------------------------------------------------- */

static bool is(const json_t *o, const char *key, const char *value) {
    const char *s = json_string_value(json_object_get(o, key));
    return s && strcmp(s, value) == 0;
}

/* What a key is for; NULL: nothing here. */
static const char *algorithm_of(const json_t *key) {
    const char *alg = NULL;
    if (is(key, "kty", "RSA") && jose_b64_dec(json_object_get(key, "n"), NULL, 0) != SIZE_MAX &&
        jose_b64_dec(json_object_get(key, "n"), NULL, 0) >= RSA_BYTES_MIN)
        alg = "RS256";
    if (is(key, "kty", "EC") && is(key, "crv", "P-256")) alg = "ES256";
    if (!alg || (json_object_get(key, "alg") && !is(key, "alg", alg))) return NULL;
    return json_object_get(key, "use") && !is(key, "use", "sig") ? NULL : alg;
}

static fv_status read_keys(fv_jwt *j, const char *set, size_t n) {
    json_t *all = json_loadb(set, n, JSON_REJECT_DUPLICATES, NULL), *key;
    size_t i;
    json_array_foreach(json_object_get(all, "keys"), i, key) {
        if (algorithm_of(key)) json_array_append(j->keys, key);
    }
    json_decref(all);
    if (json_array_size(j->keys) > 0) return FV_OK;
    return FV_FAIL(FV_EDATA, "no RSA key of 2048 bits or more and no P-256 key in the JWK set");
}

fv_status fv_jwt_open(const char *issuer, const char *audience, const char *set, size_t n,
                      fv_jwt **out) {
    fv_jwt *j = calloc(1, sizeof *j);
    if (!j) return FV_FAIL(FV_ENOMEM, "no memory for an issuer's keys");
    j->issuer = strdup(issuer);
    j->audience = strdup(audience);
    j->keys = json_array();
    fv_status st = j->issuer && j->audience && j->keys
                       ? read_keys(j, set, n)
                       : FV_FAIL(FV_ENOMEM, "no memory for an issuer's keys");
    if (st != FV_OK) {
        fv_jwt_close(j);
        return st;
    }
    *out = j;
    return FV_OK;
}

void fv_jwt_close(fv_jwt *j) {
    if (!j) return;
    json_decref(j->keys);
    free(j->issuer);
    free(j->audience);
    free(j);
}

/* ---- tokens ----------------------------------------------------------------------------- */

typedef struct part {
    const char *text;
    size_t n;
} part;

/* "header.payload.signature" */
static bool split(const char *token, size_t n, part out[N_PART]) {
    if (n > FV_JWT_MAX) return false;
    for (int i = 0; i < N_PART; i++) {
        const char *dot = memchr(token, '.', n);
        if (!dot != (i == N_PART - 1)) return false;
        out[i] = (part){token, dot ? (size_t)(dot - token) : n};
        if (out[i].n == 0) return false;
        if (!dot) break;
        n -= out[i].n + 1;
        token = dot + 1;
    }
    return true;
}

bool fv_jwt_looks_like(const char *token, size_t n) {
    part p[N_PART];
    return split(token, n, p);
}

/* NULL: not base64url of a JSON object. */
static json_t *decode(part p) {
    uint8_t bytes[FV_JWT_MAX];
    size_t n = jose_b64_dec_buf(p.text, p.n, bytes, sizeof bytes);
    if (n == SIZE_MAX || n > sizeof bytes) return NULL;
    json_t *o = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(o)) return o;
    json_decref(o);
    return NULL;
}

/* By one of the keys of the algorithm that the header names, or by the key that it names. */
static bool is_signed(const fv_jwt *j, const json_t *header, const part p[N_PART]) {
    const char *kid = json_string_value(json_object_get(header, "kid"));
    json_t *jws = json_pack("{s:s%, s:s%, s:s%}", "protected", p[0].text, p[0].n, "payload",
                            p[1].text, p[1].n, "signature", p[2].text, p[2].n);
    json_t *key;
    size_t i;
    bool good = false;
    json_array_foreach(j->keys, i, key) {
        if (good || !is(header, "alg", algorithm_of(key))) continue;
        if (kid && json_object_get(key, "kid") && !is(key, "kid", kid)) continue;
        good = jws && jose_jws_ver(NULL, jws, NULL, key, false);
    }
    json_decref(jws);
    return good;
}

static bool is_for(const json_t *aud, const char *audience) {
    const json_t *one;
    size_t i;
    if (json_is_string(aud)) return strcmp(json_string_value(aud), audience) == 0;
    json_array_foreach(aud, i, one) {
        if (json_is_string(one) && strcmp(json_string_value(one), audience) == 0) return true;
    }
    return false;
}

static fv_status check_claims(const fv_jwt *j, const json_t *claims, double unix_s) {
    const json_t *exp = json_object_get(claims, "exp"), *nbf = json_object_get(claims, "nbf");
    if (!is(claims, "iss", j->issuer)) return FV_FAIL(FV_EAUTH, "the token is from another issuer");
    if (!is_for(json_object_get(claims, "aud"), j->audience))
        return FV_FAIL(FV_EAUTH, "the token is for another audience");
    if (!json_is_number(exp) || !json_is_number(nbf))
        return FV_FAIL(FV_EAUTH, "the token needs exp and nbf");
    if (unix_s > json_number_value(exp) + TOLERANCE_S)
        return FV_FAIL(FV_EAUTH, "the token has expired");
    if (unix_s < json_number_value(nbf) - TOLERANCE_S)
        return FV_FAIL(FV_EAUTH, "the token is not valid yet");
    return FV_OK;
}

static fv_status take_claim(const json_t *claims, const char *claim, char *out, size_t cap) {
    const char *s = json_string_value(json_object_get(claims, claim));
    if (!s || strlen(s) >= cap) return FV_FAIL(FV_EAUTH, "the token has no usable claim %s", claim);
    strcpy(out, s);
    return FV_OK;
}

fv_status fv_jwt_check(const fv_jwt *j, const char *token, size_t n, double unix_s,
                       const char *claim, char *out, size_t cap, double *exp_s) {
    part p[N_PART];
    if (!split(token, n, p)) return FV_FAIL(FV_EAUTH, "not a JWT");
    json_t *header = decode(p[0]), *claims = decode(p[1]);
    fv_status st = FV_OK;
    /* A critical extension (RFC 7515 §4.1.11) is one that is not known here. */
    if (!header || !claims || json_object_get(header, "crit") || !is_signed(j, header, p))
        st = FV_FAIL(FV_EAUTH, "the token's signature is not valid");
    if (st == FV_OK) st = check_claims(j, claims, unix_s);
    if (st == FV_OK) st = take_claim(claims, claim, out, cap);
    if (st == FV_OK && exp_s) *exp_s = json_number_value(json_object_get(claims, "exp"));
    json_decref(header);
    json_decref(claims);
    return st;
}
