/* Levelled log lines on stderr. Thresholds are set once at start, before threads. */
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/logfmt.h"

static const char *const level_names[FV_LOG_N_LEVEL] = {"error", "warn", "info", "debug"};
static const char *const subsystem_names[FV_LOG_N_SUBSYSTEM] = {
    "general", "kernels", "model", "policy", "prefill", "decode", "wire", "router"};

static fv_log_level threshold[FV_LOG_N_SUBSYSTEM] = {FV_LOG_WARN, FV_LOG_WARN, FV_LOG_WARN,
                                                     FV_LOG_WARN, FV_LOG_WARN, FV_LOG_WARN,
                                                     FV_LOG_WARN, FV_LOG_WARN};

static bool json;

static int name_index(const char *const *names, int n, const char *word, size_t len) {
    for (int i = 0; i < n; i++)
        if (strlen(names[i]) == len && memcmp(names[i], word, len) == 0) return i;
    return -1;
}

fv_status fv_log_configure(const char *spec) {
    fv_log_level next[FV_LOG_N_SUBSYSTEM];
    memcpy(next, threshold, sizeof next);
    for (const char *word = spec; *word;) {
        size_t len = strcspn(word, ",");
        const char *eq = memchr(word, '=', len);
        const char *level_word = eq ? eq + 1 : word;
        int level =
            name_index(level_names, FV_LOG_N_LEVEL, level_word, len - (size_t)(level_word - word));
        int sub =
            eq ? name_index(subsystem_names, FV_LOG_N_SUBSYSTEM, word, (size_t)(eq - word)) : -1;
        if (level < 0 || (eq && sub < 0))
            return FV_FAIL(FV_EINVAL,
                           "log setting '%.*s': write LEVEL or SUBSYSTEM=LEVEL, level one of "
                           "error, warn, info, debug",
                           (int)len, word);
        for (int i = 0; i < FV_LOG_N_SUBSYSTEM; i++)
            if (!eq || i == sub) next[i] = (fv_log_level)level;
        word += len + (word[len] == ',');
    }
    memcpy(threshold, next, sizeof threshold);
    return FV_OK;
}

fv_status fv_log_format(const char *name) {
    json = strcmp(name, "json") == 0;
    if (json || strcmp(name, "logfmt") == 0) return FV_OK;
    return FV_FAIL(FV_EINVAL, "log format '%s': write logfmt or json", name);
}

bool fv_log_enabled(fv_log_level level, fv_log_subsystem subsystem) {
    return level <= threshold[subsystem];
}

int64_t fv_log_time_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Writes the time, `head` and the pairs. */
static void write_line(bool as_json, const char *head, const char *fmt, va_list ap) {
    char line[2048];
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    const char *begin = as_json ? "{\"time\":\"%Y-%m-%dT%H:%M:%S" : "%Y-%m-%dT%H:%M:%S";
    size_t n = strftime(line, sizeof line, begin, &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ%s", ts.tv_nsec / 1000000, head);
    n += fv_logfmt_print(line + n, sizeof line - n - 2, as_json, fmt, ap);
    if (as_json) line[n++] = '}';
    line[n++] = '\n';
    /* a log line that cannot be written cannot be reported */
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
}

void fv_log_write(fv_log_level level, fv_log_subsystem subsystem, const char *fmt, ...) {
    char head[80];
    va_list ap;
    snprintf(head, sizeof head, json ? "\",\"level\":\"%s\",\"subsystem\":\"%s\"" : " %s %s ",
             level_names[level], subsystem_names[subsystem]);
    va_start(ap, fmt);
    write_line(json, head, fmt, ap);
    va_end(ap);
}

void fv_log_record(bool as_json, const char *kind, const char *fmt, ...) {
    char head[80];
    va_list ap;
    snprintf(head, sizeof head, as_json ? "\",\"kind\":\"%s\"" : " %s ", kind);
    va_start(ap, fmt);
    write_line(as_json, head, fmt, ap);
    va_end(ap);
}
