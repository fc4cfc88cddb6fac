#ifndef FOVEA_COMMON_FILE_H
#define FOVEA_COMMON_FILE_H

/* Reading files whole, either mapped or copied. */
#include <stddef.h>

#include "common/status.h"

typedef struct fv_file_map {
    const void *data; /* [bytes], read-only; NULL when the file is empty */
    size_t bytes;
} fv_file_map;

/* Maps `path` read-only; pages are loaded on first access. FV_ENOTFOUND if it does not exist,
 * FV_EIO for other errors; the message names the path. */
fv_status fv_file_map_open(const char *path, fv_file_map *out);
void fv_file_map_close(fv_file_map *map);

/* Reads all pages in now, as far as the system allows, so that the first use has no page
 * faults. */
void fv_file_map_populate(const fv_file_map *map);

/* Reads `path` into memory and adds a NUL; refuses a file of more than `bytes_max` before
 * allocating memory. Gives *data (free it) and *bytes, without the NUL. */
fv_status fv_file_read(const char *path, size_t bytes_max, char **data, size_t *bytes);

/* Replaces `path`: either the file is complete, or the error names it. */
fv_status fv_file_write(const char *path, const void *data, size_t bytes);

/* Returns whether n bytes are a Git LFS pointer, which a clone without git-lfs has in place of a
 * large file. */
bool fv_file_is_pointer(const void *data, size_t n);
/* Records an error that explains this for `path`. Always FV_EDATA. */
fv_status fv_file_pointer_error(const char *path);

/* Returns whether the file exists, readable or not: reading it reports why it cannot be read. */
bool fv_file_exists(const char *path);

/* Identifies a version of a file's content. Take it before reading the file, and no later change is
 * missed. {0}: no such file, or no path (NULL). */
typedef struct fv_file_stamp {
    uint64_t device, inode, bytes, ns;
} fv_file_stamp;
fv_file_stamp fv_file_stamp_of(const char *path);
bool fv_file_stamp_equal(const fv_file_stamp *a, const fv_file_stamp *b);

/* mkdir -p. */
fv_status fv_dir_make(const char *path);

/* "<dir>/<name>" into out[cap]; FV_EINVAL when it does not fit. */
fv_status fv_path_join(const char *dir, const char *name, char *out, size_t cap);

#endif
