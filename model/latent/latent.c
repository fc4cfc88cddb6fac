/* Reads latent.bin with checks, arranges it for kernels, and writes it. */
#include "model/latent/latent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/file.h"

static const size_t FILE_MAX = (size_t)4 << 30;
enum { FIXED = FV_LATENT_LEVELS + FV_LATENT_BITS + 1, PATH_CAP = 4096 };

typedef struct header {
    char magic[8];
    uint32_t version, n_layer, n_kv, d_head, n_group_layer, n_dir, n_item;
    char fingerprint[17], dtype[9], compute[9], zero[1];
} header;
_Static_assert(sizeof(header) == 72, "the file's header has no gaps");

static const char magic[8] = {'F', 'V', 'L', 'A', 'T', 'E', 'N', 'T'};

static size_t width_of(const fv_latent_info *i) { return (size_t)i->n_kv * (size_t)i->d_head; }

static size_t n_group(const fv_latent_info *i) {
    return (size_t)((i->n_layer + i->n_group_layer - 1) / i->n_group_layer);
}

size_t fv_latent_group_at(const fv_latent_info *i, int32_t group) {
    return FIXED + 2 * (size_t)i->n_dir * (size_t)group;
}

size_t fv_latent_layer_at(const fv_latent_info *i, int32_t layer, int kind) {
    size_t part = width_of(i) * (1 + 2 * (size_t)i->n_dir);
    return fv_latent_group_at(i, (int32_t)n_group(i)) + (2 * (size_t)layer + (size_t)kind) * part;
}

size_t fv_latent_numbers(const fv_latent_info *i) { return fv_latent_layer_at(i, i->n_layer, 0); }

static size_t file_bytes(const fv_latent_info *i) {
    return sizeof(header) + fv_latent_numbers(i) * sizeof(float) + sizeof(uint64_t);
}

/* ---- writing ----------------------------------------------------------------------------- */

fv_status fv_latent_encode(const fv_latent_info *i, const float *numbers, void **out,
                           size_t *bytes) {
    header h = {.version = FV_LATENT_VERSION,
                .n_layer = (uint32_t)i->n_layer,
                .n_kv = (uint32_t)i->n_kv,
                .d_head = (uint32_t)i->d_head,
                .n_group_layer = (uint32_t)i->n_group_layer,
                .n_dir = (uint32_t)i->n_dir,
                .n_item = (uint32_t)i->n_item};
    size_t n = file_bytes(i), tail = n - sizeof(uint64_t);
    char *file = malloc(n);
    if (!file) return FV_FAIL(FV_ENOMEM, "out of memory for latent directions");
    memcpy(h.magic, magic, sizeof magic);
    snprintf(h.fingerprint, sizeof h.fingerprint, "%s", i->fingerprint);
    snprintf(h.dtype, sizeof h.dtype, "%s", i->dtype);
    snprintf(h.compute, sizeof h.compute, "%s", i->compute);
    memcpy(file, &h, sizeof h);
    memcpy(file + sizeof h, numbers, fv_latent_numbers(i) * sizeof *numbers);
    uint64_t sum = XXH64(file, tail, 0);
    memcpy(file + tail, &sum, sizeof sum);
    *out = file;
    *bytes = n;
    return FV_OK;
}

fv_status fv_latent_save(const char *dir, const fv_latent_info *i, const float *numbers) {
    char path[PATH_CAP], fresh[PATH_CAP];
    void *file;
    size_t n;
    FV_TRY(fv_path_join(dir, "latent.bin", path, sizeof path));
    FV_TRY(fv_path_join(dir, "latent.bin.new", fresh, sizeof fresh));
    FV_TRY(fv_latent_encode(i, numbers, &file, &n));
    fv_status st = fv_file_write(fresh, file, n);
    free(file);
    FV_TRY(st);
    if (rename(fresh, path) != 0) return FV_FAIL(FV_EIO, "cannot write %s", path);
    return FV_OK;
}

/* ---- reading ----------------------------------------------------------------------------- */

static bool in(uint32_t x, uint32_t from, uint32_t to) { return x >= from && x <= to; }

static fv_status read_header(const char *file, size_t n, const char *path, fv_latent_info *out) {
    header h;
    if (n < sizeof h + sizeof(uint64_t) || memcmp(file, magic, sizeof magic) != 0)
        return FV_FAIL(FV_EDATA, "%s: not a file of latent directions", path);
    memcpy(&h, file, sizeof h);
    if (h.version != FV_LATENT_VERSION)
        return FV_FAIL(FV_EDATA,
                       "%s: version %u, and this fovea reads %d: run `fovea calibrate "
                       "--latent` again",
                       path, h.version, FV_LATENT_VERSION);
    if (!in(h.n_layer, 1, 256) || !in(h.n_kv, 1, 1024) || !in(h.d_head, 1, 1024) ||
        !in(h.n_group_layer, 1, h.n_layer) || !in(h.n_dir, 1, FV_LATENT_MOST) ||
        h.fingerprint[16] || h.dtype[8] || h.compute[8])
        return FV_FAIL(FV_EDATA, "%s: its header is damaged", path);
    *out = (fv_latent_info){.n_layer = (int32_t)h.n_layer,
                            .n_kv = (int32_t)h.n_kv,
                            .d_head = (int32_t)h.d_head,
                            .n_group_layer = (int32_t)h.n_group_layer,
                            .n_dir = (int32_t)h.n_dir,
                            .n_item = (int32_t)(h.n_item & INT32_MAX)};
    memcpy(out->fingerprint, h.fingerprint, sizeof h.fingerprint);
    memcpy(out->dtype, h.dtype, sizeof h.dtype);
    memcpy(out->compute, h.compute, sizeof h.compute);
    return FV_OK;
}

static fv_status check_numbers(const fv_latent_info *i, const float *x, const char *path) {
    for (size_t k = 0, n = fv_latent_numbers(i); k < n; k++)
        if (!isfinite(x[k])) return FV_FAIL(FV_EDATA, "%s: a number is not finite", path);
    return FV_OK;
}

fv_latent_bytes_laid fv_latent_layout(const fv_latent_info *i) {
    size_t R = (size_t)i->n_dir, W = width_of(i);
    return (fv_latent_bytes_laid){
        .key = fv_packed_aligned(W * fv_latent_line(i->n_dir)),
        .affine = fv_packed_aligned(2 * W * sizeof(float)),
        .sigma = fv_packed_aligned(W * sizeof(float)),
        .value = fv_packed_aligned((W * (R + 1) + FV_PACKED_TILE) * sizeof(float))};
}

/* Reorders P [W, R] from the file's order to bands; scratch `room` [W, R]. */
static void lay_bands(float *encode, size_t W, size_t R, float *room) {
    memcpy(room, encode, W * R * sizeof *room);
    for (size_t c = 0; c < W; c++)
        for (size_t r = 0; r < R; r += FV_LATENT_BAND) {
            size_t n = R - r < FV_LATENT_BAND ? R - r : FV_LATENT_BAND;
            memcpy(encode + fv_latent_band_at(W, R, c, r), room + c * R + r, n * sizeof *room);
        }
}

/* Returns a if B = a P^T within f32 precision, 0 if there is no such a. P is in bands. */
static float along(const float *decode, const float *encode, size_t W, size_t R) {
    double both = 0, square = 0, off = 0, all = 0;
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < W; c++) {
            double p = (double)encode[fv_latent_band_at(W, R, c, r)];
            both += p * (double)decode[r * W + c];
            square += p * p;
        }
    double a = square > 0 ? both / square : 0;
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < W; c++) {
            double b = (double)decode[r * W + c];
            double e = b - a * (double)encode[fv_latent_band_at(W, R, c, r)];
            off += e * e;
            all += b * b;
        }
    return off <= 1e-10 * all ? (float)a : 0;
}

/* Arranges a layer's directions at `to` as attention reads them. The key directions in the file's
 * order become those that their integers decode to. */
static void lay_layer(const fv_latent_info *i, fv_latent_layer *l, float *decode, char *to) {
    size_t R = (size_t)i->n_dir, W = width_of(i), D = (size_t)i->d_head, line = R + 1;
    fv_latent_bytes_laid n = fv_latent_layout(i);
    int8_t *key = (int8_t *)to;
    float *affine = (float *)(void *)(to + n.key);
    float *sigma = (float *)(void *)(to + n.key + n.affine);
    float *value = (float *)(void *)(to + n.key + n.affine + n.sigma);
    fv_latent_lay_keys(l->deviation, l->mean[0], decode, i->n_dir, W, key, affine, sigma);
    for (size_t c = 0; c < W; c++)
        for (size_t r = 0; r < line; r++)
            value[(c / D * line + r) * D + c % D] =
                r ? l->decode[1][(r - 1) * W + c] : l->mean[1][c];
    l->key = key;
    l->affine = affine;
    l->sigma = sigma;
    l->value = value;
}

/* Converts levels to integers; returns false if one is no multiple of FV_LATENT_UNIT. */
static bool take_levels(const float *x, int8_t *level) {
    for (int i = 0; i < FV_LATENT_LEVELS; i++) {
        float at = x[i] / FV_LATENT_UNIT;
        if (at != rintf(at) || fabsf(at) > 127) return false;
        level[i] = (int8_t)at;
    }
    return true;
}

static fv_status lay(fv_latent *l, float *x) {
    const fv_latent_info *i = &l->info;
    size_t N = (size_t)i->n_layer, R = (size_t)i->n_dir, W = width_of(i), G = n_group(i);
    fv_latent_bytes_laid laid = fv_latent_layout(i);
    size_t each = laid.key + laid.affine + laid.sigma + laid.value;
    size_t layers = fv_packed_aligned(N * sizeof(fv_latent_layer));
    size_t orders = fv_packed_aligned(G * FV_LATENT_BITS * R * sizeof(uint16_t));
    size_t steps = fv_packed_aligned(G * FV_LATENT_STEPS * sizeof(uint32_t));
    char *memory = calloc(1, layers + orders + steps + N * each);
    float *room = malloc(W * R * sizeof *room);
    if (!memory || !room) {
        free(memory);
        free(room);
        return FV_FAIL(FV_ENOMEM, "out of memory for latent directions");
    }
    fv_latent_layer *layer = (fv_latent_layer *)(void *)memory;
    uint16_t *order = (uint16_t *)(void *)(memory + layers);
    char *to = memory + layers + orders + steps;
    uint32_t *step = (uint32_t *)(void *)(memory + layers + orders);
    memcpy(l->error, x + FV_LATENT_LEVELS, sizeof l->error);
    for (int32_t n = 0; n < i->n_layer; n++, to += each) {
        int32_t g = n / i->n_group_layer, left = i->n_layer - g * i->n_group_layer;
        const float *deviation = x + fv_latent_group_at(i, g);
        layer[n] = (fv_latent_layer){
            .n_dir = i->n_dir,
            .deviation = deviation,
            .offset = deviation + R,
            .order = order + (size_t)g * FV_LATENT_BITS * R,
            .level = l->level,
            .error = l->error,
            /* 1 for each layer's keys and 1 for its values */
            .variance = 2.0f * (float)(left < i->n_group_layer ? left : i->n_group_layer)};
        for (int k = 0; k < 2; k++) {
            layer[n].mean[k] = x + fv_latent_layer_at(i, n, k);
            layer[n].decode[k] = layer[n].mean[k] + W;
            layer[n].encode[k] = layer[n].decode[k] + R * W;
            lay_bands(x + fv_latent_layer_at(i, n, k) + W * (1 + R), W, R, room);
        }
        layer[n].measure[FV_PACKED_V].along = along(layer[n].decode[1], layer[n].encode[1], W, R);
        lay_layer(i, &layer[n], x + fv_latent_layer_at(i, n, 0) + W, to);
        if (n % i->n_group_layer > 0) continue;
        fv_latent_order(deviation, i->n_dir, l->error, order + (size_t)g * FV_LATENT_BITS * R);
        fv_latent_steps(&layer[n], l->error, step + (size_t)g * FV_LATENT_STEPS);
    }
    free(room);
    l->steps = step;
    l->n_group = (int32_t)G;
    l->memory = memory;
    l->layer = layer;
    return FV_OK;
}

static fv_status decode(char *file, size_t n, const char *path, fv_latent *l) {
    FV_TRY(read_header(file, n, path, &l->info));
    size_t tail = n - sizeof(uint64_t);
    if (n != file_bytes(&l->info))
        return FV_FAIL(FV_EDATA, "%s: it has %zu bytes, and its header says %zu", path, n,
                       file_bytes(&l->info));
    memcpy(&l->checksum, file + tail, sizeof l->checksum);
    if (XXH64(file, tail, 0) != l->checksum)
        return FV_FAIL(FV_EDATA, "%s: its checksum is wrong", path);
    float *numbers = (float *)(void *)(file + sizeof(header));
    FV_TRY(check_numbers(&l->info, numbers, path));
    if (!take_levels(numbers, l->level))
        return FV_FAIL(FV_EDATA, "%s: a level is no whole step", path);
    return lay(l, numbers);
}

fv_status fv_latent_decode(void *file, size_t n, const char *path, fv_latent **out) {
    fv_latent *l = calloc(1, sizeof *l);
    if (!l) {
        free(file);
        return FV_FAIL(FV_ENOMEM, "out of memory for latent directions");
    }
    l->file = file;
    fv_status st = decode(file, n, path, l);
    if (st == FV_OK)
        *out = l;
    else
        fv_latent_close(l);
    return st;
}

fv_status fv_latent_open(const char *dir, const char *fingerprint, fv_latent **out) {
    char path[PATH_CAP], *file;
    size_t n;
    fv_latent *l;
    FV_TRY(fv_path_join(dir, "latent.bin", path, sizeof path));
    FV_TRY(fv_file_read(path, FILE_MAX, &file, &n));
    FV_TRY(fv_latent_decode(file, n, path, &l));
    if (strcmp(l->info.fingerprint, fingerprint) != 0) {
        fv_status st = FV_FAIL(FV_EDATA,
                               "%s is of checkpoint '%s', not of %s: run `fovea "
                               "calibrate --latent` again",
                               path, l->info.fingerprint, fingerprint);
        fv_latent_close(l);
        return st;
    }
    *out = l;
    return FV_OK;
}

void fv_latent_close(fv_latent *l) {
    if (!l) return;
    free(l->file);
    free(l->memory);
    free(l);
}
