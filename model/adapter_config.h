#ifndef FOVEA_MODEL_ADAPTER_CONFIG_H
#define FOVEA_MODEL_ADAPTER_CONFIG_H

/* adapter_config.json as PEFT writes it: ranks and scales of a LoRA adapter, by the names of modules. A MODULE is a
 * linear layer by its path in the trained model, "model.language_model.layers.0.self_attn.q_proj". */
#include <stdbool.h>

#include "grammar/grammar.h"
#include "text/json.h"

/* A key of rank_pattern or alpha_pattern that is an expression; others are compared as names. */
typedef struct fv_adapter_expression {
    const char *key;
    fv_grammar *grammar; /* owned */
} fv_adapter_expression;

enum { FV_ADAPTER_EXPRESSIONS_MAX = 64 };

typedef struct fv_adapter_config {
    json_t *root; /* owned */
    int32_t n_expression;
    fv_adapter_expression expression[FV_ADAPTER_EXPRESSIONS_MAX];
    int32_t rank;    /* of modules that rank_pattern does not name */
    double alpha;    /* likewise */
    bool rank_scale; /* use_rslora: scales are alpha / sqrt(r), otherwise alpha / r */
} fv_adapter_config;

/* Parses the text; `where` names the file. FV_EDATA: it is not what PEFT writes. FV_EUNSUPPORTED: it asks for what is
 * not computed, by the key's name, with what to do. */
fv_status fv_adapter_config_parse(const char *text, size_t n, const char *where,
                                  fv_adapter_config *out);
void fv_adapter_config_free(fv_adapter_config *c);

/* Whether target_modules names the module. A list is compared with the path's end. An expression or "all-linear" is
 * not evaluated, and names every module: PEFT saves the tensors of those that it has matched, and no others. */
bool fv_adapter_config_targets(const fv_adapter_config *c, const char *module);

/* The rank that the module's matrices must have, and the scale of their product. A key of rank_pattern and
 * alpha_pattern is an expression that the path's end matches, after a dot or as a whole; the first one counts.
 * FV_EDATA: a number is out of range. FV_EUNSUPPORTED: an expression cannot be evaluated. */
fv_status fv_adapter_config_module(const fv_adapter_config *c, const char *where,
                                   const char *module, int32_t *rank, double *scale);

#endif
