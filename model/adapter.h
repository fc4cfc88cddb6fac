#ifndef FOVEA_MODEL_ADAPTER_H
#define FOVEA_MODEL_ADAPTER_H

/* ADAPTERS in PEFT's form: a directory with adapter_config.json and adapter_model.safetensors, opened for one
 * network (model/net/adapter.h). docs/ADAPTERS.md says what is supported; the rest is refused by name. */
#include "common/arena.h"
#include "model/config.h"
#include "model/net/adapter.h"

enum { FV_ADAPTERS_MAX = 64, FV_ADAPTER_RANK_MAX = 1024 };

/* Opens the adapters of spec[n], each "NAME=DIR", for the network of `cfg`; everything in *out is in the arena.
 * FV_EINVAL: a wrong or repeated name, or too many; FV_ENOTFOUND: a file is missing; FV_EDATA: a file is corrupt or
 * does not fit the network; FV_EUNSUPPORTED: it needs what the network does not compute. */
fv_status fv_adapters_open(const char *const *spec, int32_t n, const fv_model_config *cfg,
                           fv_arena *arena, fv_adapters *out);

/* Opens the adapter in `dir`: all of *out but its name. */
fv_status fv_adapter_open(const char *dir, const fv_model_config *cfg, fv_arena *arena,
                          fv_adapter *out);

/* The same from the bytes of both files, for directory `where`. */
fv_status fv_adapter_parse(const char *where, const char *text, size_t n_text, const void *tensors,
                           size_t n_tensor, const fv_model_config *cfg, fv_arena *arena,
                           fv_adapter *out);

/* Bytes of all adapters. */
size_t fv_adapters_bytes(const fv_adapters *all);

/* Writes 16 hex digits and a NUL that stand for the names and contents of all adapters, in any order. FV_ENOMEM. */
fv_status fv_adapters_fingerprint(const fv_adapters *all, char out[17]);

#endif
