/* Opens a folder: locks it, reads or makes its key, and lists the segments in it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/log.h"
#include "common/random.h"
#include "kv/tier/disk_internal.h"

enum { FILES_MAX = 1 << 24 };

typedef struct found {
    char tenant[FV_DISK_TENANT_HEX + 1];
    fv_chain_key name;
    int64_t used_ns;
    size_t bytes;
} found;

typedef struct finding {
    fv_kv_disk *disk;
    found *file;
    size_t n, cap;
} finding;

static bool is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

static fv_status note(finding *f, const char *tenant, const fv_chain_key *name,
                      const struct stat *st) {
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 256;
        found *more = f->n < FILES_MAX ? realloc(f->file, cap * sizeof *more) : NULL;
        if (!more) return FV_FAIL(FV_ENOMEM, "%s has too many files to list", f->disk->dir);
        f->file = more;
        f->cap = cap;
    }
    found *x = &f->file[f->n++];
    memcpy(x->tenant, tenant, sizeof x->tenant); /* its length was checked */
    x->name = *name;
    x->used_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    x->bytes = fv_disk_blocks((uint64_t)st->st_size);
    return FV_OK;
}

/* Deletes what is no segment: a file that was being written, or somebody else's. */
static void clear(fv_kv_disk *d, int dir, const char *name) {
    if (unlinkat(dir, name, 0) != 0) unlinkat(dir, name, AT_REMOVEDIR); /* if it is empty */
    size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 5, ".part") != 0) d->n_damaged++;
}

/* Lists the files of one tenant. */
static fv_status list_tenant(finding *f, int parent, const char *tenant) {
    int fd = openat(parent, tenant, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    fv_status st = FV_OK;
    if (!dir) {
        if (fd >= 0) close(fd);
        return FV_OK; /* cannot be read, so nothing in it is found */
    }
    for (struct dirent *e; st == FV_OK && (e = readdir(dir));) {
        fv_chain_key name;
        struct stat s;
        if (is_dots(e->d_name)) continue;
        bool good = fv_disk_from_hex(e->d_name, sizeof name.bytes, name.bytes) &&
                    fstatat(fd, e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode);
        if (good)
            st = note(f, tenant, &name, &s);
        else
            clear(f->disk, fd, e->d_name);
    }
    closedir(dir);
    return st;
}

static int by_use(const void *a, const void *b) {
    const found *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* Adds what was found, the oldest first; what exceeds the limit by now is given up. */
static fv_status take_in(finding *f) {
    fv_kv_disk *d = f->disk;
    if (f->n) qsort(f->file, f->n, sizeof *f->file, by_use);
    for (size_t i = 0; i < f->n; i++) {
        const found *x = &f->file[i];
        char path[FV_DISK_PATH];
        fv_disk_path(d, x->tenant, &x->name, path);
        fv_doomed *list = NULL;
        bool twice = fv_segments_find(&d->index, &x->name) != NULL;
        bool room = !twice && fv_disk_make_room(d, x->tenant, x->bytes, &list);
        fv_disk_delete(d, list);
        if (room)
            FV_TRY(fv_disk_index_add(d, x->tenant, &x->name, x->bytes));
        else
            unlink(path);
    }
    return FV_OK;
}

static fv_status list_all(fv_kv_disk *d) {
    finding f = {.disk = d};
    DIR *dir = opendir(d->dir);
    fv_status st = FV_OK;
    if (!dir) return FV_FAIL(FV_EIO, "%s: %s", d->dir, strerror(errno));
    for (struct dirent *e; st == FV_OK && (e = readdir(dir));) {
        if (is_dots(e->d_name)) continue;
        if (fv_disk_from_hex(e->d_name, FV_SEAL_TENANT, NULL))
            st = list_tenant(&f, dirfd(dir), e->d_name);
        else
            clear(d, dirfd(dir), e->d_name);
    }
    closedir(dir);
    if (st == FV_OK) st = take_in(&f);
    free(f.file);
    return st;
}

/* Locks DIR/N for this process; the lock ends with it, however it ends. */
static fv_status lock_folder(fv_kv_disk *d, const char *dir) {
    char path[FV_DISK_PATH];
    FV_TRY(fv_path_join(dir, "lock", path, sizeof path));
    d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock_fd < 0) return FV_FAIL(FV_EIO, "%s: %s", path, strerror(errno));
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0) return FV_OK;
    close(d->lock_fd);
    d->lock_fd = -1;
    return FV_FAIL(FV_EBUSY, "another process uses %s", dir);
}

/* Makes a key. Its file is synced before it gets its name, as a machine that stops then must not leave half a key, with
 * which no worker would start. */
static fv_status make_key(const char *dir, const char *path, fv_key *out) {
    char part[FV_DISK_PATH];
    FV_TRY(fv_random_bytes(out->bytes, sizeof out->bytes));
    FV_TRY(fv_path_join(dir, "key.part", part, sizeof part));
    unlink(part);
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0 && fv_disk_write_all(fd, out->bytes, sizeof out->bytes) && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0) good = false;
    return good && rename(part, path) == 0 ? FV_OK : fv_disk_fail_write(part);
}

/* Reads DIR/key, or makes it. */
static fv_status folder_key(const char *dir, fv_key *out) {
    char path[FV_DISK_PATH], *text;
    size_t n;
    FV_TRY(fv_path_join(dir, "key", path, sizeof path));
    if (!fv_file_exists(path)) return make_key(dir, path, out);
    FV_TRY(fv_file_read(path, sizeof out->bytes + 1, &text, &n));
    fv_status st = FV_OK;
    if (n == sizeof out->bytes)
        memcpy(out->bytes, text, n);
    else
        st = FV_FAIL(FV_EINVAL,
                     "%s is not a key of %zu bytes; delete it, and what is kept in %s is lost",
                     path, sizeof out->bytes, dir);
    free(text);
    return st;
}

static void disk_close(fv_kv_tier *t) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    fv_segments_fini(&d->index);
    if (d->lock_fd >= 0) close(d->lock_fd);
    fv_seal_keys_wipe(&d->keys);
    pthread_mutex_destroy(&d->mutex);
    pthread_mutex_destroy(&d->names);
    free(d->dir);
    free(d);
}

static fv_tier_counters disk_count(fv_kv_tier *t) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    pthread_mutex_lock(&d->mutex);
    fv_tier_counters c = {.n_segment = (uint64_t)d->index.n, .bytes = d->index.bytes};
    pthread_mutex_unlock(&d->mutex);
    c.bytes_read = d->bytes_read;
    c.bytes_written = d->bytes_written;
    c.n_hit = d->n_hit;
    c.n_miss = d->n_miss;
    c.n_damaged = d->n_damaged;
    c.n_given_up = d->n_given_up;
    c.n_failed = d->n_failed;
    return c;
}

static const fv_kv_tier_ops disk_ops = {.name = "disk",
                                        .has = fv_disk_has,
                                        .read = fv_disk_read,
                                        .write = fv_disk_write,
                                        .count = disk_count,
                                        .close = disk_close};

static fv_status open_folder(fv_kv_disk *d, const char *dir, const fv_key *secret) {
    char segments[FV_DISK_PATH];
    fv_key own = {0};
    FV_TRY(fv_path_join(dir, "segments", segments,
                        sizeof segments - FV_DISK_NAME_HEX - FV_DISK_TENANT_HEX - 32));
    FV_TRY(fv_dir_make(segments));
    FV_TRY(lock_folder(d, dir));
    d->dir = strdup(segments);
    if (!d->dir) return FV_FAIL(FV_ENOMEM, "out of memory for the folder of kept segments");
    if (!secret) FV_TRY(folder_key(dir, &own));
    fv_status st = fv_seal_keys_make(secret ? secret : &own, &d->keys);
    fv_key_wipe(&own);
    FV_TRY(st);
    return list_all(d);
}

/* Opens the first folder that no other process uses. */
static fv_status open_first(fv_kv_disk *d, const char *dir, const fv_key *secret,
                            char folder[FV_DISK_PATH]) {
    for (int i = 0; i < FV_KV_DISK_PROCESSES; i++) {
        char n[8];
        snprintf(n, sizeof n, "%d", i);
        FV_TRY(fv_path_join(dir, n, folder, FV_DISK_PATH));
        fv_status st = open_folder(d, folder, secret);
        if (st != FV_EBUSY) return st;
    }
    return FV_FAIL(FV_EBUSY, "%d processes use %s already; choose another --kv-disk",
                   FV_KV_DISK_PROCESSES, dir);
}

fv_status fv_kv_disk_open(const char *dir, uint64_t bytes_max, const fv_key *secret,
                          fv_kv_tier **out) {
    char folder[FV_DISK_PATH];
    fv_kv_disk *d = calloc(1, sizeof *d);
    if (!d) return FV_FAIL(FV_ENOMEM, "out of memory for the folder of kept segments");
    d->tier.ops = &disk_ops;
    d->bytes_max = bytes_max;
    d->lock_fd = -1;
    pthread_mutex_init(&d->mutex, NULL);
    pthread_mutex_init(&d->names, NULL);
    fv_status st = open_first(d, dir, secret, folder);
    if (st != FV_OK) {
        disk_close(&d->tier);
        return st;
    }
    FV_LOG(INFO, PREFILL, "event=kv-disk folder=%s segments=%" PRId64 " bytes=%zu deleted=%" PRIu64,
           folder, d->index.n, d->index.bytes, (uint64_t)d->n_damaged);
    *out = &d->tier;
    return FV_OK;
}
