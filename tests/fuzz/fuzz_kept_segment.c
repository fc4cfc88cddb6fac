/* Any bytes as the file of a kept segment: it is read as it was written, or not at all. The first byte says whether the
 * rest replaces the file, or is laid over a real one from a place that the second and third byte give. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "kv/tier/disk.h"
#include "tests/support/tensor_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES = 300, FILE_BYTES = FV_SEAL_HEAD + BYTES + FV_SEAL_TAG };

static void expect(bool holds) {
    if (!holds) abort();
}

static char path[2048];
static fv_kv_tier *tier;
static const fv_chain_key key = {{1}};
static const fv_seal_head head = {.n = 3, .seconds = 1, .bytes = BYTES};
static uint8_t rows[BYTES], real[FILE_BYTES];

static void find_only(const char *dir, char *out, size_t cap) {
    DIR *d = opendir(dir);
    expect(d != NULL);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') snprintf(out, cap, "%s/%s", dir, e->d_name);
    closedir(d);
}

static void begin(void) {
    static const fv_key secret = {{7}};
    char dir[512], segments[600], tenant[1200], *bytes;
    size_t n;
    if (tier) return;
    for (int i = 0; i < BYTES; i++) rows[i] = (uint8_t)i;
    scratch_dir(dir, sizeof dir);
    expect(fv_kv_disk_open(dir, 1 << 20, &secret, &tier) == FV_OK);
    expect(tier->ops->write(tier, "", &key, &head, rows) == FV_OK);
    snprintf(segments, sizeof segments, "%s/0/segments", dir);
    find_only(segments, tenant, sizeof tenant);
    find_only(tenant, path, sizeof path);
    expect(fv_file_read(path, FILE_BYTES, &bytes, &n) == FV_OK && n == FILE_BYTES);
    memcpy(real, bytes, n);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t got[BYTES];
    double seconds;
    begin();
    if (size < 3) return 0;
    if (data[0] % 2) {
        uint8_t changed[FILE_BYTES];
        size_t at = (size_t)(data[1] + 256 * data[2]) % FILE_BYTES, n = size - 3;
        memcpy(changed, real, FILE_BYTES);
        if (n > FILE_BYTES - at) n = FILE_BYTES - at;
        memcpy(changed + at, data + 3, n);
        expect(fv_file_write(path, changed, FILE_BYTES) == FV_OK);
    } else {
        expect(fv_file_write(path, data + 3, size - 3) == FV_OK);
    }
    fv_status st = tier->ops->read(tier, &key, &head, got, &seconds);
    expect(st == FV_OK || st == FV_ENOTFOUND);
    if (st == FV_OK) expect(memcmp(got, rows, BYTES) == 0 && seconds == 1);
    if (st == FV_ENOTFOUND) expect(tier->ops->write(tier, "", &key, &head, rows) == FV_OK);
    return 0;
}
