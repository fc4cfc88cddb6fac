#ifndef FOVEA_GGUF_TEXTS_H
#define FOVEA_GGUF_TEXTS_H

/* THE FILES BESIDE THE WEIGHTS of a checkpoint: config.json, tokenizer.json and so on.
 *
 * A directory contains them. For a GGUF file they are made from its metadata in the same format, and for a
 * directory in Mistral's own layout from params.json (params.h), so that the same code reads all. */
#include "gguf/files.h"

/* Reads the file `name`, of at most `most` bytes, of the checkpoint `from`, a directory or GGUF
 * files (files.h). Gives *text (free it; *bytes of it and a NUL), NULL if there is no such file, and in `path`
 * its name for error messages. FV_ENOTFOUND: a link that leads nowhere; FV_EDATA: a Git LFS pointer. */
fv_status fv_checkpoint_file(const char *from, const char *name, size_t most,
                             char path[FV_CHECKPOINT_PATH], char **text, size_t *bytes);

/* Makes config.json, tokenizer.json, tokenizer_config.json or, with an mmproj file, preprocessor_config.json
 * of opened GGUF files; NULL for any other name. FV_EUNSUPPORTED for a model or tokenizer that is not supported, FV_EDATA for inconsistent
 * metadata. */
fv_status fv_gguf_make_text(const fv_gguf_set *s, const char *name, char **text);

/* Translate names of tensors between llama.cpp and Hugging Face: its text models, and LLaVA's
 * tower and connector, whose names those of the other towers become (model/gguf_tensors.h). False: the
 * name is none of them. */
bool fv_gguf_hub_name(const char *own, char out[FV_GGUF_NAME_MAX]);
bool fv_gguf_own_name(const char *hub, char out[FV_GGUF_NAME_MAX]);

#endif
