/* Every compression method against NumPy's implementation of its equations: prompts through a small
 * network under a policy. tests/parity/methods wrote golden/methods/<method>.json and documents it:
 * the tokens that each KV head keeps must be the same, and logits of the prompt and of each token
 * of an answer within 1e-4 of the greatest, which is rounding in another order of sums (NumPy has
 * float64). */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode-worker/evict/evict.h"
#include "kv/packed.h"
#include "model/net/accum.h"
#include "tests/support/evict.h"
#include "tests/support/recompress_turn.h"
#include "tests/support/rendered.h"
#include "tests/support/tiny_net.h"

#define FOLDER FOVEA_TEST_DATA "/golden/methods"

enum { ROWS_MAX = 512, TEXT_MAX = 8 * ROWS_MAX };
static const double limit = 1e-4;

typedef struct golden {
    char method[64];
} golden;

static int is_golden(const struct dirent *e) {
    const char *dot = strrchr(e->d_name, '.');
    return dot && strcmp(dot, ".json") == 0;
}

/* Criterion wants parameters that live in its own memory. */
ParameterizedTestParameters(methods, computes_what_numpy_renders) {
    struct dirent **found = NULL;
    int n = scandir(FOLDER, &found, is_golden, alphasort);
    golden *list = cr_calloc(n > 0 ? (size_t)n : 1, sizeof *list);
    for (int i = 0; i < n; i++) {
        int length = (int)(strrchr(found[i]->d_name, '.') - found[i]->d_name);
        snprintf(list[i].method, sizeof list[i].method, "%.*s", length, found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return cr_make_param_array(golden, list, n > 0 ? (size_t)n : 0);
}

static tiny_shape shape_of(const json_t *network) {
    const json_t *s = rendered_at(network, "shape");
    return (tiny_shape){.n_layer = rendered_int(s, "n_layer"),
                        .n_head = rendered_int(s, "n_head"),
                        .n_kv = rendered_int(s, "n_kv"),
                        .d_head = rendered_int(s, "d_head"),
                        .d_ffn = rendered_int(s, "d_ffn"),
                        .vocab = rendered_int(s, "vocab")};
}

/* ---- kept tokens ------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* Image tokens of a KV head, in memory order; those of a layer that was compressed, by position,
 * also where so few were left that they were decompressed, and where tokens are evicted one by
 * one. */
static int32_t visual_of(const tiny_prompt *p, int32_t layer, int32_t head, int32_t pos[ROWS_MAX]) {
    const fv_kv_packed *packed = fv_kv_packed_of(p->kv, layer, FV_SEG_VISUAL);
    int32_t n = packed ? 0 : fv_kv_held(p->kv, layer, head, FV_SEG_VISUAL);
    if (n > 0)
        memcpy(pos, fv_kv_positions(p->kv, layer, head, FV_SEG_VISUAL), (size_t)n * sizeof *pos);
    for (int32_t a = 0; packed && a < packed->rows.n_anchor; a++)
        for (int32_t j = 0; j < packed->alive[a]; j++) pos[n++] = packed->pos[packed->first[a] + j];
    if (p->plan.pack.layer[layer].rank[FV_PACKED_V] || fv_accum_kind_of(p->kv))
        qsort(pos, (size_t)n, sizeof *pos, ascending);
    return n;
}

/* "visual | text", of the prompt's tokens. */
static void held_of(const tiny_prompt *p, int32_t layer, int32_t head, char text[TEXT_MAX]) {
    int32_t pos[ROWS_MAX], n = visual_of(p, layer, head, pos);
    rendered_spans(pos, n, text, TEXT_MAX / 2);
    const fv_kv_packed *packed = fv_kv_packed_of(p->kv, layer, FV_SEG_TEXT);
    const int32_t *of_text = fv_kv_positions(p->kv, layer, head, FV_SEG_TEXT);
    int32_t all = fv_kv_len(p->kv, layer, head, FV_SEG_TEXT);
    n = 0;
    for (int32_t j = 0; packed && j < packed->rows.n; j++) pos[n++] = packed->pos[j];
    for (int32_t j = 0; j < all; j++)
        if (of_text[j] < p->n) pos[n++] = of_text[j];
    if (fv_accum_kind_of(p->kv)) qsort(pos, (size_t)n, sizeof *pos, ascending);
    strcat(text, " | ");
    rendered_spans(pos, n, text + strlen(text), TEXT_MAX / 2 - 4);
}

static void assert_held(const tiny_prompt *p, const json_t *layers, const char *policy) {
    for (int32_t l = 0; l < (int32_t)json_array_size(layers); l++) {
        const json_t *heads = json_array_get(layers, (size_t)l);
        for (int32_t g = 0; g < (int32_t)json_array_size(heads); g++) {
            char got[TEXT_MAX];
            held_of(p, l, g, got);
            const char *want = json_string_value(json_array_get(heads, (size_t)g));
            cr_assert_str_eq(got, want, "%s, layer %d, KV head %d:\n%s\nand not\n%s", policy, l, g,
                             got, want);
        }
    }
}

/* ---- a network --------------------------------------------------------------------------- */

static void assert_logits(const tiny_prompt *p, const json_t *network, size_t row) {
    const json_t *want = json_array_get(rendered_at(network, "logits"), row);
    double off = rendered_off(p->logits, want);
    cr_assert(off < limit, "%s: logits %zu are off by %g", rendered_text(network, "policy"), row,
              off);
}

static void init_evict(fv_evict *e, const tiny_prompt *p) {
    char text[FV_POLICY_TEXT_MAX];
    fv_policy_print(&p->plan.policy, text);
    cr_assert_eq(evict_init(e, text, p->n), FV_OK, "%s", fv_last_error());
}

/* Tells whether a turn ends after so many tokens of the answer. */
static bool turn_ends(const json_t *network, int32_t n_token) {
    const json_t *ends = json_object_get(network, "turn_ends");
    for (size_t i = 0; i < json_array_size(ends); i++)
        if (json_integer_value(json_array_get(ends, i)) == n_token) return true;
    return false;
}

static void run_network(const json_t *network, int32_t chunk, int32_t threads) {
    const char *policy = rendered_text(network, "policy");
    const json_t *answer = rendered_at(network, "answer");
    const json_t *end = json_object_get(network, "held_at_the_end");
    tiny_net net;
    tiny_prompt p, *one = &p;
    fv_evict evict;
    tiny_net_open(&net, shape_of(network), FV_F32, NULL, threads);
    tiny_prompt_lay(&net, &p, rendered_text(network, "layout"),
                    (uint64_t)rendered_int(network, "seed"), policy);
    cr_assert_leq(p.n, ROWS_MAX);
    cr_assert_eq(tiny_prefill(&net, &p, 1, chunk), FV_OK, "%s: %s", policy, fv_last_error());
    assert_held(&p, rendered_at(network, "held"), policy);
    assert_logits(&p, network, 0);
    init_evict(&evict, &p);
    for (int32_t t = 0; t < (int32_t)json_array_size(answer); t++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(answer, (size_t)t));
        cr_assert_eq(fv_evict_step(&evict, p.kv, t + 1), FV_OK, "%s", fv_last_error());
        cr_assert_eq(tiny_step(&net, &one, 1, &id, 1, t), FV_OK, "%s", fv_last_error());
        assert_logits(&p, network, (size_t)t + 1);
        if (turn_ends(network, t + 1)) recompress_turn(net.dec, p.kv, policy);
    }
    if (end) assert_held(&p, end, policy);
    tiny_prompt_free(&p);
    tiny_net_close(&net);
}

ParameterizedTest(golden *g, methods, computes_what_numpy_renders) {
    json_t *root = rendered_read(g->method);
    const json_t *networks = json_object_get(root, "networks");
    for (size_t i = 0; i < json_array_size(networks); i++) {
        run_network(json_array_get(networks, i), 0, 1);
        run_network(json_array_get(networks, i), 13, 2);
        run_network(json_array_get(networks, i), 1, 1);
    }
    json_decref(root);
}
