/* A request's form is compiled when it comes, and the decode worker uses what became of it then, not what the process
 * still knows when the answer begins. */
#include <criterion/criterion.h>
#include <string.h>

#include "grammar/result_internal.h"
#include "tests/e2e/decode_rig.h"

TestSuite(waiting_forms, .init = write_checkpoint, .fini = remove_checkpoint, .timeout = 240);

static void ask_in_form(answer *a, const handoff *h, const char *choice) {
    Fovea__Inference__V1__TokenRules rules = FOVEA__INFERENCE__V1__TOKEN_RULES__INIT;
    Fovea__Inference__V1__Constraint form = FOVEA__INFERENCE__V1__CONSTRAINT__INIT;
    request m = request_for(&h->ticket, TOKENS);
    form.kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_REGEX;
    form.regex = (char *)(uintptr_t)choice;
    rules.constraint = &form;
    m.rules = &rules;
    ask_with(a, &m, 60000);
    UNTIL(a->over);
}

Test(waiting_forms, a_form_for_which_there_is_no_memory_ends_its_request_and_says_so) {
    static handoff h;
    static answer got;
    const size_t most = fv_grammar_waiting_max;
    open_all(NULL);
    prefill_and_send(&h, "", TOKENS);
    fv_grammar_waiting_max = 0;
    ask_in_form(&got, &h, "(.|\n)*");
    cr_assert_eq(got.status, FV_ENOMEM, "%d: %s", got.status, got.why);
    cr_assert(strstr(got.why, "ask again later"), "%s", got.why);
    fv_grammar_waiting_max = most;
    handoff_free(&h);
    close_all();
}

Test(waiting_forms, a_form_is_forgotten_with_its_request) {
    static handoff h;
    static answer got;
    open_all(NULL);
    prefill_and_send(&h, "", TOKENS);
    ask_in_form(&got, &h, "(.|\n)*");
    UNTIL(worker_is_empty());
    UNTIL(fv_grammar_waiting() == 0);
    handoff_free(&h);
    close_all();
}
