#ifndef FOVEA_MODEL_FOLDER_H
#define FOVEA_MODEL_FOLDER_H

/* FOLDER: the files of a checkpoint's directory, by name. It says what a directory is that has no config.json
 * or no weights that can be mapped (another format, an adapter, half of a download), and how to get one that
 * has. Nothing but names, links and the first bytes of small files is read. */
#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"

typedef struct fv_folder_file {
    const char *name;
    const char *target; /* of a link that leads to no file; NULL: the file is there */
    bool pointer;       /* a Git LFS pointer stands in its place */
    bool folder;        /* it is a directory */
    uint64_t bytes;
} fv_folder_file;

typedef struct fv_folder {
    const char *path;
    fv_folder_file *file; /* [n], by name */
    int32_t n;
    int32_t n_part;   /* files of a download that was not finished, here or in the cache's folder */
    const char *part; /* the path of one of them */
    fv_arena arena;
} fv_folder;

/* Lists `dir`; free it with fv_folder_close. FV_ENOTFOUND, FV_EIO: it cannot be read; the message names it. */
fv_status fv_folder_open(const char *dir, fv_folder *out);
void fv_folder_close(fv_folder *f);

/* The file with this name, or NULL. */
const fv_folder_file *fv_folder_find(const fv_folder *f, const char *name);

/* The index-th file (from 0) whose name ends with `end`; NULL: there are fewer. */
const fv_folder_file *fv_folder_ending(const fv_folder *f, const char *end, int32_t index);

/* Whether a file's name says that it holds weights of the model in safetensors: not those of an adapter, and
 * not a copy under Mistral's names (consolidated.safetensors), which is read if there is no other. */
bool fv_folder_is_weights(const char *name);

/* Checks that no shard of those that their names count ("model-00002-of-00005.safetensors") is absent.
 * FV_ENOTFOUND names one. */
fv_status fv_folder_check_shards(const fv_folder *f);

/* The shell command that downloads what `path` lacks: `hf download ORG/NAME`, with --local-dir outside of the
 * Hugging Face cache. */
void fv_folder_download(const char *path, char *out, size_t cap);

/* Say why `dir` has no config.json, or no weights that can be read, and what to do. They always fail. */
fv_status fv_folder_no_config(const char *dir);
fv_status fv_folder_no_weights(const char *dir);

#endif
