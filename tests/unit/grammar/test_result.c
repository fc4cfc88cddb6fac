/* grammar/result.c: the grammar of a request that waits stays, in bounded memory. */
#include <stdio.h>

#include "grammar/internal.h"
#include "grammar/result_internal.h"
#include "tests/unit/grammar/grammar_support.h"

enum { OTHERS = 100 }; /* more than the process keeps */

static fv_grammar_spec expression(const char *text) {
    return (fv_grammar_spec){.kind = FV_GRAMMAR_REGEX, .text = text, .n_text = strlen(text)};
}

static fv_grammar_result prepared(const char *text) {
    const fv_grammar_spec spec = expression(text);
    fv_grammar_result r = {0};
    cr_assert_eq(fv_grammar_prepare(&spec, 0, &r), FV_OK, "%s", fv_last_error());
    return r;
}

static void compile_others(void) {
    char text[32];
    for (int i = 0; i < OTHERS; i++) {
        fv_grammar_result r;
        snprintf(text, sizeof text, "other %d", i);
        r = prepared(text);
        cr_assert_eq(r.fault.status, FV_OK);
        fv_grammar_result_fini(&r);
    }
}

Test(result, a_grammar_that_waits_is_not_compiled_again) {
    const fv_grammar_spec spec = expression("a{3}");
    fv_grammar_result r = prepared("a{3}");
    fv_grammar *kept, *again;
    compile_others();
    cr_assert_eq(fv_grammar_take(&r, &spec, &kept), FV_OK);
    cr_assert_eq(kept, r.grammar);
    cr_assert_eq(fv_grammar_get(&spec, &again), FV_OK);
    cr_assert_neq(again, kept, "the others were too few to push it out");
    fv_grammar_result_fini(&r);
    cr_assert_eq(reads(kept, "aaa"), 2, "who took it has a reference");
    fv_grammar_unref(kept);
    fv_grammar_unref(again);
}

Test(result, a_refusal_waits_too) {
    const fv_grammar_spec spec = expression("a**b("), other = expression("b");
    fv_grammar_result r = prepared("a**b(");
    fv_grammar *g = NULL;
    compile_others();
    cr_assert_eq(fv_grammar_take(&r, &spec, &g), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "not closed"), "%s", fv_last_error());
    cr_assert_null(g);
    fv_grammar_result_fini(&r);
    cr_assert_eq(fv_grammar_take(&r, &other, &g), FV_OK, "without a result it is compiled");
    fv_grammar_unref(g);
    cr_assert_eq(fv_grammar_take(NULL, &other, &g), FV_OK);
    fv_grammar_unref(g);
}

Test(result, too_few_steps_give_none) {
    const fv_grammar_spec spec = expression("(a|b)*a(a|b){9}c");
    fv_grammar_result r = {0};
    cr_assert_eq(fv_grammar_prepare(&spec, 10, &r), FV_EBUSY);
    cr_assert(!r.grammar && r.fault.status == FV_OK);
    cr_assert_eq(fv_grammar_prepare(&spec, 0, &r), FV_OK);
    cr_assert_not_null(r.grammar);
    fv_grammar_result_fini(&r);
}

Test(result, grammars_that_wait_have_bounded_memory) {
    fv_grammar_result r = prepared("[ab]{4}");
    fv_grammar_waiting_max = fv_automaton_bytes(r.grammar->automaton) * 3 / 2;
    fv_grammar_result same = prepared("[ab]{4}"), more = prepared("[ac]{4}");
    cr_assert_eq(same.grammar, r.grammar, "what several wait for counts once");
    cr_assert_eq(more.fault.status, FV_ENOMEM);
    cr_assert(strstr(more.fault.text, "ask again later"), "%s", more.fault.text);
    cr_assert_null(more.grammar);
    fv_grammar_result_fini(&more);
    fv_grammar_result_fini(&r);
    more = prepared("[ac]{4}");
    cr_assert_eq(more.fault.status, FV_ENOMEM, "one still waits for the first");
    fv_grammar_result_fini(&same);
    more = prepared("[ac]{4}");
    cr_assert_eq(more.fault.status, FV_OK, "%s", more.fault.text);
    fv_grammar_result_fini(&more);
    cr_assert_eq(fv_grammar_waiting(), 0);
}
