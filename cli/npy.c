/* Writes .npy files. */
#include "cli/npy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

fv_status fv_npy_write(const char *path, fv_npy_type type, const int64_t *shape, int32_t n_dim,
                       const void *data) {
    char dims[256] = "";
    size_t n = 0, count = 1;
    for (int32_t i = 0; i < n_dim; i++) {
        n += (size_t)snprintf(dims + n, sizeof dims - n, "%lld,", (long long)shape[i]);
        count *= (size_t)shape[i];
    }
    /* magic, version, header length; padded so that data starts at a multiple of 64 */
    char head[512];
    int len = snprintf(head + 10, sizeof head - 10,
                       "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                       type == FV_NPY_F32 ? "<f4" : "<i4", dims);
    size_t total = ((size_t)len + 10 + 1 + 63) / 64 * 64;
    memset(head + 10 + len, ' ', total - 10 - (size_t)len);
    head[total - 1] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)((total - 10) & 0xff);
    head[9] = (char)((total - 10) >> 8);
    FILE *f = fopen(path, "wb");
    if (!f) return FV_FAIL(FV_EIO, "cannot create %s: %s", path, strerror(errno));
    bool ok = fwrite(head, 1, total, f) == total && fwrite(data, 4, count, f) == count;
    if (fclose(f) != 0) ok = false;
    return ok ? FV_OK : FV_FAIL(FV_EIO, "cannot write %s: %s", path, strerror(errno));
}
