#include "gateway/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

struct fv_http_tls {
    fv_tls *files;
    uint64_t version; /* last one tried, usable or not */
    SSL_CTX *now;
};

struct fv_http_session {
    SSL *ssl;      /* owns both */
    BIO *in, *out; /* bytes from and to the socket */
};

/* ---- files ------------------------------------------------------------------------------ */

static int no_passphrase(char *out, int cap, int writing, void *user) {
    (void)out, (void)cap, (void)writing, (void)user;
    return 0;
}

static X509 *next_certificate(BIO *in) { return PEM_read_bio_X509(in, NULL, no_passphrase, NULL); }

static bool use_chain(SSL_CTX *c, BIO *in) {
    X509 *leaf = next_certificate(in), *above;
    bool ok = leaf && SSL_CTX_use_certificate(c, leaf) == 1;
    X509_free(leaf);
    while (ok && (above = next_certificate(in))) {
        ok = SSL_CTX_add0_chain_cert(c, above) == 1;
        if (!ok) X509_free(above);
    }
    return ok;
}

static bool use_key(SSL_CTX *c, BIO *in) {
    EVP_PKEY *key = PEM_read_bio_PrivateKey(in, NULL, no_passphrase, NULL);
    bool ok = key && SSL_CTX_use_PrivateKey(c, key) == 1 && SSL_CTX_check_private_key(c) == 1;
    EVP_PKEY_free(key);
    return ok;
}

/* Trusts the authorities, and sends their names so that clients know which certificate to show. */
static bool use_authorities(SSL_CTX *c, BIO *in) {
    X509 *authority;
    int n = 0;
    while ((authority = next_certificate(in))) {
        bool ok = X509_STORE_add_cert(SSL_CTX_get_cert_store(c), authority) == 1 &&
                  SSL_CTX_add_client_CA(c, authority) == 1;
        X509_free(authority);
        if (!ok) return false;
        n++;
    }
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return n > 0;
}

static bool use(SSL_CTX *c, const char *pem, bool (*take)(SSL_CTX *c, BIO *in)) {
    BIO *in = BIO_new_mem_buf(pem, -1);
    bool ok = in && take(c, in);
    BIO_free(in);
    return ok;
}

/* Chooses http/1.1 where the client offers it; otherwise answers nothing about protocols. h2 is not
 * supported. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n,
                           const unsigned char *offered, unsigned n_offered, void *user) {
    static const unsigned char own[] = "\x08http/1.1";
    (void)ssl, (void)user;
    int found = SSL_select_next_proto((unsigned char **)(uintptr_t)out, n, own, sizeof own - 1,
                                      offered, n_offered);
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

static SSL_CTX *new_context(const fv_tls_pem *pem) {
    static const unsigned char id[] = "fovea";
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    if (!c) return NULL;
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_id_context(c, id, sizeof id - 1);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF); /* tickets need no memory here */
    SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
    if (use(c, pem->cert, use_chain) && use(c, pem->key, use_key) &&
        (!pem->ca || use(c, pem->ca, use_authorities)))
        return c;
    SSL_CTX_free(c);
    return NULL;
}

static fv_status load(fv_http_tls *t) {
    fv_tls_pem pem;
    FV_TRY(fv_tls_pem_copy(t->files, &pem));
    t->version = pem.version;
    ERR_clear_error();
    SSL_CTX *c = new_context(&pem);
    unsigned long why = ERR_peek_last_error();
    fv_tls_pem_free(&pem);
    if (!c) {
        const char *reason = why ? ERR_reason_error_string(why) : NULL;
        ERR_clear_error();
        return FV_FAIL(FV_EDATA, "TLS certificate: %s", reason ? reason : "it cannot be read");
    }
    ERR_clear_error(); /* OpenSSL counts the end of a PEM file as an error */
    SSL_CTX_free(t->now);
    t->now = c;
    return FV_OK;
}

fv_status fv_http_tls_open(fv_tls *files, fv_http_tls **out) {
    fv_http_tls *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "out of memory for TLS");
    t->files = files;
    fv_status st = load(t);
    if (st == FV_OK)
        *out = t;
    else
        free(t);
    return st;
}

void fv_http_tls_close(fv_http_tls *t) {
    if (!t) return;
    SSL_CTX_free(t->now);
    free(t);
}

/* ---- sessions --------------------------------------------------------------------------- */

fv_status fv_http_session_open(fv_http_tls *t, fv_http_session **out) {
    if (fv_tls_version(t->files) != t->version && load(t) != FV_OK)
        FV_LOG(WARN, WIRE, "event=tls-kept reason=\"%s\"", fv_last_error());
    fv_http_session *s = calloc(1, sizeof *s);
    if (s) s->ssl = SSL_new(t->now);
    BIO *in = BIO_new(BIO_s_mem()), *bytes = BIO_new(BIO_s_mem());
    if (!s || !s->ssl || !in || !bytes) {
        BIO_free(in);
        BIO_free(bytes);
        fv_http_session_close(s);
        return FV_FAIL(FV_ENOMEM, "out of memory for TLS");
    }
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(s->ssl, in, bytes);
    SSL_set_accept_state(s->ssl);
    s->in = in;
    s->out = bytes;
    *out = s;
    return FV_OK;
}

void fv_http_session_close(fv_http_session *s) {
    if (!s) return;
    SSL_free(s->ssl);
    free(s);
}

bool fv_http_session_feed(fv_http_session *s, const void *wire, size_t n) {
    return BIO_write(s->in, wire, (int)n) == (int)n;
}

int fv_http_session_read(fv_http_session *s, void *out, size_t cap) {
    ERR_clear_error();
    int n = SSL_read(s->ssl, out, (int)cap);
    if (n > 0) return n;
    int why = SSL_get_error(s->ssl, n);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return 0;
    if (why == SSL_ERROR_SSL)
        FV_LOG(DEBUG, WIRE, "event=http reason=\"%s\"", ERR_reason_error_string(ERR_peek_error()));
    ERR_clear_error();
    return -1;
}

bool fv_http_session_write(fv_http_session *s, const void *bytes, size_t n) {
    ERR_clear_error();
    return SSL_write(s->ssl, bytes, (int)n) == (int)n;
}

void fv_http_session_end(fv_http_session *s) {
    ERR_clear_error();
    if (SSL_is_init_finished(s->ssl)) SSL_shutdown(s->ssl);
    ERR_clear_error();
}

size_t fv_http_session_take(fv_http_session *s, void *wire, size_t cap) {
    int n = BIO_read(s->out, wire, (int)cap);
    return n > 0 ? (size_t)n : 0;
}
