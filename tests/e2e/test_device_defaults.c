/* Default requests on a GPU take the fast kernels: for every family of checkpoints in bf16, on the emulated device
 * (tests/support/cuda_host), whose trace names the kernels. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/families/families.h"
#include "tests/support/command.h"

TestSuite(device_defaults, .timeout = 600);

static command_result r;

/* Makes a checkpoint and asks it about a picture; r.out has the trace. False: a GPU does not compute the family, and says
 * so. */
static bool ask(const char *family, const char *dtype, const char *options) {
    if (access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0)
        cr_skip("the CUDA kernels are not built for the CPU here");
    command_run(&r,
                FOVEA_BIN "/fovea synth --shape tiny --family %s --dtype %s --seed 7 --force "
                          "--out " FOVEA_TEST_TMP "/defaults_%s_%s",
                family, dtype, family, dtype);
    cr_assert(eq(int, r.status, 0), "%s: %s", family, r.err);
    command_run(&r,
                FOVEA_BIN "/fovea ask --checkpoint " FOVEA_TEST_TMP
                          "/defaults_%s_%s --device cuda --plugin-dir " FOVEA_EMULATED
                          " --gpu-trace " FOVEA_TEST_TMP
                          "/defaults_%s.txt %s --image " FOVEA_TEST_DATA
                          "/golden/demo.png --max-tokens 3 hello",
                family, dtype, family, options);
    if (r.status == 1 && strstr(r.err, "--device cpu")) return false;
    cr_assert(eq(int, r.status, 0), "%s: %s", family, r.err);
    command_run(&r, "cat " FOVEA_TEST_TMP "/defaults_%s.txt", family);
    return true;
}

Test(device_defaults, no_family_in_16_bits_takes_the_scalar_attention) {
    int answered = 0;
    for (int32_t i = 0; fv_family_at(i); i++) {
        const char *name = fv_family_at(i)->name;
        if (!ask(name, "bf16", "")) continue;
        answered++;
        cr_expect(strstr(r.out, "attention_rows") != NULL, "%s:\n%s", name, r.out);
        cr_expect(strstr(r.out, "attention_exact") == NULL, "%s:\n%s", name, r.out);
    }
    cr_expect(answered >= 20, "%d families answered", answered);
}

/* Copies that a request made: calls of cudaMemcpyAsync, counted by the emulation. */
static int copies(const char *policy, int tokens) {
    if (access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0)
        cr_skip("the CUDA kernels are not built for the CPU here");
    command_run(&r,
                "env FOVEA_EMULATED_COUNTS=" FOVEA_TEST_TMP "/copies_%d.txt " FOVEA_BIN
                "/fovea ask --checkpoint " FOVEA_TEST_DATA "/../checkpoints/nano --device cuda "
                "--plugin-dir " FOVEA_EMULATED " --policy \"%s\" --image " FOVEA_TEST_DATA
                "/golden/demo.png --max-tokens %d --ignore-eos \"What colors are there?\"",
                tokens, policy, tokens);
    cr_assert(eq(int, r.status, 0), "%s: %s", policy, r.err);
    command_run(&r, "sed -n 's/^cudaMemcpyAsync //p' " FOVEA_TEST_TMP "/copies_%d.txt", tokens);
    return atoi(r.out);
}

/* Selection and eviction move the rows of all heads in one operation: with a copy for each run of rows they made 4 241 and
 * 9 455. */
Test(device_defaults, rows_move_in_few_copies) {
    const int selected = copies("select=snapkv,heavy=0.4,recent=0.1", 1);
    const int evicted = copies("evict=tova,keep=0.5", 24);
    cr_expect(selected > 0 && selected <= 350, "%d copies", selected);
    cr_expect(evicted > 0 && evicted <= 1750, "%d copies", evicted);
}
