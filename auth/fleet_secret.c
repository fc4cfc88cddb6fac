#include "auth/fleet_secret.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/log.h"

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

fv_status fv_fleet_secret_key(const char *secret, size_t n, fv_key *out) {
    static const fv_key label = {"fovea fleet secret"};
    while (n > 0 && is_space(secret[0])) secret++, n--;
    while (n > 0 && is_space(secret[n - 1])) n--;
    if (n < FV_FLEET_SECRET_MIN || n > FV_FLEET_SECRET_MAX)
        return FV_FAIL(FV_EINVAL,
                       "a fleet's secret has %d to %d bytes, and this one %zu; make one with: head "
                       "-c 32 /dev/urandom | base64 > FILE",
                       FV_FLEET_SECRET_MIN, FV_FLEET_SECRET_MAX, n);
    fv_mac_field field = {secret, n};
    return fv_mac(&label, &field, 1, out->bytes);
}

static void warn_of_readers(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && (st.st_mode & S_IROTH))
        FV_LOG(WARN, WIRE,
               "event=secret-open file=%s reason=\"every user of this machine may read "
               "it: chmod o-r\"",
               path);
}

fv_status fv_fleet_secret_read(const char *path, fv_key *out) {
    char *text;
    size_t n;
    fv_status st = fv_file_read(path, 2 * FV_FLEET_SECRET_MAX, &text, &n);
    if (st == FV_OK) {
        st = fv_fleet_secret_key(text, n, out);
        if (st != FV_OK) fv_fail_prefix(st, "%s", path);
        OPENSSL_cleanse(text, n);
        free(text);
        warn_of_readers(path);
    }
    if (st == FV_OK) return FV_OK;
    fv_fail_prefix(FV_EINVAL, "--fleet-token-file");
    return FV_EINVAL;
}

fv_status fv_fleet_secret_of(const fv_options *o, bool certificates, fv_key *out) {
    const char *path = fv_options_string(o, "fleet-token-file");
    if (path) return fv_fleet_secret_read(path, out);
    if (certificates) {
        *out = (fv_key){{0}};
        return FV_OK;
    }
    return FV_FAIL(
        FV_EINVAL,
        "--fleet-token-file FILE is needed: the fleet's secret, the same for its router "
        "and all its workers, which is how they know each other. Make one with: (umask "
        "077; head -c 32 /dev/urandom | base64 > fleet.token). `fovea up` makes its own");
}
