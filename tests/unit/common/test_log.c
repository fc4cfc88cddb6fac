/* common/log: thresholds, the form of a line, whole lines from several threads. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/log.h"

static char path[256];

/* Redirects stderr to a file, which logged() reads. */
static void capture(void) {
    snprintf(path, sizeof path, "%s/log_%d", FOVEA_TEST_TMP, (int)getpid());
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    close(fd);
}

static char *logged(void) {
    char *text;
    size_t n;
    cr_assert_eq(fv_file_read(path, 1 << 20, &text, &n), FV_OK);
    unlink(path);
    return text;
}

Test(log, warnings_pass_and_information_does_not_by_default) {
    cr_assert(fv_log_enabled(FV_LOG_ERROR, FV_LOG_MODEL));
    cr_assert(fv_log_enabled(FV_LOG_WARN, FV_LOG_ROUTER));
    cr_assert_not(fv_log_enabled(FV_LOG_INFO, FV_LOG_MODEL));
}

Test(log, a_level_alone_sets_every_subsystem) {
    cr_assert_eq(fv_log_configure("debug"), FV_OK);
    for (int i = 0; i < FV_LOG_N_SUBSYSTEM; i++)
        cr_assert(fv_log_enabled(FV_LOG_DEBUG, (fv_log_subsystem)i));
    cr_assert_eq(fv_log_configure("error"), FV_OK);
    for (int i = 0; i < FV_LOG_N_SUBSYSTEM; i++)
        cr_assert_not(fv_log_enabled(FV_LOG_WARN, (fv_log_subsystem)i));
}

Test(log, a_named_subsystem_is_set_alone) {
    cr_assert_eq(fv_log_configure("info,kernels=debug,model=error"), FV_OK);
    cr_assert(fv_log_enabled(FV_LOG_DEBUG, FV_LOG_KERNELS));
    cr_assert_not(fv_log_enabled(FV_LOG_WARN, FV_LOG_MODEL));
    cr_assert(fv_log_enabled(FV_LOG_INFO, FV_LOG_DECODE));
    cr_assert_not(fv_log_enabled(FV_LOG_DEBUG, FV_LOG_DECODE));
}

Test(log, words_count_from_left_to_right) {
    cr_assert_eq(fv_log_configure("model=debug,warn"), FV_OK);
    cr_assert_not(fv_log_enabled(FV_LOG_INFO, FV_LOG_MODEL));
}

Test(log, an_empty_setting_changes_nothing) {
    cr_assert_eq(fv_log_configure(""), FV_OK);
    cr_assert(fv_log_enabled(FV_LOG_WARN, FV_LOG_GENERAL));
    cr_assert_not(fv_log_enabled(FV_LOG_INFO, FV_LOG_GENERAL));
}

Test(log, a_wrong_word_is_named_and_changes_nothing) {
    static const char *const wrong[] = {"loud",       "inf",   "info,loud",    "model=loud",
                                        "cuda=debug", "model", "model=debug=", "=debug",
                                        "info,,warn", "INFO"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(fv_log_configure(wrong[i]), FV_EINVAL, "%s is accepted", wrong[i]);
        cr_assert_not(fv_log_enabled(FV_LOG_INFO, FV_LOG_MODEL), "%s counts", wrong[i]);
    }
    (void)fv_log_configure("info,cuda=debug");
    cr_assert_not_null(strstr(fv_last_error(), "'cuda=debug'"));
    cr_assert_not_null(strstr(fv_last_error(), "error, warn, info, debug"));
}

Test(log, json_lines_are_objects_with_the_same_members) {
    cr_assert_eq(fv_log_format("xml"), FV_EINVAL);
    cr_assert_eq(fv_log_format("json"), FV_OK);
    capture();
    FV_LOG(WARN, MODEL, "req=%s n=%d why=\"%s\"", "r1", 3, "a \"b\"");
    char *text = logged();
    cr_assert_not_null(strstr(text, "Z\",\"level\":\"warn\",\"subsystem\":\"model\",\"req\":\"r1\","
                                    "\"n\":3,\"why\":\"a \\\"b\\\"\"}\n"),
                       "%s", text);
    cr_assert_eq(strncmp(text, "{\"time\":\"20", 11), 0, "%s", text);
    free(text);
}

Test(log, a_line_has_time_level_subsystem_and_text) {
    capture();
    FV_LOG(WARN, PREFILL, "req=%d bytes=%zu", 7, (size_t)12);
    char *text = logged();
    int year, n = 0;
    cr_assert_eq(sscanf(text, "%4d-%*2d-%*2dT%*2d:%*2d:%*2d.%*3dZ %n", &year, &n), 1);
    cr_assert_geq(year, 2024);
    cr_assert_str_eq(text + n, "warn prefill req=7 bytes=12\n");
    free(text);
}

Test(log, a_line_cannot_be_forged_by_a_value) {
    capture();
    FV_LOG(WARN, ROUTER, "req=%s event=failed", "x\n2026-01-01T00:00:00.000Z error router req=y");
    char *text = logged();
    cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1, "%s", text);
    cr_assert(strstr(text, "req=\"x\\n2026-01-01T00:00:00.000Z error router req=y\" event=failed"));
    free(text);
}

Test(log, a_line_below_the_threshold_is_not_written_and_not_evaluated) {
    capture();
    int evaluated = 0;
    FV_LOG(DEBUG, MODEL, "n=%d", ++evaluated);
    char *text = logged();
    cr_assert_str_eq(text, "");
    cr_assert_eq(evaluated, 0);
    free(text);
}

Test(log, a_long_line_is_cut_and_still_ends) {
    capture();
    char big[10000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    FV_LOG(ERROR, GENERAL, "%s", big);
    FV_LOG(ERROR, GENERAL, "next");
    char *text = logged();
    char *end = strchr(text, '\n');
    cr_assert_not_null(end);
    cr_assert_gt(end - text, 1000);
    cr_assert_eq(end[-1], 'x');
    cr_assert_not_null(strstr(end, "error general next\n"));
    free(text);
}

enum { N_THREADS = 4, N_LINES = 200 };

static void *write_lines(void *arg) {
    for (int i = 0; i < N_LINES; i++) FV_LOG(ERROR, WIRE, "from=%d %0100d", *(int *)arg, i);
    return NULL;
}

Test(log, lines_of_several_threads_do_not_mix) {
    capture();
    pthread_t t[N_THREADS];
    int id[N_THREADS], seen[N_THREADS] = {0};
    for (int i = 0; i < N_THREADS; i++) {
        id[i] = i;
        cr_assert_eq(pthread_create(&t[i], NULL, write_lines, &id[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(t[i], NULL);
    char *text = logged(), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int from, number;
        cr_assert_eq(sscanf(line, "%*s error wire from=%d %d", &from, &number), 2, "%s", line);
        cr_assert_eq(number, seen[from]++);
    }
    for (int i = 0; i < N_THREADS; i++) cr_assert_eq(seen[i], N_LINES);
    free(text);
}
