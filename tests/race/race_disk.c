/* The folder of kept segments under ThreadSanitizer: threads that read, write and count at once, with room for less
 * than they write. What is read is what was written. */
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "kv/tier/disk.h"

enum { THREADS = 4, STEPS = 400, SEGMENTS = 24, BYTES = 5000, ROOM = 8 * 8192 };

static fv_kv_tier *tier;
static const fv_seal_head head = {.n = 64, .seconds = 0.25, .bytes = BYTES};

static void must(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, fv_last_error());
    abort();
}

static fv_chain_key key_of(unsigned id) {
    fv_chain_key key = {{0}};
    memcpy(key.bytes, &id, sizeof id);
    return key;
}

static void fill(uint8_t *rows, unsigned id) {
    for (unsigned i = 0; i < BYTES; i++) rows[i] = (uint8_t)(i * 31 + id * 7);
}

static void put(unsigned id) {
    uint8_t rows[BYTES];
    fv_chain_key key = key_of(id);
    fill(rows, id);
    fv_status st = tier->ops->write(tier, id % 2 ? "ann" : "bob", &key, &head, rows);
    must(st == FV_OK || st == FV_ENOMEM, "write");
}

static void get(unsigned id) {
    uint8_t rows[BYTES], want[BYTES];
    double seconds;
    fv_chain_key key = key_of(id);
    fv_status st = tier->ops->read(tier, &key, &head, rows, &seconds);
    if (st == FV_ENOTFOUND) return;
    must(st == FV_OK, "read");
    fill(want, id);
    must(memcmp(rows, want, BYTES) == 0 && seconds == 0.25, "other rows");
}

static void ask(unsigned id) {
    fv_chain_key a = key_of(id), b = key_of(id + 1);
    const fv_chain_key *list[] = {&a, &b};
    int32_t n = tier->ops->has(tier, list, 2);
    must(n >= 0 && n <= 2, "has");
    must(tier->ops->count(tier).bytes <= ROOM, "more than there is room for");
}

static void *work(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < STEPS; i++) {
        unsigned id = ((state = state * 1664525U + 1013904223U) >> 16) % SEGMENTS;
        if (i % 3 == 0) put(id);
        if (i % 3 == 1) ask(id);
        get(id);
    }
    return NULL;
}

static int remove_entry(const char *path, const struct stat *sb, int type, struct FTW *where) {
    (void)sb, (void)type, (void)where;
    return remove(path);
}

int main(void) {
    char dir[512];
    pthread_t thread[THREADS];
    must(fv_path_join(FOVEA_TEST_TMP, "race-disk-XXXXXX", dir, sizeof dir) == FV_OK, "path");
    must(fv_dir_make(FOVEA_TEST_TMP) == FV_OK && mkdtemp(dir), "folder");
    must(fv_kv_disk_open(dir, ROOM, NULL, &tier) == FV_OK, "open");
    for (uintptr_t i = 0; i < THREADS; i++)
        must(pthread_create(&thread[i], NULL, work, (void *)(i + 1)) == 0, "thread");
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    fv_tier_counters n = tier->ops->count(tier);
    must(n.n_hit > 0 && n.n_given_up > 0 && n.n_damaged == 0 && n.n_failed == 0, "counters");
    tier->ops->close(tier);
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    puts("ok");
    return 0;
}
