/* The folder's index is a fv_segments whose segments have no rows: keys are names of files, tenants names of folders.
 * One lock guards it, and is held for work in memory alone, so that whoever asks what is there never waits for the file
 * system. Another one, taken before it, is held while files get and lose their names. Files are read and written
 * without both. A file that is given up while it is read stays readable until then, as its name alone is gone. */
#include "kv/tier/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/log.h"
#include "common/random.h"
#include "kv/cache/segments.h"

enum {
    NAME_HEX = 2 * FV_MAC_BYTES,
    TENANT_HEX = 2 * FV_SEAL_TENANT,
    PATH_CAP = 4096,
    PIECE = 1 << 20, /* read and written at once */
    BLOCK = 4096,    /* files take whole blocks */
    FILES_MAX = 1 << 24,
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

static void to_hex(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads exactly 2 n digits. */
static bool from_hex(const char *text, size_t n, uint8_t *out) {
    if (strlen(text) != 2 * n) return false;
    for (size_t i = 0; i < n; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        if (out) out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static fv_chain_key key_of(const fv_seal_name *name) {
    fv_chain_key key;
    memcpy(key.bytes, name->bytes, sizeof key.bytes);
    return key;
}

/* DIR/segments/TENANT/NAME */
static void path_of(const fv_kv_disk *d, const char *tenant, const fv_chain_key *name,
                    char out[PATH_CAP]) {
    char hex[NAME_HEX + 1];
    to_hex(name->bytes, sizeof name->bytes, hex);
    snprintf(out, PATH_CAP, "%s/%s/%s", d->dir, tenant, hex);
}

static size_t on_disk(uint64_t bytes) { return (size_t)((bytes + BLOCK - 1) / BLOCK * BLOCK); }

static size_t file_bytes(const fv_seal_head *h) {
    return on_disk(FV_SEAL_HEAD + h->bytes + FV_SEAL_TAG);
}

/* ---- the index ------------------------------------------------------------------------------ */

/* Adds a file to the index, which must not have it. Under the lock. */
static fv_status add(fv_kv_disk *d, const char *tenant, const fv_chain_key *name, size_t bytes) {
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

/* Files that the index has given up, to be deleted without its lock. */
typedef struct doomed {
    struct doomed *next;
    char tenant[TENANT_HEX + 1];
    fv_chain_key name;
} doomed;

/* Drops a file from the index, and adds it to a list. Under the lock. */
static bool doom(fv_kv_disk *d, fv_prefix_segment *x, doomed **list) {
    doomed *file = malloc(sizeof *file);
    if (!file) return false;
    snprintf(file->tenant, sizeof file->tenant, "%s", x->tenant->name);
    file->name = x->key;
    file->next = *list;
    *list = file;
    fv_segments_drop(&d->index, x);
    return true;
}

/* Deletes the files of a list, and frees it. */
static void delete_all(fv_kv_disk *d, doomed *list) {
    for (doomed *file = list, *next; file; file = next) {
        char path[PATH_CAP];
        next = file->next;
        path_of(d, file->tenant, &file->name, path);
        unlink(path);
        free(file);
    }
}

/* Gives up files until there is room for `bytes` more of a tenant. Under the lock. */
static bool make_room(fv_kv_disk *d, const char *tenant, size_t bytes, doomed **list) {
    if (bytes > d->bytes_max) return false;
    while (d->index.bytes > d->bytes_max - bytes) {
        fv_prefix_segment *x = fv_segments_victim(&d->index, tenant, bytes);
        if (!x || !doom(d, x, list)) return false;
        d->n_given_up++;
    }
    return true;
}

/* Forgets a file that is damaged, and deletes it. */
static void forget(fv_kv_disk *d, const fv_chain_key *name) {
    doomed *list = NULL;
    pthread_mutex_lock(&d->names);
    pthread_mutex_lock(&d->mutex);
    fv_prefix_segment *x = fv_segments_find(&d->index, name);
    if (x) (void)doom(d, x, &list);
    pthread_mutex_unlock(&d->mutex);
    delete_all(d, list);
    pthread_mutex_unlock(&d->names);
}

static int32_t disk_has(fv_kv_tier *t, const fv_chain_key *const *key, int32_t n) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    fv_seal_name name;
    int32_t found = 0;
    for (bool there = true; found < n; found += there) {
        if (fv_seal_name_of(&d->keys, key[found], &name) != FV_OK) break;
        fv_chain_key file = key_of(&name);
        pthread_mutex_lock(&d->mutex);
        there = fv_segments_find(&d->index, &file) != NULL;
        pthread_mutex_unlock(&d->mutex);
        if (!there) break;
    }
    return found;
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
static bool find(fv_kv_disk *d, const fv_chain_key *file, char path[PATH_CAP]) {
    pthread_mutex_lock(&d->mutex);
    fv_prefix_segment *x = fv_segments_find(&d->index, file);
    if (x) {
        path_of(d, x->tenant->name, file, path);
        fv_segments_use(x);
    }
    pthread_mutex_unlock(&d->mutex);
    return x != NULL;
}

/* Opens the file of a segment; -1: it has none, or it cannot be opened. Under the lock of names, or a file that is given
 * up meanwhile would count as one that somebody has deleted. */
static int open_segment(fv_kv_disk *d, const fv_chain_key *file, char path[PATH_CAP]) {
    bool gone = false;
    int fd = -1;
    pthread_mutex_lock(&d->names);
    if (find(d, file, path)) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* a FIFO blocks nobody */
        gone = fd < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM;
        d->n_failed += fd < 0;
    }
    pthread_mutex_unlock(&d->names);
    if (gone) forget(d, file);
    return fd;
}

static fv_status miss(fv_kv_disk *d) {
    d->n_miss++;
    return FV_FAIL(FV_ENOTFOUND, "the segment is not on the disk");
}

static fv_status disk_read(fv_kv_tier *t, const fv_chain_key *key, const fv_seal_head *want,
                           void *rows, double *seconds) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    char path[PATH_CAP];
    fv_seal_name name;
    FV_TRY(fv_seal_name_of(&d->keys, key, &name));
    fv_chain_key file = key_of(&name);
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
        forget(d, &file);
    }
    return miss(d);
}

/* ---- writing -------------------------------------------------------------------------------- */

static bool write_all(int fd, const void *in, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t done = write(fd, (const uint8_t *)in + at, n - at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += (size_t)done;
    }
    return true;
}

static fv_status fail_write(const char *path) {
    return FV_FAIL(FV_EIO, "%s: %s", path, strerror(errno));
}

static fv_status write_rows(int fd, const char *path, fv_seal *s, const fv_seal_head *head,
                            const uint8_t *rows, uint8_t *piece) {
    for (uint64_t at = 0, n; at < head->bytes; at += n) {
        n = head->bytes - at < PIECE ? head->bytes - at : PIECE;
        FV_TRY(fv_seal_add(s, rows + at, piece, (size_t)n));
        if (!write_all(fd, piece, (size_t)n)) return fail_write(path);
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
        st = write_all(fd, begin, sizeof begin) ? write_rows(fd, path, &s, head, rows, piece)
                                                : fail_write(path);
        fv_status end = fv_seal_end(&s, st == FV_OK ? tag : NULL);
        if (st == FV_OK) st = end;
    }
    if (st == FV_OK && !write_all(fd, tag, sizeof tag)) st = fail_write(path);
    free(piece);
    return st;
}

/* Writes the file under a name of its own. */
static fv_status write_part(fv_kv_disk *d, const char *part, const fv_seal_name *name,
                            const fv_seal_head *head, const void *rows) {
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return fail_write(part);
    fv_status st = write_segment(d, fd, part, name, head, rows);
    if (close(fd) != 0 && st == FV_OK) st = fail_write(part);
    return st;
}

/* Makes room for a written file, unless it is there. */
static fv_status admit(fv_kv_disk *d, const char *tenant, const fv_chain_key *file, size_t bytes,
                       bool *there) {
    fv_status st = FV_OK;
    doomed *list = NULL;
    pthread_mutex_lock(&d->mutex);
    *there = fv_segments_find(&d->index, file) != NULL;
    if (!*there && !make_room(d, tenant, bytes, &list))
        st = FV_FAIL(FV_ENOMEM, "the folder of kept segments has no room for %zu bytes", bytes);
    pthread_mutex_unlock(&d->mutex);
    delete_all(d, list);
    return st;
}

/* Gives a written file its name. */
static fv_status name_file(fv_kv_disk *d, const char *tenant, const fv_chain_key *file,
                           size_t bytes, const char *part, const char *path) {
    if (rename(part, path) != 0) return fail_write(path);
    pthread_mutex_lock(&d->mutex);
    fv_status st = add(d, tenant, file, bytes);
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
    char folder[PATH_CAP], path[PATH_CAP], part[PATH_CAP + 32];
    fv_chain_key file = key_of(name);
    snprintf(folder, sizeof folder, "%s/%s", d->dir, tenant);
    FV_TRY(fv_dir_make(folder));
    path_of(d, tenant, &file, path);
    snprintf(part, sizeof part, "%s.%" PRIu64 ".part", path, d->n_part++);
    fv_status st = write_part(d, part, name, head, rows);
    if (st != FV_OK) {
        unlink(part);
        return st;
    }
    return publish(d, tenant, &file, file_bytes(head), part, path);
}

static fv_status disk_write(fv_kv_tier *t, const char *tenant, const fv_chain_key *key,
                            const fv_seal_head *head, const void *rows) {
    fv_kv_disk *d = (fv_kv_disk *)t;
    uint8_t mac[FV_SEAL_TENANT];
    char hex[TENANT_HEX + 1];
    fv_seal_name name;
    FV_TRY(fv_seal_name_of(&d->keys, key, &name));
    FV_TRY(fv_seal_tenant_of(&d->keys, tenant, mac));
    fv_chain_key file = key_of(&name);
    if (is_there(d, &file)) return FV_OK;
    if (file_bytes(head) > d->bytes_max)
        return FV_FAIL(FV_ENOMEM, "a segment of %" PRIu64 " bytes is larger than --kv-disk-bytes",
                       head->bytes);
    to_hex(mac, sizeof mac, hex);
    fv_status st = write_new(d, hex, &name, head, rows);
    if (st == FV_OK) d->bytes_written += head->bytes;
    if (st != FV_OK && st != FV_ENOMEM) d->n_failed++;
    return st;
}

/* ---- opening -------------------------------------------------------------------------------- */

typedef struct found {
    char tenant[TENANT_HEX + 1];
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
    x->bytes = on_disk((uint64_t)st->st_size);
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
        bool good = from_hex(e->d_name, sizeof name.bytes, name.bytes) &&
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
        char path[PATH_CAP];
        path_of(d, x->tenant, &x->name, path);
        doomed *list = NULL;
        bool twice = fv_segments_find(&d->index, &x->name) != NULL;
        bool room = !twice && make_room(d, x->tenant, x->bytes, &list);
        delete_all(d, list);
        if (room)
            FV_TRY(add(d, x->tenant, &x->name, x->bytes));
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
        if (from_hex(e->d_name, FV_SEAL_TENANT, NULL))
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
    char path[PATH_CAP];
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
    char part[PATH_CAP];
    FV_TRY(fv_random_bytes(out->bytes, sizeof out->bytes));
    FV_TRY(fv_path_join(dir, "key.part", part, sizeof part));
    unlink(part);
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0 && write_all(fd, out->bytes, sizeof out->bytes) && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0) good = false;
    return good && rename(part, path) == 0 ? FV_OK : fail_write(part);
}

/* Reads DIR/key, or makes it. */
static fv_status folder_key(const char *dir, fv_key *out) {
    char path[PATH_CAP], *text;
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
                                        .has = disk_has,
                                        .read = disk_read,
                                        .write = disk_write,
                                        .count = disk_count,
                                        .close = disk_close};

static fv_status open_folder(fv_kv_disk *d, const char *dir, const fv_key *secret) {
    char segments[PATH_CAP];
    fv_key own = {0};
    FV_TRY(fv_path_join(dir, "segments", segments, sizeof segments - NAME_HEX - TENANT_HEX - 32));
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
                            char folder[PATH_CAP]) {
    for (int i = 0; i < FV_KV_DISK_PROCESSES; i++) {
        char n[8];
        snprintf(n, sizeof n, "%d", i);
        FV_TRY(fv_path_join(dir, n, folder, PATH_CAP));
        fv_status st = open_folder(d, folder, secret);
        if (st != FV_EBUSY) return st;
    }
    return FV_FAIL(FV_EBUSY, "%d processes use %s already; choose another --kv-disk",
                   FV_KV_DISK_PROCESSES, dir);
}

fv_status fv_kv_disk_open(const char *dir, uint64_t bytes_max, const fv_key *secret,
                          fv_kv_tier **out) {
    char folder[PATH_CAP];
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
