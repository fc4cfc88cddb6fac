#include "gateway/http/tls.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"

struct fv_http_credentials {
    int32_t n_ref;
    bool asks; /* for the client's certificate */
    gnutls_certificate_credentials_t own;
};

struct fv_http_tls {
    fv_tls *files;
    uint64_t version; /* that was looked at last, usable or not */
    fv_http_credentials *now;
};

static gnutls_datum_t datum(char *pem) {
    return (gnutls_datum_t){(unsigned char *)pem, (unsigned)strlen(pem)};
}

static int read_pem(gnutls_certificate_credentials_t c, const fv_tls_pem *pem) {
    gnutls_datum_t cert = datum(pem->cert), key = datum(pem->key);
    int rc = gnutls_certificate_set_x509_key_mem(c, &cert, &key, GNUTLS_X509_FMT_PEM);
    if (rc < 0 || !pem->ca) return rc;
    gnutls_datum_t ca = datum(pem->ca);
    rc = gnutls_certificate_set_x509_trust_mem(c, &ca, GNUTLS_X509_FMT_PEM); /* how many */
    return rc == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND : rc;
}

static fv_status load(fv_http_tls *t) {
    fv_tls_pem pem;
    FV_TRY(fv_tls_pem_copy(t->files, &pem));
    t->version = pem.version;
    fv_http_credentials *c = calloc(1, sizeof *c);
    int rc = c ? gnutls_certificate_allocate_credentials(&c->own) : GNUTLS_E_MEMORY_ERROR;
    if (rc >= 0) {
        c->n_ref = 1;
        c->asks = pem.ca != NULL;
        rc = read_pem(c->own, &pem);
        if (rc < 0) gnutls_certificate_free_credentials(c->own);
    }
    fv_tls_pem_free(&pem);
    if (rc < 0) {
        free(c);
        return FV_FAIL(FV_EDATA, "TLS certificate: %s", gnutls_strerror(rc));
    }
    fv_http_credentials_unref(t->now);
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
    fv_http_credentials_unref(t->now);
    free(t);
}

fv_status fv_http_tls_begin(fv_http_tls *t, gnutls_session_t session, fv_http_credentials **out) {
    gnutls_typed_vdata_st client = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                    .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    if (fv_tls_version(t->files) != t->version && load(t) != FV_OK)
        FV_LOG(WARN, WIRE, "event=tls-kept reason=\"%s\"", fv_last_error());
    if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, t->now->own) < 0)
        return FV_FAIL(FV_ENOMEM, "out of memory for TLS");
    if (t->now->asks) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert2(session, &client, 1, 0);
    }
    t->now->n_ref++;
    *out = t->now;
    return FV_OK;
}

void fv_http_credentials_unref(fv_http_credentials *c) {
    if (!c || --c->n_ref > 0) return;
    gnutls_certificate_free_credentials(c->own);
    free(c);
}
