/* Calls getrandom until all bytes are filled. */
#include "common/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

fv_status fv_random_bytes(void *out, size_t n) {
    uint8_t *p = out;
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return FV_FAIL(FV_EIO, "cannot read random bytes: %s", strerror(errno));
        p += got;
        n -= (size_t)got;
    }
    return FV_OK;
}
