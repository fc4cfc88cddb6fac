/* Copies latent directions to the backend's device and computes the matrices that measure
 * errors. */
#include "model/latent/device.h"

#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "factor/latent_project.h"
#include "factor/matrices.h"

/* A layer's directions on the host, and their destination. */
typedef struct layer_there {
    const fv_latent_info *info;
    const fv_latent_layer *from;
    fv_latent_layer *to;
    fv_backend *be;
    char *at; /* on the device, aligned */
} layer_there;

static bool in_bf16(const fv_backend *be) { return be->compute == FV_COMPUTE_BF16; }

static bool on_host(const fv_backend *be) { return be->device == fv_device_host(); }

/* Bytes of a matrix [W, R] as products read it. */
static size_t bytes_of_columns(const fv_latent_info *i, const fv_backend *be) {
    size_t W = (size_t)i->n_kv * (size_t)i->d_head, n = W * (size_t)i->n_dir;
    return fv_packed_aligned(n * (in_bf16(be) ? sizeof(uint16_t) : sizeof(float)));
}

static size_t bytes_of_gram(const fv_latent_info *i) {
    return fv_packed_aligned((size_t)i->n_dir * (size_t)i->n_dir * sizeof(float));
}

static size_t bytes_of_attention(const fv_latent_info *i) {
    fv_latent_bytes_laid n = fv_latent_layout(i);
    return n.key + n.affine + n.sigma + n.value;
}

/* Device bytes of one layer. On the host P is already in bands. */
static size_t bytes_of_layer(const fv_latent *l, int32_t layer, const fv_backend *be) {
    const fv_latent_info *i = &l->info;
    size_t columns = bytes_of_columns(i, be), bytes = on_host(be) ? 0 : bytes_of_attention(i);
    for (int k = 0; k < 2; k++) {
        bytes += bytes_of_gram(i);
        if (in_bf16(be) || !on_host(be)) bytes += columns;
        if (l->layer[layer].measure[k].along == 0) bytes += columns;
    }
    return bytes;
}

static fv_status send(layer_there *t, const void *from, size_t bytes, char **to) {
    FV_TRY(t->be->device->ops->copy_async(t->be->device, t->at, from, bytes));
    *to = t->at;
    t->at += fv_packed_aligned(bytes);
    return FV_OK;
}

static fv_status send_numbers(layer_there *t, const float *from, size_t n, const float **to) {
    char *at;
    FV_TRY(send(t, from, n * sizeof *from, &at));
    *to = (const float *)(const void *)at;
    return FV_OK;
}

/* Sends the directions that attention reads, which are contiguous. */
static fv_status send_directions(layer_there *t) {
    fv_latent_bytes_laid n = fv_latent_layout(t->info);
    char *piece;
    FV_TRY(send(t, t->from->key, bytes_of_attention(t->info), &piece));
    t->to->key = (const int8_t *)piece;
    t->to->affine = (const float *)(const void *)(piece + n.key);
    t->to->sigma = (const float *)(const void *)(piece + n.key + n.affine);
    t->to->value = (const float *)(const void *)(piece + n.key + n.affine + n.sigma);
    return FV_OK;
}

/* ---- columns ------------------------------------------------------------------------------- */

/* Sends a matrix whose transpose is x [R, W], on the host. */
static fv_status send_columns(layer_there *t, fv_matrices *in, const float *x,
                              fv_latent_columns *to) {
    size_t W = (size_t)t->info->n_kv * (size_t)t->info->d_head, R = (size_t)t->info->n_dir;
    if (in_bf16(t->be)) {
        uint16_t *rounded;
        char *at;
        FV_TRY(FV_ARENA_NEW(in->scratch, W * R, rounded));
        for (size_t i = 0; i < W * R; i++) rounded[i] = bf16_of_f32(x[i]);
        FV_TRY(send(t, rounded, W * R * sizeof *rounded, &at));
        to->rounded = (const uint16_t *)(const void *)at;
        return FV_OK;
    }
    float *bands;
    FV_TRY(FV_ARENA_NEW(in->scratch, W * R, bands));
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < W; c++) bands[fv_latent_band_at(W, R, c, r)] = x[r * W + c];
    return send_numbers(t, bands, W * R, &to->bands);
}

/* Sends P, which is already in bands. */
static fv_status send_encode(layer_there *t, fv_matrices *in, int k) {
    size_t W = (size_t)t->info->n_kv * (size_t)t->info->d_head, R = (size_t)t->info->n_dir;
    const float *bands = t->from->encode[k];
    fv_latent_columns *to = &t->to->project[k];
    if (in_bf16(t->be)) {
        float *x;
        FV_TRY(FV_ARENA_NEW(in->scratch, W * R, x));
        for (size_t r = 0; r < R; r++)
            for (size_t c = 0; c < W; c++) x[r * W + c] = bands[fv_latent_band_at(W, R, c, r)];
        return send_columns(t, in, x, to);
    }
    to->bands = bands;
    return on_host(t->be) ? FV_OK : send_numbers(t, bands, W * R, &to->bands);
}

/* ---- measures ------------------------------------------------------------------------------ */

/* g [R, R] = x x^T, x [R, W] on the host. */
static fv_status gram(fv_matrices *in, const float *x, int32_t R, int32_t W, float *g) {
    size_t n = (size_t)R;
    fv_syrk_args a = {0};
    FV_TRY(fv_matrix_send(in, x, R, W, &a.x));
    FV_TRY(FV_ARENA_NEW(in->scratch, n * n, a.g));
    FV_TRY(in->be->ops->syrk(in->be, &a));
    for (size_t r = 0; r < n; r++)
        for (size_t c = 0; c < n; c++)
            g[r * n + c] = (float)(c <= r ? a.g[r * n + c] : a.g[c * n + r]);
    return FV_OK;
}

static fv_status measure(layer_there *t, fv_matrices *in, int k, float *passed) {
    int32_t R = t->info->n_dir, W = t->info->n_kv * t->info->d_head;
    size_t n = (size_t)R * (size_t)R;
    fv_tensor b, y;
    float *g, *on_host;
    FV_TRY(FV_ARENA_NEW(in->scratch, n, g));
    FV_TRY(gram(in, t->from->decode[k], R, W, g));
    FV_TRY(send_numbers(t, g, n, &t->to->measure[k].gram));
    if (t->from->measure[k].along == 0)
        FV_TRY(send_columns(t, in, t->from->decode[k], &t->to->measure[k].across));
    FV_TRY(send_encode(t, in, k));
    FV_TRY(fv_matrix_send(in, t->from->decode[k], R, W, &b));
    FV_TRY(fv_matrix_new(in, R, R, &y));
    FV_TRY(fv_latent_project(in->be, &b, &t->to->project[k], y));
    FV_TRY(fv_matrix_fetch(in, &y, &on_host)); /* waits for everything sent */
    memcpy(passed, on_host, n * sizeof *passed);
    t->to->measure[k].passed = passed;
    return FV_OK;
}

static fv_status send_layer(layer_there *t, fv_arena *scratch, float *passed) {
    fv_status st = FV_OK;
    *t->to = *t->from;
    if (!on_host(t->be)) FV_TRY(send_directions(t));
    for (int k = 0; k < 2 && st == FV_OK; k++) {
        fv_matrices in = {.be = t->be, .scratch = scratch};
        fv_arena_reset(scratch);
        st = measure(t, &in, k,
                     passed + (size_t)k * (size_t)t->info->n_dir * (size_t)t->info->n_dir);
        fv_matrices_fini(&in);
    }
    return st;
}

static fv_status send_layers(const fv_latent *l, fv_backend *be, fv_latent_on_device *t) {
    size_t n = (size_t)l->info.n_layer, R = (size_t)l->info.n_dir, bytes = 0;
    fv_arena scratch = {0};
    fv_status st = FV_OK;
    t->layers = malloc(n * sizeof *t->layers);
    t->passed = malloc(2 * n * R * R * sizeof *t->passed);
    if (!t->layers || !t->passed) return FV_FAIL(FV_ENOMEM, "out of memory for latent directions");
    for (size_t k = 0; k < n; k++) bytes += bytes_of_layer(l, (int32_t)k, be);
    FV_TRY(fv_buf_alloc(be->device, bytes, FV_BUF_DEVICE, &t->buf));
    layer_there one = {.info = &l->info, .be = be, .at = t->buf.data};
    for (size_t k = 0; k < n && st == FV_OK; k++) {
        one.from = &l->layer[k];
        one.to = &t->layers[k];
        st = send_layer(&one, &scratch, t->passed + 2 * k * R * R);
    }
    fv_arena_fini(&scratch);
    t->layer = t->layers;
    return st;
}

fv_status fv_latent_device_open(const fv_latent *l, fv_backend *be, fv_latent_on_device *out) {
    fv_latent_on_device t = {0};
    fv_status st = send_layers(l, be, &t);
    *out = (fv_latent_on_device){0};
    if (st == FV_OK)
        *out = t;
    else
        fv_latent_on_device_close(&t);
    return st;
}

void fv_latent_on_device_close(fv_latent_on_device *t) {
    fv_buf_free(&t->buf);
    free(t->layers);
    free(t->passed);
    *t = (fv_latent_on_device){0};
}
