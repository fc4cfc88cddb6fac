#ifndef FOVEA_TESTS_SUPPORT_CERTS_H
#define FOVEA_TESTS_SUPPORT_CERTS_H

/* Certificates for tests: EC keys on P-256, written as PEM files DIR/NAME.crt and DIR/NAME.key. Any
 * error aborts. */

/* An authority that signs itself. */
void certs_authority(const char *dir, const char *name);

/* A certificate issued by the authority of that name in the same folder. `san` is OpenSSL's text:
 * "DNS:fovea-router,IP:127.0.0.1,URI:spiffe://fleet/x". It is valid from an hour ago for `hours`
 * from now; below 0: expired. An existing pair is replaced, key first, each at once. */
void certs_issue(const char *dir, const char *authority, const char *name, const char *san,
                 int hours);

/* The pair NAME takes the place of the pair AS, certificate first. */
void certs_replace(const char *dir, const char *name, const char *as);

/* "DIR/NAME.EXT" in one of a few static buffers. */
const char *certs_path(const char *dir, const char *name, const char *ext);

#endif
