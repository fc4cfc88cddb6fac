/* Questions about an image go to the workers that keep it, as long as these are there and not busy. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/answer.h"
#include "tests/support/crew.h"

static crew c;

static void begin(void) { crew_open(&c, "routing", "tiny"); }

static void end(void) { crew_close(&c); }

TestSuite(routing, .init = begin, .fini = end, .timeout = 300);

typedef struct route {
    char prefill[32], decode[32];
    json_int_t visual, cached, unsent;
} route;

/* Another question about the picture each time. */
static route ask(const char *more) {
    static int number;
    char where[100], args[600];
    route r;
    snprintf(where, sizeof where, "--to %s", c.f.address);
    snprintf(args, sizeof args,
             "--image " FOVEA_TEST_DATA "/golden/demo.png --max-tokens 4 --ignore-eos %s "
             "'Question %d: what is in the picture?'",
             more, number++);
    json_t *a = answer_ask(where, args);
    const json_t *report = json_object_get(a, "report"),
                 *workers = json_object_get(report, "workers");
    snprintf(r.prefill, sizeof r.prefill, "%s",
             json_string_value(json_object_get(workers, "prefill")));
    snprintf(r.decode, sizeof r.decode, "%s",
             json_string_value(json_object_get(workers, "decode")));
    r.visual = json_integer_value(json_object_get(json_object_get(report, "tokens"), "visual"));
    r.cached = json_integer_value(json_object_get(json_object_get(report, "cached"), "tokens"));
    r.unsent =
        json_integer_value(json_object_get(json_object_get(report, "handoff"), "tokens_unsent"));
    cr_assert_gt(r.visual, 0);
    json_decref(a);
    return r;
}

static void assert_hit(const route *now, const route *before) {
    cr_assert_str_eq(now->prefill, before->prefill);
    cr_assert_str_eq(now->decode, before->decode);
    cr_assert_geq(now->cached, now->visual);
    cr_assert_geq(now->unsent, now->visual);
}

static program *prefill_named(const char *name) {
    return strcmp(name, "prefill-0") == 0 ? &c.prefill[0] : &c.prefill[1];
}

static void wait_for_report(const char *worker) {
    char words[100];
    snprintf(words, sizeof words, "worker=%s event=kept", worker);
    program_wait_said(&c.router, words);
}

Test(routing, the_next_question_follows_until_its_worker_is_killed) {
    crew_start(&c, 2, 2);
    route first = ask("");
    cr_assert_eq(first.cached, 0);
    for (int i = 0; i < 6; i++) {
        route next = ask("");
        assert_hit(&next, &first);
    }
    program_kill(prefill_named(first.prefill), SIGKILL);
    route other = ask("");
    cr_assert_str_neq(other.prefill, first.prefill);
    route again = ask("");
    cr_assert_str_eq(again.prefill, other.prefill);
    cr_assert_geq(again.cached, again.visual);
    crew_stop(&c);
}

Test(routing, a_router_that_starts_anew_learns_what_workers_keep) {
    crew_start(&c, 2, 2);
    route first = ask("");
    wait_for_report(first.prefill);
    wait_for_report(first.decode);
    for (int i = 0; i < 3; i++) {
        program_kill(&c.router, SIGKILL);
        crew_start_router(&c);
        wait_for_report(first.prefill);
        wait_for_report(first.decode);
        crew_wait_idle(&c, 2, 2);
        route next = ask("");
        assert_hit(&next, &first);
    }
    crew_stop(&c);
}

Test(routing, two_routers_learn_of_each_other_s_requests) {
    crew_start_second(&c);
    crew_start(&c, 2, 2);
    for (int i = 0; i < 2; i++) {
        char words[100];
        snprintf(words, sizeof words, "router=%s event=joined", c.second_fleet);
        program_wait_said(&c.prefill[i], words);
        program_wait_said(&c.decode[i], words);
    }
    route first = ask("");
    char words[100];
    snprintf(words, sizeof words, "worker=%s event=kept", first.prefill);
    program_wait_said(&c.second, words);
    snprintf(words, sizeof words, "worker=%s event=kept", first.decode);
    program_wait_said(&c.second, words);
    strcpy(c.f.address, c.second_address);
    route next = ask("");
    assert_hit(&next, &first);
    crew_stop(&c);
}

/* A worker has at most 16 requests of a router: the others of 48 that come at once go elsewhere. */
Test(routing, what_is_hot_spreads_when_its_worker_is_busy) {
    crew_start(&c, 2, 2);
    route first = ask("");
    command_run(&fleet_said,
                FOVEA_BIN "/fovea bench --to %s --cached --image " FOVEA_TEST_DATA
                          "/golden/demo.png --max-tokens 4 --concurrency 48 --requests 192",
                c.f.address);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    cr_assert(program_said(&c.prefill[0], "event=done"));
    cr_assert(program_said(&c.prefill[1], "event=done"));
    crew_wait_idle(&c, 2, 2);
    route next = ask("");
    cr_assert_geq(next.cached, next.visual);
    cr_assert_gt(first.visual, 0);
    crew_stop(&c);
}

/* Whether the router has sent any request to where it hoped to find something. */
static bool hoped(void) {
    command_run(&fleet_said, "grep -q 'hoped_tokens=[1-9]' %s/%s.log", c.router.dir, c.router.name);
    return fleet_said.status == 0;
}

/* Requests that come one after the other go to the better of two workers, which may be the same one each time: what
 * is seen is that nothing was hoped for. */
Test(routing, without_hints_and_without_the_cache_requests_go_anywhere) {
    strcpy(c.router_args, "--hints 0");
    crew_start(&c, 2, 2);
    for (int i = 0; i < 8; i++) (void)ask("");
    cr_assert_not(hoped());
    cr_assert_not(program_said(&c.router, "event=kept"));
    crew_stop(&c);
    c.router_args[0] = '\0';
    crew_start(&c, 2, 2);
    for (int i = 0; i < 8; i++) (void)ask("--cache-off");
    cr_assert_not(hoped());
    cr_assert_not(program_said(&c.router, "event=kept"));
    crew_stop(&c);
}

Test(routing, another_salt_finds_nothing_and_follows_nobody) {
    crew_start(&c, 2, 2);
    (void)ask("--cache-salt one");
    for (int i = 0; i < 12; i++) {
        char salt[40];
        snprintf(salt, sizeof salt, "--cache-salt salt-%d", i);
        route next = ask(salt);
        cr_assert_eq(next.cached, 0);
    }
    cr_assert_not(hoped());
    for (int i = 0; i < 20 && !hoped(); i++) (void)ask("--cache-salt one");
    cr_assert(hoped());
    crew_stop(&c);
}
