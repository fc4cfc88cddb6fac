/* fovea calibrate --latent without room for second moments, on the checkpoint of the project. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/command.h"
#include "tests/support/tensor_file.h"

#define FOVEA FOVEA_BIN "/fovea"
#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"

TestSuite(calibrate_latent, .timeout = 1800);

static command_result r;

/* The share of variance that 64 directions hold. */
static double measure(const char *dir, const char *moment_bytes) {
    command_run(&r,
                FOVEA " calibrate --latent --checkpoint %s/nano --items 11 --kv-dtype bf16 "
                      "--moment-bytes %s",
                dir, moment_bytes);
    cr_assert_eq(r.status, 0, "%s", r.err);
    const char *said = strstr(r.out, " 64 directions: ");
    cr_assert_not_null(said, "%s", r.out);
    return strtod(said + strlen(" 64 directions: "), NULL);
}

Test(calibrate_latent, sketches_of_nano_hold_nearly_what_second_moments_hold) {
    char dir[512];
    scratch_dir(dir, sizeof dir);
    command_run(&r, "cp -rL " NANO " %s/nano", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    double exact = measure(dir, "12582912"); /* 16 * 12 layers * 256^2 */
    command_run(&r, "mv %s/nano/latent.bin %s/exact", dir, dir);
    double sketched = measure(dir, "12582911");
    command_run(&r, "cmp %s/nano/latent.bin %s/exact", dir, dir);
    cr_assert_eq(r.status, 1, "nothing was sketched: %s", r.out);
    cr_assert(exact > 0.9 && sketched > exact - 0.005, "%g, and %g", sketched, exact);
    command_run(&r,
                FOVEA " ask --checkpoint %s/nano --kv-dtype bf16 --image %s/nano/picture.png "
                      "--policy pack=latent 'Name the color of the square.'",
                dir, dir);
    cr_assert(r.status == 0 && strncmp(r.out, "white", 5) == 0, "%s%s", r.out, r.err);
}
