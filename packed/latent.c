/* Encodes coefficients in planes of bits and decodes them, on the host, and gives bits to directions. Runs on
 * the thread that compresses or decompresses; decode steps read blocks in kernels. */
#include "packed/latent.h"

#include <math.h>
#include <string.h>

#include "packed/latent_read.h"

void fv_latent_order(const float *deviation, int32_t n_dir, const float *error, uint16_t *order) {
    uint8_t bits[FV_LATENT_MOST] = {0};
    for (int32_t i = 0; i < FV_LATENT_BITS * n_dir; i++) {
        int32_t best = -1;
        double most = -1;
        /* a direction without bits ends the search: none after it is worth more */
        for (int32_t r = 0; r < n_dir && (r == 0 || bits[r - 1] > 0); r++) {
            if (bits[r] == FV_LATENT_BITS) continue;
            double worth = (double)deviation[r] * (double)deviation[r] *
                           ((double)error[bits[r]] - (double)error[bits[r] + 1]);
            if (worth > most) most = worth, best = r;
        }
        if (best < 0) /* all directions with bits are full, or none is worth a bit */
            for (best = 0; bits[best] == FV_LATENT_BITS;) best++;
        bits[best]++;
        order[i] = (uint16_t)best;
    }
}

double fv_latent_expected(const fv_latent_layer *l, const fv_packed_shape *s) {
    uint8_t bits[FV_LATENT_MOST];
    int32_t n = fv_latent_bits(l, s, bits);
    double kept = 0;
    for (int32_t r = 0; r < n; r++)
        kept += (double)l->deviation[r] * (double)l->deviation[r] * (1 - (double)l->error[bits[r]]);
    double lost = l->variance > 0 ? 1 - kept / (double)l->variance : 0;
    return lost > 0 ? lost : 0;
}

static const double STEP =
    0.89125093813374552; /* 10^(-1 / 20), the factor of the lost share per step */

int32_t fv_latent_step(double error) {
    double lost = STEP;
    for (int32_t i = 1; i <= FV_LATENT_STEPS; i++, lost *= STEP)
        if (lost <= error * error * (1 + 1e-9)) return i;
    return 0;
}

void fv_latent_steps(const fv_latent_layer *l, const float *error, uint32_t *steps) {
    uint8_t bits[FV_LATENT_MOST] = {0};
    double lost = (double)l->variance, all = lost, wanted = STEP;
    int32_t i = 0;
    for (int32_t k = 0; k < FV_LATENT_BITS * l->n_dir && i < FV_LATENT_STEPS; k++) {
        int32_t r = l->order[k], b = bits[r]++;
        lost -= (double)l->deviation[r] * (double)l->deviation[r] *
                ((double)error[b] - (double)error[b + 1]);
        for (; i < FV_LATENT_STEPS && lost <= wanted * all; i++, wanted *= STEP)
            steps[i] = (uint32_t)k + 1;
    }
    while (i < FV_LATENT_STEPS) steps[i++] = 0;
}

static fv_status check(const fv_packed_shape *s) {
    const fv_latent_shape *x = &s->latent;
    enum { MOST_BITS = FV_LATENT_BITS * FV_LATENT_MOST };
    FV_TRY(fv_packed_check_common(s, "latents"));
    if (x->n_own < 0 || x->n_own > FV_LATENT_OWN)
        return FV_FAIL(FV_EINVAL, "latents with %d directions of their own: 0 to %d", x->n_own,
                       FV_LATENT_OWN);
    if (x->each_bits > FV_LATENT_BITS)
        return FV_FAIL(FV_EINVAL, "latents with %d bits in each coefficient: 1 to %d", x->each_bits,
                       FV_LATENT_BITS);
    if (x->n_low < 0 || x->n_low > FV_LATENT_MOST)
        return FV_FAIL(FV_EINVAL, "latents read with %d directions: at most %d", x->n_low,
                       FV_LATENT_MOST);
    if (x->coded && (s->kind != FV_PACKED_K || x->n_low))
        return FV_FAIL(FV_EINVAL, "codes of latents that are no keys, or that are read in part");
    if (x->row_bits < 1 || x->row_bits > MOST_BITS)
        return FV_FAIL(FV_EINVAL, "latents with %d bits per token: 1 to %d", x->row_bits,
                       MOST_BITS);
    return FV_OK;
}

/* sigma of a column of keys; b has stride W. */
static float sigma_of(const float *deviation, const float *b, size_t R, size_t W) {
    double square = 0;
    for (size_t r = 0; r < R; r++) {
        double x = (double)b[r * W] * (double)deviation[r];
        square += x * x;
    }
    float sigma = (float)sqrt(square);
    return isfinite(sigma) ? sigma : 0;
}

void fv_latent_lay_keys(const float *deviation, const float *mean, float *decode, int32_t n_dir,
                        size_t W, int8_t *key, float *affine, float *sigma) {
    size_t R = (size_t)n_dir, line = fv_latent_line(n_dir);
    memset(key, 0, W * line);
    for (size_t c = 0; c < W; c++, key += line) {
        float most = 0;
        for (size_t r = 0; r < R; r++)
            most = fmaxf(most, fabsf(decode[r * W + c] * (deviation[r] * FV_LATENT_UNIT)));
        /* a column with almost no variance is its mean */
        float scale = most < 0x1p-100f ? 0 : most / 127, by = scale > 0 ? 127 / most : 0;
        for (size_t r = 0; r < R; r++) {
            float unit = deviation[r] * FV_LATENT_UNIT, *b = &decode[r * W + c];
            float k = rintf(*b * unit * by);
            key[r] = (int8_t)(k > 127 ? 127 : k < -127 ? -127 : k);
            *b = unit > 0 ? (float)key[r] * scale / unit : 0;
            if (!isfinite(*b)) *b = 0, key[r] = 0;
        }
        affine[2 * c] = mean[c];
        affine[2 * c + 1] = scale;
        sigma[c] = sigma_of(deviation, decode + c, R, W);
    }
}

/* The code of the level nearest to x, in steps of levels; the lower of two equally near. */
static unsigned nearest(const int8_t *level, int bits, float x) {
    unsigned low = 0, high = (1u << bits) - 1;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (x > 0.5f * (float)(level[mid] + level[mid + 1]))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void fv_latent_write_row(const fv_packed_shape *s, int32_t row, void *data) {
    char *to = (char *)data + fv_latent_head_bytes(s);
    memset(to, 0, fv_latent_row_bytes(s));
    if (s->latent.exact) memcpy(to, &row, sizeof row);
}

void fv_latent_clear(const fv_packed_shape *s, void *data) {
    memset(data, 0, fv_latent_sent_bytes(s));
    fv_latent_write_row(s, -1, data);
}

fv_status fv_latent_write_rows(const fv_latent_layer *l, const fv_packed_shape *s, int32_t row0,
                               int32_t n, float *z, void *data) {
    fv_packed_part p = {.shape = *s, .data = data, .latent = l};
    latent_view v;
    size_t R = (size_t)l->n_dir;
    latent_view_open(&v, &p);
    for (size_t j = (size_t)row0; j < (size_t)(row0 + n); j++, z += R) {
        uint16_t *to = fv_latent_plane(s, data) + j / FV_PACKED_TILE * v.planes;
        for (size_t r = 0; r < R; r++) {
            if (!isfinite(z[r]))
                return FV_FAIL(FV_EINVAL, "row %zu of the KV to be packed has a NaN or infinity",
                               j);
            if (r >= v.n_dir || !v.bits[r]) continue;
            float unit = latent_unit(&v, r), x = unit > 0 ? z[r] / unit : 0;
            unsigned code = nearest(latent_levels(l, v.bits[r]), v.bits[r], x);
            for (int b = 0; b < v.bits[r]; b++, to++)
                *to = (uint16_t)(*to | (code >> b & 1) << j % FV_PACKED_TILE);
        }
        memset(z, 0, R * sizeof *z);
        latent_row(&v, j, z, v.n_dir);
    }
    return FV_OK;
}

fv_status fv_latent_write(const fv_latent_layer *l, const fv_packed_shape *s, float *z,
                          void *data) {
    fv_latent_clear(s, data);
    return fv_latent_write_rows(l, s, 0, s->n, z, data);
}

void fv_latent_write_own(const fv_packed_shape *s, const float *u, void *data) {
    size_t planes = fv_latent_planes(s), own = FV_LATENT_BITS * (size_t)s->latent.n_own;
    uint16_t *plane = fv_latent_plane(s, data);
    for (size_t j = 0; j < (size_t)s->n; j++) {
        uint16_t *to = plane + (j / FV_PACKED_TILE + 1) * planes - own;
        for (int32_t i = 0; i < s->latent.n_own; i++, u++) {
            unsigned code = (unsigned)((int32_t)*u + 128);
            for (int b = 0; b < FV_LATENT_BITS; b++, to++)
                *to = (uint16_t)(*to | (code >> b & 1) << j % FV_PACKED_TILE);
        }
    }
}

/* The code of x at a scale; *decoded: its number. */
static unsigned own_code(float x, float scale, float *decoded) {
    float at = scale > 0 ? floorf(x / scale / 2 + 8) : 8;
    unsigned code = at < 0 ? 0 : at > 15 ? 15 : (unsigned)at;
    *decoded = scale * (float)(2 * (int)code - 15);
    return code;
}

/* The best of 8 scales up to that of the largest number. */
static float own_scale(const float *o, size_t n) {
    float most = 0, best = 0;
    double least = INFINITY;
    for (size_t c = 0; c < n; c++) most = fabsf(o[c]) > most ? fabsf(o[c]) : most;
    for (int i = 8; i > 0; i--) {
        float scale = most / 15 * (float)(i + 2) / 10, x;
        double off = 0;
        for (size_t c = 0; c < n; c++) {
            (void)own_code(o[c], scale, &x);
            off += ((double)o[c] - (double)x) * ((double)o[c] - (double)x);
        }
        if (off < least) least = off, best = scale;
    }
    return best;
}

void fv_latent_write_directions(const fv_packed_shape *s, float *o, void *data) {
    size_t W = fv_packed_width(s), line = fv_latent_own_line(s);
    uint8_t *to = data, *code = to + (size_t)s->latent.n_own * sizeof(float);
    memset(to, 0, fv_latent_own_bytes(s));
    for (int32_t i = 0; i < s->latent.n_own; i++, o += W, code += line, to += sizeof(float)) {
        float scale = own_scale(o, W);
        memcpy(to, &scale, sizeof scale);
        for (size_t c = 0; c < W; c++)
            code[c / 2] = (uint8_t)(code[c / 2] | own_code(o[c], scale, &o[c]) << c % 2 * 4);
    }
}

void fv_latent_write_exact(const fv_packed_shape *s, const float *x, void *data) {
    size_t own = fv_latent_own_bytes(s);
    char *to = (char *)data + own;
    memset(to, 0, fv_latent_head_bytes(s) - own);
    narrow_row(x, fv_packed_width(s), s->dtype, to);
}

/* The scales of own directions must be finite; any other bits are valid. */
static fv_status check_data(const fv_packed_part *p) {
    const char *at = p->data;
    for (int32_t i = 0; i < p->shape.latent.n_own; i++, at += sizeof(float)) {
        float scale;
        memcpy(&scale, at, sizeof scale);
        if (!isfinite(scale))
            return FV_FAIL(FV_EINVAL, "the scale of direction %d is not finite", i);
    }
    return FV_OK;
}

void fv_latent_read(const fv_packed_part *p, int32_t row0, int32_t n, float *m) {
    size_t W = fv_packed_width(&p->shape);
    const float *basis = p->latent->decode[p->shape.kind], *mean = p->latent->mean[p->shape.kind];
    latent_view v;
    float z[FV_LATENT_MOST + FV_LATENT_OWN + 1];
    latent_view_open(&v, p);
    for (int32_t j = row0; j < row0 + n; j++, m += W) {
        latent_row(&v, (size_t)j, z, v.n);
        if (latent_is_exact(&v, (size_t)j))
            memset(m, 0, W * sizeof *m);
        else
            memcpy(m, mean, W * sizeof *m);
        for (size_t r = 0; r < v.n_dir; r++)
            for (size_t c = 0; c < W; c++) m[c] = fmaf(z[r], basis[r * W + c], m[c]);
        for (size_t i = 0; v.n_dir + i < v.n; i++)
            for (size_t c = 0; c < W; c++)
                m[c] = fmaf(z[v.n_dir + i], latent_own_number(p, i, c), m[c]);
    }
}

/* Copies the codes of rows idx[0 .. n) and their scales. */
static void keep_codes(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst) {
    const fv_packed_shape *s = &dst->shape;
    size_t D = (size_t)s->d_head, line = FV_PACKED_TILE / 2;
    memset(fv_latent_coded(dst, 0, 0), 0, fv_latent_bytes(s) - fv_latent_sent_bytes(s));
    for (size_t g = 0; g < (size_t)s->n_kv; g++)
        for (size_t j = 0; j < (size_t)s->n; j++) {
            size_t i = (size_t)idx[j], at = i % FV_PACKED_TILE, to = j % FV_PACKED_TILE;
            const uint8_t *from = fv_latent_coded(src, g, i / FV_PACKED_TILE);
            uint8_t *tile = fv_latent_coded(dst, g, j / FV_PACKED_TILE);
            fv_latent_coded_scale(dst, tile)[to] = fv_latent_coded_scale(src, from)[at];
            for (size_t d = 0; d < D; d++) {
                unsigned code = from[d * line + at / 2] >> at % 2 * 4 & 15u;
                uint8_t *p = &tile[d * line + to / 2];
                *p = (uint8_t)(*p | code << to % 2 * 4);
            }
        }
}

static void keep_planes(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst) {
    size_t B = fv_latent_planes(&src->shape);
    int32_t exact = -1;
    for (int32_t j = 0; j < dst->shape.n; j++)
        if (idx[j] == fv_latent_exact(&src->shape, src->data)) exact = j;
    fv_latent_write_row(&dst->shape, exact, dst->data);
    const uint16_t *from = fv_latent_plane(&src->shape, src->data);
    uint16_t *to = fv_latent_plane(&dst->shape, dst->data);
    memset(to, 0, (size_t)((char *)dst->data + fv_latent_sent_bytes(&dst->shape) - (char *)to));
    for (size_t j = 0; j < (size_t)dst->shape.n; j++)
        for (size_t b = 0; b < B; b++) {
            size_t i = (size_t)idx[j];
            unsigned bit = from[i / FV_PACKED_TILE * B + b] >> i % FV_PACKED_TILE & 1u;
            uint16_t *at = &to[j / FV_PACKED_TILE * B + b];
            *at = (uint16_t)(*at | bit << j % FV_PACKED_TILE);
        }
}

/* Codes, too, are copied bit by bit. */
static void keep(const fv_packed_part *src, const int32_t *idx, const fv_packed_part *dst) {
    size_t head = fv_latent_head_bytes(&src->shape);
    if (head) memcpy(dst->data, src->data, head);
    if (!src->shape.borrows) keep_planes(src, idx, dst);
    if (src->shape.latent.coded) keep_codes(src, idx, dst);
}

/* ---- the table -------------------------------------------------------------------------- */

/* Everything ahead of a lender's codes. */
static size_t lent_bytes(const fv_packed_shape *s) {
    fv_packed_shape lender = *s;
    lender.borrows = false;
    return fv_latent_sent_bytes(&lender);
}

static bool fits(const fv_packed_shape *base, const fv_packed_shape *s) {
    const fv_latent_shape *a = &base->latent, *b = &s->latent;
    return a->row_bits == b->row_bits && a->each_bits == b->each_bits && a->n_own == b->n_own &&
           a->exact == b->exact;
}

static fv_packed_shape kept(const fv_packed_part *src, const int32_t *idx, int32_t n) {
    (void)idx;
    return fv_packed_with_rows(&src->shape, n);
}

/* A hand-off says 16 bits where row_bits are spread. */
enum { SPREAD = 16 };

static void put_numbers(const fv_packed_shape *s, fv_packed_numbers *out) {
    const fv_latent_shape *x = &s->latent;
    *out = (fv_packed_numbers){.rank = (uint32_t)x->row_bits,
                               .rank2 = (uint32_t)x->n_low,
                               .bits = x->each_bits ? x->each_bits : SPREAD,
                               .n_outlier = (uint32_t)x->n_own,
                               .exact = x->exact};
}

static void take_numbers(const fv_packed_numbers *in, fv_packed_shape *s) {
    bool known = in->bits == SPREAD || (in->bits >= 1 && in->bits <= FV_LATENT_BITS);
    s->latent.row_bits = known ? fv_packed_count(in->rank) : -1;
    s->latent.each_bits = known && in->bits != SPREAD ? (uint8_t)in->bits : 0;
    s->latent.n_low = fv_packed_count(in->rank2);
    s->latent.n_own = fv_packed_count(in->n_outlier);
    s->latent.exact = in->exact;
}

const fv_packed_format fv_format_latent = {.name = "latent",
                                           .tiled = true,
                                           .nested = true,
                                           .turned = true,
                                           .own_keys = true,
                                           .scored = true,
                                           .bytes = fv_latent_bytes,
                                           .sent_bytes = fv_latent_sent_bytes,
                                           .lent_bytes = lent_bytes,
                                           .check = check,
                                           .check_data = check_data,
                                           .fits = fits,
                                           .smallest = fv_packed_with_rows,
                                           .kept = kept,
                                           .keep = keep,
                                           .read = fv_latent_read,
                                           .put_numbers = put_numbers,
                                           .take_numbers = take_numbers};
