#ifndef FOVEA_SERVING_WORKER_CHECKPOINT_H
#define FOVEA_SERVING_WORKER_CHECKPOINT_H

/* CHECKPOINT: the checkpoint that a program's options name. Any thread. */
#include "common/options.h"
#include "model/hub.h"

/* The Hugging Face cache's place, of --hf-hub-cache, --hf-home, --xdg-cache-home and --home; borrowed from o. */
fv_hub_places fv_checkpoint_places(const fv_options *o);

/* Finds the path of --checkpoint: a directory, a GGUF file, or ORG/NAME in the Hugging Face cache that
 * --hf-hub-cache, --hf-home, --xdg-cache-home and --home describe. FV_EINVAL: it was not given; otherwise as
 * fv_hub_find. */
fv_status fv_checkpoint_find(const fv_options *o, char path[FV_HUB_PATH_MAX]);

/* The same for programs with --mmproj: with it, the path names both files (gguf/files.h). FV_EINVAL also: the
 * two are not GGUF files. */
fv_status fv_checkpoint_find_pair(const fv_options *o, char path[FV_HUB_PATH_MAX]);

#endif
