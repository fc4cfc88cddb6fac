#ifndef FOVEA_CLI_EVAL_SPECTRA_H
#define FOVEA_CLI_EVAL_SPECTRA_H

/* SPECTRA: the number of directions that a checkpoint's visual keys and values use, and the
 * attention that they receive, by layer. */
#include <jansson.h>

#include "cli/client/local.h"
#include "eval/suite/suite.h"

/* Prefills the first items of the evaluation under `exact` and computes the singular values of each
 * layer's and KV head's visual keys [tokens, d_head], rotated as cached, and values: relative to
 * the largest, mean over items and heads; and the share of the last prompt token's attention that
 * visual tokens receive, mean over query heads. Gives *out (eval/README.md: "spectra"). `local`
 * must be idle and store KV as f32. */
fv_status fv_eval_spectra(fv_local *local, const fv_suite *suite, int32_t side, int32_t n_item,
                          json_t **out);

#endif
