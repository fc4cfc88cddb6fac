/* A GPU makes an illegal access in one of two decode workers. No further operation works in that
 * process, so the worker ends with the reason, and the other one completes its requests. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/crew.h"

#define FOVEA FOVEA_BIN "/fovea"
#define ASK "--image " FOVEA_TEST_DATA "/golden/demo.png --max-tokens 4 --json \"what is here\""
#define ASK_THEM ASK " --cache-off" /* else they go where the prompt is kept */

static command_result r;

/* Gives the logits' digests in r. */
static void take_digests(char out[512]) {
    cr_assert(eq(int, r.status, 0), "%s", r.err);
    const char *begin = strstr(r.out, "\"digests\""), *end = begin ? strchr(begin, ']') : NULL;
    cr_assert(end != NULL && end - begin < 512, "%s", r.out);
    snprintf(out, 512, "%.*s", (int)(end - begin), begin);
}

Test(device_lost, the_worker_ends_and_no_answer_is_lost_or_wrong, .timeout = 300) {
    enum { ASKED = 60, LAUNCHES = 120 };
    char alone[512], theirs[512], fault[16];
    crew c;
    if (access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0)
        cr_skip("the CUDA kernels are not built for the CPU here");
    crew_open(&c, "lost", "tiny-gqa");
    strcpy(c.decode_args, "--device cuda --isa exact --plugin-dir " FOVEA_EMULATED);
    command_run(&r, FOVEA " ask --checkpoint %s/ck " ASK, c.f.dir);
    take_digests(alone);
    snprintf(fault, sizeof fault, "%d", LAUNCHES);
    crew_start(&c, 1, 1);
    setenv("FOVEA_EMULATED_FAULT", fault, 1);
    crew_start_decode(&c, 1);
    c.n_decode = 2;
    unsetenv("FOVEA_EMULATED_FAULT");
    for (int i = 0; i < ASKED && !program_said(&c.decode[1], "event=device-lost"); i++) {
        command_run(&r, FOVEA " ask --to %s " ASK_THEM, c.f.address);
        take_digests(theirs);
        cr_expect(eq(str, theirs, alone), "answer %d", i);
    }
    cr_assert(eq(int, program_wait(&c.decode[1]), 1));
    cr_expect(program_said(&c.decode[1], "event=device-lost"));
    cr_expect(program_said(&c.decode[1], "the GPU is lost: an illegal memory access"));
    command_run(&r, FOVEA " ask --to %s " ASK_THEM, c.f.address);
    take_digests(theirs);
    cr_expect(eq(str, theirs, alone), "after it");
    c.n_decode = 1;
    crew_stop(&c);
    c.n_decode = 2;
    crew_close(&c);
}
