#ifndef FOVEA_GGUF_FILES_H
#define FOVEA_GGUF_FILES_H

/* THE FILES OF A GGUF CHECKPOINT: the text model in one file or in several (MODEL-00001-of-00003.gguf),
 * and for a vision model a second model with tower and connector, which llama.cpp calls mmproj.
 *
 * A checkpoint is named by
 *     MODEL.gguf                  the text model alone
 *     MODEL.gguf+MMPROJ.gguf      both, as fv_gguf_name_pair writes it
 *     DIRECTORY                   whose only model is taken, with its only mmproj if there is one */
#include "gguf/gguf.h"

enum { FV_CHECKPOINT_PATH = 4096, FV_GGUF_PARTS_MAX = 1024 };

typedef struct fv_gguf_files {
    int32_t n;                       /* files of the model; 0: the checkpoint is not GGUF */
    char model[FV_CHECKPOINT_PATH];  /* the first of them */
    char mmproj[FV_CHECKPOINT_PATH]; /* "": none */
} fv_gguf_files;

/* Finds the files of the checkpoint `from`. A directory with safetensors is not GGUF, whatever else is in
 * it. FV_EINVAL: a directory has several models, or several mmproj files; the error lists them and says
 * how to choose. */
fv_status fv_gguf_files_find(const char *from, fv_gguf_files *out);

/* The path of file i of the model. FV_EINVAL: it is too long. */
fv_status fv_gguf_files_part(const fv_gguf_files *f, int32_t i, char path[FV_CHECKPOINT_PATH]);

/* Names the checkpoint of a model, a file, a pair or a directory, and an mmproj file, in place of the pair's or
 * the directory's own. FV_EINVAL: the model is not
 * GGUF, the directory has several, or the names are too long. */
fv_status fv_gguf_name_pair(const char *model, const char *mmproj, char out[FV_CHECKPOINT_PATH]);

/* Bytes of the model's name in that of a checkpoint; all of it if no mmproj follows. */
size_t fv_gguf_model_bytes(const char *from);

/* The opened files of a checkpoint, borrowed. */
typedef struct fv_gguf_set {
    const fv_gguf *const *model; /* [n]; metadata is in the first */
    int32_t n;
    const fv_gguf *mmproj; /* NULL: none */
} fv_gguf_set;

/* Finds a tensor of the model in any of its files; NULL: none has it. */
const fv_gguf_tensor *fv_gguf_set_find(const fv_gguf_set *s, const char *name);

#endif
