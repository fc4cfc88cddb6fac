/* A whole fleet is killed, and the one that starts after it reads the KV of prompts from the disk: the answer is the same,
 * and its image is neither decoded nor computed. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/answer.h"
#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define QUESTION                                                                                   \
    "--image " FOVEA_TEST_DATA                                                                     \
    "/golden/demo.png --ignore-eos --max-tokens 4 'what is it, and why "                           \
    "do you think that it is that, and not something else that looks like it?'"

static fleet f;

static void begin(void) {
    fleet_open(&f, "kept-on-disk");
    fleet_synth(&f, "tiny");
}

static void end(void) { fleet_close(&f); }

TestSuite(kept_on_disk, .init = begin, .fini = end, .timeout = 240);

static void start(void) {
    char args[600];
    snprintf(args, sizeof args, "--kv-disk %s/kv", f.dir);
    fleet_start(&f, args);
}

static json_t *ask(void) {
    char where[100];
    snprintf(where, sizeof where, "--to %s", f.address);
    return answer_ask(where, QUESTION);
}

static json_int_t from_disk(json_t *answer) {
    json_t *cached = json_object_get(json_object_get(answer, "report"), "cached");
    return json_integer_value(json_object_get(cached, "from_disk"));
}

/* Waits until the folder has files and no longer grows. */
static void wait_for_writes(void) {
    char before[64] = "", now[64];
    for (int still = 0; still < 50; usleep(20000)) {
        command_run(&fleet_said,
                    "find %s/kv -type f -size +0 -name '????????????????*' | wc -l; du -sb %s/kv",
                    f.dir, f.dir);
        snprintf(now, sizeof now, "%.60s", fleet_said.out);
        still = now[0] != '0' && strcmp(now, before) == 0 ? still + 1 : 0;
        strcpy(before, now);
    }
}

Test(kept_on_disk, after_kill_9_a_new_fleet_reads_what_the_old_one_has_computed) {
    start();
    json_t *first = ask();
    cr_assert_eq(from_disk(first), 0);
    wait_for_writes();
    kill(f.pid, SIGKILL);
    while (kill(f.pid, 0) == 0) usleep(10000);
    start();
    json_t *second = ask();
    cr_assert_gt(from_disk(second), 0);
    answer_assert_same(first, second, false, "after kill -9");
    fleet_stop(&f);
}
