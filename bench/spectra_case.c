/* See spectra_case.h. */
#include "bench/spectra_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"
#include "common/file.h"
#include "model/engine.h"

void *spectra_alloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) bench_must(FV_FAIL(FV_ENOMEM, "no memory for %zu numbers", n));
    return p;
}

void spectra_free(spectra_case *c) {
    for (int32_t l = 0; l < c->n_layer; l++) {
        for (int k = 0; k < 2; k++) {
            free(c->seen[l][k]);
            free(c->row[l][k]);
            free(c->ahead[l][k]);
        }
        free(c->query[l]);
    }
    free(c->lift);
    free(c->variance);
}

void spectra_rotate(const spectra_case *c, int32_t position, bool back, int32_t n_head,
                    float *row) {
    float cosine[FV_ROPE_MAX_HALF], sine[FV_ROPE_MAX_HALF];
    fv_rope_pos pos = {position, position, position};
    fv_rope_angles(&c->rope, &pos, 1, cosine, sine);
    for (int32_t h = 0; h < n_head; h++, row += c->d_head)
        for (int32_t i = 0; i < c->rope.half; i++) {
            float x = row[i], y = row[i + c->rope.half], s = back ? -sine[i] : sine[i];
            row[i] = x * cosine[i] - y * s;
            row[i + c->rope.half] = y * cosine[i] + x * s;
        }
}

/* ---- made up ----------------------------------------------------------------------------- */

enum {
    MADE_DIRECTIONS = 512,
    MADE_TOKENS = 576,
    MADE_IMAGES = 8,
    MADE_QUERIES = 8,
    MADE_HELD = 64
};

double spectra_normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) * 0x1p-53;
    }
    return sum;
}

/* Computes i^-p with sum 1, where the first MADE_HELD variances sum to 0.90. */
static void power_law(double *variance) {
    double low = 0.1, high = 4;
    for (int step = 0; step < 60; step++) {
        double p = (low + high) / 2, sum = 0, held = 0;
        for (int i = 0; i < MADE_DIRECTIONS; i++) {
            variance[i] = pow(i + 1, -p);
            sum += variance[i];
            if (i < MADE_HELD) held += variance[i];
        }
        for (int i = 0; i < MADE_DIRECTIONS; i++) variance[i] /= sum;
        if (held / sum < 0.9)
            low = p;
        else
            high = p;
    }
}

/* Orthonormal rows (modified Gram-Schmidt). */
static void orthonormal(float *m, int32_t rows, int32_t cols, uint64_t *state) {
    for (int32_t i = 0; i < rows; i++) {
        float *x = m + (size_t)i * (size_t)cols;
        double norm = 0;
        for (int32_t c = 0; c < cols; c++) x[c] = (float)spectra_normal(state);
        for (int32_t j = 0; j < i; j++) {
            const float *y = m + (size_t)j * (size_t)cols;
            double dot = 0;
            for (int32_t c = 0; c < cols; c++) dot += (double)x[c] * (double)y[c];
            for (int32_t c = 0; c < cols; c++) x[c] -= (float)dot * y[c];
        }
        for (int32_t c = 0; c < cols; c++) norm += (double)x[c] * (double)x[c];
        for (int32_t c = 0; c < cols; c++) x[c] *= (float)(1 / sqrt(norm));
    }
}

static float *coefficients(const spectra_case *c, int32_t n, uint64_t *state) {
    float *m = spectra_alloc((size_t)n * (size_t)c->width, sizeof *m);
    for (int32_t j = 0; j < n; j++)
        for (int32_t i = 0; i < c->width; i++)
            m[(size_t)j * (size_t)c->width + (size_t)i] =
                (float)(spectra_normal(state) * sqrt(c->variance[i]));
    return m;
}

void spectra_made_up(spectra_case *c) {
    *c = (spectra_case){.n_layer = 1,
                        .n_head = 32,
                        .n_kv = 32,
                        .d_head = 128,
                        .n = MADE_TOKENS,
                        .n_seen = MADE_IMAGES * MADE_TOKENS,
                        .n_query = MADE_QUERIES,
                        .at = 35,
                        .width = MADE_DIRECTIONS};
    int32_t W = c->n_kv * c->d_head;
    fv_rope_config rope = {.theta = 1e4};
    uint64_t state = 20;
    fv_rope_init(&c->rope, &rope, c->d_head);
    c->variance = spectra_alloc(MADE_DIRECTIONS, sizeof *c->variance);
    power_law(c->variance);
    c->lift = spectra_alloc((size_t)c->width * (size_t)W, sizeof *c->lift);
    orthonormal(c->lift, c->width, W, &state);
    for (int k = 0; k < 2; k++) {
        c->seen[0][k] = coefficients(c, c->n_seen, &state);
        c->row[0][k] = coefficients(c, c->n, &state);
    }
    /* Keys have W entries of variance 1 / W, queries D of variance 1: q k has variance D / W. */
    c->scale = 2 / sqrt((double)c->d_head / W);
    c->query[0] = spectra_alloc((size_t)c->n_query * (size_t)W, sizeof **c->query);
    for (int32_t i = 0; i < c->n_query * W; i++) c->query[0][i] = (float)spectra_normal(&state);
}

/* ---- from a text model ------------------------------------------------------------------- */

enum { TEXT_WINDOW = 512, TEXT_SEEN = 8, TEXT_QUERIES = 16 };

typedef struct reader {
    spectra_case *c;
    fv_engine e;
    fv_kv_pool *pool;
    int32_t first; /* first layer */
} reader;

/* Computes queries of the window's last rows from the residual stream before the layer. */
static void take_queries(reader *r, fv_tensor x, int32_t layer) {
    const fv_text_config *cfg = fv_decoder_config(r->e.dec);
    const fv_text_layer *w = &fv_checkpoint_text(r->e.ck)->layer[r->first + layer];
    int32_t n = r->c->n_query;
    float *normed = spectra_alloc((size_t)n * (size_t)cfg->d_model, sizeof *normed);
    r->c->query[layer] =
        spectra_alloc((size_t)n * (size_t)(cfg->n_head * cfg->d_head), sizeof *normed);
    fv_tensor y = fv_tensor_of(normed, FV_F32, n, cfg->d_model);
    fv_norm_args norm = {.x = fv_tensor_rows(x, x.rows - n, n),
                         .w = w->attn_norm,
                         .y = y,
                         .eps = cfg->rms_eps,
                         .rms = true};
    fv_linear_args linear = {
        .x = y,
        .n_part = 1,
        .part = {{.w = w->q,
                  .y = fv_tensor_of(r->c->query[layer], FV_F32, n, cfg->n_head * cfg->d_head)}}};
    bench_must(r->e.be.ops->norm(&r->e.be, &norm));
    bench_must(r->e.be.ops->linear(&r->e.be, &linear));
    free(normed);
}

/* Copies a window's rows of a layer (keys before rotation, or values): the first to c->ahead, the
 * rest to `to`. */
static void take_rows(const reader *r, const fv_kv *kv, int32_t layer, int kind, float *to) {
    size_t D = (size_t)r->c->d_head, W = D * (size_t)r->c->n_kv;
    float *window = spectra_alloc(TEXT_WINDOW * W, sizeof *window);
    for (int32_t g = 0; g < r->c->n_kv; g++)
        for (int32_t j = 0, n; j < TEXT_WINDOW; j += n) {
            void *at;
            n = fv_kv_contiguous(kv, r->first + layer, g, FV_SEG_TEXT, kind == 1, j, TEXT_WINDOW,
                                 &at);
            for (int32_t i = 0; i < n; i++)
                memcpy(window + (size_t)(j + i) * W + (size_t)g * D, (float *)at + (size_t)i * D,
                       D * sizeof *to);
        }
    for (int32_t j = 0; j < TEXT_WINDOW && kind == 0; j++)
        spectra_rotate(r->c, j, true, r->c->n_kv, window + (size_t)j * W);
    memcpy(r->c->ahead[layer][kind], window, W * sizeof *to);
    memcpy(to, window + W, (TEXT_WINDOW - 1) * W * sizeof *to);
    free(window);
}

/* Reads window w of the text; the last one is the window to compress. */
static void read_window(reader *r, const int32_t *ids, int32_t w) {
    spectra_case *c = r->c;
    const fv_text_config *cfg = fv_decoder_config(r->e.dec);
    size_t W = (size_t)c->width;
    int32_t pos[TEXT_WINDOW];
    uint8_t seg[TEXT_WINDOW];
    fv_forward_seq seq = {.n_rows = TEXT_WINDOW, .pos = pos, .seg = seg, .wanted = 1};
    fv_forward_batch pass = {.n_seq = 1, .seq = &seq};
    fv_buf x;
    for (int32_t i = 0; i < TEXT_WINDOW; i++) pos[i] = i;
    memset(seg, FV_SEG_TEXT, sizeof seg);
    bench_must(fv_kv_open(r->pool, &seq.kv));
    bench_must(fv_buf_alloc(r->e.be.device,
                            (size_t)TEXT_WINDOW * (size_t)cfg->d_model * sizeof(float),
                            FV_BUF_DEVICE, &x));
    pass.x = fv_tensor_of(x.data, FV_F32, TEXT_WINDOW, cfg->d_model);
    bench_must(fv_decoder_embed(r->e.dec, ids, TEXT_WINDOW, pass.x));
    for (int32_t l = 0, at = 0; l < c->n_layer; l++) {
        bench_must(fv_decoder_layers(r->e.dec, &pass, at, r->first + l));
        if (w == TEXT_SEEN) take_queries(r, pass.x, l);
        at = r->first + l;
        if (l + 1 == c->n_layer) bench_must(fv_decoder_layers(r->e.dec, &pass, at, at + 1));
    }
    for (int32_t l = 0; l < c->n_layer; l++)
        for (int k = 0; k < 2; k++)
            take_rows(r, seq.kv, l, k,
                      w == TEXT_SEEN ? c->row[l][k]
                                     : c->seen[l][k] + (size_t)w * (TEXT_WINDOW - 1) * W);
    fv_buf_free(&x);
    fv_kv_close(seq.kv);
}

void spectra_of_text(spectra_case *c, const char *checkpoint, const char *text) {
    fv_engine_options opt = {.checkpoint = checkpoint,
                             .backend = "cpu",
                             .isa = "auto",
                             .compute = "f32",
                             .kv_dtype = "f32"};
    reader r = {.c = c};
    char *bytes;
    size_t n_byte;
    int32_t *ids, n;
    bench_must(fv_engine_open(&opt, &r.e));
    bench_must(fv_file_read(text, 1 << 28, &bytes, &n_byte));
    bench_must(fv_tokenizer_encode(r.e.tok, bytes, n_byte, false, &ids, &n));
    if (n < (TEXT_SEEN + 1) * TEXT_WINDOW)
        bench_must(FV_FAIL(FV_EINVAL, "%s has %d tokens: %d are needed", text, n,
                           (TEXT_SEEN + 1) * TEXT_WINDOW));
    const fv_text_config *cfg = fv_decoder_config(r.e.dec);
    fv_kv_shape shape = fv_engine_kv_shape(&r.e, FV_F32);
    *c = (spectra_case){.n_layer = SPECTRA_LAYERS,
                        .n_head = cfg->n_head,
                        .n_kv = cfg->n_kv,
                        .d_head = cfg->d_head,
                        .n = TEXT_WINDOW - 1,
                        .n_seen = TEXT_SEEN * (TEXT_WINDOW - 1),
                        .n_query = TEXT_QUERIES,
                        .at = 1,
                        .n_ahead = 1,
                        .width = cfg->n_kv * cfg->d_head,
                        .scale = (double)fv_attention_scale(cfg)};
    r.first = cfg->n_layer / 2 - 1;
    fv_rope_init(&c->rope, &cfg->rope, cfg->d_head);
    for (int32_t l = 0; l < c->n_layer; l++)
        for (int k = 0; k < 2; k++) {
            c->seen[l][k] = spectra_alloc((size_t)c->n_seen * (size_t)c->width, sizeof(float));
            c->row[l][k] = spectra_alloc((size_t)c->n * (size_t)c->width, sizeof(float));
            c->ahead[l][k] = spectra_alloc((size_t)c->width, sizeof(float));
        }
    bench_must(fv_kv_pool_open(r.e.be.device, &shape, 0, &r.pool));
    for (int32_t w = 0; w <= TEXT_SEEN; w++) read_window(&r, ids + (size_t)w * TEXT_WINDOW, w);
    fv_kv_pool_close(r.pool);
    free(ids);
    free(bytes);
    fv_engine_close(&r.e);
}
