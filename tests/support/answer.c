#include "tests/support/answer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/command.h"

json_t *answer_ask(const char *where, const char *args) {
    static command_result r;
    json_error_t err;
    command_run(&r, FOVEA_BIN "/fovea ask --json %s %s", where, args);
    cr_assert_eq(r.status, 0, "%s: %s", args, r.err);
    json_t *root = json_loads(r.out, 0, &err);
    cr_assert_not_null(root, "%s", err.text);
    return root;
}

json_t *answer_report(const json_t *answer, const char *key) {
    return json_object_get(json_object_get(answer, "report"), key);
}

void answer_assert_same(json_t *a, json_t *b, bool report, const char *what) {
    static const char *const same[] = {"digests",         "checkpoint", "policy",   "tokens",
                                       "visual_tokens",   "bytes",      "bypassed", "decided",
                                       "entries_evicted", "mapped"};
    size_t n = report ? sizeof same / sizeof same[0] : 1;
    cr_assert_gt(json_array_size(answer_report(a, "digests")), 0);
    for (size_t i = 0; i < n; i++) {
        char *x = json_dumps(answer_report(a, same[i]), JSON_ENCODE_ANY);
        char *y = json_dumps(answer_report(b, same[i]), JSON_ENCODE_ANY);
        cr_assert_str_eq(x, y, "%s: %s: %s, and %s", what, same[i], x, y);
        free(x);
        free(y);
    }
    json_object_del(a, "report");
    json_object_del(b, "report");
    cr_assert(json_equal(a, b), "%s: the answer differs", what);
    json_decref(a);
    json_decref(b);
}

void answer_assert_one_process(const char *dir, const char *address, const char *args) {
    char here[500], there[100];
    snprintf(here, sizeof here, "--checkpoint %s/ck", dir);
    snprintf(there, sizeof there, "--to %s", address);
    answer_assert_same(answer_ask(here, args), answer_ask(there, args), true, args);
}
