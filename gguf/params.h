#ifndef FOVEA_GGUF_PARAMS_H
#define FOVEA_GGUF_PARAMS_H

/* MISTRAL'S OWN LAYOUT: params.json and consolidated.safetensors, with tekken.json, in place of config.json and
 * model.safetensors. Queries and keys have the order of rows that GGUF files have (model/gguf_weights.h). */
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "gguf/gguf.h"

/* Makes config.json, preprocessor_config.json or chat_template.jinja of the params.json of a directory: *text (free
 * it), NULL if it has none, or if `name` is another file. FV_EUNSUPPORTED names a key that is not read. */
fv_status fv_params_make_text(const char *dir, const char *name, char **text);

/* Translate names of tensors between this layout and Hugging Face's. False: the name is none of them. */
bool fv_params_hub_name(const char *own, char out[FV_GGUF_NAME_MAX]);
bool fv_params_own_name(const char *hub, char out[FV_GGUF_NAME_MAX]);

#endif
