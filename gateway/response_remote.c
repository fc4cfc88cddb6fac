/* A value, before it is sealed: the number of responses that it continues, then the id of the one before, the JSON, the
 * input and the output, each after its length. Numbers are 4 bytes, little endian. */
#include "gateway/response_remote.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/grow.h"
#include "common/log.h"
#include "common/random.h"
#include "gateway/api/response.h"

enum {
    VERSION = 1,
    N_NONCE = 12,
    N_TAG = 16,
    N_HEAD = 1 + N_NONCE,
    N_NAME = sizeof "fovea:response:" - 1 + 2 * FV_MAC_BYTES,
    CHAIN_BYTES = 64 << 20, /* of the responses that one continues */
};

struct fv_response_remote {
    fv_redis *redis;
    double told_s; /* when a failure was logged last; 0: never */
    fv_key owners, names, values;
};

struct fv_response_remote_op {
    fv_response_remote *remote;
    fv_redis_op *op;
    fv_response_remote_done done;
    void *user;
    /* of a load */
    fv_response_store *store;
    fv_response_owner owner;
    char id[FV_API_RESPONSE_ID_MAX + 1]; /* that is being loaded */
    bool chain;
    fv_kept_response *first, *last; /* a reference to the first */
    size_t bytes;
};

/* ---- sealing ----------------------------------------------------------------------------- */

typedef struct bytes {
    uint8_t *at; /* [n] owned */
    size_t n, cap;
} bytes;

static fv_status add(bytes *b, const void *data, size_t n) {
    FV_TRY(fv_grow(&b->at, &b->cap, b->n + n + 1, 1));
    if (n) memcpy(b->at + b->n, data, n);
    b->n += n;
    return FV_OK;
}

static fv_status add_number(bytes *b, size_t v) {
    const uint8_t le[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return add(b, le, sizeof le);
}

static fv_status add_field(bytes *b, const void *data, size_t n) {
    FV_TRY(add_number(b, n));
    return add(b, data, n);
}

static fv_status add_buffer(bytes *b, grpc_byte_buffer *buffer) {
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return FV_FAIL(FV_ENOMEM, "out of memory for a response");
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    fv_status st = add_field(b, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all));
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return st;
}

static fv_status pack(const fv_kept_response *k, bytes *b) {
    const char *before = k->previous ? k->previous->id : "";
    char *json = json_dumps(k->json, FV_API_JSON_FLAGS);
    fv_status st =
        json ? add_number(b, (size_t)k->depth) : FV_FAIL(FV_ENOMEM, "out of memory for a response");
    if (st == FV_OK) st = add_field(b, before, strlen(before));
    if (st == FV_OK) st = add_field(b, json, strlen(json));
    if (st == FV_OK) st = add_buffer(b, k->input);
    if (st == FV_OK) st = add_buffer(b, k->output);
    free(json);
    return st;
}

/* Encrypts or decrypts in[n] to out; the tag is written, or compared. */
static bool run_gcm(bool seals, const fv_key *key, const uint8_t *nonce,
                    const fv_response_owner *owner, const char *id, const uint8_t *in, size_t n,
                    uint8_t *out, uint8_t *tag) {
    int k;
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool good = c && EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, nonce, seals) == 1 &&
                EVP_CipherUpdate(c, NULL, &k, owner->mac, sizeof owner->mac) == 1 &&
                EVP_CipherUpdate(c, NULL, &k, (const uint8_t *)id, (int)strlen(id)) == 1 &&
                (seals || EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, N_TAG, tag) == 1) &&
                EVP_CipherUpdate(c, out, &k, in, (int)n) == 1 &&
                EVP_CipherFinal_ex(c, out + k, &k) == 1 &&
                (!seals || EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, N_TAG, tag) == 1);
    EVP_CIPHER_CTX_free(c);
    return good;
}

static fv_status seal(const fv_response_remote *r, const fv_kept_response *k, const bytes *plain,
                      bytes *out) {
    FV_TRY(fv_grow(&out->at, &out->cap, N_HEAD + plain->n + N_TAG, 1));
    out->at[0] = VERSION;
    FV_TRY(fv_random_bytes(out->at + 1, N_NONCE));
    out->n = N_HEAD + plain->n + N_TAG;
    return run_gcm(true, &r->values, out->at + 1, &k->owner, k->id, plain->at, plain->n,
                   out->at + N_HEAD, out->at + N_HEAD + plain->n)
               ? FV_OK
               : FV_FAIL(FV_ENOMEM, "libcrypto encrypted no response");
}

static fv_status forged(void) {
    return FV_FAIL(FV_EDATA, "the store's value for this response is damaged, or is not of these "
                             "gateways' key");
}

static fv_status unseal(const fv_response_remote_op *o, const uint8_t *value, size_t n,
                        bytes *out) {
    uint8_t tag[N_TAG];
    if (n < N_HEAD + N_TAG || value[0] != VERSION) return forged();
    const size_t inside = n - N_HEAD - N_TAG;
    FV_TRY(fv_grow(&out->at, &out->cap, inside + 1, 1));
    memcpy(tag, value + N_HEAD + inside, N_TAG);
    out->n = inside;
    return run_gcm(false, &o->remote->values, value + 1, &o->owner, o->id, value + N_HEAD, inside,
                   out->at, tag)
               ? FV_OK
               : forged();
}

/* ---- reading ----------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *at;
    size_t n;
    bool good;
} cursor;

static size_t take_number(cursor *c) {
    const uint8_t *s = c->at;
    c->good &= c->n >= 4;
    if (!c->good) return 0;
    c->at += 4;
    c->n -= 4;
    return s[0] | (size_t)s[1] << 8 | (size_t)s[2] << 16 | (size_t)s[3] << 24;
}

static const char *take_field(cursor *c, size_t *n) {
    const char *s;
    *n = take_number(c);
    c->good &= *n <= c->n;
    if (!c->good) return NULL;
    s = (const char *)c->at;
    c->at += *n;
    c->n -= *n;
    return s;
}

static grpc_byte_buffer *take_buffer(cursor *c) {
    size_t n;
    const char *s = take_field(c, &n);
    if (!s) return NULL;
    grpc_slice slice = grpc_slice_from_copied_buffer(s, n);
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return b;
}

/* Fills a new response; *before: the id of the one that it continues. */
static fv_status unpack(const bytes *plain, fv_kept_response *k,
                        char before[FV_API_RESPONSE_ID_MAX + 1]) {
    cursor c = {plain->at, plain->n, true};
    size_t n_before, n_json;
    k->depth = (int32_t)take_number(&c);
    const char *id = take_field(&c, &n_before), *json = take_field(&c, &n_json);
    if (c.good && n_before <= FV_API_RESPONSE_ID_MAX) k->json = json_loadb(json, n_json, 0, NULL);
    if (!k->json) return forged();
    memcpy(before, id, n_before);
    before[n_before] = '\0';
    k->input = take_buffer(&c);
    k->output = take_buffer(&c);
    return k->input && k->output && c.good ? FV_OK : forged();
}

/* Callers need not know where the store is, nor what it says: the reason goes to the log, at most every ten seconds. */
static fv_status fail_store(fv_response_remote *r, fv_status st) {
    const double now_s = fv_clock_s();
    if (st != FV_EIO && st != FV_EBUSY) return st;
    if (r->told_s == 0 || now_s - r->told_s > 10) {
        FV_LOG(WARN, WIRE, "event=response-store-failed reason=\"%s\"", fv_last_error());
        r->told_s = now_s;
    }
    return FV_FAIL(st, "the store of responses cannot be used now: try again later");
}

/* ---- operations -------------------------------------------------------------------------- */

static fv_status name_of(const fv_response_remote *r, const fv_response_owner *owner,
                         const char *id, char out[N_NAME + 1]) {
    static const char hex[] = "0123456789abcdef";
    const fv_mac_field fields[] = {{owner->mac, sizeof owner->mac}, {id, strlen(id)}};
    uint8_t mac[FV_MAC_BYTES];
    FV_TRY(fv_mac(&r->names, fields, 2, mac));
    char *at = stpcpy(out, "fovea:response:");
    for (int i = 0; i < FV_MAC_BYTES; i++) {
        *at++ = hex[mac[i] >> 4];
        *at++ = hex[mac[i] & 15];
    }
    *at = '\0';
    return FV_OK;
}

static void finish(fv_response_remote_op *o, fv_status st) {
    fv_kept_response *first = o->first;
    st = fail_store(o->remote, st);
    if (st != FV_OK) {
        fv_kept_response_unref(first);
        first = NULL;
    }
    if (o->done)
        o->done(o->user, st, first);
    else
        fv_kept_response_unref(first);
    free(o);
}

static fv_status new_op(fv_response_remote *r, fv_response_remote_done done, void *user,
                        fv_response_remote_op **out) {
    fv_response_remote_op *o = calloc(1, sizeof *o);
    if (!o) return FV_FAIL(FV_ENOMEM, "out of memory for an operation");
    o->remote = r;
    o->done = done;
    o->user = user;
    *out = o;
    return FV_OK;
}

void fv_response_remote_drop(fv_response_remote_op *o) {
    if (o) o->done = NULL;
}

/* ---- loading ----------------------------------------------------------------------------- */

static void on_value(void *user, fv_status st, const void *value, size_t n);

static fv_status ask(fv_response_remote_op *o) {
    char name[N_NAME + 1];
    FV_TRY(name_of(o->remote, &o->owner, o->id, name));
    return fv_redis_get(o->remote->redis, name, N_NAME, on_value, o, &o->op);
}

/* Adds a response behind the last one; *more: another one comes before it. */
static fv_status take(fv_response_remote_op *o, const uint8_t *value, size_t n, bool *more) {
    bytes plain = {0};
    char before[FV_API_RESPONSE_ID_MAX + 1] = "";
    fv_kept_response *k;
    FV_TRY(fv_kept_response_new(o->store, &k));
    k->owner = o->owner;
    strcpy(k->id, o->id);
    fv_status st = unseal(o, value, n, &plain);
    if (st == FV_OK) st = unpack(&plain, k, before);
    free(plain.at);
    if (st == FV_OK && o->last && k->depth != o->last->depth - 1) st = forged();
    if (st != FV_OK) {
        fv_kept_response_unref(k);
        return st;
    }
    *(o->last ? &o->last->previous : &o->first) = k;
    o->last = k;
    o->bytes += n;
    *more = o->chain && before[0];
    strcpy(o->id, before);
    return o->bytes <= CHAIN_BYTES
               ? FV_OK
               : FV_FAIL(FV_EINVAL, "the responses that it continues have more than %d bytes",
                         CHAIN_BYTES);
}

static void on_value(void *user, fv_status st, const void *value, size_t n) {
    fv_response_remote_op *o = user;
    bool more = false;
    if (st == FV_ENOTFOUND)
        st = FV_FAIL(FV_ENOTFOUND,
                     "no response has the id '%.128s': it was not stored, or is too old", o->id);
    else if (st == FV_OK)
        st = value ? take(o, value, n, &more) : forged();
    if (st == FV_OK && more && o->done) {
        st = ask(o);
        if (st == FV_OK) return;
    }
    finish(o, st);
}

fv_status fv_response_remote_load(fv_response_remote *r, fv_response_store *store,
                                  const fv_response_owner *owner, const char *id, bool chain,
                                  fv_response_remote_done done, void *user,
                                  fv_response_remote_op **op) {
    fv_response_remote_op *o = NULL;
    if (strlen(id) > FV_API_RESPONSE_ID_MAX)
        return FV_FAIL(FV_ENOTFOUND, "no response has the id '%.128s'", id);
    FV_TRY(new_op(r, done, user, &o));
    o->store = store;
    o->owner = *owner;
    o->chain = chain;
    strcpy(o->id, id);
    fv_status st = ask(o);
    if (st == FV_OK)
        *op = o;
    else
        free(o);
    return fail_store(r, st);
}

/* ---- the others -------------------------------------------------------------------------- */

static void on_done(void *user, fv_status st, const void *value, size_t n) {
    (void)value, (void)n;
    finish(user, st);
}

static fv_status send_put(fv_response_remote_op *o, const fv_kept_response *k, int64_t ms) {
    bytes plain = {0}, sealed = {0};
    char name[N_NAME + 1];
    fv_status st = name_of(o->remote, &k->owner, k->id, name);
    if (st == FV_OK) st = pack(k, &plain);
    if (st == FV_OK) st = seal(o->remote, k, &plain, &sealed);
    if (st == FV_OK)
        st = fv_redis_set(o->remote->redis, name, N_NAME, sealed.at, sealed.n, ms, on_done, o,
                          &o->op);
    free(plain.at);
    free(sealed.at);
    return st;
}

fv_status fv_response_remote_put(fv_response_remote *r, const fv_kept_response *k, int64_t ms,
                                 fv_response_remote_done done, void *user,
                                 fv_response_remote_op **op) {
    fv_response_remote_op *o = NULL;
    FV_TRY(new_op(r, done, user, &o));
    fv_status st = send_put(o, k, ms);
    if (st == FV_OK)
        *op = o;
    else
        free(o);
    return fail_store(r, st);
}

fv_status fv_response_remote_delete(fv_response_remote *r, const fv_response_owner *owner,
                                    const char *id, fv_response_remote_done done, void *user,
                                    fv_response_remote_op **op) {
    char name[N_NAME + 1];
    fv_response_remote_op *o = NULL;
    FV_TRY(name_of(r, owner, id, name));
    FV_TRY(new_op(r, done, user, &o));
    fv_status st = fv_redis_delete(r->redis, name, N_NAME, on_done, o, &o->op);
    if (st == FV_OK)
        *op = o;
    else
        free(o);
    return fail_store(r, st);
}

/* ---- open and close ---------------------------------------------------------------------- */

fv_status fv_response_remote_owner(const fv_response_remote *r, const char *tenant,
                                   const char *authorization, fv_response_owner *out) {
    return fv_response_owner_by(&r->owners, tenant, authorization, out);
}

fv_status fv_response_remote_open(const fv_response_remote_options *opt, fv_response_remote **out) {
    const fv_redis_options redis = {.loop = opt->loop,
                                    .url = opt->url,
                                    .ca = opt->ca,
                                    .deadline_ms = opt->deadline_ms,
                                    .value_max = FV_RESPONSE_REMOTE_BYTES};
    fv_response_remote *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for responses");
    fv_status st = fv_key_derive(&opt->key, "responses: owners", &r->owners);
    if (st == FV_OK) st = fv_key_derive(&opt->key, "responses: names", &r->names);
    if (st == FV_OK) st = fv_key_derive(&opt->key, "responses: values", &r->values);
    if (st == FV_OK) st = fv_redis_open(&redis, &r->redis);
    if (st == FV_OK)
        *out = r;
    else
        fv_response_remote_close(r);
    return st;
}

void fv_response_remote_close(fv_response_remote *r) {
    if (!r) return;
    fv_redis_close(r->redis);
    fv_key_wipe(&r->owners);
    fv_key_wipe(&r->names);
    fv_key_wipe(&r->values);
    free(r);
}
