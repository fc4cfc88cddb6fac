#ifndef FOVEA_SERVING_WORKER_MODEL_INFO_H
#define FOVEA_SERVING_WORKER_MODEL_INFO_H

/* MODEL INFO: describes a worker and its opened checkpoint in the message with which it joins a fleet. Any
 * thread. */
#include "common/arena.h"
#include "fleet.pb-c.h"
#include "model/engine.h"

enum { FV_MAX_TOKENS_DEFAULT = 128 }; /* of an answer, if the request has no limit */

typedef struct fv_model_info_options {
    const char *name;
    /* [n_model] names of the model in requests, the first one its own; none: the checkpoint's */
    const char *const *models;
    int32_t n_model;
    Fovea__Inference__V1__Role role;
    const char *address; /* "HOST:PORT" */
    fv_dtype kv_dtype;
    /* Forms of tool calls and reasoning in answers; "none": none; NULL: those of the chat template. */
    const char *tool_parser, *reasoning_parser;
} fv_model_info_options;

/* A model has as many names at most, each of as many bytes. */
enum { FV_MODEL_NAMES_MAX = 16, FV_MODEL_NAME_MAX = 200 };

/* Makes the introduction; FV_EINVAL: one of the names is too long, has control characters or spaces, or stands
 * there twice. *out and its strings are in the arena. Its model has the limits that the checkpoint
 * sets; the worker's program adds its own. */
fv_status fv_info(const fv_engine *e, const fv_model_info_options *opt, fv_arena *arena,
                  Fovea__Fleet__V1__Introduction **out);

#endif
