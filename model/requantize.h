#ifndef FOVEA_MODEL_REQUANTIZE_H
#define FOVEA_MODEL_REQUANTIZE_H

/* Weights that files have as codes of a table (FP8, FP4, NF4) in integers instead, whose products are faster. */
#include "model/quantize.h"

/* Quantizes the numbers of w, whose quant has a table, into `memory` of fv_quantize_bytes(w, to), which *out borrows.
 * FV_ENOMEM; FV_EDATA if one is not finite. Any thread. */
fv_status fv_requantize(const fv_tensor *w, const fv_weights *to, void *memory, fv_tensor *out);

#endif
