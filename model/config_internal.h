#ifndef FOVEA_MODEL_CONFIG_INTERNAL_H
#define FOVEA_MODEL_CONFIG_INTERNAL_H

/* Shared by the files config*.c that read one JSON file each, or one part of it. */
#include "model/config.h"
#include "text/json.h"

/* `key` of `obj`, or NULL when it is absent or null. */
const json_t *fv_config_member(const json_t *obj, const char *key);

/* Reads the name of an activation function; leaves *out alone when there is none.
 * FV_EUNSUPPORTED names one that the kernels do not have. */
fv_status fv_config_activation(const json_t *obj, const char *key, const char *where,
                               fv_activation *out);

/* Adds "eos_token_id" (an id or a list of them) to cfg->eos, without duplicates. *found: whether
 * the key exists. */
fv_status fv_config_add_eos(const json_t *obj, const char *where, fv_model_config *cfg,
                            bool *found);

/* FV_EUNSUPPORTED when the weights are quantized. */
fv_status fv_config_refuse_quantized(const json_t *obj, const char *where);

/* The text model's family by model_type or architecture name; NULL when it is none of ours. */
const char *fv_config_text_family(const char *name);

/* Fills *out from the keys of `obj` (config.json itself or its text_config) and the defaults
 * of `family`; *eos_default is the id that the family ends with, -1 for none. */
fv_status fv_config_text_parse(const json_t *obj, const char *family, const char *where,
                               fv_text_config *out, int32_t *eos_default);

#endif
