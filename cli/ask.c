/* fovea ask: a question about pictures, answered as it is made; then the report. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/report.h"
#include "cli/request.h"

static const fv_option table[] = {
    FV_REQUEST_OPTIONS,
    {"json", NULL, FV_OPTION_FLAG, NULL, NULL,
     "print one object {text, tokens, finish_reason, report} instead of streaming", 0, 0},
    {"no-report", NULL, FV_OPTION_FLAG, NULL, NULL, "the answer only", 0, 0},
};
enum { N_TABLE = sizeof table / sizeof table[0] };

typedef struct answer {
    bool stream;
    char *text;
    size_t bytes, cap;
    json_t *tokens; /* [{id, logprob, top}] */
} answer;

static fv_status on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    if (a->stream) {
        fwrite(text, 1, n, stdout);
        fflush(stdout);
        return FV_OK;
    }
    if (a->bytes + n > a->cap) {
        size_t cap = 2 * (a->bytes + n);
        char *grown = realloc(a->text, cap);
        if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for the answer");
        a->text = grown;
        a->cap = cap;
    }
    memcpy(a->text + a->bytes, text, n);
    a->bytes += n;
    return FV_OK;
}

static fv_status on_token(void *user, const fv_sampled *t) {
    answer *a = user;
    json_t *top = json_array();
    for (int32_t i = 0; i < t->n_top; i++)
        json_array_append_new(
            top, json_pack("{s:i, s:f}", "id", t->top[i].id, "logprob", (double)t->top[i].logprob));
    json_array_append_new(a->tokens, json_pack("{s:i, s:f, s:o}", "id", t->id, "logprob",
                                               (double)t->logprob, "top", top));
    return FV_OK;
}

static int print_json(const fv_report_source *source, const answer *a, const fv_report *report) {
    json_t *root = json_pack("{s:s%, s:O, s:s, s:o}", "text", a->text ? a->text : "", a->bytes,
                             "tokens", a->tokens, "finish_reason", fv_finish_name(report->finish),
                             "report", fv_report_json(source, report));
    if (!root) {
        (void)FV_FAIL(FV_ENOMEM, "out of memory for the report");
        return fv_cli_fail("ask", FV_ENOMEM);
    }
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return 0;
}

/* What answers a question: an engine here, or a fleet whose answer the arena remembers. */
typedef struct place {
    fv_local *local;
    fv_arena arena;
    fv_report_source source;
} place;

static fv_status ask_here(const fv_options *o, const char *question, const fv_ask_hooks *hooks,
                          place *p, fv_report *report) {
    fv_request request;
    FV_TRY(fv_request_engine(o, &p->local));
    p->source = fv_report_source_local(p->local);
    FV_TRY(fv_request_open(o, p->local, question, &request));
    fv_status st = fv_local_ask(p->local, &request.ask, hooks, report);
    fv_request_close(&request);
    return st;
}

static fv_status ask(const fv_options *o, const char *question, answer *a, place *p,
                     fv_report *report) {
    fv_ask_hooks hooks = {.user = a, .text = on_text, .token = a->stream ? NULL : on_token};
    return fv_options_string(o, "to")
               ? fv_request_remote(o, question, &hooks, &p->arena, &p->source, report)
               : ask_here(o, question, &hooks, p, report);
}

int fv_cli_ask(int argc, char **argv) {
    static const char usage[] =
        "fovea ask (--checkpoint DIR | --to HOST:PORT) [--image FILE]... \"QUESTION\"";
    fv_options *o;
    if (fv_options_parse(table, N_TABLE, argc, argv, &o) != FV_OK) return fv_cli_usage("ask");
    const char *const *question;
    int n = fv_options_positional(o, &question), rc = 0;
    if (fv_options_help_wanted(o)) {
        fv_options_print_help(
            stdout, usage,
            "Answers a question about pictures, in this process or by a fleet. The "
            "answer is streamed\nto stdout, the report goes to stderr.",
            table, N_TABLE);
        fv_options_free(o);
        return 0;
    }
    if (n != 1) {
        (void)FV_FAIL(FV_EINVAL, "one question is needed, in quotes; there are %d", n);
        fv_options_free(o);
        return fv_cli_usage("ask");
    }
    bool json = fv_options_flag(o, "json");
    answer a = {.stream = !json, .tokens = json_array()};
    place p = {0};
    fv_report report = {0};
    fv_status st = ask(o, question[0], &a, &p, &report);
    if (st != FV_OK) {
        rc = fv_cli_fail("ask", st);
    } else if (json) {
        rc = print_json(&p.source, &a, &report);
    } else {
        putchar('\n');
        fflush(stdout);
        if (!fv_options_flag(o, "no-report")) fv_report_print(stderr, &p.source, &report);
    }
    fv_report_free(&report);
    json_decref(a.tokens);
    free(a.text);
    fv_local_close(p.local);
    fv_arena_fini(&p.arena);
    fv_options_free(o);
    return rc;
}
