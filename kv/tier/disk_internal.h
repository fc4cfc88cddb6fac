#ifndef FOVEA_KV_TIER_DISK_INTERNAL_H
#define FOVEA_KV_TIER_DISK_INTERNAL_H

/* Shared by disk.c (the index), disk_files.c (reads and writes segments) and disk_open.c (locks a folder, lists what is in
 * it) only. */
#include <pthread.h>
#include <stdatomic.h>

#include "kv/cache/segments.h"
#include "kv/tier/disk.h"

enum {
    FV_DISK_NAME_HEX = 2 * FV_MAC_BYTES,
    FV_DISK_TENANT_HEX = 2 * FV_SEAL_TENANT,
    FV_DISK_PATH = 4096,
};

typedef struct fv_kv_disk {
    fv_kv_tier tier; /* first */
    char *dir;       /* DIR/segments */
    int lock_fd;
    uint64_t bytes_max;
    fv_seal_keys keys;
    pthread_mutex_t names; /* held while files are renamed and deleted */
    pthread_mutex_t mutex;
    fv_segments index; /* under `mutex` */
    _Atomic uint64_t n_part, bytes_read, bytes_written, n_hit, n_miss, n_damaged, n_given_up,
        n_failed;
} fv_kv_disk;

/* ---- names ---------------------------------------------------------------------------------- */

void fv_disk_to_hex(const uint8_t *bytes, size_t n, char *out); /* out[2 n + 1] */
bool fv_disk_from_hex(const char *text, size_t n,
                      uint8_t *out);                /* exactly 2 n digits; out may be NULL */
fv_chain_key fv_disk_key(const fv_seal_name *name); /* a name as the index has it */

/* DIR/segments/TENANT/NAME; and the bytes that a file of so many takes. */
void fv_disk_path(const fv_kv_disk *d, const char *tenant, const fv_chain_key *name,
                  char out[FV_DISK_PATH]);
size_t fv_disk_blocks(uint64_t bytes);

/* ---- the index ------------------------------------------------------------------------------ */

/* Files that the index has given up, to be deleted without its lock. */
typedef struct fv_doomed {
    struct fv_doomed *next;
    char tenant[FV_DISK_TENANT_HEX + 1];
    fv_chain_key name;
} fv_doomed;

/* Under the lock: adds a file, which the index must not have; and gives up files until there is room for `bytes` more of
 * a tenant, false if there is none. */
fv_status fv_disk_index_add(fv_kv_disk *d, const char *tenant, const fv_chain_key *name,
                            size_t bytes);
bool fv_disk_make_room(fv_kv_disk *d, const char *tenant, size_t bytes, fv_doomed **list);

/* Without the lock: deletes the files of a list, and frees it; and forgets a file that is damaged, and deletes it. */
void fv_disk_delete(fv_kv_disk *d, fv_doomed *list);
void fv_disk_forget(fv_kv_disk *d, const fv_chain_key *name);

/* ---- files ---------------------------------------------------------------------------------- */

/* As fv_kv_tier_ops. */
fv_status fv_disk_read(fv_kv_tier *t, const fv_chain_key *key, const fv_seal_head *want, void *rows,
                       double *seconds);
fv_status fv_disk_write(fv_kv_tier *t, const char *tenant, const fv_chain_key *key,
                        const fv_seal_head *head, const void *rows);
int32_t fv_disk_has(fv_kv_tier *t, const fv_chain_key *const *key, int32_t n);

bool fv_disk_write_all(int fd, const void *in, size_t n);
fv_status fv_disk_fail_write(const char *path); /* FV_EIO with errno's text */

#endif
