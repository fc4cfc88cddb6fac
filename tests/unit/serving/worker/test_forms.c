/* serving/worker/forms.c: who has many grammars to compile, or long ones, does not keep the threads from others. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "serving/worker/forms.h"

enum { N = 12, TEXT = 1 << 15, ROUNDS = 200 };

typedef struct unit {
    fv_form_unit form;
    fv_job then;
    int place; /* in the order of their ends */
    char text[TEXT];
} unit;

static unit units[N + 2];
static int n_done;

static void note(fv_job *job) { ((unit *)job->owner)->place = n_done++; }

/* A schema that no round had before, of many members. */
static void write_schema(unit *u, int number) {
    int n = snprintf(u->text, TEXT, "{\"const\":%d,\"properties\":{", number);
    for (int i = 0; i < 400; i++)
        n += snprintf(u->text + n, (size_t)(TEXT - n), "%s\"m%d\":{\"pattern\":\"^a{%d}b\"}",
                      i ? "," : "", i, i % 9);
    snprintf(u->text + n, (size_t)(TEXT - n), "},\"type\":\"object\",\"title\":\"%d\"}", number);
}

static void add(fv_forms *f, fv_jobs *to, unit *u, const char *who) {
    const fv_grammar_spec s = {
        .kind = FV_GRAMMAR_JSON_SCHEMA, .text = u->text, .n_text = strlen(u->text)};
    u->then = (fv_job){.run = note, .owner = u};
    fv_forms_add(f, &u->form, &s, &(fv_form_share){who, 1}, to, &u->then);
}

static void follow(fv_forms *f, unit *u, const unit *after) {
    u->then = (fv_job){.run = note, .owner = u};
    fv_forms_follow(f, &u->form, &after->form, &u->then);
}

/* Whether b's grammar was ready before the last one of a. */
static bool overtakes(int round) {
    const fv_jobs_options opt = {.limit = 1};
    fv_forms *f;
    fv_jobs *to;
    n_done = 0;
    for (int i = 0; i <= N; i++) write_schema(&units[i], round * (N + 1) + i);
    cr_assert_eq(fv_jobs_start(&opt, &to), FV_OK);
    cr_assert_eq(fv_forms_open(&f), FV_OK);
    for (int i = 0; i < N; i++) add(f, to, &units[i], "a");
    add(f, to, &units[N], "b");
    follow(f, &units[N + 1], &units[N]);
    fv_forms_close(f);
    fv_jobs_stop(to);
    for (int i = 0; i < N + 2; i++) fv_forms_release(&units[i].form);
    cr_assert_eq(n_done, N + 2, "each job is posted on, also those that wait at the end");
    for (int i = 1; i < N; i++)
        cr_assert_lt(units[i - 1].place, units[i].place, "a's keep their order");
    cr_assert_lt(units[N].place, units[N + 1].place, "b's keep their order");
    return units[N].place < units[N - 1].place;
}

/* A slow machine may compile all of a's before b's is added, so there are several rounds; in a plain queue b is
 * last in each. */
Test(forms, a_caller_with_many_lets_others_pass, .timeout = 300) {
    int round = 0;
    while (round < ROUNDS && !overtakes(round)) round++;
    cr_assert_lt(round, ROUNDS);
}

/* Whether a brief grammar was ready before a long one that was being compiled already, and what follows the long one
 * came behind it. */
static bool passes(int round) {
    const fv_jobs_options opt = {.limit = 1};
    unit *slow = &units[0], *brief = &units[1], *after = &units[2];
    fv_forms *f;
    fv_jobs *to;
    n_done = 0;
    snprintf(slow->text, TEXT, "{\"pattern\":\"^(a|b)*a(a|b){12}c%d$\",\"maxLength\":900}", round);
    snprintf(brief->text, TEXT, "{\"enum\":[\"brief %d\"]}", round);
    cr_assert_eq(fv_jobs_start(&opt, &to), FV_OK);
    cr_assert_eq(fv_forms_open(&f), FV_OK);
    add(f, to, slow, "a");
    follow(f, after, slow);
    add(f, to, brief, "a");
    fv_forms_close(f);
    fv_jobs_stop(to);
    for (int i = 0; i < 3; i++) fv_forms_release(&units[i].form);
    cr_assert_eq(n_done, 3, "each job is posted on");
    cr_assert_lt(slow->place, after->place, "a request's jobs keep their order");
    return brief->place < slow->place;
}

/* A slow machine may compile the long one before the brief one is added, so there are several rounds. */
Test(forms, a_brief_grammar_does_not_wait_for_a_long_one, .timeout = 300) {
    int round = 0;
    while (round < ROUNDS && !passes(round)) round++;
    cr_assert_lt(round, ROUNDS);
}

/* While the request waits for the computing thread, others are compiled. */
Test(forms, a_request_that_waits_keeps_its_grammar) {
    const fv_jobs_options opt = {.limit = 1};
    unit *u = &units[0], *other = &units[1];
    fv_forms *f;
    fv_jobs *to;
    snprintf(u->text, TEXT, "{\"enum\":[\"first\"]}");
    cr_assert_eq(fv_jobs_start(&opt, &to), FV_OK);
    cr_assert_eq(fv_forms_open(&f), FV_OK);
    add(f, to, u, "a");
    fv_forms_close(f);
    for (int i = 0; i < 100; i++) {
        snprintf(other->text, TEXT, "{\"enum\":[\"%d\"]}", i);
        cr_assert_eq(fv_forms_open(&f), FV_OK);
        add(f, to, other, "b");
        fv_forms_close(f);
        fv_forms_release(&other->form);
    }
    fv_jobs_stop(to);
    fv_grammar *kept, *again;
    cr_assert_eq(fv_grammar_take(fv_forms_result(&u->form), &u->form.spec, &kept), FV_OK);
    cr_assert_eq(fv_grammar_get(&u->form.spec, &again), FV_OK);
    cr_assert_neq(kept, again, "the process has forgotten it");
    fv_grammar_unref(kept);
    fv_grammar_unref(again);
    fv_forms_release(&u->form);
}
