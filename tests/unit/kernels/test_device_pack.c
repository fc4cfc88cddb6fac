/* Compression on a device with memory of its own, which computes while the host continues: a group
 * of layers is compressed on its own stream while the next one is computed. The device is the CUDA
 * plugin emulated on the CPU (tests/support/cuda_host), where a stream runs when somebody waits for
 * it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/backends/open.h"
#include "tests/support/tiny_net.h"

TestSuite(device_pack, .timeout = 300);

enum { LAYERS = 4, VISUAL = 20 };

typedef struct side {
    tiny_net net;
    tiny_prompt p;
    int32_t final[LAYERS]; /* number of layers each time some were reported final */
    int32_t n_final;
} side;

/* Compresses the layers that are final. */
static fv_status on_final(void *user, int32_t n_layer) {
    side *s = user;
    cr_assert_lt(s->n_final, LAYERS);
    s->final[s->n_final++] = n_layer;
    for (int32_t l = 0; l < n_layer; l++)
        cr_expect(fv_kv_packed_of(s->p.kv, l, FV_SEG_VISUAL), "layer %d of %d", l, n_layer);
    return FV_OK;
}

static void prefill(side *s, const char *device, const char *isa, const char *policy,
                    int32_t before) {
    *s = (side){0};
    tiny_net_open_on(&s->net, tiny_shape_default(), FV_F32, device, isa, 1);
    s->net.prefill = (fv_prefill_options){.group = 1, .final = on_final, .user = s};
    tiny_prompt_make(&s->net, &s->p, before, VISUAL, 4, 11, policy);
    cr_assert_eq(tiny_prefill(&s->net, &s->p, 1, 0), FV_OK, "%s", fv_last_error());
    cr_assert_eq(s->p.packed.status, FV_OK, "%s", s->p.packed.text);
}

static void release(side *s) {
    tiny_prompt_free(&s->p);
    tiny_net_close(&s->net);
}

static void emulate(void) {
    if (access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0)
        cr_skip("the CUDA kernels are not built for the CPU here");
    fv_plugin_set_dir(FOVEA_EMULATED);
}

static void same_part(const side *a, const side *b, int32_t layer, int kind) {
    fv_arena room = {0};
    const fv_packed_part *here = &fv_kv_packed_of(a->p.kv, layer, FV_SEG_VISUAL)->part[kind];
    fv_packed_part there;
    cr_assert_eq(fv_kv_packed_on_host(b->p.kv,
                                      &fv_kv_packed_of(b->p.kv, layer, FV_SEG_VISUAL)->part[kind],
                                      &room, &there),
                 FV_OK);
    cr_assert_eq(memcmp(&here->shape, &there.shape, sizeof there.shape), 0, "layer %d", layer);
    size_t bytes = fv_packed_bytes(&there.shape);
    if (bytes) cr_expect_eq(memcmp(here->data, there.data, bytes), 0, "%d, %d", layer, kind);
    fv_arena_fini(&room);
}

Test(device_pack, exact_products_give_the_parts_of_the_cpu_a_group_later) {
    static const char *const policies[] = {
        "pack=svd,rank_k=8,rank_v=6,gain=0,block=4;expand=attention",
        "pack=svd,rank_k=8,rank_v=8,gain=0,bits=4,energy=0.8;lazy=vla,map=given,blocks=0-1",
        "pack=quant,bits=8,outliers=0.02",
        "pack=minicache,start=0,gamma=0.3",
        "pack=latent,budget=1/8,residual=auto,residual_above=1",
        "prune=fastv,layer=1,keep=0.5;pack=latent,budget=1/8;expand=attention"};
    side cpu, gpu;
    emulate();
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        prefill(&cpu, "cpu", NULL, policies[i], 3);
        prefill(&gpu, "cuda", "exact", policies[i], 3);
        cr_expect(same_bits(cpu.p.logits, gpu.p.logits, (size_t)cpu.net.cfg.vocab));
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *a = fv_kv_packed_of(cpu.p.kv, l, FV_SEG_VISUAL),
                               *b = fv_kv_packed_of(gpu.p.kv, l, FV_SEG_VISUAL);
            for (int k = 0; k < 2; k++) same_part(&cpu, &gpu, l, k);
            const fv_packed_shape *s = &a->part[0].shape;
            bool own = s->form == FV_PACKED_LATENT && s->latent.n_own > 0;
            cr_expect_eq(own, i == 4, "own directions are the last one's");
            cr_assert_eq(!a->importance, !b->importance);
            if (a->importance)
                cr_expect(same_bits(a->importance, b->importance, (size_t)a->rows.n));
        }
        cr_expect_gt(cpu.n_final, gpu.n_final, "the device says so a group later");
        cr_expect(gpu.n_final > 0 || cpu.n_final == 1, "or there are two groups, each a pair");
        release(&cpu);
        release(&gpu);
    }
}

/* A prompt that begins with an image keeps its first token exactly; then some tokens are evicted,
 * that one last. */
Test(device_pack, coefficients_of_the_cpu_and_its_exact_token_also_when_tokens_leave) {
    static const int32_t some[] = {0, 2, 3, 7, 11, 18}, few[] = {1, 2, 5};
    side cpu, gpu;
    emulate();
    prefill(&cpu, "cpu", NULL, "pack=latent,budget=1/8", 0);
    prefill(&gpu, "cuda", "exact", "pack=latent,budget=1/8", 0);
    cr_expect(same_bits(cpu.p.logits, gpu.p.logits, (size_t)cpu.net.cfg.vocab));
    for (int step = 0; step < 3; step++) {
        for (int32_t l = 0; l < LAYERS; l++) {
            const fv_kv_packed *p = fv_kv_packed_of(gpu.p.kv, l, FV_SEG_VISUAL);
            cr_assert(p->part[0].shape.latent.exact);
            cr_assert_eq(p->rows.n, step == 0 ? VISUAL : step == 1 ? 6 : 3);
            for (int k = 0; k < 2; k++) same_part(&cpu, &gpu, l, k);
        }
        for (int32_t l = 0; l < LAYERS && step < 2; l += 2) {
            const int32_t *idx = step ? few : some;
            int32_t n = step ? 3 : 6;
            cr_assert_eq(fv_kv_packed_keep(cpu.p.kv, l, idx, n), FV_OK);
            cr_assert_eq(fv_kv_packed_keep(gpu.p.kv, l, idx, n), FV_OK);
        }
    }
    release(&cpu);
    release(&gpu);
}

/* The device has a single copy of the same numbers; the host uses the checkpoint's own. */
Test(device_pack, directions_are_copied_to_the_device_once) {
    side cpu, gpu;
    emulate();
    tiny_net_open_on(&cpu.net, tiny_shape_default(), FV_F32, "cpu", NULL, 1);
    tiny_net_open_on(&gpu.net, tiny_shape_default(), FV_F32, "cuda", "exact", 1);
    const fv_latent *l = gpu.net.latent;
    fv_latent_bytes_laid laid = fv_latent_layout(&l->info);
    size_t W = (size_t)(l->info.n_kv * l->info.d_head);
    size_t encode = W * (size_t)l->info.n_dir * sizeof(float);
    char *got = malloc(laid.key + laid.affine + laid.value);
    cr_assert(got);
    cr_expect_eq(cpu.net.there.layer->key, cpu.net.latent->layer->key);
    cr_expect_eq(fv_kv_pool_shape(gpu.net.pool)->latent, gpu.net.there.layer);
    for (int32_t k = 0; k < LAYERS; k++) {
        const fv_latent_layer *here = &l->layer[k], *there = &gpu.net.there.layer[k];
        fv_device *dev = gpu.net.be.device;
        cr_assert_eq(fv_device_copy(dev, got, there->key, laid.key), FV_OK);
        cr_expect(memcmp(got, here->key, laid.key) == 0, "keys of layer %d", k);
        cr_assert_eq(fv_device_copy(dev, got, there->affine, laid.affine), FV_OK);
        cr_expect(memcmp(got, here->affine, laid.affine) == 0, "means and scales of layer %d", k);
        cr_assert_eq(fv_device_copy(dev, got, there->sigma, laid.sigma), FV_OK);
        cr_expect(memcmp(got, here->sigma, laid.sigma) == 0, "sigmas of layer %d", k);
        cr_assert_eq(fv_device_copy(dev, got, there->value, laid.value), FV_OK);
        cr_expect(memcmp(got, here->value, laid.value) == 0, "values of layer %d", k);
        cr_expect_eq(there->mean[0], here->mean[0]);
        for (int p = 0; p < 2; p++) {
            cr_assert_leq(encode, laid.value);
            cr_assert_eq(fv_device_copy(dev, got, there->project[p].bands, encode), FV_OK);
            cr_expect(memcmp(got, here->encode[p], encode) == 0, "layer %d encodes part %d", k, p);
        }
    }
    free(got);
    tiny_net_close(&cpu.net);
    tiny_net_close(&gpu.net);
}

/* Sums are in another order, but ranks are the same and errors as small. */
Test(device_pack, factors_of_many_lose_what_those_of_the_cpu_lose) {
    const char *policy = "pack=svd,rank_k=20,rank_v=20,gain=0,energy=0.8,block=8";
    side cpu, gpu;
    emulate();
    prefill(&cpu, "cpu", NULL, policy, 3);
    prefill(&gpu, "cuda", "auto", policy, 3);
    for (int32_t l = 0; l < LAYERS; l++)
        for (int k = 0; k < 2; k++) {
            const fv_packed_layer *a = &cpu.p.packed.layer[l], *b = &gpu.p.packed.layer[l];
            cr_expect_eq(a->rank[k], b->rank[k], "layer %d: %d, %d", l, a->rank[k], b->rank[k]);
            cr_expect_lt(fabsf(a->error[k] - b->error[k]), 0.01f * a->error[k]);
        }
    release(&cpu);
    release(&gpu);
}
