#ifndef FOVEA_MODEL_SHARDS_H
#define FOVEA_MODEL_SHARDS_H

/* The weight files of one checkpoint, mapped, and one table of their tensors.
 *
 * Of a directory, either model.safetensors alone, or model.safetensors.index.json and the shards it
 * names; or one GGUF file. Of a tensor in several shards the index says which one counts. */
#include "model/families/name_mapping.h"
#include "model/safetensors.h"

typedef struct fv_shards fv_shards; /* opaque; owns the mappings */

typedef struct fv_shard_tensor {
    char canonical[FV_TENSOR_NAME_MAX];
    const fv_safetensors_entry *entry; /* its name is the key as in the file */
    const char *file;                  /* file name without the directory; a GGUF file's path */
} fv_shard_tensor;

/* FV_ENOTFOUND: no weights, or a shard is missing; FV_EDATA: a corrupt file, an index that
 * names tensors which are not there, or two tensors that are the same one by name. */
fv_status fv_shards_open(const char *from, fv_shards **out);
void fv_shards_close(fv_shards *sh); /* NULL is fine; all borrowed views become invalid */

/* Brings every file into memory now, as far as the system allows and unless they exceed the memory
 * limit: a worker that is open answers its first request as fast as its second. */
void fv_shards_populate(const fv_shards *sh);

/* NULL when no file holds it. */
const fv_shard_tensor *fv_shards_find(const fv_shards *sh, const char *canonical);

/* All in the files but buffers, by canonical name. */
int32_t fv_shards_tensors(const fv_shards *sh);
const fv_shard_tensor *fv_shards_at(const fv_shards *sh, int32_t i);
int32_t fv_shards_files(const fv_shards *sh);

/* Whether the weights are those of a GGUF file. */
bool fv_shards_gguf(const fv_shards *sh);

/* The name mapping that most keys are written in; `own`: as fv_name_mapping_key has it. */
fv_name_mapping fv_shards_name_mapping(const fv_shards *sh, const fv_tensor_names *own);

#endif
