/* Quantizes weights that files have as codes of a table anew: a band of rows at a time is decoded and quantized. */
#include "model/requantize.h"

#include <stdlib.h>

#include "model/dequantize.h"

enum { BAND = 16 };

fv_status fv_requantize(const fv_tensor *w, const fv_weights *to, void *memory, fv_tensor *out) {
    float *numbers = malloc((size_t)BAND * (size_t)w->cols * sizeof *numbers);
    bool finite = true;
    if (!numbers) return FV_FAIL(FV_ENOMEM, "no memory to quantize weights anew");
    fv_quantize_begin(w->rows, w->cols, to, memory, out);
    for (int32_t row = 0; row < w->rows && finite; row += BAND) {
        fv_quant quant;
        const int32_t n = w->rows - row < BAND ? w->rows - row : BAND;
        const fv_tensor from = fv_weight_rows(*w, row, n, &quant);
        fv_dequantize(&from, FV_F32, numbers);
        const fv_tensor band = fv_tensor_of(numbers, FV_F32, n, w->cols);
        finite = fv_quantize_rows(&band, to, row, out);
    }
    free(numbers);
    return finite ? FV_OK : FV_FAIL(FV_EDATA, "weights hold NaN or infinity");
}
