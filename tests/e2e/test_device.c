/* --device as a user meets it: without a plugin or without a GPU it fails with an error message.
 * And a whole request on a device with its own memory: the CUDA plugin emulated on the CPU
 * (tests/support/cuda_host), where host code that dereferences a device address crashes at once. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/latent.h"

#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"

TestSuite(device, .timeout = 600);

static command_result r;

static void refused(int status, const char *words) {
    cr_expect(eq(int, r.status, status), "%s", r.err);
    cr_expect(strstr(r.err, words) != NULL, "%s", r.err);
}

Test(device, cuda_without_a_plugin_is_refused_and_says_where_it_was_looked_for) {
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint " NANO
                              " --device cuda --plugin-dir /nowhere --max-tokens 1 hi");
    refused(1, "/nowhere/libfovea_cuda.so is not there");
}

Test(device, an_unknown_device_is_refused) {
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint " NANO " --device abacus --max-tokens 1 hi");
    refused(2, "'abacus': choose auto, cpu or cuda");
}

/* The workers detect it, and the fleet ends with their message. */
Test(device, a_fleet_on_cuda_does_not_start_without_it) {
    command_run(&r, FOVEA_BIN "/fovea up --checkpoint " NANO
                              " --device cuda --plugin-dir /nowhere --listen 127.0.0.1:0");
    refused(1, "/nowhere/libfovea_cuda.so is not there");
}

Test(device, auto_is_the_cpu_without_a_gpu) {
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint " NANO
                              " --plugin-dir /nowhere --max-tokens 4 \"Say a word.\"");
    cr_expect(eq(int, r.status, 0), "%s", r.err);
}

/* ---- on the emulated device ------------------------------------------------------------- */

/* Gives the digests of the logits, in which any bit shows. */
static void digests(const char *checkpoint, const char *device, const char *policy, char out[512]) {
    command_run(&r,
                FOVEA_BIN "/fovea ask --checkpoint %s %s --policy %s --image " FOVEA_TEST_DATA
                          "/golden/demo.png --max-tokens 6 --json \"hello you\"",
                checkpoint, device, policy);
    cr_assert(eq(int, r.status, 0), "%s %s: %s", device, policy, r.err);
    const char *begin = strstr(r.out, "\"digests\""), *end = begin ? strchr(begin, ']') : NULL;
    cr_assert(end != NULL && end - begin < 512, "%s", r.out);
    snprintf(out, 512, "%.*s", (int)(end - begin), begin);
}

#define ON_GPU "--device cuda --isa exact --plugin-dir " FOVEA_EMULATED

/* Tests run in parallel: each has its own folder. */
static void synthesise(const char *shape, const char *name, char path[512]) {
    if (access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0)
        cr_skip("the CUDA kernels are not built for the CPU here");
    snprintf(path, 512, FOVEA_TEST_TMP "/device_%s_%s", name, shape);
    command_run(&r, FOVEA_BIN "/fovea synth --shape %s --seed 7 --force --out %s", shape, path);
    cr_assert(eq(int, r.status, 0), "%s", r.err);
}

static void same_logits(const char *checkpoint, const char *policy) {
    char cpu[512], gpu[512];
    digests(checkpoint, "--device cpu --compute f32", policy, cpu);
    digests(checkpoint, ON_GPU, policy, gpu);
    cr_expect(eq(str, gpu, cpu), "%s, %s", checkpoint, policy);
}

/* Vision, prefill, hand-off, decode and sampling: the CPU's logits, for many and for few KV
 * heads. */
Test(device, exact_products_give_the_logits_of_the_cpu) {
    static const char *const shapes[] = {"tiny", "tiny-gqa"};
    static const char *const policies[] = {"preset=exact", "preset=aggressive"};
    char path[512];
    for (int i = 0; i < 2; i++) {
        synthesise(shapes[i], "rows", path);
        for (int k = 0; k < 2; k++) same_logits(path, policies[k]);
    }
}

Test(device, products_in_bf16_are_refused_with_the_option_to_give) {
    char path[512];
    synthesise("tiny", "bf16", path);
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint %s " ON_GPU " --compute bf16 hi", path);
    refused(1, "a GPU takes --compute f32");
}

/* Layers are compressed on the device, sent, received, read at part of the rank, compacted when
 * tokens are evicted, and in the end decompressed: host code never dereferences an address of the
 * device. */
Test(device, packed_layers_give_the_logits_of_the_cpu) {
    static const char *const policies[] = {
        "\"pack=svd,rank_k=8,rank_v=8,gain=0,block=4;expand=attention\"",
        "\"pack=svd,rank_k=8,rank_v=6,gain=0,bits=4,energy=0.9;expand=attention;"
        "evict=importance,keep=0.5\"",
        "\"pack=svd,rank_k=8,rank_v=8,gain=0,bits=8,compress_text=keys,rank_text=8;"
        "evict=vta,tau=3\"",
        "\"pack=quant,bits=8,outliers=0.02\"",
        "\"pack=quant,bits=4,compress_text=all,bits_text=4,recompress=16\"",
        "\"pack=quant,compress_text=keys,recompress=16\"",
        "\"pack=quant,bits=4,block=0;evict=vta,tau=3\"",
        "\"pack=minicache,start=0\"",
        "\"pack=minicache,start=0,gamma=0.5,first=packed\"",
        "\"pack=minicache,start=0,gamma=0.3,block=0;evict=vta,tau=5,layer=1,shallow=rank_by_first_"
        "tap\""};
    char path[512];
    synthesise("tiny-gqa", "packed", path);
    for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) same_logits(path, policies[k]);
}

/* Coefficients on directions that all requests on the device share; layers that have the first rows
 * of another layer, tokens read with few directions, and tokens that are evicted. */
Test(device, coefficients_give_the_logits_of_the_cpu) {
    static const char *const policies[] = {
        "\"pack=latent,budget=1/16\"",
        "\"pack=latent,budget=1/32,bits=3,first=packed\"",
        "\"pack=latent,budget=1/16,residual=auto,residual_above=1;evict=vta,tau=3\"",
        "\"pack=latent,budget=1/16;expand=attention,full=0.3;evict=importance,keep=0.5\"",
        "\"prune=fastv,layer=1,keep=0.5;pack=latent,budget=1/16\"",
        "\"pack=latent,budget=1/16,keys=codes,residual=auto,residual_above=1;evict=vta,tau=3\"",
        "\"prune=fastv,layer=1,keep=0.5;pack=latent,budget=1/16,keys=codes,first=packed\""};
    char path[512], exact[512], packed[512];
    synthesise("tiny-gqa", "latent", path);
    latent_write(path);
    digests(path, ON_GPU, "preset=exact", exact);
    for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) {
        same_logits(path, policies[k]);
        digests(path, ON_GPU, policies[k], packed);
        cr_expect(ne(str, packed, exact), "%s: nothing was compressed", policies[k]);
    }
}

/* ---- which GPU, and what it did ---------------------------------------------------------- */

Test(device, another_gpu_gives_the_same_logits_and_a_missing_one_is_refused) {
    char path[512], first[512], second[512];
    synthesise("tiny-gqa", "number", path);
    setenv("FOVEA_EMULATED_GPUS", "2", 1);
    digests(path, ON_GPU " --gpu 0", "preset=aggressive", first);
    digests(path, ON_GPU " --gpu 1", "preset=aggressive", second);
    cr_expect(eq(str, second, first));
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint %s " ON_GPU " --gpu 2 hi", path);
    refused(2, "there are devices 0 to 1");
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint %s --plugin-dir /nowhere --gpu 1 hi", path);
    refused(1, "/nowhere/libfovea_cuda.so is not there");
}

Test(device, a_trace_sums_the_time_of_each_kernel) {
    char path[512], plain[512], traced[512];
    synthesise("tiny-gqa", "trace", path);
    digests(path, ON_GPU, "preset=exact", plain);
    digests(path, ON_GPU " --gpu-trace " FOVEA_TEST_TMP "/trace.txt", "preset=exact", traced);
    cr_expect(eq(str, traced, plain));
    command_run(&r, "cat " FOVEA_TEST_TMP "/trace.txt");
    cr_expect(strstr(r.out, "attention_exact") && strstr(r.out, "copy") &&
                  strstr(r.out, "100.0%%") == NULL,
              "%s", r.out);
    command_run(&r,
                "env FOVEA_GPU_TRACE=/nowhere/trace " FOVEA_BIN "/fovea ask --checkpoint %s " ON_GPU
                " hi",
                path);
    refused(1, "cannot write /nowhere/trace");
}
