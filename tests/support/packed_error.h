#ifndef FOVEA_TESTS_SUPPORT_PACKED_ERROR_H
#define FOVEA_TESTS_SUPPORT_PACKED_ERROR_H

/* The error of a compressed layer. */
#include "kv/packed.h"
#include "model/net/rope.h"

/* ||M - U B|| / ||M|| of its keys or values, against the F32 tokens at the same positions of
 * uncompressed KV; keys are rotated to their positions. NaN when a token is missing. */
double packed_error(fv_kv *raw, const fv_kv_packed *p, int32_t layer, int kind,
                    const fv_rope_config *rope);

#endif
