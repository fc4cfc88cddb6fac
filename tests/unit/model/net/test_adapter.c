/* Adapters in the decoder: a row has the same bits alone and in any batch, and without an adapter those of a network that
 * has none. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_net.h"

enum { PROMPTS = 6, STEPS = 3, ADAPTERS = 3, VOCAB = 97 };

static void ok(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* ---- adapters of a tiny network ---------------------------------------------------------- */

typedef struct maker {
    fv_arena arena;
    uint64_t state;
    int32_t rank;
} maker;

static fv_tensor draw(maker *m, int32_t rows, int32_t cols) {
    float *x;
    ok(FV_ARENA_NEW(&m->arena, rows * cols, x));
    for (int32_t i = 0; i < rows * cols; i++) {
        m->state = m->state * 6364136223846793005u + 1442695040888963407u;
        x[i] = 0.5f * (float)((double)(m->state >> 11) * 0x1p-52 - 1) / sqrtf((float)cols);
    }
    return fv_tensor_of(x, FV_F32, rows, cols);
}

/* Adapts every matrix of the layer, or only those of an odd index. */
static void adapt(maker *m, const fv_text_layer *w, bool odd, fv_adapter_layer *out) {
    const fv_tensor *t = (const fv_tensor *)w;
    for (int32_t i = 0; i < FV_ADAPTER_PAIRS; i++) {
        bool conv = &t[i] == &w->delta_conv;
        if (!t[i].data || t[i].rows == 1 || conv || (odd && i % 2 == 0)) continue;
        out->pair[i] = (fv_adapter_pair){draw(m, m->rank, t[i].cols), draw(m, t[i].rows, m->rank)};
    }
}

static void make_adapter(maker *m, const tiny_net *net, int32_t which, fv_adapter *out) {
    int32_t n = fv_text_layers(&net->cfg), n_recurrent = n * net->cfg.recurrent.n;
    *out = (fv_adapter){0};
    m->state = 77 + (uint64_t)which;
    m->rank = 3 + which;
    ok(FV_ARENA_NEW(&m->arena, n, out->layer));
    ok(FV_ARENA_NEW(&m->arena, n_recurrent, out->recurrent));
    for (int32_t l = 0; l < n; l++) adapt(m, &net->w.layer[l], which == 1, &out->layer[l]);
    for (int32_t l = 0; l < n_recurrent; l++)
        adapt(m, &net->w.recurrent[l], which == 1, &out->recurrent[l]);
}

/* ---- running ----------------------------------------------------------------------------- */

typedef struct outcome {
    float logits[1 + STEPS][PROMPTS][VOCAB];
} outcome;

static const int32_t which_of[PROMPTS] = {0, -1, 1, 0, 2, -1};

static void make_prompts(const tiny_net *net, const fv_adapter *adapter, const int32_t *which,
                         tiny_prompt *p) {
    for (int32_t b = 0; b < PROMPTS; b++) {
        tiny_prompt_make(net, &p[b], 3 + b, b % 2 ? 5 : 0, 6, 40 + (uint64_t)b, "");
        ok(fv_kv_open(net->pool, &p[b].kv));
        fv_kv_get_sequence(p[b].kv)->adapter = which[b] < 0 ? NULL : &adapter[which[b]];
    }
}

static void keep(const tiny_prompt *p, int32_t step, outcome *out) {
    for (int32_t b = 0; b < PROMPTS; b++)
        memcpy(out->logits[step][b], p[b].logits, sizeof out->logits[step][b]);
}

/* Prefills and decodes all prompts, `together` or one after the other. */
static void run(tiny_net *net, const fv_adapter *adapter, const int32_t *which, bool together,
                int32_t chunk, outcome *out) {
    tiny_prompt p[PROMPTS] = {{0}}, *at[PROMPTS];
    make_prompts(net, adapter, which, p);
    for (int32_t b = 0; b < PROMPTS; b++) at[b] = &p[b];
    if (together) ok(tiny_prefill(net, p, PROMPTS, chunk));
    for (int32_t b = 0; b < PROMPTS && !together; b++) ok(tiny_prefill(net, &p[b], 1, chunk));
    keep(p, 0, out);
    for (int32_t s = 0; s < STEPS; s++) {
        int32_t id = 11 + s;
        if (together) ok(tiny_step(net, at, PROMPTS, &id, 1, s));
        for (int32_t b = 0; b < PROMPTS && !together; b++) ok(tiny_step(net, &at[b], 1, &id, 1, s));
        keep(p, 1 + s, out);
    }
    for (int32_t b = 0; b < PROMPTS; b++) tiny_prompt_free(&p[b]);
}

static tiny_shape recurrent_shape(void) {
    tiny_shape s = tiny_shape_default();
    s.recurrent = 2;
    return s;
}

static tiny_shape sharing_shape(void) {
    tiny_shape s = tiny_shape_default();
    s.sharers = 3;
    s.window = 5;
    return s;
}

typedef struct rig {
    tiny_net net;
    maker m;
    fv_adapter adapter[ADAPTERS];
} rig;

static void open_rig(rig *r, tiny_shape shape, const char *isa, int32_t threads) {
    *r = (rig){0};
    tiny_net_open(&r->net, shape, FV_F32, isa, threads);
    for (int32_t i = 0; i < ADAPTERS; i++) make_adapter(&r->m, &r->net, i, &r->adapter[i]);
}

static void close_rig(rig *r) {
    fv_arena_fini(&r->m.arena);
    tiny_net_close(&r->net);
}

/* ---- tests ------------------------------------------------------------------------------- */

static void expect_same_alone_and_together(tiny_shape shape) {
    static outcome alone, other;
    rig r;
    open_rig(&r, shape, NULL, 2);
    run(&r.net, r.adapter, which_of, false, 0, &alone);
    run(&r.net, r.adapter, which_of, true, 0, &other);
    cr_expect(memcmp(&alone, &other, sizeof alone) == 0, "in one batch");
    run(&r.net, r.adapter, which_of, true, 4, &other);
    cr_expect(memcmp(&alone, &other, sizeof alone) == 0, "in chunks");
    close_rig(&r);
    open_rig(&r, shape, "plain", 1);
    run(&r.net, r.adapter, which_of, true, 3, &other);
    cr_expect(memcmp(&alone, &other, sizeof alone) == 0, "in plain C on one thread");
    close_rig(&r);
}

Test(adapter, a_row_has_the_same_bits_alone_in_a_batch_in_chunks_and_in_plain_c) {
    expect_same_alone_and_together(tiny_shape_default());
}

Test(adapter, so_it_has_with_recurrent_layers) {
    expect_same_alone_and_together(recurrent_shape());
}

Test(adapter, so_it_has_with_layers_that_share_and_their_embeddings) {
    expect_same_alone_and_together(sharing_shape());
}

Test(adapter, rows_without_one_keep_the_bits_of_a_network_without_adapters) {
    static const int32_t none[PROMPTS] = {-1, -1, -1, -1, -1, -1};
    static outcome plain, mixed;
    rig r;
    open_rig(&r, tiny_shape_default(), NULL, 2);
    run(&r.net, r.adapter, none, true, 0, &plain);
    run(&r.net, r.adapter, which_of, true, 0, &mixed);
    for (int32_t s = 0; s <= STEPS; s++)
        for (int32_t b = 0; b < PROMPTS; b++) {
            bool same = same_bits(plain.logits[s][b], mixed.logits[s][b], VOCAB);
            cr_expect_eq(same, which_of[b] < 0, "prompt %d, step %d", b, s);
        }
    close_rig(&r);
}

/* w + B A, in double. */
static void merge(fv_tensor w, const fv_adapter_pair *p) {
    if (!p->a.data) return;
    for (int32_t n = 0; n < w.rows; n++)
        for (int32_t k = 0; k < w.cols; k++) {
            double sum = 0;
            for (int32_t i = 0; i < p->a.rows; i++)
                sum += (double)((float *)p->b.data)[n * p->b.cols + i] *
                       (double)((float *)p->a.data)[i * p->a.cols + k];
            ((float *)w.data)[n * w.cols + k] += (float)sum;
        }
}

static void merge_layers(fv_text_layer *w, const fv_adapter_layer *with, int32_t n) {
    for (int32_t l = 0; l < n; l++)
        for (int32_t i = 0; i < FV_ADAPTER_PAIRS; i++)
            merge(((const fv_tensor *)&w[l])[i], &with[l].pair[i]);
}

/* Merging rounds the weights, so the results are close and not equal. */
static void expect_like_merged(tiny_shape shape) {
    static const int32_t first[PROMPTS] = {0, 0, 0, 0, 0, 0},
                         none[PROMPTS] = {-1, -1, -1, -1, -1, -1};
    static outcome with, merged;
    rig r;
    open_rig(&r, shape, NULL, 2);
    run(&r.net, r.adapter, first, true, 0, &with);
    merge_layers(r.net.w.layer, r.adapter[0].layer, fv_text_layers(&r.net.cfg));
    merge_layers(r.net.w.recurrent, r.adapter[0].recurrent,
                 r.net.cfg.n_layer * r.net.cfg.recurrent.n);
    run(&r.net, r.adapter, none, true, 0, &merged);
    double gap = 0, most = 0;
    for (size_t i = 0; i < sizeof with / sizeof(float); i++) {
        double a = ((const float *)&with)[i], b = ((const float *)&merged)[i];
        gap = fmax(gap, fabs(a - b));
        most = fmax(most, fabs(b));
    }
    cr_expect_lt(gap, 1e-4 * most, "%.2e of %.2e", gap, most);
    close_rig(&r);
}

Test(adapter, the_result_is_that_of_merged_weights) { expect_like_merged(tiny_shape_default()); }

Test(adapter, the_result_is_that_of_merged_weights_with_recurrent_layers) {
    expect_like_merged(recurrent_shape());
}

Test(adapter, the_result_is_that_of_merged_weights_with_layers_that_share) {
    expect_like_merged(sharing_shape());
}
