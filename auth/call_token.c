/* Call tokens as text, and their MAC. Pure functions; any thread. */
#include "auth/call_token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/random.h"

fv_status fv_call_key(const fv_key *fleet, fv_key *out) {
    return fv_key_derive(fleet, "calls", out);
}

static fv_mac_field text(const char *s) { return (fv_mac_field){s, strlen(s)}; }

static fv_status make_mac(const fv_key *key, const fv_call_to *to, const fv_call_token *t,
                          uint8_t mac[FV_MAC_BYTES]) {
    uint8_t times[16];
    for (int b = 0; b < 8; b++) {
        times[b] = (uint8_t)(t->made_ms >> (8 * b) & 0xff);
        times[8 + b] = (uint8_t)((uint64_t)t->valid_ms >> (8 * b) & 0xff);
    }
    fv_mac_field fields[] = {text("call"),          text(to->method),
                             text(to->worker),      {to->incarnation, FV_INCARNATION_BYTES},
                             text(t->request_id),   text(t->address),
                             {times, sizeof times}, {t->nonce, sizeof t->nonce}};
    return fv_mac(key, fields, sizeof fields / sizeof fields[0], mac);
}

bool fv_call_token_verify(const fv_key *key, const fv_call_to *to, const fv_call_token *t) {
    uint8_t right[FV_MAC_BYTES];
    return make_mac(key, to, t, right) == FV_OK && fv_mac_equal(right, t->mac, sizeof right);
}

/* ---- text form -------------------------------------------------------------------------- */

static bool is_word(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < '!' || s[i] > '~') return false;
    return true;
}

static void write_hex(const uint8_t *p, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", p[i]);
}

fv_status fv_call_token_write(const fv_key *key, const fv_call_to *to, fv_call_token *t,
                              char out[FV_CALL_TOKEN_MAX]) {
    char nonce[2 * FV_CALL_NONCE_BYTES + 1], mac[2 * FV_MAC_BYTES + 1];
    if (!is_word(t->request_id, strlen(t->request_id)) || !is_word(t->address, strlen(t->address)))
        return FV_FAIL(FV_EINVAL, "the request id and address of a call must be printable ASCII");
    FV_TRY(fv_random_bytes(t->nonce, sizeof t->nonce));
    FV_TRY(make_mac(key, to, t, t->mac));
    write_hex(t->nonce, sizeof t->nonce, nonce);
    write_hex(t->mac, sizeof t->mac, mac);
    snprintf(out, FV_CALL_TOKEN_MAX, "1 %s %" PRIu64 " %" PRIu32 " %s %s %s", nonce, t->made_ms,
             t->valid_ms, t->request_id, t->address, mac);
    return FV_OK;
}

/* The rest of the text. */
typedef struct cursor {
    const char *p, *end;
} cursor;

/* Reads the next field, which ends at a space, or the last field, which ends at the end. */
static bool next(cursor *c, bool last, const char **field, size_t *n) {
    if (c->p > c->end) return false;
    const char *space = memchr(c->p, ' ', (size_t)(c->end - c->p));
    if ((space == NULL) != last) return false;
    *field = c->p;
    *n = (size_t)((space ? space : c->end) - c->p);
    c->p = space ? space + 1 : c->end + 1;
    return true;
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(cursor *c, bool last, uint8_t *out, size_t bytes) {
    const char *s;
    size_t n;
    if (!next(c, last, &s, &n) || n != 2 * bytes) return false;
    for (size_t i = 0; i < bytes; i++) {
        int high = digit(s[2 * i]), low = digit(s[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

/* Reads a number, which has one spelling: no sign, no leading zero. */
static bool read_number(cursor *c, uint64_t max, uint64_t *out) {
    const char *s;
    size_t n;
    uint64_t x = 0;
    if (!next(c, false, &s, &n) || n == 0 || n > 19 || (n > 1 && s[0] == '0')) return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        x = 10 * x + (uint64_t)(s[i] - '0');
    }
    *out = x;
    return x <= max;
}

static bool read_word(cursor *c, char *out, size_t max) {
    const char *s;
    size_t n;
    if (!next(c, false, &s, &n) || n > max || !is_word(s, n)) return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

fv_status fv_call_token_read(const char *text, size_t n, fv_call_token *out) {
    cursor c = {text, text + n};
    const char *version;
    size_t n_version;
    uint64_t valid;
    fv_call_token t = {0};
    if (!next(&c, false, &version, &n_version) || n_version != 1 || version[0] != '1' ||
        !read_hex(&c, false, t.nonce, sizeof t.nonce) || !read_number(&c, INT64_MAX, &t.made_ms) ||
        !read_number(&c, UINT32_MAX, &valid) || !read_word(&c, t.request_id, FV_CALL_REQUEST_MAX) ||
        !read_word(&c, t.address, FV_ADDRESS_MAX) || !read_hex(&c, true, t.mac, sizeof t.mac))
        return FV_FAIL(FV_EAUTH, "not a call token");
    t.valid_ms = (uint32_t)valid;
    *out = t;
    return FV_OK;
}
