#ifndef FOVEA_TESTS_SUPPORT_PACKED_ERROR_H
#define FOVEA_TESTS_SUPPORT_PACKED_ERROR_H

/* How far a packed layer is from the rows that it stands for. */
#include "model/net/kv_packed.h"

/* ||M - U B|| / ||M|| of its keys or values, against the F32 rows of the same positions in a raw
 * store; keys turned to where they stand. NaN when a row is not there. */
double packed_error(fv_kv *raw, const fv_kv_packed *p, int32_t layer, int kind,
                    const fv_rope_config *rope);

#endif
