/* Compares the error of attention's output with the bytes of every `pack` method, on keys and
 * values that have the spectrum of a real network, without questions and answers. The cases are in
 * spectra_case.h.
 *
 * Errors are shares of energy: for keys and values ||M - M~||^2 / ||M - mean||^2, averaged over
 * matrices; for attention's output ||o - o~||^2 / ||o||^2 over all heads and queries, in double.
 *
 * The bound is reverse water-filling (Cover and Thomas, theorem 10.3.3) for independent normal
 * coefficients with variances v_i, with directions stored for free:
 *
 *     sum_i min(v_i, t) = error * sum_i v_i,     sum_i max(0, log2(v_i / t) / 2) bits a token
 *
 * The lines of the bound use coefficients as an ideal code of infinite length would leave them:
 * with d_i = min(v_i, t), z~_i = (1 - d_i / v_i) z_i + sqrt(d_i (1 - d_i / v_i)) times a normal
 * number. Variances come from the case, or were measured with the directions of pack=latent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"
#include "bench/spectra_case.h"
#include "factor/factor_part.h"
#include "factor/latent_project.h"
#include "kernels/backends/open.h"
#include "model/latent/fit.h"
#include "packed/codes.h"
#include "packed/lowrank.h"
#include "packed/merged.h"
#include "policy/policy.h"

enum { MOST_DIRECTIONS = FV_LATENT_MOST, PARTS = 2 * SPECTRA_LAYERS, AT_A_TIME = 256 };

static const fv_option table[] = {
    {"checkpoint", NULL, FV_OPTION_STRING, "FILE", NULL, "text model to read --text with", 0, 0},
    {"text", NULL, FV_OPTION_STRING, "FILE", NULL, "text of at least 4608 tokens", 0, 0},
    {"rows", NULL, FV_OPTION_STRING, "FILE", NULL,
     "keys, values and queries of a model, as bench/antiberty writes them", 0, 0},
    {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the tables as JSON", 0, 0},
};

/* State of one case. */
typedef struct spectra {
    fv_backend be;
    spectra_case c;
    fv_latent *latent;
    int32_t n_part, W;
    double *variance; /* [n_variance] descending, of all parts; sums to n_part */
    int32_t n_variance;
    float *exact[PARTS], *lossy[PARTS]; /* [n, W] keys before rotation and values, layer by layer */
    double energy[PARTS];               /* ||M - mean||^2 */
    float *output[SPECTRA_LAYERS];      /* [n_query, n_head * d_head] of attention on `exact` */
    json_t *lines;
} spectra;

static size_t rows_size(const spectra *s) { return (size_t)s->c.n * (size_t)s->W; }

/* Expands rows from [n, width] to [n, W]. */
static void lifted(spectra *s, const float *row, float *to) {
    size_t W = (size_t)s->W, width = (size_t)s->c.width;
    if (!s->c.lift) {
        memcpy(to, row, rows_size(s) * sizeof *to);
        return;
    }
    fv_matmul_nn_args a = {.x = fv_tensor_of((void *)(uintptr_t)row, FV_F32, s->c.n, s->c.width),
                           .w = fv_tensor_of(s->c.lift, FV_F32, (int32_t)width, (int32_t)W),
                           .y = fv_tensor_of(to, FV_F32, s->c.n, s->W)};
    bench_must(s->be.ops->matmul_nn(&s->be, &a));
}

/* ---- attention ----------------------------------------------------------------------------- */

/* Computes one head's attention for one query; keys and values [n, W] and the query are rotated. */
static void attend(const spectra *s, const float *q, const float *k, const float *v, int32_t n,
                   int32_t head, double *p, float *o) {
    size_t W = (size_t)s->W, at = (size_t)(head / (s->c.n_head / s->c.n_kv) * s->c.d_head);
    double most = -INFINITY, sum = 0;
    for (int32_t j = 0; j < n; j++) {
        p[j] = 0;
        for (int32_t d = 0; d < s->c.d_head; d++)
            p[j] += (double)q[d] * (double)k[(size_t)j * W + at + (size_t)d];
        p[j] *= s->c.scale;
        most = fmax(most, p[j]);
    }
    for (int32_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - most);
    for (int32_t d = 0; d < s->c.d_head; d++) {
        double x = 0;
        for (int32_t j = 0; j < n; j++) x += p[j] * (double)v[(size_t)j * W + at + (size_t)d];
        o[d] = (float)(x / sum);
    }
}

/* Returns [n_ahead + n, W]: the uncompressed rows ahead, then `row`. */
static float *joined(const spectra *s, const float *ahead, const float *row) {
    size_t n = (size_t)s->c.n_ahead * (size_t)s->W;
    float *m = spectra_alloc(n + rows_size(s), sizeof *m);
    if (n) memcpy(m, ahead, n * sizeof *m);
    memcpy(m + n, row, rows_size(s) * sizeof *m);
    return m;
}

/* Computes a layer's outputs [n_query, H D] from keys before rotation and values. */
static void outputs(const spectra *s, int32_t layer, const float *k, const float *v, float *o) {
    const spectra_case *c = &s->c;
    size_t line = (size_t)(c->n_head * c->d_head);
    int32_t n = c->n_ahead + c->n, first = c->at - c->n_ahead;
    float *key = joined(s, c->ahead[layer][0], k), *value = joined(s, c->ahead[layer][1], v);
    float *q = spectra_alloc(line, sizeof *q);
    double *p = spectra_alloc((size_t)n, sizeof *p);
    for (int32_t j = 0; j < n; j++)
        spectra_rotate(c, first + j, false, c->n_kv, key + (size_t)j * (size_t)s->W);
    for (int32_t i = 0; i < c->n_query; i++, o += line) {
        memcpy(q, c->query[layer] + (size_t)i * line, line * sizeof *q);
        spectra_rotate(c, first + n + i, false, c->n_head, q);
        for (int32_t h = 0; h < c->n_head; h++)
            attend(s, q + (size_t)(h * c->d_head), key, value, n, h, p,
                   o + (size_t)(h * c->d_head));
    }
    free(p);
    free(q);
    free(value);
    free(key);
}

static double output_error(const spectra *s) {
    size_t n = (size_t)s->c.n_query * (size_t)(s->c.n_head * s->c.d_head);
    float *o = spectra_alloc(n, sizeof *o);
    double off = 0, all = 0;
    for (int32_t l = 0; l < s->c.n_layer; l++) {
        outputs(s, l, s->lossy[2 * l], s->lossy[2 * l + 1], o);
        for (size_t i = 0; i < n; i++) {
            double d = (double)o[i] - (double)s->output[l][i];
            off += d * d;
            all += (double)s->output[l][i] * (double)s->output[l][i];
        }
    }
    free(o);
    return off / all;
}

/* Returns the mean error of keys (kind 0) or values (1). */
static double row_error(const spectra *s, int kind) {
    double sum = 0;
    for (int32_t p = kind; p < s->n_part; p += 2) {
        double off = 0;
        for (size_t i = 0; i < rows_size(s); i++) {
            double d = (double)s->exact[p][i] - (double)s->lossy[p][i];
            off += d * d;
        }
        sum += off / s->energy[p] / s->c.n_layer;
    }
    return sum;
}

/* ---- the bound ----------------------------------------------------------------------------- */

/* Returns the energy lost if every direction loses min(v, level), and the bits per token. */
static double filled(const spectra *s, double level, double *bits) {
    double left = 0;
    *bits = 0;
    for (int32_t i = 0; i < s->n_variance; i++) {
        double v = s->variance[i];
        left += fmin(v, level);
        if (v > level) *bits += log2(v / level) / 2;
    }
    return left;
}

/* Finds the level for `bits` per token or, if bits is 0, for `error` over all parts. */
static double level_for(const spectra *s, double bits, double error) {
    double low = 1e-12, high = s->variance[0], found;
    for (int step = 0; step < 200; step++) {
        double level = sqrt(low * high), left = filled(s, level, &found);
        if (bits > 0 ? found > bits : left < error * s->n_part)
            low = level;
        else
            high = level;
    }
    return low;
}

static double raw_bytes(const spectra *s) { return 2.0 * s->n_part * (double)rows_size(s); }

static double bound_bytes(const spectra *s, double error) {
    double bits;
    if (error >= 1) return 0;
    filled(s, level_for(s, 0, error), &bits);
    return bits * s->c.n / 8;
}

static void note(spectra *s, const char *name, double bytes) {
    double k = row_error(s, 0), v = row_error(s, 1), o = output_error(s);
    double bound = bound_bytes(s, (k + v) / 2);
    printf("%-44s %10.0f %8.1f %8.4f %8.4f %9.5f %10.2f\n", name, bytes, raw_bytes(s) / bytes, k, v,
           o, bound > 0 ? bytes / bound : 0);
    fflush(stdout);
    json_array_append_new(s->lines, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", name,
                                              "bytes", bytes, "error_keys", k, "error_values", v,
                                              "error_output", o, "bytes_bound", bound));
}

/* ---- directions ---------------------------------------------------------------------------- */

static fv_latent_info info_of(const spectra_case *c) {
    int32_t head = c->lift ? 128 : c->d_head; /* `lift` mixes heads, so any head size will do */
    int32_t most = 2 * c->n_layer * c->width;
    return (fv_latent_info){.n_layer = c->n_layer,
                            .n_kv = c->width / head,
                            .d_head = head,
                            .n_group_layer = c->n_layer,
                            .n_dir = most < MOST_DIRECTIONS ? most : MOST_DIRECTIONS};
}

/* Measures the directions of pack=latent as `fovea calibrate --latent` does. */
static void calibrate(spectra *s) {
    const spectra_case *c = &s->c;
    fv_latent_info info = info_of(c);
    fv_latent_fit *fit;
    void *file;
    size_t bytes;
    bench_must(fv_latent_fit_open(&info, 0, FV_LATENT_MOMENT_BYTES, &fit));
    for (int pass = 0; pass < FV_LATENT_PASSES; pass++) {
        for (int32_t from = 0; from < c->n_seen; from += AT_A_TIME) {
            int32_t n = c->n_seen - from < AT_A_TIME ? c->n_seen - from : AT_A_TIME;
            for (int32_t p = 0; p < s->n_part; p++) {
                const float *row = c->seen[p / 2][p % 2] + (size_t)from * (size_t)c->width;
                bench_must(fv_latent_fit_rows(fit, p / 2, p % 2, n, row));
            }
            fv_latent_fit_end_rows(fit);
        }
        bench_must(fv_latent_fit_end_pass(fit));
    }
    bench_must(fv_latent_encode(&info, fv_latent_fit_numbers(fit), &file, &bytes));
    bench_must(fv_latent_decode(file, bytes, "directions", &s->latent));
    fv_latent_fit_close(fit);
}

/* Returns coefficients z [n, R] of the case's rows. */
static float *projected(spectra *s) {
    const spectra_case *c = &s->c;
    size_t R = (size_t)s->latent->info.n_dir, n = (size_t)c->n;
    float *z = spectra_alloc(n * R, sizeof *z), *y = spectra_alloc(n * R, sizeof *y);
    for (int32_t p = 0; p < s->n_part; p++) {
        const fv_latent_columns encode = {.bands = s->latent->layer[p / 2].encode[p % 2]};
        fv_tensor x = fv_tensor_of(c->row[p / 2][p % 2], FV_F32, c->n, c->width);
        bench_must(
            fv_latent_project(&s->be, &x, &encode, fv_tensor_of(y, FV_F32, c->n, (int32_t)R)));
        for (size_t i = 0; i < n * R; i++) z[i] += y[i];
    }
    for (size_t i = 0; i < n * R; i++) z[i] -= s->latent->layer[0].offset[i % R];
    free(y);
    return z;
}

/* Rebuilds all rows from coefficients. */
static void rebuilt(spectra *s, const float *z) {
    size_t R = (size_t)s->latent->info.n_dir, width = (size_t)s->c.width, n = (size_t)s->c.n;
    float *m = spectra_alloc(n * width, sizeof *m);
    for (int32_t p = 0; p < s->n_part; p++) {
        const fv_latent_layer *l = &s->latent->layer[p / 2];
        fv_matmul_nn_args a = {
            .x = fv_tensor_of((void *)(uintptr_t)z, FV_F32, s->c.n, (int32_t)R),
            .w = fv_tensor_of((void *)(uintptr_t)l->decode[p % 2], FV_F32, (int32_t)R, s->c.width),
            .y = fv_tensor_of(m, FV_F32, s->c.n, s->c.width)};
        bench_must(s->be.ops->matmul_nn(&s->be, &a));
        for (size_t i = 0; i < n * width; i++) m[i] += l->mean[p % 2][i % width];
        lifted(s, m, s->lossy[p]);
    }
    free(m);
}

/* Quantizes coefficients with row_bits bits per row, `each` bits per coefficient; 0: bits by
 * variance. */
static void coded(spectra *s, const char *name, int32_t each, int32_t row_bits) {
    const fv_latent_layer *l = &s->latent->layer[0];
    fv_packed_shape shape = {.n = s->c.n,
                             .n_kv = s->latent->info.n_kv,
                             .d_head = s->latent->info.d_head,
                             .form = FV_PACKED_LATENT,
                             .latent = {.row_bits = row_bits, .each_bits = (uint8_t)each}};
    float *z = projected(s);
    void *data = spectra_alloc(fv_latent_bytes(&shape), 1);
    bench_must(fv_latent_write(l, &shape, z, data));
    rebuilt(s, z);
    note(s, name, (double)fv_latent_bytes(&shape));
    free(data);
    free(z);
}

static void latent_lines(spectra *s) {
    static const int parts[] = {64, 128, 256, 512};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        int32_t bits = fv_latent_row_bits((int64_t)(raw_bytes(s) / parts[i]), s->c.n);
        snprintf(name, sizeof name, "pack=latent,budget=1/%d", parts[i]);
        if (bits <= FV_LATENT_BITS * s->latent->info.n_dir) coded(s, name, 0, bits);
    }
}

/* Adds lines of a trivial coder: the first directions, all with the same number of bits. */
static void fixed_lines(spectra *s) {
    static const int32_t cases[][2] = {{256, 4}, {128, 4}, {64, 4}, {64, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        int32_t rank = cases[i][0], bits = cases[i][1];
        snprintf(name, sizeof name, "PCA, %d directions, %d bits each", rank, bits);
        coded(s, name, bits, rank * bits);
    }
}

/* Adds lines of the bound: coefficients with the noise that remains at its bits. */
static void bound_lines(spectra *s) {
    static const int parts[] = {64, 128, 256, 512};
    int32_t R = s->latent->info.n_dir;
    uint64_t state = 7;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        double bits = raw_bytes(s) / parts[i] * 8 / s->c.n, level = level_for(s, bits, 0);
        float *z = projected(s);
        for (int32_t j = 0; j < s->c.n * R; j++) {
            double sd = (double)s->latent->layer[0].deviation[j % R], v = sd * sd;
            double keep = v > level ? 1 - level / v : 0;
            z[j] =
                (float)(keep * (double)z[j] + sqrt(fmin(v, level) * keep) * spectra_normal(&state));
        }
        rebuilt(s, z);
        snprintf(name, sizeof name, "bound at 1/%d", parts[i]);
        note(s, name, raw_bytes(s) / parts[i]);
        free(z);
    }
}

/* ---- methods on one layer or a pair -------------------------------------------------------- */

static int32_t block_of(const fv_params *p, int method) {
    return method == FV_METHOD_PACK_svd     ? p->pack_svd.block
           : method == FV_METHOD_PACK_quant ? p->pack_quant.block
                                            : p->pack_minicache.block;
}

/* Rotates keys as a method sees them: by the distance to the start of their block or, with block 0,
 * by their position; `back` undoes this. */
static void turn_keys(const spectra *s, int32_t block, bool back, float *m) {
    for (int32_t j = 0; j < s->c.n; j++)
        spectra_rotate(&s->c, block ? j % block : s->c.at + j, back, s->c.n_kv,
                       m + (size_t)j * (size_t)s->W);
}

static fv_packed_shape shape_of(const spectra *s, int32_t part, fv_packed_form form) {
    return (fv_packed_shape){.n = s->c.n,
                             .n_kv = s->c.n_kv,
                             .d_head = s->c.d_head,
                             .dtype = FV_BF16,
                             .kind = (fv_packed_kind)(part % 2),
                             .form = form};
}

static size_t factors(spectra *s, const fv_params *p, int32_t part, float *m) {
    fv_packed_shape shape = shape_of(s, part, FV_PACKED_LOWRANK);
    fv_factor_part what = {.layer = part / 2, .energy = p->pack_svd.energy};
    fv_arena arena = {0};
    fv_tensor x = fv_tensor_of(m, FV_F32, s->c.n, s->W);
    double error;
    int32_t rank = part % 2 ? p->pack_svd.rank_v : p->pack_svd.rank_k;
    uint8_t bits = p->pack_svd.bits_4 ? 4 : p->pack_svd.bits_8 ? 8 : 16;
    shape.lowrank = (fv_lowrank_shape){rank, rank, bits};
    void *data = spectra_alloc(fv_packed_bytes(&shape), 1);
    bench_must(fv_factor_write(&s->be, &arena, &x, &what, &shape, data, &error));
    fv_packed_part made = {.shape = shape, .data = data};
    float *u = spectra_alloc((size_t)shape.n * (size_t)shape.lowrank.rank, sizeof *u);
    float *basis = spectra_alloc((size_t)shape.lowrank.rank * (size_t)s->W, sizeof *basis);
    fv_packed_read_u(&made, 0, shape.n, u);
    fv_packed_read_basis(&made, basis);
    fv_matmul_nn_args a = {.x = fv_tensor_of(u, FV_F32, shape.n, shape.lowrank.rank),
                           .w = fv_tensor_of(basis, FV_F32, shape.lowrank.rank, s->W),
                           .y = x};
    bench_must(s->be.ops->matmul_nn(&s->be, &a));
    free(basis);
    free(u);
    free(data);
    fv_arena_fini(&arena);
    return fv_packed_bytes(&shape);
}

static size_t codes(spectra *s, const fv_params *p, int32_t part, float *m) {
    fv_packed_shape shape = shape_of(s, part, FV_PACKED_QUANTIZED);
    double error;
    shape.codes.bits = p->pack_quant.bits_4 ? 4 : 8;
    shape.codes.n_outlier = (int32_t)fv_codes_all_outliers(&shape, p->pack_quant.outliers);
    fv_packed_part made = {.shape = shape, .data = spectra_alloc(fv_packed_bytes(&shape), 1)};
    bench_must(fv_codes_write(&shape, m, made.data, &error));
    fv_codes_read(&made, 0, shape.n, m);
    free(made.data);
    return fv_packed_bytes(&shape);
}

/* Merges layers (2p, 2p + 1), m[0] and m[1]. */
static size_t merged(spectra *s, const fv_params *p, int32_t part, float *const m[2]) {
    fv_packed_shape shape[2] = {shape_of(s, part, FV_PACKED_MERGED),
                                shape_of(s, part, FV_PACKED_MERGED)};
    const float *from[2] = {m[0], m[1]};
    uint8_t *kept = spectra_alloc((size_t)s->c.n * (size_t)s->c.n_kv, 1);
    double error[2];
    void *data[2];
    shape[1].borrows = true;
    int32_t n = fv_merged_keep(&shape[0], from, p->pack_minicache.gamma, kept);
    for (int i = 0; i < 2; i++) {
        shape[i].merged.n_exact = n;
        data[i] = spectra_alloc(fv_packed_bytes(&shape[i]), 1);
    }
    bench_must(fv_merged_write(shape, from, p->pack_minicache.t, kept, data, error));
    for (int i = 0; i < 2; i++) {
        fv_packed_part made = {.shape = shape[i], .data = data[i], .base = i ? data[0] : NULL};
        fv_codes_read(&made, 0, s->c.n, m[i]);
    }
    for (int i = 0; i < 2; i++) free(data[i]);
    free(kept);
    return fv_packed_bytes(&shape[0]) + fv_packed_bytes(&shape[1]);
}

static void policy_line(spectra *s, const char *name) {
    fv_policy policy;
    fv_params p;
    double bytes = 0;
    bench_must(fv_policy_parse(name, &policy));
    int method = policy.stage[FV_STAGE_PACK].method->id;
    fv_choice_params(&policy.stage[FV_STAGE_PACK], 32, &p);
    int32_t block = block_of(&p, method);
    if (method == FV_METHOD_PACK_svd && p.pack_svd.rank_k > s->c.n) return; /* rank > rows */
    for (int32_t i = 0; i < s->n_part; i++) {
        memcpy(s->lossy[i], s->exact[i], rows_size(s) * sizeof **s->lossy);
        if (i % 2 == 0) turn_keys(s, block, false, s->lossy[i]);
    }
    for (int32_t i = 0; i < s->n_part; i++)
        if (method == FV_METHOD_PACK_svd)
            bytes += (double)factors(s, &p, i, s->lossy[i]);
        else if (method == FV_METHOD_PACK_quant)
            bytes += (double)codes(s, &p, i, s->lossy[i]);
        else if (i / 2 % 2 == 0)
            bytes += (double)merged(s, &p, i, (float *const[]){s->lossy[i], s->lossy[i + 2]});
    for (int32_t i = 0; i < s->n_part; i += 2) turn_keys(s, block, true, s->lossy[i]);
    note(s, name, bytes);
}

/* ---- a case -------------------------------------------------------------------------------- */

static void take_exact(spectra *s) {
    for (int32_t p = 0; p < s->n_part; p++) {
        const float *mean = s->latent->layer[p / 2].mean[p % 2];
        const float *row = s->c.row[p / 2][p % 2];
        size_t width = (size_t)s->c.width, n = (size_t)s->c.n * width;
        s->exact[p] = spectra_alloc(rows_size(s), sizeof(float));
        s->lossy[p] = spectra_alloc(rows_size(s), sizeof(float));
        lifted(s, row, s->exact[p]);
        s->energy[p] = 0;
        for (size_t i = 0; i < n; i++) {
            double d = (double)row[i] - (s->c.lift ? 0 : (double)mean[i % width]);
            s->energy[p] += d * d;
        }
    }
    for (int32_t l = 0; l < s->c.n_layer; l++) {
        s->output[l] = spectra_alloc((size_t)s->c.n_query * (size_t)(s->c.n_head * s->c.d_head),
                                     sizeof(float));
        outputs(s, l, s->exact[2 * l], s->exact[2 * l + 1], s->output[l]);
    }
}

/* Takes the case's variances for each part, or else those of the directions. */
static void take_variances(spectra *s) {
    s->n_variance = s->c.variance ? s->n_part * s->c.width : s->latent->info.n_dir;
    s->variance = spectra_alloc((size_t)s->n_variance, sizeof *s->variance);
    for (int32_t i = 0; i < s->n_variance; i++) {
        double sd = s->c.variance ? 0 : (double)s->latent->layer[0].deviation[i];
        s->variance[i] = s->c.variance ? s->c.variance[i / s->n_part] : sd * sd;
    }
}

static json_t *run(spectra *s, const char *title) {
    static const char *const alone[] = {
        "pack=quant,bits=8",
        "pack=quant,bits=4",
        "pack=quant,bits=4,outliers=0.01",
        "pack=svd",
        "pack=svd,bits=8",
        "pack=svd,bits=4",
        "pack=svd,bits=4,block=1",
        "pack=svd,rank_k=32,rank_v=32,bits=4",
        "pack=svd,rank_k=128,rank_v=128,bits=4",
    };
    s->n_part = 2 * s->c.n_layer;
    s->W = s->c.n_kv * s->c.d_head;
    s->lines = json_array();
    calibrate(s);
    take_exact(s);
    take_variances(s);
    printf(
        "\n%s: %d layer%s, %d tokens of %d x %d, %.0f bytes at 16 bits\n\n%-44s %10s %8s %8s %8s "
        "%9s %10s\n",
        title, s->c.n_layer, s->c.n_layer > 1 ? "s" : "", s->c.n, s->c.n_kv, s->c.d_head,
        raw_bytes(s), "", "bytes", "smaller", "keys", "values", "output", "x bound");
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) policy_line(s, alone[i]);
    if (s->c.n_layer > 1) policy_line(s, "pack=minicache,start=0");
    fixed_lines(s);
    latent_lines(s);
    bound_lines(s);
    for (int32_t p = 0; p < s->n_part; p++) {
        free(s->exact[p]);
        free(s->lossy[p]);
    }
    for (int32_t l = 0; l < s->c.n_layer; l++) free(s->output[l]);
    free(s->variance);
    fv_latent_close(s->latent);
    spectra_free(&s->c);
    return s->lines;
}

int main(int argc, char **argv) {
    static spectra s;
    fv_options *o =
        bench_options(table, sizeof table / sizeof *table, argc, argv, "bench_spectra [options]",
                      "Attention's output against bytes for every method of pack.");
    const char *checkpoint = fv_options_string(o, "checkpoint"),
               *text = fv_options_string(o, "text");
    const char *rows = fv_options_string(o, "rows");
    json_t *made, *read = NULL, *file = NULL;
    bench_must(fv_backend_open(&s.be, "cpu", &(fv_backend_options){.isa = "auto"}));
    spectra_made_up(&s.c);
    made = run(&s, "made up after LLaVA-1.5-7B");
    if (checkpoint && text) {
        spectra_of_text(&s.c, checkpoint, text);
        read = run(&s, "text model");
    }
    if (rows) {
        spectra_of_file(&s.c, rows);
        file = run(&s, rows);
    }
    bench_write_json(o,
                     json_pack("{s:o, s:o*, s:o*}", "made_up", made, "text", read, "rows", file));
    fv_backend_close(&s.be);
    fv_options_free(o);
    return 0;
}
