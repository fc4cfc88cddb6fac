/* Codes of latent keys, as kernels/ops.h words them: an item is a KV head's tile. */
#include <string.h>

#include "kernels/cpu/plain/latent.h"
#include "kernels/cpu/plain/plain.h"
#include "packed/scales.h"

/* w of a row and column: its distance from the mean in units of sigma. */
static float relative(const fv_latent_layer *l, const int8_t *level, size_t n, size_t c) {
    float by = l->sigma[c] > 0 ? l->affine[2 * c + 1] / l->sigma[c] : 0;
    return by * plain_latent_sum(l, level, n, c);
}

static void row_codes(const fv_packed_part *k, const latent_view *v, size_t g, size_t j,
                      uint8_t *tile) {
    size_t D = (size_t)k->shape.d_head, i = j % FV_PACKED_TILE;
    int8_t level[FV_LATENT_MOST];
    float most = 0;
    latent_row_levels(v, j, level, v->n_dir);
    for (size_t d = 0; d < D; d++)
        most = fmaxf(most, fabsf(relative(k->latent, level, v->n_dir, g * D + d)));
    uint16_t scale = f16_of_f32(most / 7.5f);
    code_pair s = {-7.5f * f32_of_f16(scale), f32_of_f16(scale)};
    fv_latent_coded_scale(k, tile)[i] = scale;
    for (size_t d = 0; d < D; d++) {
        float w = relative(k->latent, level, v->n_dir, g * D + d);
        put_code((char *)tile + d * FV_PACKED_TILE / 2, 4, i, code_of(w, s, top_code(4)));
    }
}

static void tile_codes(const fv_packed_part *k, const latent_view *v, size_t g, size_t tile) {
    size_t j0 = tile * FV_PACKED_TILE, n = (size_t)k->shape.n;
    uint8_t *to = fv_latent_coded(k, g, tile);
    memset(to, 0, fv_latent_coded_tile(&k->shape));
    for (size_t j = j0; j < j0 + FV_PACKED_TILE && j < n; j++) row_codes(k, v, g, j, to);
}

fv_cpu_plan fv_plain_latent_codes_plan(const void *args) {
    const fv_latent_codes_args *a = ((const fv_cpu_attention *)args)->a;
    const fv_packed_shape *s = &a->k->shape;
    return (fv_cpu_plan){.n_item = s->n_kv * (int64_t)fv_packed_tiles((size_t)s->n), .grain = 1};
}

void fv_plain_latent_codes(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_latent_codes_args *a = ((const fv_cpu_attention *)args)->a;
    const fv_packed_part *k = a->k;
    int64_t tiles = (int64_t)fv_packed_tiles((size_t)k->shape.n);
    latent_view v;
    (void)scratch;
    latent_view_open(&v, k);
    for (int64_t i = begin; i < end; i++)
        tile_codes(k, &v, (size_t)(i / tiles), (size_t)(i % tiles));
}
