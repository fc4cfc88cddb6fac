#ifndef FOVEA_MODEL_SHARDS_H
#define FOVEA_MODEL_SHARDS_H

/* The weight files of one checkpoint, mapped, and one table of their tensors.
 *
 * A directory has model.safetensors alone, or model.safetensors.index.json and the shards that it
 * names, or safetensors of any name, or, in Mistral's own layout, consolidated.safetensors; GGUF files are those of gguf/files.h. If several shards have a
 * tensor, the index says which one is used. */
#include "model/families/name_mapping.h"
#include "model/gguf_tensors.h"
#include "model/safetensors.h"

typedef struct fv_shards fv_shards; /* opaque; owns the mappings */

typedef struct fv_shard_tensor {
    char canonical[FV_TENSOR_NAME_MAX];
    const fv_gguf_form *form;          /* of a GGUF file's tensor; otherwise NULL */
    const fv_safetensors_entry *entry; /* has the tensor's name as in the file */
    const char *file;                  /* file name without the directory; a GGUF file's path */
} fv_shard_tensor;

/* FV_ENOTFOUND: no weights, or a shard is missing; FV_EDATA: a corrupt file, an index that names
 * absent tensors, or two tensors with the same canonical name. */
fv_status fv_shards_open(const char *from, fv_shards **out);
void fv_shards_close(fv_shards *sh); /* NULL is fine; all borrowed views become invalid */

/* Reads every file into memory now, as far as the system allows and unless they exceed the memory
 * limit, so that a worker's first request is as fast as its second. */
void fv_shards_populate(const fv_shards *sh);

/* Finds a tensor; NULL: no file has it. */
const fv_shard_tensor *fv_shards_find(const fv_shards *sh, const char *canonical);

/* All tensors in the files except buffers, by canonical name. */
int32_t fv_shards_tensors(const fv_shards *sh);
const fv_shard_tensor *fv_shards_at(const fv_shards *sh, int32_t i);
int32_t fv_shards_files(const fv_shards *sh);

/* Returns whether the weights are from a GGUF file, or in Mistral's own layout (gguf/params.h). */
bool fv_shards_gguf(const fv_shards *sh);
bool fv_shards_mistral(const fv_shards *sh);

/* The name mapping of most keys; `own` as in fv_name_mapping_key. */
fv_name_mapping fv_shards_name_mapping(const fv_shards *sh, const fv_tensor_names *own);

#endif
