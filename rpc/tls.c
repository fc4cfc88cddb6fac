/* Reads PEM files into memory and makes gRPC's credentials of them. Handshakes ask on gRPC's threads, so all
 * mutable state is under one lock. gRPC's own file watcher is experimental in 1.51. */
#include "rpc/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"

enum { CERT = 0, KEY, CA, N_FILE, PEM_MAX = 1 << 20 };

/* A server's credentials, and the version that its handshakes use. */
typedef struct fetcher {
    struct fetcher *next;
    fv_tls *tls;
    uint64_t seen;
} fetcher;

struct fv_tls {
    char *path[N_FILE]; /* NULL: none */
    pthread_mutex_t lock;
    double looked_s;
    fv_file_stamp stamps[N_FILE]; /* of the last reading, usable or not */
    char *pem[N_FILE];            /* in use */
    uint64_t version;
    fetcher *fetchers;
};

/* ---- reading ---------------------------------------------------------------------------- */

static void free_pem(char *pem[N_FILE]) {
    if (pem[KEY]) OPENSSL_cleanse(pem[KEY], strlen(pem[KEY]));
    for (int i = 0; i < N_FILE; i++) {
        free(pem[i]);
        pem[i] = NULL;
    }
}

static int no_passphrase(char *out, int cap, int writing, void *user) {
    (void)out, (void)cap, (void)writing, (void)user;
    return 0;
}

static BIO *reader(const char *pem) { return BIO_new_mem_buf(pem, -1); }

static X509 *read_certificate(const char *pem) {
    BIO *in = reader(pem);
    X509 *x = in ? PEM_read_bio_X509(in, NULL, no_passphrase, NULL) : NULL;
    BIO_free(in);
    return x;
}

static EVP_PKEY *read_key(const char *pem) {
    BIO *in = reader(pem);
    EVP_PKEY *k = in ? PEM_read_bio_PrivateKey(in, NULL, no_passphrase, NULL) : NULL;
    BIO_free(in);
    return k;
}

static void log_loaded(const fv_tls *t, const X509 *cert) {
    int days = 0, seconds = 0;
    if (!ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(cert))) return;
    if (days < 0 || seconds < 0)
        FV_LOG(WARN, WIRE, "event=tls-expired file=%s", t->path[CERT]);
    else
        FV_LOG(INFO, WIRE, "event=tls-loaded file=%s days_left=%d", t->path[CERT], days);
}

static fv_status check_pair(const fv_tls *t, char *const pem[N_FILE]) {
    fv_status st = FV_OK;
    X509 *cert = read_certificate(pem[CERT]);
    EVP_PKEY *key = read_key(pem[KEY]);
    if (!cert)
        st = FV_FAIL(FV_EDATA, "%s: no PEM certificate", t->path[CERT]);
    else if (!key)
        st = FV_FAIL(FV_EDATA, "%s: no PEM private key without a passphrase", t->path[KEY]);
    else if (X509_check_private_key(cert, key) != 1)
        st = FV_FAIL(FV_EDATA, "%s is not the key of the certificate in %s", t->path[KEY],
                     t->path[CERT]);
    else
        log_loaded(t, cert);
    X509_free(cert);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return st;
}

static fv_status check_authorities(const fv_tls *t, const char *pem) {
    X509 *first = read_certificate(pem);
    bool good = first != NULL;
    X509_free(first);
    ERR_clear_error();
    return good ? FV_OK : FV_FAIL(FV_EDATA, "%s: no PEM certificate", t->path[CA]);
}

/* Reads and checks all files; on failure frees what it has read. */
static fv_status load(fv_tls *t, char *pem[N_FILE]) {
    size_t bytes;
    fv_status st;
    for (int i = 0; i < N_FILE; i++)
        if (t->path[i]) FV_TRY_GOTO(fv_file_read(t->path[i], PEM_MAX, &pem[i], &bytes), st, fail);
    if (t->path[CERT]) FV_TRY_GOTO(check_pair(t, pem), st, fail);
    if (t->path[CA]) FV_TRY_GOTO(check_authorities(t, pem[CA]), st, fail);
    return FV_OK;
fail:
    free_pem(pem);
    return st;
}

/* Reads the files if they have changed. Takes the stamps before the contents, so that a change in between is seen
 * the next time. Locked. */
static fv_status reload_if_changed(fv_tls *t) {
    fv_file_stamp now[N_FILE];
    bool same = true;
    for (int i = 0; i < N_FILE; i++) {
        now[i] = fv_file_stamp_of(t->path[i]);
        same = same && fv_file_stamp_equal(&now[i], &t->stamps[i]);
    }
    t->looked_s = fv_clock_s();
    if (same && t->version > 0) return FV_OK;
    memcpy(t->stamps, now, sizeof now);
    char *pem[N_FILE] = {0};
    FV_TRY(load(t, pem));
    free_pem(t->pem);
    memcpy(t->pem, pem, sizeof pem);
    t->version++;
    return FV_OK;
}

/* Locked. */
static void poll_files(fv_tls *t) {
    if (1e3 * (fv_clock_s() - t->looked_s) < FV_TLS_LOOK_MS || reload_if_changed(t) == FV_OK)
        return;
    FV_LOG(WARN, WIRE, "event=tls-kept reason=\"%s\"", fv_last_error());
}

uint64_t fv_tls_version(fv_tls *t) {
    pthread_mutex_lock(&t->lock);
    poll_files(t);
    uint64_t version = t->version;
    pthread_mutex_unlock(&t->lock);
    return version;
}

fv_status fv_tls_pem_copy(fv_tls *t, fv_tls_pem *out) {
    pthread_mutex_lock(&t->lock);
    poll_files(t);
    fv_tls_pem p = {strdup(t->pem[CERT]), strdup(t->pem[KEY]),
                    t->pem[CA] ? strdup(t->pem[CA]) : NULL, t->version};
    bool whole = p.cert && p.key && (p.ca || !t->pem[CA]);
    pthread_mutex_unlock(&t->lock);
    if (!whole) {
        fv_tls_pem_free(&p);
        return FV_FAIL(FV_ENOMEM, "out of memory for a certificate");
    }
    *out = p;
    return FV_OK;
}

void fv_tls_pem_free(fv_tls_pem *p) {
    if (p->key) OPENSSL_cleanse(p->key, strlen(p->key));
    free(p->cert);
    free(p->key);
    free(p->ca);
    *p = (fv_tls_pem){0};
}

/* ---- servers ---------------------------------------------------------------------------- */

/* gRPC calls this before every handshake, and once before the first. */
static grpc_ssl_certificate_config_reload_status fetch(void *user,
                                                       grpc_ssl_server_certificate_config **out) {
    fetcher *f = user;
    fv_tls *t = f->tls;
    grpc_ssl_certificate_config_reload_status result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    pthread_mutex_lock(&t->lock);
    poll_files(t);
    if (f->seen != t->version) {
        grpc_ssl_pem_key_cert_pair pair = {t->pem[KEY], t->pem[CERT]};
        /* gRPC 1.51 aborts without authorities, even if no client certificate is requested. */
        const char *authorities = t->pem[CA] ? t->pem[CA] : t->pem[CERT];
        *out = grpc_ssl_server_certificate_config_create(authorities, &pair, 1);
        f->seen = t->version;
        result = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    pthread_mutex_unlock(&t->lock);
    return result;
}

grpc_server_credentials *fv_tls_server_credentials(fv_tls *t) {
    fetcher *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->tls = t;
    f->next = t->fetchers;
    t->fetchers = f;
    grpc_ssl_client_certificate_request_type request =
        t->path[CA] ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, fetch, f));
}

/* ---- channels --------------------------------------------------------------------------- */

grpc_channel_credentials *fv_tls_channel_credentials(fv_tls *t, uint64_t *version) {
    pthread_mutex_lock(&t->lock);
    poll_files(t);
    grpc_ssl_pem_key_cert_pair pair = {t->pem[KEY], t->pem[CERT]};
    grpc_channel_credentials *out =
        grpc_ssl_credentials_create_ex(t->pem[CA], t->pem[CERT] ? &pair : NULL, NULL, NULL);
    *version = t->version;
    pthread_mutex_unlock(&t->lock);
    return out;
}

/* ---- opening and closing ---------------------------------------------------------------- */

fv_status fv_tls_open(const fv_tls_files *files, fv_tls **out) {
    const char *path[N_FILE] = {files->cert, files->key, files->ca};
    if (!files->cert != !files->key)
        return FV_FAIL(FV_EINVAL, "a TLS certificate needs its key, and a key its certificate");
    fv_tls *t = calloc(1, sizeof *t);
    if (!t) return FV_FAIL(FV_ENOMEM, "no memory for TLS");
    pthread_mutex_init(&t->lock, NULL);
    fv_status st = FV_OK;
    for (int i = 0; i < N_FILE && st == FV_OK; i++)
        if (path[i] && !(t->path[i] = strdup(path[i])))
            st = FV_FAIL(FV_ENOMEM, "no memory for TLS");
    if (st == FV_OK) st = reload_if_changed(t);
    if (st != FV_OK) {
        fv_tls_close(t);
        return st;
    }
    *out = t;
    return FV_OK;
}

void fv_tls_close(fv_tls *t) {
    if (!t) return;
    while (t->fetchers) {
        fetcher *f = t->fetchers;
        t->fetchers = f->next;
        free(f);
    }
    free_pem(t->pem);
    for (int i = 0; i < N_FILE; i++) free(t->path[i]);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
