/* Computes eigenvalues of the Gram matrix. */
#include "eval/suite/spectrum.h"

#include <math.h>

#include "factor/eigen.h"

void fv_gram_add(double *gram, int32_t d, const float *row) {
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = 0; j <= i; j++) gram[i * d + j] += (double)row[i] * (double)row[j];
}

fv_status fv_singular_values(double *gram, int32_t d, double *out, double *scratch) {
    FV_TRY(fv_eigen_symmetric(gram, d, out, scratch));
    for (int32_t i = 0; i < d; i++) out[i] = sqrt(fmax(out[i], 0));
    return FV_OK;
}

int32_t fv_spectrum_rank(const double *values, int32_t d, double share) {
    double all = 0, sum = 0;
    for (int32_t i = 0; i < d; i++) all += values[i] * values[i];
    for (int32_t i = 0; i < d; i++) {
        if (sum >= share * all) return i;
        sum += values[i] * values[i];
    }
    return d;
}
