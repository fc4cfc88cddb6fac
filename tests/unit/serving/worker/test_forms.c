/* serving/worker/forms.c: who has many grammars to compile does not keep the thread from others. */
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

static void add(fv_forms *f, fv_jobs *to, unit *u, const char *who, bool spec) {
    const fv_grammar_spec s = {
        .kind = FV_GRAMMAR_JSON_SCHEMA, .text = u->text, .n_text = strlen(u->text)};
    u->then = (fv_job){.run = note, .owner = u};
    fv_forms_add(f, &u->form, spec ? &s : NULL, &(fv_form_share){who, 1}, to, &u->then);
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
    for (int i = 0; i < N; i++) add(f, to, &units[i], "a", true);
    add(f, to, &units[N], "b", true);
    add(f, to, &units[N + 1], "b", false);
    fv_forms_close(f);
    fv_jobs_stop(to);
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
