#ifndef FOVEA_COMMON_LOG_H
#define FOVEA_COMMON_LOG_H

/* Logs one line per event to stderr: time, level, subsystem, key=value pairs; or the same as a JSON
 * object. Values are escaped, so lines and pairs cannot be forged (common/logfmt.h).
 *
 *   FV_LOG(INFO, MODEL, "checkpoint=%s tensors=%d bytes=%zu", dir, n, bytes);
 *
 * FOVEA_LOG=info,kernels=debug sets the threshold, first for all subsystems, then for single ones.
 * Failures are logged once, by the code that handles them.
 * Any thread; a line is written with one call and never interleaves. */
#include <stdbool.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fv_log_level {
    FV_LOG_ERROR = 0,
    FV_LOG_WARN,
    FV_LOG_INFO,
    FV_LOG_DEBUG,
    FV_LOG_N_LEVEL
} fv_log_level;

typedef enum fv_log_subsystem {
    FV_LOG_GENERAL = 0,
    FV_LOG_KERNELS,
    FV_LOG_MODEL,
    FV_LOG_POLICY,
    FV_LOG_PREFILL,
    FV_LOG_DECODE,
    FV_LOG_WIRE,
    FV_LOG_ROUTER,
    FV_LOG_N_SUBSYSTEM
} fv_log_subsystem;

/* Nanoseconds since 1970 by the settable clock: for display, never for intervals. */
int64_t fv_log_time_ns(void);

/* Sets thresholds from text such as "warn" or "info,model=debug"; the default is "warn". FV_EINVAL
 * names a word that is neither a level nor SUBSYSTEM=LEVEL. */
fv_status fv_log_configure(const char *spec);

/* Sets "logfmt", the default, or "json"; FV_EINVAL for other names. */
fv_status fv_log_format(const char *name);

bool fv_log_enabled(fv_log_level level, fv_log_subsystem subsystem);

void fv_log_write(fv_log_level level, fv_log_subsystem subsystem, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes a line that no threshold filters, such as one of an access log: time, kind, pairs; as JSON
 * if `as_json`, whatever fv_log_format says. */
void fv_log_record(bool as_json, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define FV_LOG(level, subsystem, ...)                                                              \
    do {                                                                                           \
        if (fv_log_enabled(FV_LOG_##level, FV_LOG_##subsystem))                                    \
            fv_log_write(FV_LOG_##level, FV_LOG_##subsystem, __VA_ARGS__);                         \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
