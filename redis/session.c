/* TLS 1.2 and 1.3 as a client, by OpenSSL. */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

#include "redis/internal.h"

struct fv_redis_tls {
    SSL_CTX *context;
};

struct fv_redis_session {
    SSL *ssl;      /* owns both */
    BIO *in, *out; /* bytes from and to the socket */
    BIO *early;    /* bytes that wait for the end of the handshake; owned */
};

static const char *reason(void) {
    const unsigned long why = ERR_peek_last_error();
    const char *text = why ? ERR_reason_error_string(why) : NULL;
    return text ? text : "unknown";
}

fv_status fv_redis_tls_open(const char *ca, fv_redis_tls **out) {
    fv_redis_tls *t = calloc(1, sizeof *t);
    fv_status st = FV_OK;
    ERR_clear_error();
    if (t) t->context = SSL_CTX_new(TLS_client_method());
    if (!t || !t->context) {
        free(t);
        return FV_FAIL(FV_ENOMEM, "out of memory for TLS");
    }
    SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
    const bool trusted = ca ? SSL_CTX_load_verify_locations(t->context, ca, NULL) == 1
                            : SSL_CTX_set_default_verify_paths(t->context) == 1;
    if (!trusted)
        st = FV_FAIL(FV_EDATA, "%s: cannot be read as certificates: %s",
                     ca ? ca : "the system's certificates", reason());
    ERR_clear_error();
    if (st == FV_OK)
        *out = t;
    else
        fv_redis_tls_close(t);
    return st;
}

void fv_redis_tls_close(fv_redis_tls *t) {
    if (!t) return;
    SSL_CTX_free(t->context);
    free(t);
}

/* An address must be in the certificate as one, and is no name to ask for. */
static bool expect(SSL *ssl, const char *host) {
    unsigned char address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

fv_status fv_redis_session_open(fv_redis_tls *t, const char *host, fv_redis_session **out) {
    fv_redis_session *s = calloc(1, sizeof *s);
    if (s) s->ssl = SSL_new(t->context);
    BIO *in = BIO_new(BIO_s_mem()), *bytes = BIO_new(BIO_s_mem());
    if (s) s->early = BIO_new(BIO_s_mem());
    if (!s || !s->ssl || !in || !bytes || !s->early || !expect(s->ssl, host)) {
        BIO_free(in);
        BIO_free(bytes);
        fv_redis_session_close(s);
        return FV_FAIL(FV_ENOMEM, "out of memory for TLS");
    }
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(s->ssl, in, bytes);
    SSL_set_connect_state(s->ssl);
    s->in = in;
    s->out = bytes;
    *out = s;
    return FV_OK;
}

void fv_redis_session_close(fv_redis_session *s) {
    if (!s) return;
    SSL_free(s->ssl);
    BIO_free(s->early);
    free(s);
}

bool fv_redis_session_feed(fv_redis_session *s, const void *wire, size_t n) {
    return BIO_write(s->in, wire, (int)n) == (int)n;
}

/* Sends what waited for the handshake. */
static bool send_early(fv_redis_session *s) {
    char *bytes;
    const long n = BIO_get_mem_data(s->early, &bytes);
    if (n <= 0 || !SSL_is_init_finished(s->ssl)) return true;
    const bool sent = SSL_write(s->ssl, bytes, (int)n) == (int)n;
    (void)BIO_reset(s->early);
    return sent;
}

int fv_redis_session_read(fv_redis_session *s, void *out, size_t cap) {
    ERR_clear_error();
    const int n = SSL_read(s->ssl, out, (int)cap);
    const int why = n > 0 ? SSL_ERROR_NONE : SSL_get_error(s->ssl, n);
    if (!send_early(s)) return -1;
    if (n > 0) return n;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return 0;
    const long verified = SSL_get_verify_result(s->ssl);
    (void)FV_FAIL(FV_EIO, "TLS: %s",
                  verified != X509_V_OK          ? X509_verify_cert_error_string(verified)
                  : why == SSL_ERROR_ZERO_RETURN ? "the server has ended the session"
                                                 : reason());
    ERR_clear_error();
    return -1;
}

bool fv_redis_session_write(fv_redis_session *s, const void *bytes, size_t n) {
    ERR_clear_error();
    if (!SSL_is_init_finished(s->ssl)) return BIO_write(s->early, bytes, (int)n) == (int)n;
    return SSL_write(s->ssl, bytes, (int)n) == (int)n;
}

size_t fv_redis_session_take(fv_redis_session *s, void *wire, size_t cap) {
    const int n = BIO_read(s->out, wire, (int)cap);
    return n > 0 ? (size_t)n : 0;
}
