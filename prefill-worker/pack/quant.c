/* pack=quant: a layer's visual keys and values as codes of 8 or 4 bits, keys by channel and values
 * by token, with some numbers stored exactly (KVQuant, arXiv 2401.18079).
 *
 *   entries of the store --pack_layer.h--> M [n, Hkv D] --packed/codes.h--> blocks
 *
 * The paper fits 16 levels per layer and a range per channel beforehand; here each request has its own
 * ranges and uniform levels, with the same grouping.
 */
#include "prefill-worker/pack/pack_layer.h"

static fv_status part(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind) {
    fv_pack_layer *l = job->state;
    const fv_packed_shape *s = &l->shape[kind];
    fv_tensor m;
    float *rows;
    double error;
    FV_TRY(fv_pack_layer_matrix(ctx, job, kind, &m));
    FV_TRY(fv_matrix_fetch(ctx->matrices, &m, &rows));
    fv_status st = fv_codes_write(s, rows, l->data[kind], &error);
    if (st != FV_OK) return fv_pack_layer_fail(st, job, kind);
    job->rank[kind] = (int32_t)fv_packed_width(s);
    job->error[kind] = (float)error;
    return FV_OK;
}

const fv_pack_method fv_pack_quant = {
    .begin = fv_pack_layer_begin, .part = part, .end = fv_pack_layer_end};
