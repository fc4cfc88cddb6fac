/* The checkpoint for rich scenes gives the recorded answers. */
#include <criterion/criterion.h>

#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define MINI FOVEA_TEST_DATA "/../checkpoints/mini"
#define RECORDED FOVEA_TEST_DATA "/golden/mini/answers.txt"

static fleet f;
static command_result r;

static void begin(void) { fleet_open(&f, "mini"); }
static void end(void) { fleet_close(&f); }

TestSuite(mini, .init = begin, .fini = end, .timeout = 600);

/* An item of each task, the dialog of ten turns among them. Answers depend on every bit of the logits. */
Test(mini, rich_items_are_answered_as_recorded) {
    command_run(&r,
                FOVEA " eval --checkpoint " MINI
                      " --scenes rich --items 11 --policy exact --out %s/eval",
                f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    command_run(&r,
                "cd %s && tail -n +2 eval/items.jsonl | sed 's/,\"scores\".*//' | sort > now && "
                "diff " RECORDED " now",
                f.dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
}
