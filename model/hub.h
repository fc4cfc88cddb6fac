#ifndef FOVEA_MODEL_HUB_H
#define FOVEA_MODEL_HUB_H

/* HUB: finds models in the cache that `hf download` and transformers fill, by their name on the Hugging Face
 * Hub. A model's folder there has the name of its commit in refs/main, and the commit's files:
 *
 *     HUB/models--ORG--NAME/refs/main                  "0123abcd..."
 *     HUB/models--ORG--NAME/snapshots/0123abcd.../     config.json, ...
 *
 * Nothing is downloaded. Any thread. */
#include <stddef.h>

#include "common/status.h"

enum { FV_HUB_PATH_MAX = 4096, FV_HUB_NAME_MAX = 96 /* of ORG and of NAME, each */ };

/* The cache's place, as in the environment; NULL or "": not set. HUB is hub_cache, else hf_home/hub, else
 * cache_home/huggingface/hub, else home/.cache/huggingface/hub. "~" at the start of a path is home. */
typedef struct fv_hub_places {
    const char *hub_cache;  /* HF_HUB_CACHE */
    const char *hf_home;    /* HF_HOME */
    const char *cache_home; /* XDG_CACHE_HOME */
    const char *home;       /* HOME */
} fv_hub_places;

/* Finds what a user names as a checkpoint, and writes its path to `out`: a directory or file that exists;
 * otherwise ORG/NAME (or NAME) from the cache, where a model that consists of one GGUF file is that file.
 * MODEL.gguf+MMPROJ.gguf (gguf/files.h) is copied.
 * FV_ENOTFOUND: there is neither, or the model in the cache lacks files; the error names what is missing and
 * how to get it. */
fv_status fv_hub_find(const fv_hub_places *places, const char *model, char out[FV_HUB_PATH_MAX]);

/* The same, whatever files the model in the cache has: its folder. */
fv_status fv_hub_locate(const fv_hub_places *places, const char *model, char out[FV_HUB_PATH_MAX]);

/* The name under which a checkpoint at this path is served, cut to `cap` bytes: ORG/NAME in the cache,
 * elsewhere the last part of the path. */
void fv_hub_name(const char *path, char *out, size_t cap);

#endif
