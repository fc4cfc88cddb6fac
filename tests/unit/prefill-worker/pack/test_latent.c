/* pack=latent: the KV after prefill against the exact KV. The plan: test_latent_plan.c; the
 * hand-off: test_latent_handoff.c; eviction: test_latent_leaves.c. The bits of attention:
 * tests/ops/run/latent.c; properties of every method: test_every_policy.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/convert.h"
#include "kv/packed.h"
#include "tests/support/handoff.h"
#include "tests/support/latent.h"

enum { BEFORE = 5, VISUAL = 70, AFTER = 9, MORE = 12 };

static void prefill(tiny_net *net, tiny_prompt *p, const char *policy, int32_t chunk) {
    tiny_prompt_make(net, p, BEFORE, VISUAL, AFTER, 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, chunk), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

/* ||M - M~|| / ||M|| of a layer's rows, as exact KV has them; keys before rotation. */
static double error_of(tiny_net *net, const tiny_prompt *raw, const fv_kv_packed *at, int32_t layer,
                       int kind) {
    int32_t D = net->cfg.d_head, H = net->cfg.n_kv, W = D * H;
    float cosine[FV_ROPE_MAX_HALF], sine[FV_ROPE_MAX_HALF], *m = malloc((size_t)W * sizeof *m);
    double off = 0, all = 0;
    const int32_t *of_row = fv_kv_positions(raw->kv, layer, 0, FV_SEG_VISUAL);
    fv_rope rope;
    fv_rope_init(&rope, &net->cfg.rope, D);
    for (int32_t j = 0; j < at->rows.n; j++) {
        int32_t from = 0;
        while (of_row[from] != at->pos[j]) from++;
        fv_rope_pos pos = fv_rope_map_at(fv_kv_rope_map(raw->kv), at->pos[j]);
        fv_rope_angles(&rope, &pos, 1, cosine, sine);
        fv_latent_read(&at->part[kind], j, 1, m);
        for (int32_t c = 0; c < W; c++) {
            void *row;
            fv_kv_contiguous(raw->kv, layer, c / D, FV_SEG_VISUAL, kind == 1, from, from + 1, &row);
            const float *x = row;
            int32_t i = c % D % (D / 2);
            double a = (double)x[i], b = (double)x[i + D / 2], v = (double)x[c % D];
            double co = (double)cosine[i], si = (double)sine[i];
            if (kind == 0) v = c % D < D / 2 ? a * co + b * si : b * co - a * si;
            off += (v - (double)m[c]) * (v - (double)m[c]);
            all += v * v;
        }
    }
    free(m);
    return sqrt(off / all);
}

static void assert_rows(tiny_shape shape) {
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 2; i++) {
        prefill(&net, &p, i ? "pack=latent,budget=0.03" : "pack=latent,budget=0.1", i ? 7 : 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert(at && at->rows.n == VISUAL && !fv_kv_len(p.kv, l, 0, FV_SEG_VISUAL));
            cr_assert(at->source_layer == l - l % 2 && p.packed.layer[l].row_bits > 0);
            for (int k = 0; k < 2; k++) {
                double err = error_of(&net, &raw, at, l, k);
                double said = (double)p.packed.layer[l].error[k];
                cr_assert_eq(at->part[k].base != NULL, l % 2 || k, "layer %d, part %d", l, k);
                cr_assert_float_eq(err, said, 1e-4, "layer %d, part %d: %g and not %g", l, k, err,
                                   said);
                cr_assert(said > 0 && said < 1.1);
            }
        }
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(latent, coefficients_are_the_tokens_and_the_error_is_as_reported) {
    for (int grid = 0; grid < 2; grid++) assert_rows(tiny_shape_either(grid));
}

/* ---- errors without rows ------------------------------------------------------------------- */

static double noise(uint32_t *state) { /* of [-1, 1) */
    *state = *state * 1664525u + 1013904223u;
    return (double)*state * 0x1p-31 - 1;
}

/* Makes the rows of v [R, P] orthonormal. */
static void orthonormalise(double *v, int32_t R, size_t P) {
    for (int32_t r = 0; r < R; r++) {
        double *x = v + (size_t)r * P, square = 0;
        for (int32_t q = 0; q < r; q++) {
            double dot = 0;
            for (size_t i = 0; i < P; i++) dot += x[i] * v[(size_t)q * P + i];
            for (size_t i = 0; i < P; i++) x[i] -= dot * v[(size_t)q * P + i];
        }
        for (size_t i = 0; i < P; i++) square += x[i] * x[i];
        for (size_t i = 0; i < P; i++) x[i] /= sqrt(square);
    }
}

/* Makes arbitrary directions in the form of a calibration: parts with different scales, or with
 * weights that differ by number. Deviations halve every 4 directions. */
static fv_latent *any_directions(const fv_latent_info *info, bool weighted) {
    int32_t W = info->n_kv * info->d_head, R = info->n_dir, G = info->n_group_layer;
    float *x = latent_numbers(info);
    size_t P = (size_t)(2 * G * W);
    double *v = calloc((size_t)R * P, sizeof *v);
    uint32_t state = 5;
    void *file;
    size_t n;
    fv_latent *l;
    for (int32_t g = 0; g * G < info->n_layer; g++) {
        for (size_t i = 0; i < (size_t)R * P; i++) v[i] = noise(&state);
        orthonormalise(v, R, P);
        for (int32_t r = 0; r < R; r++)
            x[fv_latent_group_at(info, g) + (size_t)r] = exp2f(-0.25f * (float)r);
        for (int32_t p = 0; p < 2 * G; p++) {
            float *mean = x + fv_latent_layer_at(info, g * G + p / 2, p % 2);
            float *decode = mean + W, *encode = decode + R * W, scale = 0.3f + 0.1f * (float)p;
            for (int32_t c = 0; c < W; c++) {
                float by = weighted ? 1.2f + (float)noise(&state) : 1;
                mean[c] = 0.1f * (float)noise(&state);
                for (int32_t r = 0; r < R; r++) {
                    float at = (float)v[(size_t)r * P + (size_t)(p * W + c)];
                    decode[r * W + c] = at * scale / by;
                    encode[c * R + r] = at / scale * by;
                }
            }
        }
    }
    cr_assert_eq(fv_latent_encode(info, x, &file, &n), FV_OK);
    cr_assert_eq(fv_latent_decode(file, n, "latent.bin", &l), FV_OK, "%s", fv_last_error());
    free(x);
    free(v);
    return l;
}

/* Opens a net with such directions. */
static void open_with(tiny_net *net, fv_latent **l, fv_latent_on_device *there, fv_compute compute,
                      bool weighted, const char *isa, int32_t threads) {
    tiny_net_open(net, tiny_shape_default(), FV_F32, isa, threads);
    net->be.compute = compute;
    *l = any_directions(&net->latent->info, weighted);
    cr_assert_eq(fv_latent_device_open(*l, &net->be, there), FV_OK, "%s", fv_last_error());
    fv_latent_layer *layer = (fv_latent_layer *)(uintptr_t)net->there.layer;
    memcpy(layer, there->layer, (size_t)net->cfg.n_layer * sizeof *layer);
}

static void close_with(tiny_net *net, fv_latent *l, fv_latent_on_device *there) {
    fv_latent_on_device_close(there);
    fv_latent_close(l);
    tiny_net_close(net);
}

static const char *const measured[] = {"pack=latent,budget=0.05", "pack=latent,budget=0.2",
                                       "prune=random,layer=1,keep=0.5;pack=latent,budget=0.3"};

Test(latent, errors_are_those_of_the_rows) {
    for (int i = 0; i < 12; i++) {
        tiny_net net;
        tiny_prompt raw, p;
        fv_latent *l;
        fv_latent_on_device there;
        bool weighted = i % 2, rounded = i >= 6;
        const char *policy = measured[i % 6 / 2];
        open_with(&net, &l, &there, rounded ? FV_COMPUTE_BF16 : FV_COMPUTE_F32, weighted, NULL, 1);
        const fv_latent_columns *across = &there.layer[0].measure[FV_PACKED_V].across;
        cr_assert_eq(across->bands != NULL, weighted && !rounded);
        cr_assert_eq(across->rounded != NULL, weighted && rounded);
        prefill(&net, &raw, i % 6 / 2 == 2 ? "prune=random,layer=1,keep=0.5" : "", 0);
        prefill(&net, &p, policy, 0);
        for (int k = 0; k < 8; k++) {
            double err =
                error_of(&net, &raw, fv_kv_packed_of(p.kv, k / 2, FV_SEG_VISUAL), k / 2, k % 2);
            double said = (double)p.packed.layer[k / 2].error[k % 2];
            cr_assert(err > 0.01, "layer %d, part %d: %g", k / 2, k % 2, err);
            cr_assert_float_eq(said / err, 1,
                               rounded    ? 2e-2
                               : weighted ? 2e-5
                                          : 1e-3,
                               "%s, layer %d, part %d: %g, %g", policy, k / 2, k % 2, said, err);
        }
        tiny_prompt_free(&p);
        tiny_prompt_free(&raw);
        close_with(&net, l, &there);
    }
}

/* These errors decide whether own directions are added. */
Test(latent, errors_and_codes_have_the_same_bits_on_any_path_and_number_of_threads) {
    static const char *const isa[] = {"plain", NULL, "avx2", NULL};
    static const int32_t threads[] = {1, 1, 2, 3};
    for (int i = 0; i < 6; i++) {
        const char *policy = measured[i / 2];
        fv_pack_report first = {0};
        tiny_net nets[4];
        tiny_prompt p[4];
        fv_latent *l[4];
        fv_latent_on_device there[4];
        for (int n = 0; n < 4; n++) {
            open_with(&nets[n], &l[n], &there[n], i % 2 ? FV_COMPUTE_BF16 : FV_COMPUTE_F32, false,
                      isa[n], threads[n]);
            prefill(&nets[n], &p[n], policy, n % 2 ? 7 : 0);
            if (n == 0) first = p[0].packed;
            cr_assert(same_store(p[0].kv, p[n].kv), "%s, %d", policy, n);
            cr_assert(memcmp(first.layer, p[n].packed.layer, sizeof first.layer) == 0, "%s, %d",
                      policy, n);
        }
        for (int n = 0; n < 4; n++) {
            tiny_prompt_free(&p[n]);
            close_with(&nets[n], l[n], &there[n]);
        }
    }
}

Test(latent, a_number_that_is_not_finite_is_said_to_be_where_it_is) {
    tiny_net net;
    tiny_prompt p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 2);
    tiny_prompt_make(&net, &p, BEFORE, VISUAL, AFTER, 11, "pack=latent,budget=0.1");
    ((float *)p.embeds)[0] = INFINITY;
    cr_assert_eq(tiny_prefill(&net, &p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p.packed.status, FV_EINVAL);
    cr_assert_str_eq(p.packed.text,
                     "visual keys of layer 0: row 0 of the KV to be packed has a NaN or infinity");
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* Asserts that each layer of a group holds a subset of the layer before's tokens, as the first rows of the
 * group's first layer. */
static void assert_nested(const char *prune, bool grid, int32_t group) {
    tiny_net net;
    tiny_prompt raw, p;
    char policy[160];
    tiny_shape shape = tiny_shape_either(grid);
    shape.latent_layers = group;
    tiny_net_open(&net, shape, FV_F32, NULL, 1);
    prefill(&net, &raw, prune, 0);
    snprintf(policy, sizeof policy, "%s;pack=latent,budget=0.2", prune);
    prefill(&net, &p, policy, grid ? 7 : 0);
    for (int32_t l = 0; l < 4; l++) {
        const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
        const fv_kv_packed *lead = fv_kv_packed_of(p.kv, l - l % group, FV_SEG_VISUAL);
        int32_t n = fv_kv_len(raw.kv, l, 0, FV_SEG_VISUAL);
        cr_assert(at && lead && at->source_layer == l - l % group && at->rows.n == n, "%s", policy);
        cr_assert(memcmp(at->pos, lead->pos, (size_t)n * sizeof *at->pos) == 0, "layer %d", l);
        for (int k = 0; k < 2; k++) {
            double said = (double)p.packed.layer[l].error[k];
            cr_assert_float_eq(error_of(&net, &raw, at, l, k), said, 1e-4, "layer %d", l);
            cr_assert_lt(said, 1.1);
        }
    }
    cr_assert_gt(fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL)->rows.n,
                 fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL)->rows.n);
    size_t bytes = fv_kv_bytes(p.kv, FV_SEG_VISUAL), planned = fv_plan_count(&p.plan).visual;
    cr_assert(bytes == planned || (bytes < planned && !p.plan.exact_counts), "%s", policy);
    tiny_prompt_free(&p);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

Test(latent, tokens_that_leave_within_a_group_are_the_last_rows) {
    for (int grid = 0; grid < 2; grid++) {
        assert_nested("prune=fastv,layer=1,keep=0.4", grid, 2);
        assert_nested("prune=pvtp,layer=1,stride=16", grid, 2);
        assert_nested("prune=random,layer=1,keep=0.3", grid, 2);
        assert_nested("prune=visipruner,shallow=0,filter=0,l2=0.3", grid, 2); /* data decide */
        assert_nested("prune=pvtp,layer=1,stride=8,first=0.3,ratio=0.2", grid, 4);
    }
}

/* Each layer chooses its own tokens and has its own directions. */
Test(latent, layers_that_select_are_groups_of_one) {
    static const char *const policies[] = {
        "select=snapkv,heads=shared,heavy=0.4,recent=0.3;pack=latent,budget=0.2",
        "select=h2o,heads=shared,heavy=0.4,recent=0.3;pack=latent,budget=0.2;"
        "expand=attention,parts=both;evict=importance"};
    for (int i = 0; i < 2; i++) {
        handoff_rig rig;
        tiny_prompt p;
        fv_received got;
        tiny_shape shape = tiny_shape_default();
        bool differ = false;
        shape.latent_layers = 1;
        rig_open(&rig, &(rig_options){.shape = shape, .dtype = FV_BF16});
        prefill(&rig.net, &p, policies[i], 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL),
                               *first = fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL);
            cr_assert(at && at->source_layer == l && at->rows.n < VISUAL, "layer %d", l);
            cr_assert_eq(at->part[FV_PACKED_V].shape.latent.n_low > 0, i == 1, "layer %d", l);
            differ |= at->rows.n != first->rows.n ||
                      memcmp(at->pos, first->pos, (size_t)at->rows.n * sizeof *at->pos) != 0;
        }
        cr_assert(differ, "each layer has tokens of its own");
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), fv_plan_count(&p.plan).visual);
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv));
        fv_received_free(&got);
        tiny_prompt_free(&p);
        rig_close(&rig);
    }
}

/* On the columns that directions cover, a layer's tokens that the group's other layer lacks lose no
 * more than tokens that both have. */
Test(latent, a_token_that_a_layer_lacks_has_the_coefficients_of_the_others) {
    tiny_net net;
    tiny_prompt raw, p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &raw, "prune=random,layer=1,keep=0.3", 0);
    prefill(&net, &p, "prune=random,layer=1,keep=0.3;pack=latent,budget=0.4", 0);
    const fv_kv_packed *at = fv_kv_packed_of(p.kv, 0, FV_SEG_VISUAL);
    int32_t W = net.cfg.n_kv * net.cfg.d_head, D = net.cfg.d_head,
            few = fv_kv_packed_of(p.kv, 1, FV_SEG_VISUAL)->rows.n;
    const int32_t *of_row = fv_kv_positions(raw.kv, 0, 0, FV_SEG_VISUAL);
    float *m = malloc((size_t)W * sizeof *m);
    double off[2] = {0}, all[2] = {0};
    for (int32_t j = 0; j < at->rows.n; j++) {
        int32_t from = 0;
        while (of_row[from] != at->pos[j]) from++;
        fv_latent_read(&at->part[FV_PACKED_V], j, 1, m);
        for (int32_t c = 0; c < W; c++) { /* columns that directions are along */
            void *row;
            if (c % 5) continue;
            fv_kv_contiguous(raw.kv, 0, c / D, FV_SEG_VISUAL, true, from, from + 1, &row);
            double v = (double)((const float *)row)[c % D], d = v - (double)m[c];
            off[j >= few] += d * d;
            all[j >= few] += v * v;
        }
    }
    cr_assert(few > 0 && few < at->rows.n && all[0] > 0 && all[1] > 0);
    cr_assert_float_eq(off[0] / all[0], off[1] / all[1], 0.25 * off[0] / all[0] + 1e-3,
                       "%g of tokens of both layers, %g of the others", off[0] / all[0],
                       off[1] / all[1]);
    free(m);
    tiny_prompt_free(&p);
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

/* ---- own directions ----------------------------------------------------------------------- */

/* The directions of these tests expect no error at all. */
Test(latent, own_directions_take_what_the_others_leave) {
    static const char *const policies[] = {
        "pack=latent,budget=0.1",
        "pack=latent,budget=0.1,residual=auto,residual_rank=2",
        "pack=latent,budget=0.1,residual=auto",
    };
    static const int32_t ranks[] = {0, 2, 8};
    tiny_net net;
    tiny_prompt raw, p;
    double before[4][2] = {{0}};
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    prefill(&net, &raw, "", 0);
    for (int i = 0; i < 3; i++) {
        prefill(&net, &p, policies[i], i == 2 ? 7 : 0);
        for (int32_t l = 0; l < 4; l++) {
            const fv_kv_packed *at = fv_kv_packed_of(p.kv, l, FV_SEG_VISUAL);
            cr_assert_eq(p.packed.layer[l].n_own, ranks[i]);
            for (int k = 0; k < 2; k++) {
                double err = error_of(&net, &raw, at, l, k);
                cr_assert_eq(at->part[k].shape.latent.n_own, ranks[i]);
                cr_assert_eq(at->part[k].data != NULL, ranks[i] > 0 || (l % 2 == 0 && k == 0));
                cr_assert_float_eq(err, (double)p.packed.layer[l].error[k], 1e-4);
                if (i) cr_assert_lt(err, before[l][k], "layer %d, part %d, %s", l, k, policies[i]);
                before[l][k] = err;
            }
        }
        cr_assert_leq(fv_kv_bytes(p.kv, FV_SEG_VISUAL), fv_plan_count(&p.plan).visual);
        tiny_prompt_free(&p);
    }
    tiny_prompt_free(&raw);
    tiny_net_close(&net);
}

/* A request whose error is acceptable gets no directions of its own, and takes no bytes for them. */
Test(latent, a_request_with_little_error_has_no_own_directions) {
    tiny_net net;
    tiny_prompt none, p;
    tiny_net_open(&net, tiny_shape_default(), FV_F32, NULL, 1);
    fv_latent_layer *layer = (fv_latent_layer *)(uintptr_t)net.there.layer;
    for (int32_t l = 0; l < 4; l++) layer[l].variance = 100; /* nearly all of it is expected */
    prefill(&net, &none, "pack=latent,budget=0.1", 0);
    prefill(&net, &p, "pack=latent,budget=0.1,residual=auto", 0);
    cr_assert(same_store(none.kv, p.kv));
    cr_assert_eq(fv_kv_bytes(none.kv, FV_SEG_VISUAL), fv_kv_bytes(p.kv, FV_SEG_VISUAL));
    cr_assert_eq(p.packed.layer[0].n_own, 0);
    tiny_prompt_free(&none);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

/* ---- prompts that begin with an image ------------------------------------------------------ */

/* Keys and values of the token at position 0, where nothing is rotated, are those of the store. */
static void assert_first_exact(const tiny_prompt *raw, const tiny_prompt *p) {
    const fv_kv_shape *s = fv_kv_get_shape(p->kv);
    float m[512], x[512];
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int k = 0; k < 2; k++) {
            const fv_kv_packed *at = fv_kv_packed_of(p->kv, l, FV_SEG_VISUAL);
            int32_t j = 0;
            cr_assert(at && s->n_kv * s->d_head <= 512);
            while (j < at->rows.n && at->pos[j] != 0) j++;
            if (j == at->rows.n) continue; /* it was pruned */
            fv_latent_read(&at->part[k], j, 1, m);
            for (int32_t g = 0; g < s->n_kv; g++) {
                void *row;
                fv_kv_contiguous(raw->kv, l, g, FV_SEG_VISUAL, k == 1, 0, 1, &row);
                widen_row(row, s->dtype, (size_t)s->d_head, x + g * s->d_head);
            }
            for (int32_t c = 0; c < s->n_kv * s->d_head; c++)
                cr_assert_eq(m[c], x[c], "layer %d, part %d, number %d", l, k, c);
        }
}

static void lay(tiny_net *net, tiny_prompt *p, const char *policy) {
    tiny_prompt_lay(net, p, "v40 t5 v30 t9", 11, policy);
    cr_assert_eq(tiny_prefill(net, p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(p->packed.status, FV_OK, "%s", p->packed.text);
}

Test(latent, the_first_token_stays_exact_in_every_policy_and_on_arrival) {
    static const char *const policies[] = {
        "pack=latent,budget=0.1", "pack=latent,budget=0.1,residual=auto,residual_rank=3",
        "prune=fastv,layer=1,keep=0.8;pack=latent,budget=0.1",
        "pack=latent,budget=0.1;expand=attention,parts=both", "pack=latent,budget=0.1;evict=vta"};
    for (int i = 0; i < 10; i++) {
        handoff_rig rig;
        tiny_prompt raw, p;
        fv_received got;
        rig_open(&rig, &(rig_options){.shape = tiny_shape_either(i % 2), .dtype = FV_BF16});
        lay(&rig.net, &raw, "");
        lay(&rig.net, &p, policies[i / 2]);
        assert_first_exact(&raw, &p);
        size_t visual = fv_kv_bytes(p.kv, FV_SEG_VISUAL);
        cr_assert_eq(visual, fv_plan_count(&p.plan).visual, "%s", policies[i / 2]);
        cr_assert_eq(rig_send(&rig, &p, MORE, 0, &got, NULL), FV_OK, "%s", fv_last_error());
        cr_assert(same_store(p.kv, got.kv) && fv_kv_bytes(got.kv, FV_SEG_VISUAL) == visual);
        fv_received_free(&got);
        tiny_prompt_free(&p);
        tiny_prompt_free(&raw);
        rig_close(&rig);
    }
}
