#ifndef FOVEA_COMMON_LOGFMT_H
#define FOVEA_COMMON_LOGFMT_H

/* LOGFMT: printf for key=value pairs with untrusted values, as logfmt or as members of a JSON object.
 *
 *   "req=%s trace?=%s n=%d reason=\"%s\""
 *       ->   req=r1 n=2 reason="he said \"no\"\nreq=r2"
 *       ->   ,"req":"r1","n":2,"reason":"he said \"no\"\nreq=r2"
 *
 * A pair whose key ends with '?' is left out when its value is empty. A value that is a single
 * number conversion is a number in JSON; all others are strings.
 *
 * A value is the text of the format between '=' and the next space, or between quotes after the
 * '='. With its conversions filled in, it is written bare if that is safe, and otherwise in quotes
 * and escaped: \" \\ \n \r \t, \uXXXX for other control characters and for those that change the
 * direction of text or break lines, \ufffd for bytes that are not UTF-8. So a line has exactly the
 * pairs of its format, whatever the arguments are. A line that is too long ends in "...". Any
 * thread. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes of one value before escaping; a longer value is truncated. */
enum { FV_LOGFMT_VALUE_MAX = 1200 };

/* Writes at most cap - 1 bytes and a NUL into `out`; cap must be at least 16. In JSON, pairs that
 * do not fit are left out. Returns the number of bytes without the NUL. Supports printf's
 * conversions with flags, widths and precisions, except %n and wide characters, which are written
 * as "?". */
size_t fv_logfmt_print(char *out, size_t cap, bool json, const char *fmt, va_list ap);

#endif
