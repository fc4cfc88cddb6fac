#ifndef FOVEA_COMMON_LOGFMT_H
#define FOVEA_COMMON_LOGFMT_H

/* LOGFMT: printf of key=value pairs, whose values may come from anybody.
 *
 *   "req=%s event=failed reason=\"%s\""   ->   req=r1 event=failed reason="he said \"no\"\nreq=r2"
 *
 * A value is what stands in the format between '=' and the next space, or between quotes behind the
 * '='. As one whole, with what conversions put into it, it is written bare where that is safe, and
 * otherwise in quotes and escaped: \" \\ \n \r \t, \uXXXX for other control characters and for
 * those that turn the direction of text or break lines, \ufffd for bytes that are no UTF-8. So a
 * line has the pairs of its format, whatever the arguments are. What is cut for want of room ends
 * in "...". Any thread. */
#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of one value before they are escaped; a longer one is cut. */
enum { FV_LOGFMT_VALUE_MAX = 1200 };

/* Writes at most cap - 1 bytes and a NUL into `out`; cap must be at least 16. Returns the bytes
 * written, without the NUL. Conversions of printf with flags, widths and precisions, but for %n and
 * wide characters, which are written as "?". */
size_t fv_logfmt_print(char *out, size_t cap, const char *fmt, va_list ap);

#ifdef __cplusplus
}
#endif
#endif
