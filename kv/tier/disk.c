/* The folder's index is a fv_segments whose segments have no rows: keys are names of files, tenants names of folders.
 * The lock `mutex` guards the index and is held for work in memory alone, so a look-up never waits for the file
 * system. The lock `names`, taken before it, is held while files get and lose their names. Files are read and written
 * with neither held. A file that is given up while it is read stays readable until then, as its name alone is gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kv/tier/disk_internal.h"

enum { BLOCK = 4096 /* files take whole blocks */ };

/* ---- names ---------------------------------------------------------------------------------- */

void fv_disk_to_hex(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads exactly 2 n digits. */
bool fv_disk_from_hex(const char *text, size_t n, uint8_t *out) {
    if (strlen(text) != 2 * n) return false;
    for (size_t i = 0; i < n; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        if (out) out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

fv_chain_key fv_disk_key(const fv_seal_name *name) {
    fv_chain_key key;
    memcpy(key.bytes, name->bytes, sizeof key.bytes);
    return key;
}

/* DIR/segments/TENANT/NAME */
void fv_disk_path(const fv_kv_disk *d, const char *tenant, const fv_chain_key *name,
                  char out[FV_DISK_PATH]) {
    char hex[FV_DISK_NAME_HEX + 1];
    fv_disk_to_hex(name->bytes, sizeof name->bytes, hex);
    snprintf(out, FV_DISK_PATH, "%s/%s/%s", d->dir, tenant, hex);
}

size_t fv_disk_blocks(uint64_t bytes) { return (size_t)((bytes + BLOCK - 1) / BLOCK * BLOCK); }

/* ---- the index ------------------------------------------------------------------------------ */

/* Adds a file to the index, which must not have it. Under the lock. */
fv_status fv_disk_index_add(fv_kv_disk *d, const char *tenant, const fv_chain_key *name,
                            size_t bytes) {
    fv_prefix_segment *x = calloc(1, sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "out of memory for the index of kept segments");
    x->key = *name;
    x->bytes = bytes;
    fv_status st = fv_segments_draft(&d->index, tenant, x);
    if (st == FV_OK) {
        st = fv_segments_add(&d->index, x);
        if (st == FV_OK) return FV_OK;
        fv_segments_undraft(&d->index, x);
    }
    free(x);
    return st;
}

/* Drops a file from the index, and adds it to a list. Under the lock. */
static bool doom(fv_kv_disk *d, fv_prefix_segment *x, fv_doomed **list) {
    fv_doomed *file = malloc(sizeof *file);
    if (!file) return false;
    snprintf(file->tenant, sizeof file->tenant, "%s", x->tenant->name);
    file->name = x->key;
    file->next = *list;
    *list = file;
    fv_segments_drop(&d->index, x);
    return true;
}

/* Deletes the files of a list, and frees it. */
void fv_disk_delete(fv_kv_disk *d, fv_doomed *list) {
    for (fv_doomed *file = list, *next; file; file = next) {
        char path[FV_DISK_PATH];
        next = file->next;
        fv_disk_path(d, file->tenant, &file->name, path);
        unlink(path);
        free(file);
    }
}

/* Gives up files until there is room for `bytes` more of a tenant. Under the lock. */
bool fv_disk_make_room(fv_kv_disk *d, const char *tenant, size_t bytes, fv_doomed **list) {
    if (bytes > d->bytes_max) return false;
    while (d->index.bytes > d->bytes_max - bytes) {
        fv_prefix_segment *x = fv_segments_victim(&d->index, tenant, bytes);
        if (!x || !doom(d, x, list)) return false;
        d->n_given_up++;
    }
    return true;
}

/* Forgets a file that is damaged, and deletes it. */
void fv_disk_forget(fv_kv_disk *d, const fv_chain_key *name) {
    fv_doomed *list = NULL;
    pthread_mutex_lock(&d->names);
    pthread_mutex_lock(&d->mutex);
    fv_prefix_segment *x = fv_segments_find(&d->index, name);
    if (x) (void)doom(d, x, &list);
    pthread_mutex_unlock(&d->mutex);
    fv_disk_delete(d, list);
    pthread_mutex_unlock(&d->names);
}

int32_t fv_disk_has(fv_kv_tier *t, const fv_chain_key *const *key, int32_t n) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    fv_seal_name name;
    int32_t found = 0;
    for (bool there = true; found < n; found += there) {
        if (fv_seal_name_of(&d->keys, key[found], &name) != FV_OK) break;
        fv_chain_key file = fv_disk_key(&name);
        pthread_mutex_lock(&d->mutex);
        there = fv_segments_find(&d->index, &file) != NULL;
        pthread_mutex_unlock(&d->mutex);
        if (!there) break;
    }
    return found;
}
