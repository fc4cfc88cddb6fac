/* Rotary angles on the host. cosf and sinf of a request's few hundred positions cost less than a
 * thousandth of its prefill, so no table is kept. */
#include "common/rope.h"

#include <math.h>
#include <stddef.h>

void fv_rope_angles(const fv_rope *r, const fv_rope_pos *pos, int32_t n, float *cos_out,
                    float *sin_out) {
    for (int32_t j = 0; j < n; j++) {
        const float at[3] = {(float)pos[j].t, (float)pos[j].h, (float)pos[j].w};
        for (int32_t i = 0; i < r->half; i++) {
            float angle = at[r->axis[i]] * r->freq[i];
            cos_out[(size_t)j * (size_t)r->half + (size_t)i] = cosf(angle);
            sin_out[(size_t)j * (size_t)r->half + (size_t)i] = sinf(angle);
        }
    }
}
