/* common/options: command line, environment, defaults, and errors with their messages. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/options.h"

static const fv_option table[] = {
    {"max-tokens", "FOVEA_TEST_TOKENS", FV_OPTION_INT, "N", "128", "longest answer", 1, 65536},
    {"any", NULL, FV_OPTION_INT, "N", NULL, "any whole number", 0, 0},
    {"ratio", "FOVEA_TEST_RATIO", FV_OPTION_FLOAT, "R", "0.5", "part that is kept", 0, 1},
    {"json", "FOVEA_TEST_JSON", FV_OPTION_FLAG, NULL, NULL, "one JSON object", 0, 0},
    {"image", "FOVEA_TEST_IMAGE", FV_OPTION_LIST, "FILE", NULL, "a picture", 0, 0},
    {"out", NULL, FV_OPTION_STRING, "DIR", NULL, "where results go", 0, 0},
};
enum { N = sizeof table / sizeof *table };

static fv_status parse(fv_options **out, const char *const *words) {
    char *argv[32] = {(char *)(uintptr_t) "program"};
    int argc = 1;
    for (; words[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)words[argc - 1];
    return fv_options_parse(table, N, argc, argv, out);
}

/* The arguments are borrowed, so they are static: literals in a static array. */
#define PARSE(out, ...)                                                                            \
    do {                                                                                           \
        static const char *const words_[] = {__VA_ARGS__, NULL};                                   \
        fv_status st_ = parse(&(out), words_);                                                     \
        cr_assert_eq(st_, FV_OK, "%s", fv_last_error());                                           \
    } while (0)

#define REFUSE(said, ...)                                                                          \
    do {                                                                                           \
        static const char *const words_[] = {__VA_ARGS__, NULL};                                   \
        fv_options *o_ = NULL;                                                                     \
        cr_assert_eq(parse(&o_, words_), FV_EINVAL);                                               \
        cr_assert_null(o_);                                                                        \
        cr_assert_not_null(strstr(fv_last_error(), said), "%s", fv_last_error());                  \
    } while (0)

Test(options, an_option_that_is_not_given_has_its_default_or_nothing) {
    fv_options *o = NULL;
    static const char *const none[] = {NULL};
    const char *const *items;
    cr_assert_eq(parse(&o, none), FV_OK);
    cr_assert_eq(fv_options_int(o, "max-tokens"), 128);
    cr_assert_eq(fv_options_float(o, "ratio"), 0.5);
    cr_assert_not(fv_options_given(o, "max-tokens"));
    cr_assert_eq(fv_options_int(o, "any"), 0);
    cr_assert_not(fv_options_flag(o, "json"));
    cr_assert_null(fv_options_string(o, "out"));
    cr_assert_eq(fv_options_list(o, "image", &items), 0);
    cr_assert_eq(fv_options_positional(o, &items), 0);
    cr_assert_not(fv_options_help_wanted(o));
    fv_options_free(o);
}

Test(options, a_value_follows_as_a_word_or_after_an_equals_sign) {
    fv_options *o = NULL;
    PARSE(o, "--max-tokens", "7", "--ratio=0.25", "--out=a=b", "--json");
    cr_assert_eq(fv_options_int(o, "max-tokens"), 7);
    cr_assert_eq(fv_options_float(o, "ratio"), 0.25);
    cr_assert_str_eq(fv_options_string(o, "out"), "a=b");
    cr_assert(fv_options_flag(o, "json"));
    cr_assert(fv_options_given(o, "json"));
    fv_options_free(o);
}

Test(options, the_last_of_several_values_counts) {
    fv_options *o = NULL;
    PARSE(o, "--max-tokens", "7", "--max-tokens=9");
    cr_assert_eq(fv_options_int(o, "max-tokens"), 9);
    fv_options_free(o);
}

Test(options, a_list_keeps_every_value_in_order) {
    fv_options *o = NULL;
    const char *const *items;
    PARSE(o, "--image", "a.png", "question", "--image=b.png");
    cr_assert_eq(fv_options_list(o, "image", &items), 2);
    cr_assert_str_eq(items[0], "a.png");
    cr_assert_str_eq(items[1], "b.png");
    fv_options_free(o);
}

Test(options, other_words_are_positional_and_everything_is_after_two_dashes) {
    fv_options *o = NULL;
    const char *const *items;
    PARSE(o, "first", "--json", "-", "--", "--json", "-x", "--");
    cr_assert_eq(fv_options_positional(o, &items), 5);
    cr_assert_str_eq(items[0], "first");
    cr_assert_str_eq(items[1], "-");
    cr_assert_str_eq(items[2], "--json");
    cr_assert_str_eq(items[3], "-x");
    cr_assert_str_eq(items[4], "--");
    fv_options_free(o);
}

Test(options, a_flag_takes_a_value_only_after_an_equals_sign) {
    fv_options *o = NULL;
    const char *const *items;
    PARSE(o, "--json", "no");
    cr_assert(fv_options_flag(o, "json"));
    cr_assert_eq(fv_options_positional(o, &items), 1);
    fv_options_free(o);
    PARSE(o, "--json=no");
    cr_assert_not(fv_options_flag(o, "json"));
    fv_options_free(o);
    REFUSE("neither yes nor no", "--json=perhaps");
}

Test(options, the_line_wins_over_the_environment_and_that_over_the_default) {
    fv_options *o = NULL;
    const char *const *items;
    setenv("FOVEA_TEST_TOKENS", "11", 1);
    setenv("FOVEA_TEST_RATIO", "0.75", 1);
    setenv("FOVEA_TEST_JSON", "yes", 1);
    setenv("FOVEA_TEST_IMAGE", "env.png", 1);
    PARSE(o, "--max-tokens=5");
    cr_assert_eq(fv_options_int(o, "max-tokens"), 5);
    cr_assert_eq(fv_options_float(o, "ratio"), 0.75);
    cr_assert(fv_options_flag(o, "json"));
    cr_assert(fv_options_given(o, "ratio"));
    cr_assert_eq(fv_options_list(o, "image", &items), 1);
    cr_assert_str_eq(items[0], "env.png");
    fv_options_free(o);
}

Test(options, an_empty_variable_is_as_good_as_none) {
    fv_options *o = NULL;
    setenv("FOVEA_TEST_TOKENS", "", 1);
    PARSE(o, "word");
    cr_assert_eq(fv_options_int(o, "max-tokens"), 128);
    cr_assert_not(fv_options_given(o, "max-tokens"));
    fv_options_free(o);
}

Test(options, a_wrong_value_in_the_environment_names_the_variable) {
    setenv("FOVEA_TEST_TOKENS", "many", 1);
    REFUSE("environment variable FOVEA_TEST_TOKENS", "word");
    REFUSE("'many' is not a whole number", "word");
}

Test(options, an_unknown_option_is_named) {
    REFUSE("unknown option --max-token;", "--max-token", "3");
    REFUSE("unknown option --max-tokens-;", "--max-tokens-=3");
    REFUSE("unknown option --;", "--=3");
    REFUSE("unknown option -x", "-x");
}

Test(options, a_missing_value_says_what_is_needed) {
    REFUSE("--max-tokens needs a value (N)", "--max-tokens");
    REFUSE("--out needs a value (DIR)", "word", "--out");
}

Test(options, an_invalid_number_is_refused) {
    REFUSE("'' is not a whole number", "--max-tokens=");
    REFUSE("'3x' is not a whole number", "--max-tokens", "3x");
    REFUSE("'1.5' is not a whole number", "--max-tokens", "1.5");
    REFUSE("is not a whole number", "--any", "99999999999999999999");
    REFUSE("'' is not a number", "--ratio=");
    REFUSE("'nan' is not a number", "--ratio=nan");
    REFUSE("'half' is not a number", "--ratio", "half");
}

Test(options, a_number_out_of_range_says_the_range) {
    REFUSE("--max-tokens: 0 is out of range; it must be 1..65536", "--max-tokens=0");
    REFUSE("1..65536", "--max-tokens", "65537");
    REFUSE("1..65536", "--max-tokens", "-3");
    REFUSE("--ratio: 1.5 is out of range; it must be 0..1", "--ratio=1.5");
    REFUSE("0..1", "--ratio=-0.1");
    REFUSE("0..1", "--ratio=inf");
}

Test(options, ends_of_the_range_belong_to_it_and_no_range_means_any) {
    fv_options *o = NULL;
    PARSE(o, "--max-tokens=65536", "--ratio=1", "--any=-9223372036854775808");
    cr_assert_eq(fv_options_int(o, "max-tokens"), 65536);
    cr_assert_eq(fv_options_float(o, "ratio"), 1.0);
    cr_assert_eq(fv_options_int(o, "any"), INT64_MIN);
    fv_options_free(o);
}

Test(options, secrets_are_wiped_where_they_came_from) {
    static const fv_option rows[] = {
        {"key", "FOVEA_TEST_WIPED", FV_OPTION_LIST, "KEY", NULL, "a secret", 0, 0}};
    char one[] = "--key", two[] = "sk-1", three[] = "--key=sk-22", self[] = "self";
    char *argv[] = {self, one, two, three, NULL};
    fv_options *o;
    setenv("FOVEA_TEST_WIPED", "sk-333", 1);
    const char *env = getenv("FOVEA_TEST_WIPED");
    cr_assert_eq(fv_options_parse(rows, 1, 4, argv, &o), FV_OK, "%s", fv_last_error());
    fv_options_wipe(o, "key");
    cr_assert_str_eq(two, "****");
    cr_assert_str_eq(three, "--key=*****");
    cr_assert_str_eq(env, "******");
    cr_assert(!getenv("FOVEA_TEST_WIPED"));
    fv_options_free(o);
}

Test(options, help_is_known_without_being_listed) {
    fv_options *o = NULL;
    PARSE(o, "--help");
    cr_assert(fv_options_help_wanted(o));
    fv_options_free(o);
    PARSE(o, "-h");
    cr_assert(fv_options_help_wanted(o));
    fv_options_free(o);
}

Test(options, all_help_is_wanted_by_its_own_name) {
    fv_options *o = NULL;
    PARSE(o, "--help");
    cr_assert_not(fv_options_help_all_wanted(o));
    fv_options_free(o);
    PARSE(o, "--help-all");
    cr_assert(fv_options_help_wanted(o) && fv_options_help_all_wanted(o));
    fv_options_free(o);
}

/* Two timeouts that follow from a deadline. */
static const fv_option timed[] = {
    {"lease-ms", NULL, FV_OPTION_INT, "MS", "--deadline-ms / 4, within 5000..30000", "", 10, 90000},
    {"deadline-ms", "FOVEA_TEST_DEADLINE", FV_OPTION_INT, "MS", "600000", "", 1, 86400000},
};

static int64_t lease_of(const char *argument) {
    fv_options *o = NULL;
    char *argv[] = {(char *)(uintptr_t) "program", (char *)(uintptr_t)argument};
    cr_assert_eq(fv_options_parse(timed, 2, argument ? 2 : 1, argv, &o), FV_OK);
    cr_assert(fv_options_given(o, "lease-ms") == (argument && strstr(argument, "lease")));
    int64_t lease = fv_options_int(o, "lease-ms");
    fv_options_free(o);
    return lease;
}

Test(options, a_default_can_follow_from_another_option_within_bounds) {
    cr_assert_eq(lease_of(NULL), 30000);
    cr_assert_eq(lease_of("--deadline-ms=60000"), 15000);
    cr_assert_eq(lease_of("--deadline-ms=1"), 5000);
    cr_assert_eq(lease_of("--deadline-ms=86400000"), 30000);
    cr_assert_eq(lease_of("--lease-ms=11"), 11);
    setenv("FOVEA_TEST_DEADLINE", "40000", 1);
    cr_assert_eq(lease_of(NULL), 10000);
    cr_assert_eq(lease_of("--deadline-ms=80000"), 20000);
}

Test(options, each_row_of_a_name_must_accept_its_value) {
    static const fv_option twice[] = {{"queue", NULL, FV_OPTION_INT, "N", "5", "", 1, 100},
                                      {"queue", NULL, FV_OPTION_INT, "N", "9", "", 1, 10}};
    fv_options *o = NULL;
    char *good[] = {(char *)(uintptr_t) "program", (char *)(uintptr_t) "--queue=10"};
    char *bad[] = {(char *)(uintptr_t) "program", (char *)(uintptr_t) "--queue=11"};
    cr_assert_eq(fv_options_parse(twice, 2, 2, good, &o), FV_OK);
    cr_assert_eq(fv_options_int(o, "queue"), 10);
    fv_options_free(o);
    cr_assert_eq(fv_options_parse(twice, 2, 2, bad, &o), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "it must be 1..10"), "%s", fv_last_error());
    cr_assert_eq(fv_options_parse(twice, 2, 1, bad, &o), FV_OK);
    cr_assert_eq(fv_options_int(o, "queue"), 5);
    fv_options_free(o);
}

/* Reads a row as --help or --help-all prints it. */
static void expect_printed(const fv_option *row, bool all, const char *expected) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    fv_option_print(f, row, all);
    fclose(f);
    cr_assert_str_eq(text, expected);
    free(text);
}

Test(options, an_option_is_printed_with_default_range_and_variable_in_80_columns) {
    expect_printed(&table[0], false, "  --max-tokens N           longest answer [128]\n");
    expect_printed(
        &table[0], true,
        "  --max-tokens N           longest answer [128; 1..65536] (FOVEA_TEST_TOKENS)\n");
    expect_printed(&table[2], true,
                   "  --ratio R                part that is kept [0.5; 0..1] (FOVEA_TEST_RATIO)\n");
    expect_printed(&table[5], true, "  --out DIR                where results go\n");
    const fv_option wide = {.name = "a-name-that-is-rather-long",
                            .value = "FILE",
                            .type = FV_OPTION_STRING,
                            .help = "words that do not fit into the rest of one line and so go on "
                                    "in the next"};
    expect_printed(
        &wide, true,
        "  --a-name-that-is-rather-long FILE\n"
        "                           words that do not fit into the rest of one line and\n"
        "                           so go on in the next\n");
}

Test(options, the_help_text_has_a_line_per_option_with_default_and_variable) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    fv_options_print_help(f, "fovea test [options]", "About it.", table, N);
    fclose(f);
    cr_assert_eq(strncmp(text, "usage: fovea test [options]\n\nAbout it.\n", 38), 0);
    cr_assert_not_null(strstr(text, "--max-tokens N "));
    cr_assert_not_null(strstr(text, "longest answer [128; 1..65536] (FOVEA_TEST_TOKENS)\n"));
    cr_assert_not_null(strstr(text, "where results go\n"));
    cr_assert_not_null(strstr(text, "--help "));
    free(text);
}

Test(options, a_table_without_rows_takes_words_only) {
    fv_options *o = NULL;
    char *argv[] = {(char *)(uintptr_t) "program", (char *)(uintptr_t) "word"};
    const char *const *items;
    cr_assert_eq(fv_options_parse(NULL, 0, 2, argv, &o), FV_OK);
    cr_assert_eq(fv_options_positional(o, &items), 1);
    fv_options_free(o);
    cr_assert_eq(fv_options_parse(NULL, 0, 0, argv, &o), FV_OK);
    fv_options_free(o);
    fv_options_free(NULL);
}

Test(options, an_unknown_option_that_is_nearly_one_is_answered_with_it) {
    REFUSE("unknown option --imag; did you mean --image?", "--imag", "x");
    REFUSE("unknown option --max-token; did you mean --max-tokens?", "--max-token=3");
    REFUSE("unknown option --model; --help-all lists them", "--model", "x");
}

Test(options, a_value_can_be_replaced_by_what_it_stands_for) {
    fv_options *o;
    char value[] = "there";
    PARSE(o, "--out", "here");
    cr_assert_eq(fv_options_set(o, "out", value), FV_OK);
    memset(value, 'x', sizeof value - 1);
    cr_assert_str_eq(fv_options_string(o, "out"), "there");
    cr_assert_eq(fv_options_set(o, "out", fv_options_string(o, "out")), FV_OK);
    cr_assert_str_eq(fv_options_string(o, "out"), "there");
    fv_options_free(o);
    PARSE(o, "--json");
    cr_assert_not(fv_options_typed(o, "out"));
    cr_assert_eq(fv_options_set(o, "out", "new"), FV_OK);
    cr_assert(fv_options_typed(o, "out") && fv_options_given(o, "out"));
    fv_options_free(o);
}
