/* Whole-file access. Any thread. */
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static fv_status fail_errno(const char *what, const char *path) {
    int e = errno;
    fv_status st = e == ENOENT || e == ENOTDIR ? FV_ENOTFOUND : e == ENOMEM ? FV_ENOMEM : FV_EIO;
    return FV_FAIL(st, "cannot %s %s: %s", what, path, strerror(e));
}

static fv_status open_regular(const char *path, int *fd, size_t *bytes) {
    /* O_NONBLOCK keeps open() of a pipe from waiting for a writer; it has no effect on files. */
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f < 0) return fail_errno("open", path);
    struct stat sb;
    if (fstat(f, &sb) != 0 || !S_ISREG(sb.st_mode)) {
        close(f);
        return FV_FAIL(FV_EIO, "%s is not a regular file", path);
    }
    *fd = f;
    *bytes = (size_t)sb.st_size;
    return FV_OK;
}

fv_status fv_file_map_open(const char *path, fv_file_map *out) {
    int fd;
    size_t bytes;
    FV_TRY(open_regular(path, &fd, &bytes));
    void *p = NULL;
    if (bytes) {
        p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            fv_status st = fail_errno("map", path);
            close(fd);
            return st;
        }
    }
    close(fd);
    *out = (fv_file_map){.data = p, .bytes = bytes};
    return FV_OK;
}

void fv_file_map_close(fv_file_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (fv_file_map){0};
}

void fv_file_map_populate(const fv_file_map *map) {
    void *p = (void *)(uintptr_t)map->data;
    if (!p) return;
#ifdef MADV_HUGEPAGE
    /* load missing pages as huge pages, if the kernel and the file system support it */
    (void)madvise(p, map->bytes, MADV_HUGEPAGE);
#endif
    /* Before Linux 5.14 there is only a hint. A failure only costs speed. */
#ifdef MADV_POPULATE_READ
    if (madvise(p, map->bytes, MADV_POPULATE_READ) == 0) return;
#endif
    (void)madvise(p, map->bytes, MADV_WILLNEED);
}

fv_status fv_file_read(const char *path, size_t bytes_max, char **data, size_t *bytes) {
    int fd;
    size_t n;
    fv_status st;
    FV_TRY(open_regular(path, &fd, &n));
    if (n > bytes_max) {
        close(fd);
        return FV_FAIL(FV_EDATA, "%s has %zu bytes; at most %zu are read", path, n, bytes_max);
    }
    char *buf = malloc(n + 1);
    if (!buf) {
        close(fd);
        return FV_FAIL(FV_ENOMEM, "out of memory: %zu bytes for %s", n, path);
    }
    size_t got = 0;
    while (got < n) {
        ssize_t r = read(fd, buf + got, n - got);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) break;
        got += (size_t)r;
    }
    close(fd);
    if (got != n) {
        st = FV_FAIL(FV_EIO, "%s: read %zu of %zu bytes", path, got, n);
        free(buf);
        return st;
    }
    buf[n] = '\0';
    *data = buf;
    *bytes = n;
    return FV_OK;
}

fv_status fv_file_write(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f) return fail_errno("create", path);
    bool ok = bytes == 0 || fwrite(data, 1, bytes, f) == bytes;
    if (fclose(f) != 0) ok = false;
    return ok ? FV_OK : fail_errno("write", path);
}

bool fv_file_is_pointer(const void *data, size_t n) {
    static const char head[] = "version https://git-lfs.github.com/spec/";
    return n >= sizeof head - 1 && memcmp(data, head, sizeof head - 1) == 0;
}

fv_status fv_file_pointer_error(const char *path) {
    return FV_FAIL(FV_EDATA,
                   "%s is a Git LFS pointer and not the file itself: run `git lfs pull` in its "
                   "folder, or download the file",
                   path);
}

bool fv_file_exists(const char *path) {
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

fv_status fv_dir_make(const char *path) {
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) return FV_FAIL(FV_EINVAL, "a directory name has %zu bytes", n);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        char c = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return fail_errno("create", part);
        part[i] = c;
    }
    struct stat sb;
    if (stat(path, &sb) != 0 || !S_ISDIR(sb.st_mode))
        return FV_FAIL(FV_EIO, "cannot create the folder %s: a file of that name is there", path);
    return FV_OK;
}

fv_status fv_path_join(const char *dir, const char *name, char *out, size_t cap) {
    int n = snprintf(out, cap, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= cap) return FV_FAIL(FV_EINVAL, "path %s/%s is too long", dir, name);
    return FV_OK;
}

fv_file_stamp fv_file_stamp_of(const char *path) {
    struct stat s;
    if (!path || stat(path, &s) != 0) return (fv_file_stamp){0};
    return (fv_file_stamp){s.st_dev, s.st_ino, (uint64_t)s.st_size,
                           (uint64_t)s.st_mtim.tv_sec * 1000000000u + (uint64_t)s.st_mtim.tv_nsec};
}

bool fv_file_stamp_equal(const fv_file_stamp *a, const fv_file_stamp *b) {
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->ns == b->ns;
}
