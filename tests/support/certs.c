#include "tests/support/certs.h"

#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SURE(x) sure((x), #x, __LINE__)
static void sure(int good, const char *what, int line) {
    if (good) return;
    fprintf(stderr, "certs.c:%d: %s\n", line, what);
    abort();
}

const char *certs_path(const char *dir, const char *name, const char *ext) {
    static char path[8][512];
    static int next;
    char *out = path[next++ % 8];
    SURE(snprintf(out, sizeof path[0], "%s/%s.%s", dir, name, ext) < (int)sizeof path[0]);
    return out;
}

/* Files are written aside and then renamed, because readers may open them at any time. */
static FILE *begin(const char *path, char temporary[600]) {
    snprintf(temporary, 600, "%s.new", path);
    FILE *f = fopen(temporary, "w");
    SURE(f != NULL);
    return f;
}

static void finish(FILE *f, const char *temporary, const char *path) {
    SURE(fclose(f) == 0 && rename(temporary, path) == 0);
}

static void write_pair(const char *dir, const char *name, X509 *cert, EVP_PKEY *key) {
    char temporary[600];
    const char *path = certs_path(dir, name, "key");
    FILE *f = begin(path, temporary);
    SURE(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
    finish(f, temporary, path);
    path = certs_path(dir, name, "crt");
    f = begin(path, temporary);
    SURE(PEM_write_X509(f, cert));
    finish(f, temporary, path);
}

static X509 *read_cert(const char *path) {
    FILE *f = fopen(path, "r");
    SURE(f != NULL);
    X509 *x = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    SURE(x != NULL);
    return x;
}

static EVP_PKEY *read_key(const char *path) {
    FILE *f = fopen(path, "r");
    SURE(f != NULL);
    EVP_PKEY *k = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    fclose(f);
    SURE(k != NULL);
    return k;
}

static void extend(X509 *x, X509 *issuer, int nid, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    SURE(e && X509_add_ext(x, e, -1));
    X509_EXTENSION_free(e);
}

/* issuer NULL: self-signed. */
static X509 *make(const char *name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *by, const char *san,
                  int hours) {
    X509 *x = X509_new();
    uint64_t serial = 0;
    SURE(x && RAND_bytes((unsigned char *)&serial, sizeof serial) == 1);
    X509_set_version(x, 2);
    ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600L * (hours < 0 ? 1 - hours : 1));
    X509_gmtime_adj(X509_getm_notAfter(x), 3600L * hours);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(issuer ? issuer : x));
    extend(x, issuer ? issuer : x, NID_basic_constraints,
           issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (san) extend(x, issuer, NID_subject_alt_name, san);
    SURE(X509_sign(x, by, EVP_sha256()) > 0);
    return x;
}

void certs_authority(const char *dir, const char *name) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = make(name, key, NULL, key, NULL, 24);
    write_pair(dir, name, x, key);
    X509_free(x);
    EVP_PKEY_free(key);
}

void certs_issue(const char *dir, const char *authority, const char *name, const char *san,
                 int hours) {
    X509 *issuer = read_cert(certs_path(dir, authority, "crt"));
    EVP_PKEY *by = read_key(certs_path(dir, authority, "key")), *key = EVP_EC_gen("P-256");
    X509 *x = make(name, key, issuer, by, san, hours);
    write_pair(dir, name, x, key);
    X509_free(x);
    X509_free(issuer);
    EVP_PKEY_free(key);
    EVP_PKEY_free(by);
}

void certs_replace(const char *dir, const char *name, const char *as) {
    SURE(rename(certs_path(dir, name, "crt"), certs_path(dir, as, "crt")) == 0);
    SURE(rename(certs_path(dir, name, "key"), certs_path(dir, as, "key")) == 0);
}
