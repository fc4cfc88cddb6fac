#ifndef FOVEA_GGUF_TEXTS_H
#define FOVEA_GGUF_TEXTS_H

/* THE FILES BESIDE THE WEIGHTS of a checkpoint: config.json, tokenizer.json and so on.
 *
 * A directory has them. Of a GGUF file they are made from its metadata, in the words of the
 * directory's: so both are read by the same code. */
#include "gguf/gguf.h"

enum { FV_CHECKPOINT_PATH = 4096 };

/* Reads the file `name`, of at most `most` bytes, of the checkpoint `from`, a directory or a GGUF
 * file. Gives *text (free it; *bytes of it and a NUL), NULL where there is no such file, and in
 * `path` what errors call it. */
fv_status fv_checkpoint_file(const char *from, const char *name, size_t most,
                             char path[FV_CHECKPOINT_PATH], char **text, size_t *bytes);

/* The same of an opened GGUF file: config.json, tokenizer.json and tokenizer_config.json are made,
 * NULL is every other. FV_EUNSUPPORTED for a model or tokenizer that is not read, FV_EDATA for
 * metadata that does not add up. */
fv_status fv_gguf_make_text(const fv_gguf *g, const char *name, char **text);

/* The names of tensors in llama.cpp and in Hugging Face's text models, either way; false: none of
 * them. */
bool fv_gguf_hub_name(const char *own, char out[FV_GGUF_NAME_MAX]);
bool fv_gguf_own_name(const char *hub, char out[FV_GGUF_NAME_MAX]);

#endif
