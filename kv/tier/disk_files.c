/* Reads and writes segments. A file is written beside its place and renamed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/log.h"
#include "kv/tier/disk_internal.h"

enum { PIECE = 1 << 20 /* read and written at once */ };

static size_t file_bytes(const fv_seal_head *h) {
    return fv_disk_blocks(FV_SEAL_HEAD + h->bytes + FV_SEAL_TAG);
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool read_all(int fd, void *out, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, (uint8_t *)out + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

/* Reads the rows of an open segment and what follows them. FV_EDATA: it is damaged. */
static fv_status read_rows(int fd, fv_seal *s, const fv_seal_head *want, uint8_t *rows) {
    uint8_t tag[FV_SEAL_TAG], more;
    for (uint64_t at = 0, n; at < want->bytes; at += n) {
        n = want->bytes - at < PIECE ? want->bytes - at : PIECE;
        fv_status st = FV_EDATA;
        if (read_all(fd, rows + at, (size_t)n))
            st = fv_unseal_add(s, rows + at, rows + at, (size_t)n);
        if (st == FV_OK) continue;
        fv_unseal_end(s, NULL);
        return st;
    }
    bool whole = read_all(fd, tag, sizeof tag) && read(fd, &more, 1) == 0;
    fv_status st = fv_unseal_end(s, whole ? tag : NULL);
    return whole ? st : FV_EDATA;
}

static fv_status read_segment(fv_kv_disk *d, int fd, const fv_seal_name *name,
                              const fv_seal_head *want, void *rows, double *seconds) {
    uint8_t head[FV_SEAL_HEAD];
    fv_seal s;
    if (!read_all(fd, head, sizeof head)) return FV_EDATA;
    FV_TRY(fv_unseal_begin(&s, &d->keys, name, head, want, seconds));
    return read_rows(fd, &s, want, rows);
}

/* Finds the path of a segment's file and marks it as used; false: it has none. */
static bool find(fv_kv_disk *d, const fv_chain_key *file, char path[FV_DISK_PATH]) {
    pthread_mutex_lock(&d->mutex);
    fv_prefix_segment *x = fv_segments_find(&d->index, file);
    if (x) {
        fv_disk_path(d, x->tenant->name, file, path);
        fv_segments_use(x);
    }
    pthread_mutex_unlock(&d->mutex);
    return x != NULL;
}

/* Opens the file of a segment; -1: it has none, or it cannot be opened. Under the lock of names, or a file that is given
 * up meanwhile would count as one that somebody has deleted. */
static int open_segment(fv_kv_disk *d, const fv_chain_key *file, char path[FV_DISK_PATH]) {
    bool gone = false;
    int fd = -1;
    pthread_mutex_lock(&d->names);
    if (find(d, file, path)) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* a FIFO blocks nobody */
        gone = fd < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM;
        d->n_failed += fd < 0;
    }
    pthread_mutex_unlock(&d->names);
    if (gone) fv_disk_forget(d, file);
    return fd;
}

static fv_status miss(fv_kv_disk *d) {
    d->n_miss++;
    return FV_FAIL(FV_ENOTFOUND, "the segment is not on the disk");
}

fv_status fv_disk_read(fv_kv_tier *t, const fv_chain_key *key, const fv_seal_head *want, void *rows,
                       double *seconds) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    char path[FV_DISK_PATH];
    fv_seal_name name;
    FV_TRY(fv_seal_name_of(&d->keys, key, &name));
    fv_chain_key file = fv_disk_key(&name);
    int fd = open_segment(d, &file, path);
    if (fd < 0) return miss(d);
    fv_status st = read_segment(d, fd, &name, want, rows, seconds);
    if (st == FV_OK) futimens(fd, NULL); /* the order of use, after a restart */
    close(fd);
    if (st == FV_OK) {
        d->n_hit++;
        d->bytes_read += want->bytes;
        return FV_OK;
    }
    if (st == FV_EDATA) {
        d->n_damaged++;
        FV_LOG(WARN, PREFILL, "event=kept-segment-damaged file=%s action=deleted", path);
        fv_disk_forget(d, &file);
    }
    return miss(d);
}

/* ---- writing -------------------------------------------------------------------------------- */

bool fv_disk_write_all(int fd, const void *in, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t done = write(fd, (const uint8_t *)in + at, n - at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += (size_t)done;
    }
    return true;
}

fv_status fv_disk_fail_write(const char *path) {
    return FV_FAIL(FV_EIO, "%s: %s", path, strerror(errno));
}

static fv_status write_rows(int fd, const char *path, fv_seal *s, const fv_seal_head *head,
                            const uint8_t *rows, uint8_t *piece) {
    for (uint64_t at = 0, n; at < head->bytes; at += n) {
        n = head->bytes - at < PIECE ? head->bytes - at : PIECE;
        FV_TRY(fv_seal_add(s, rows + at, piece, (size_t)n));
        if (!fv_disk_write_all(fd, piece, (size_t)n)) return fv_disk_fail_write(path);
    }
    return FV_OK;
}

static fv_status write_segment(fv_kv_disk *d, int fd, const char *path, const fv_seal_name *name,
                               const fv_seal_head *head, const void *rows) {
    uint8_t begin[FV_SEAL_HEAD], tag[FV_SEAL_TAG], *piece = malloc(PIECE);
    fv_seal s;
    if (!piece) return FV_FAIL(FV_ENOMEM, "out of memory for writing a kept segment");
    fv_status st = fv_seal_begin(&s, &d->keys, name, head, begin);
    if (st == FV_OK) {
        st = fv_disk_write_all(fd, begin, sizeof begin)
                 ? write_rows(fd, path, &s, head, rows, piece)
                 : fv_disk_fail_write(path);
        fv_status end = fv_seal_end(&s, st == FV_OK ? tag : NULL);
        if (st == FV_OK) st = end;
    }
    if (st == FV_OK && !fv_disk_write_all(fd, tag, sizeof tag)) st = fv_disk_fail_write(path);
    free(piece);
    return st;
}

/* Writes the file under a name of its own. */
static fv_status write_part(fv_kv_disk *d, const char *part, const fv_seal_name *name,
                            const fv_seal_head *head, const void *rows) {
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return fv_disk_fail_write(part);
    fv_status st = write_segment(d, fd, part, name, head, rows);
    if (close(fd) != 0 && st == FV_OK) st = fv_disk_fail_write(part);
    return st;
}

/* Makes room for a written file, unless it is there. */
static fv_status admit(fv_kv_disk *d, const char *tenant, const fv_chain_key *file, size_t bytes,
                       bool *there) {
    fv_status st = FV_OK;
    fv_doomed *list = NULL;
    pthread_mutex_lock(&d->mutex);
    *there = fv_segments_find(&d->index, file) != NULL;
    if (!*there && !fv_disk_make_room(d, tenant, bytes, &list))
        st = FV_FAIL(FV_ENOMEM, "the folder of kept segments has no room for %zu bytes", bytes);
    pthread_mutex_unlock(&d->mutex);
    fv_disk_delete(d, list);
    return st;
}

/* Gives a written file its name. */
static fv_status name_file(fv_kv_disk *d, const char *tenant, const fv_chain_key *file,
                           size_t bytes, const char *part, const char *path) {
    if (rename(part, path) != 0) return fv_disk_fail_write(path);
    pthread_mutex_lock(&d->mutex);
    fv_status st = fv_disk_index_add(d, tenant, file, bytes);
    pthread_mutex_unlock(&d->mutex);
    if (st != FV_OK) unlink(path);
    return st;
}

/* Gives a written file its name, if there is still room and nobody has written it meanwhile. */
static fv_status publish(fv_kv_disk *d, const char *tenant, const fv_chain_key *file, size_t bytes,
                         const char *part, const char *path) {
    bool there;
    pthread_mutex_lock(&d->names);
    fv_status st = admit(d, tenant, file, bytes, &there);
    if (!there && st == FV_OK) st = name_file(d, tenant, file, bytes, part, path);
    pthread_mutex_unlock(&d->names);
    if (there || st != FV_OK) unlink(part);
    return st;
}

static bool is_there(fv_kv_disk *d, const fv_chain_key *file) {
    pthread_mutex_lock(&d->mutex);
    bool there = fv_segments_find(&d->index, file) != NULL;
    pthread_mutex_unlock(&d->mutex);
    return there;
}

static fv_status write_new(fv_kv_disk *d, const char *tenant, const fv_seal_name *name,
                           const fv_seal_head *head, const void *rows) {
    char folder[FV_DISK_PATH], path[FV_DISK_PATH], part[FV_DISK_PATH + 32];
    fv_chain_key file = fv_disk_key(name);
    snprintf(folder, sizeof folder, "%s/%s", d->dir, tenant);
    FV_TRY(fv_dir_make(folder));
    fv_disk_path(d, tenant, &file, path);
    snprintf(part, sizeof part, "%s.%" PRIu64 ".part", path, d->n_part++);
    fv_status st = write_part(d, part, name, head, rows);
    if (st != FV_OK) {
        unlink(part);
        return st;
    }
    return publish(d, tenant, &file, file_bytes(head), part, path);
}

fv_status fv_disk_write(fv_kv_tier *t, const char *tenant, const fv_chain_key *key,
                        const fv_seal_head *head, const void *rows) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    uint8_t mac[FV_SEAL_TENANT];
    char hex[FV_DISK_TENANT_HEX + 1];
    fv_seal_name name;
    FV_TRY(fv_seal_name_of(&d->keys, key, &name));
    FV_TRY(fv_seal_tenant_of(&d->keys, tenant, mac));
    fv_chain_key file = fv_disk_key(&name);
    if (is_there(d, &file)) return FV_OK;
    if (file_bytes(head) > d->bytes_max)
        return FV_FAIL(FV_ENOMEM, "a segment of %" PRIu64 " bytes is larger than --kv-disk-bytes",
                       head->bytes);
    fv_disk_to_hex(mac, sizeof mac, hex);
    fv_status st = write_new(d, hex, &name, head, rows);
    if (st == FV_OK) d->bytes_written += head->bytes;
    if (st != FV_OK && st != FV_ENOMEM) d->n_failed++;
    return st;
}
