/* Reads the file of tenants, and finds tenants in its sorted list of hashed keys. */
#include "auth/tenants.h"

#include <jansson.h>
#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/jwt.h"
#include "auth/mac.h"
#include "common/file.h"
#include "common/grow.h"

enum { HASH_BYTES = SHA256_DIGEST_LENGTH, CLAIM_MAX = 64 };

typedef struct key {
    uint8_t hash[HASH_BYTES];
    int32_t tenant;
} key;

struct fv_tenants {
    fv_tenant *tenant; /* [n] */
    int32_t n;
    key *keys; /* [n_key] */
    size_t n_key, cap_key;
    fv_jwt *jwt; /* NULL: no tokens */
    char *keys_path, claim[CLAIM_MAX + 1];
    double routers;
};

/* ---- reading ---------------------------------------------------------------------------- */

/* Reads the number `name`, at least `least`; leaves *out unchanged if it is missing. */
static fv_status number(const json_t *o, const char *name, double least, double *out) {
    const json_t *x = json_object_get(o, name);
    if (!x) return FV_OK;
    if (!json_is_number(x) || json_number_value(x) < least)
        return FV_FAIL(FV_EDATA, "%s must be a number of at least %g", name, least);
    *out = json_number_value(x);
    return FV_OK;
}

/* Refuses unknown names, because a misspelt limit would limit nothing. */
static fv_status check_names(const json_t *o, const char *const *known) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, name, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, name) != 0) k++;
        if (!*k) return FV_FAIL(FV_EDATA, "unknown field '%s'", name);
    }
    return FV_OK;
}

static fv_status read_hash(const char *hex, uint8_t out[HASH_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < HASH_BYTES; i++) {
        const char *high = hex[0] ? strchr(digits, hex[0]) : NULL;
        const char *low = high && hex[1] ? strchr(digits, hex[1]) : NULL;
        if (!low) return FV_FAIL(FV_EDATA, "a key's SHA-256 must have 64 hexadecimal digits");
        out[i] = (uint8_t)((high - digits) << 4 | (low - digits));
        hex += 2;
    }
    return *hex ? FV_FAIL(FV_EDATA, "a key's SHA-256 must have 64 hexadecimal digits") : FV_OK;
}

static fv_status read_hashes(fv_tenants *t, const json_t *list) {
    const json_t *x;
    size_t i;
    if (list && !json_is_array(list)) return FV_FAIL(FV_EDATA, "keys must be a list");
    json_array_foreach(list, i, x) {
        const char *hex = json_string_value(x);
        FV_TRY(fv_grow(&t->keys, &t->cap_key, t->n_key + 1, sizeof *t->keys));
        FV_TRY(read_hash(hex ? hex : "", t->keys[t->n_key].hash));
        t->keys[t->n_key++].tenant = t->n;
    }
    return FV_OK;
}

static fv_status read_policies(fv_tenant *to, const json_t *list) {
    const json_t *x;
    size_t i;
    if (!list) return FV_OK;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return FV_FAIL(FV_EDATA, "policies must be a list of policies");
    to->policies = calloc(json_array_size(list), sizeof *to->policies);
    if (!to->policies) return FV_FAIL(FV_ENOMEM, "no memory for a tenant's policies");
    json_array_foreach(list, i, x) {
        if (!json_is_string(x)) return FV_FAIL(FV_EDATA, "policies must be a list of policies");
        to->policies[i] = strdup(json_string_value(x));
        if (!to->policies[i]) return FV_FAIL(FV_ENOMEM, "no memory for a tenant's policies");
        to->n_policy++;
    }
    return FV_OK;
}

static fv_status check_name(const char *name) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strlen(name);
    if (n > 0 && n <= FV_TENANT_NAME_MAX && strspn(name, good) == n) return FV_OK;
    return FV_FAIL(FV_EDATA, "a tenant's name must have 1 to %d letters, digits and '._-'",
                   FV_TENANT_NAME_MAX);
}

static fv_status read_tenant(fv_tenants *t, const char *name, const json_t *o) {
    static const char *const known[] = {
        "keys",     "requests_per_s", "megapixels_per_s", "concurrent",
        "kv_bytes", "weight",         "policies",         NULL};
    fv_tenant *to = &t->tenant[t->n];
    double concurrent = 0, kv_bytes = 0, least = 1e-3;
    to->weight = 1;
    FV_TRY(check_name(name));
    if (!json_is_object(o)) return FV_FAIL(FV_EDATA, "it must be an object");
    FV_TRY(check_names(o, known));
    strcpy(to->name, name);
    FV_TRY(number(o, "requests_per_s", least, &to->requests_per_s));
    FV_TRY(number(o, "megapixels_per_s", least, &to->megapixels_per_s));
    FV_TRY(number(o, "concurrent", 1, &concurrent));
    FV_TRY(number(o, "kv_bytes", 1, &kv_bytes));
    FV_TRY(number(o, "weight", least, &to->weight));
    to->kv_bytes = kv_bytes < 1e18 ? (uint64_t)kv_bytes : 0;
    to->requests_per_s /= t->routers;
    to->megapixels_per_s /= t->routers;
    /* Grant at least one, or the tenant could send no request. */
    double share = concurrent / t->routers;
    to->concurrent = concurrent == 0 ? 0 : share < 1 ? 1 : share < INT32_MAX ? (int32_t)share : 0;
    FV_TRY(read_hashes(t, json_object_get(o, "keys")));
    return read_policies(to, json_object_get(o, "policies"));
}

static fv_status read_tenants(fv_tenants *t, const json_t *all) {
    const char *name;
    json_t *o;
    if (!json_is_object(all) || json_object_size(all) == 0)
        return FV_FAIL(FV_EDATA, "\"tenants\" must be an object that names at least one");
    t->tenant = calloc(json_object_size(all), sizeof *t->tenant);
    if (!t->tenant) return FV_FAIL(FV_ENOMEM, "no memory for tenants");
    json_object_foreach((json_t *)(uintptr_t)all, name, o) {
        fv_status st = read_tenant(t, name, o);
        t->n++; /* counts a tenant that is half read, too, so that it is freed */
        if (st != FV_OK) return fv_fail_prefix(st, "tenant '%s'", name);
    }
    return FV_OK;
}

static fv_status read_jwt(fv_tenants *t, const json_t *o) {
    static const char *const known[] = {"issuer", "audience", "keys", "claim", NULL};
    const char *issuer = json_string_value(json_object_get(o, "issuer"));
    const char *audience = json_string_value(json_object_get(o, "audience"));
    const char *path = json_string_value(json_object_get(o, "keys"));
    const char *claim = json_string_value(json_object_get(o, "claim"));
    char *set;
    size_t n;
    if (!o) return FV_OK;
    FV_TRY(check_names(o, known));
    if (!issuer || !audience || !path)
        return FV_FAIL(FV_EDATA, "it needs issuer, audience and keys");
    if (snprintf(t->claim, sizeof t->claim, "%s", claim ? claim : "tenant") > CLAIM_MAX)
        return FV_FAIL(FV_EDATA, "claim is longer than %d bytes", CLAIM_MAX);
    if (!(t->keys_path = strdup(path))) return FV_FAIL(FV_ENOMEM, "no memory for tenants");
    FV_TRY(fv_file_read(path, FV_TENANTS_BYTES_MAX, &set, &n));
    fv_status st = fv_jwt_open(issuer, audience, set, n, &t->jwt);
    free(set);
    return st == FV_OK ? st : fv_fail_prefix(st, "%s", path);
}

static int compare_hash(const void *a, const void *b) {
    return memcmp(((const key *)a)->hash, ((const key *)b)->hash, HASH_BYTES);
}

static fv_status read_all(fv_tenants *t, const json_t *root) {
    static const char *const known[] = {"routers", "jwt", "tenants", NULL};
    t->routers = 1;
    FV_TRY(check_names(root, known));
    FV_TRY(number(root, "routers", 1, &t->routers));
    FV_TRY(read_tenants(t, json_object_get(root, "tenants")));
    fv_status st = read_jwt(t, json_object_get(root, "jwt"));
    if (st != FV_OK) return fv_fail_prefix(st, "jwt");
    if (t->n_key > 0) qsort(t->keys, t->n_key, sizeof *t->keys, compare_hash);
    for (size_t i = 1; i < t->n_key; i++)
        if (compare_hash(&t->keys[i - 1], &t->keys[i]) == 0)
            return FV_FAIL(FV_EDATA, "tenants '%s' and '%s' have the same key",
                           t->tenant[t->keys[i - 1].tenant].name,
                           t->tenant[t->keys[i].tenant].name);
    return FV_OK;
}

fv_status fv_tenants_read(const char *path, fv_tenants **out) {
    char *text;
    size_t n;
    json_error_t error;
    FV_TRY(fv_file_read(path, FV_TENANTS_BYTES_MAX, &text, &n));
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root) return FV_FAIL(FV_EDATA, "%s:%d: %s", path, error.line, error.text);
    fv_tenants *t = calloc(1, sizeof *t);
    fv_status st = t ? read_all(t, root) : FV_FAIL(FV_ENOMEM, "no memory for tenants");
    json_decref(root);
    if (st != FV_OK) {
        fv_tenants_free(t);
        return fv_fail_prefix(st, "%s", path);
    }
    *out = t;
    return FV_OK;
}

void fv_tenants_free(fv_tenants *t) {
    if (!t) return;
    for (int32_t i = 0; i < t->n; i++) {
        for (int32_t j = 0; j < t->tenant[i].n_policy; j++) free(t->tenant[i].policies[j]);
        free(t->tenant[i].policies);
    }
    fv_jwt_close(t->jwt);
    free(t->keys_path);
    free(t->tenant);
    free(t->keys);
    free(t);
}

/* ---- asking ----------------------------------------------------------------------------- */

int32_t fv_tenants_all(const fv_tenants *t, const fv_tenant **out) {
    *out = t->tenant;
    return t->n;
}

const char *fv_tenants_keys_path(const fv_tenants *t) { return t->keys_path; }

static fv_status find_by_token(const fv_tenants *t, const char *token, size_t n, double unix_s,
                               const fv_tenant **out, double *until_s) {
    char name[FV_TENANT_NAME_MAX + 1];
    FV_TRY(fv_jwt_check(t->jwt, token, n, unix_s, t->claim, name, sizeof name, until_s));
    for (int32_t i = 0; i < t->n; i++) {
        if (strcmp(t->tenant[i].name, name) != 0) continue;
        *out = &t->tenant[i];
        return FV_OK;
    }
    return FV_FAIL(FV_EDENIED, "unknown tenant in the token");
}

static fv_status check_key(const char *text) {
    if (!*text) return FV_FAIL(FV_EINVAL, "an API key is empty");
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return FV_FAIL(FV_EINVAL, "an API key must be printable ASCII without spaces");
    return FV_OK;
}

fv_status fv_tenants_print(const char *name, const char *const *keys, int32_t n, char **out) {
    json_t *list = json_array();
    fv_status st = FV_OK;
    for (int32_t i = 0; i < n && st == FV_OK; i++) {
        uint8_t hash[HASH_BYTES];
        char hex[2 * HASH_BYTES + 1];
        st = check_key(keys[i]);
        SHA256((const uint8_t *)keys[i], strlen(keys[i]), hash);
        for (int k = 0; k < HASH_BYTES; k++) snprintf(hex + 2 * k, 3, "%02x", hash[k]);
        json_array_append_new(list, json_string(hex));
    }
    json_t *o = json_pack("{s:{s:{s:o}}}", "tenants", name, "keys", list);
    char *text = st == FV_OK && o ? json_dumps(o, 0) : NULL;
    json_decref(o);
    if (st != FV_OK) return st;
    if (!text) return FV_FAIL(FV_ENOMEM, "no memory for tenants");
    *out = text;
    return FV_OK;
}

fv_status fv_tenants_find(const fv_tenants *t, const char *credential, size_t n, double unix_s,
                          const fv_tenant **out, double *until_s) {
    key wanted;
    if (t->jwt && fv_jwt_looks_like(credential, n))
        return find_by_token(t, credential, n, unix_s, out, until_s);
    /* Search by hash, so that the time of the search tells nothing about keys. */
    SHA256((const uint8_t *)credential, n, wanted.hash);
    const key *k =
        t->n_key ? bsearch(&wanted, t->keys, t->n_key, sizeof *t->keys, compare_hash) : NULL;
    if (!k) return FV_FAIL(FV_EAUTH, "unknown API key");
    *out = &t->tenant[k->tenant];
    if (until_s) *until_s = HUGE_VAL;
    return FV_OK;
}
