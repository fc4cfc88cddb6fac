/* options/rows: rules that every row keeps, and what programs take. */
#include "options/rows.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>

#include "cli/eval/follow.h"
#include "eval/suite/suite.h"
#include "model/net/config.h"
#include "prefill-worker/service/worker.h"
#include "text/sample.h"

/* Calls `check` for every row. */
static void each_row(void (*check)(const fv_option_row *row)) {
    for (int s = 0; s < FV_N_SUBJECT; s++)
        for (int i = 0; i < fv_subjects[s].n; i++) check(&fv_subjects[s].rows[i]);
}

/* Options whose variable other programs have named. */
static bool is_shared(const char *name) {
    static const char *const shared[] = {"hf-hub-cache", "hf-home", "xdg-cache-home", "home"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (strcmp(name, shared[i]) == 0) return true;
    return false;
}

static void check_variable(const fv_option_row *row) {
    char expected[96] = "FOVEA_";
    size_t n = strlen(expected);
    if (!row->option.env) return;
    for (const char *c = row->option.name; *c; c++)
        expected[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    cr_assert_str_eq(row->option.env, expected + (is_shared(row->option.name) ? 6 : 0));
}

Test(rows, a_variable_is_called_as_its_option) { each_row(check_variable); }

static void check_help(const fv_option_row *row) {
    const char *help = row->option.help;
    size_t n = strlen(help);
    cr_assert(n > 0 && n < 260, "--%s: %zu bytes of help", row->option.name, n);
    cr_assert(islower((unsigned char)*help) && help[n - 1] != '.', "--%s: %s", row->option.name,
              help);
    for (const char *c = help; *c; c++)
        cr_assert(isprint((unsigned char)*c), "--%s: only ASCII", row->option.name);
}

Test(rows, a_help_is_one_short_sentence_without_capital_and_full_stop) { each_row(check_help); }

static void check_daemons(const fv_option_row *row) {
    bool daemon = row->programs & FV_PROGRAM_CHILDREN;
    cr_assert(!daemon || row->option.env, "--%s: daemons are configured by variables, too",
              row->option.name);
    cr_assert((row->option.value == NULL) == (row->option.type == FV_OPTION_FLAG), "--%s",
              row->option.name);
}

Test(rows, options_of_daemons_have_variables) { each_row(check_daemons); }

Test(rows, a_program_has_a_name_once_and_up_only_where_its_children_differ) {
    for (int p = 0; p < FV_N_PROGRAM; p++) {
        fv_option table[FV_ROWS_MAX];
        int n = fv_rows_of(fv_programs[p].bit, table);
        cr_assert_gt(n, 0, "%s has no options", fv_programs[p].name);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < i && fv_programs[p].bit != FV_PROGRAM_UP; k++)
                cr_assert_str_neq(table[i].name, table[k].name);
    }
    cr_assert_eq(fv_row_find(FV_PROGRAM_UP, "metrics")->programs & FV_PROGRAM_CHILDREN, 0);
    cr_assert_eq(fv_row_find(FV_PROGRAM_UP, "listen")->programs & FV_PROGRAM_CHILDREN, 0);
}

Test(rows, up_takes_the_options_of_its_children) {
    static const char *const passed[] = {"stall-ms",  "read-ms", "keep-bytes", "cache-bytes",
                                         "transport", "otlp",    "tls-spiffe", "trusted-proxies"};
    static const char *const own[] = {"router", "name", "advertise", "fleet-token-file"};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        cr_assert_not_null(fv_row_find(FV_PROGRAM_UP, passed[i]), "--%s", passed[i]);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        cr_assert_null(fv_row_find(FV_PROGRAM_UP, own[i]), "--%s", own[i]);
}

static void check_derived(const fv_option_row *row) {
    if (!row->option.fallback || strncmp(row->option.fallback, "--", 2) != 0) return;
    for (int p = 0; p < FV_N_PROGRAM; p++)
        if (row->programs & fv_programs[p].bit)
            cr_assert_not_null(fv_row_find(fv_programs[p].bit, "deadline-ms"), "--%s of %s",
                               row->option.name, fv_programs[p].name);
}

Test(rows, who_has_a_derived_timeout_has_the_deadline) { each_row(check_derived); }

Test(rows, leases_and_timeouts_follow_from_the_deadline) {
    fv_options *o;
    char *argv[] = {(char *)(uintptr_t) "fovea-decode", (char *)(uintptr_t) "--deadline-ms=40000",
                    (char *)(uintptr_t) "--attach-ms=70"};
    cr_assert_eq(fv_program_parse(FV_PROGRAM_DECODE, 1, argv, &o), FV_OK);
    cr_assert_eq(fv_options_int(o, "lease-ms"), 30000);
    fv_options_free(o);
    cr_assert_eq(fv_program_parse(FV_PROGRAM_DECODE, 3, argv, &o), FV_OK);
    cr_assert_eq(fv_options_int(o, "lease-ms"), 10000);
    cr_assert_eq(fv_options_int(o, "unhealthy-ms"), 10000);
    cr_assert_eq(fv_options_int(o, "attach-ms"), 70);
    fv_options_free(o);
}

Test(rows, every_default_is_accepted_as_a_value) {
    for (int p = 0; p < FV_N_PROGRAM; p++) {
        fv_option table[FV_ROWS_MAX];
        int n = fv_rows_of(fv_programs[p].bit, table);
        for (int i = 0; i < n; i++) {
            char word[256];
            char *argv[] = {(char *)(uintptr_t) "program", word};
            fv_options *o;
            if (!table[i].fallback || strncmp(table[i].fallback, "--", 2) == 0) continue;
            snprintf(word, sizeof word, "--%s=%s", table[i].name, table[i].fallback);
            cr_assert_eq(fv_program_parse(fv_programs[p].bit, 2, argv, &o), FV_OK, "%s: %s",
                         fv_programs[p].name, fv_last_error());
            fv_options_free(o);
        }
    }
}

/* The rows are below the code that these limits belong to. */
Test(rows, ends_of_ranges_are_the_limits_of_the_code) {
    cr_assert_eq(fv_row_find(FV_PROGRAM_PREFILL, "batch")->option.max, FV_PREFILL_BATCH_MAX);
    cr_assert_eq(fv_row_find(FV_PROGRAM_ASK, "logprobs")->option.max, FV_MAX_LOGPROBS);
    cr_assert_eq(fv_row_find(FV_PROGRAM_SYNTH, "layers")->option.max, FV_MAX_LAYERS);
    cr_assert_eq(fv_row_find(FV_PROGRAM_SYNTH, "vision-layers")->option.max, FV_MAX_LAYERS);
    cr_assert_eq(fv_row_find(FV_PROGRAM_EVAL, "items")->option.max, FV_SUITE_ITEMS_MAX);
    cr_assert_eq(fv_row_find(FV_PROGRAM_EVAL, "seed")->option.max, FV_SUITE_SEED_MAX);
    cr_assert_eq(fv_row_find(FV_PROGRAM_EVAL, "follow")->option.max, FV_FOLLOW_TOKENS_MAX);
}
