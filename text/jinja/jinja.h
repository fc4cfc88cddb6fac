#ifndef FOVEA_TEXT_JINJA_JINJA_H
#define FOVEA_TEXT_JINJA_JINJA_H

/* JINJA: runs chat templates as transformers does.
 *
 * jinja2 3.1 with trim_blocks, lstrip_blocks, break, continue and {% generation %}, in the sandbox
 * where lists and dicts cannot be changed; values print as Python's do. A program reaches nothing
 * but its variables: no file, no environment, no clock but the one it is given. Work, nesting and
 * bytes are bounded. Constructs that this interpreter lacks (import, include, extends, block,
 * recursive loops, some filters) fail with an error that names line and construct. */
#include <jansson.h>
#include <stdbool.h>

#include "common/status.h"

enum {
    FV_JINJA_PROGRAM_BYTES = 1 << 20, /* of a program */
    FV_JINJA_RUN_BYTES = 64 << 20,    /* of a run's values, text and scopes */
    FV_JINJA_NAME_BYTES = 255,        /* of a name in a program */
    FV_JINJA_NODES = 1 << 18,         /* statements and expressions of a program */
    FV_JINJA_DEPTH = 200,             /* of nested expressions, blocks and macro calls */
    /* Steps of a run. A machine does a few million a second. One step is a node evaluated, an item
     * visited, a look-up, a comparison; or of a string 64 bytes copied, 16 characters read or 4
     * characters written one by one. */
    FV_JINJA_STEPS = 4 << 20,
};

typedef struct fv_jinja fv_jinja; /* opaque; immutable, any thread may run it */

/* Parses n bytes of UTF-8; `where` names the program in errors. FV_EDATA: a syntax error;
 * FV_EUNSUPPORTED: a construct, filter or test that this interpreter lacks, or a program or name
 * that is too large; both say line and construct. Gives *out. */
fv_status fv_jinja_parse(const char *program, size_t n, const char *where, fv_jinja **out);
void fv_jinja_free(fv_jinja *p); /* NULL is fine */

/* How a program reads the content of messages, judged by its uses of "content". */
typedef enum fv_jinja_content {
    FV_JINJA_CONTENT_TEXT = 0, /* as one string */
    FV_JINJA_CONTENT_PARTS,    /* as a list of parts */
    FV_JINJA_CONTENT_EITHER    /* it handles both */
} fv_jinja_content;
fv_jinja_content fv_jinja_content_form(const fv_jinja *p);

/* Tells whether a program compares content with none: then none is a content that it expects. */
bool fv_jinja_expects_none(const fv_jinja *p);

/* The output of a run, with the origin of each byte: the program or the user. */
typedef struct fv_jinja_text {
    char *text; /* [n] and a NUL; owned */
    size_t n;
    uint8_t *user; /* [n] 1: the byte is from the run's `user`; owned */
} fv_jinja_text;   /* {0} is empty and may be freed */

/* Runs p with the members of `vars` and of `user` (NULL: none) as its variables; of two with one
 * name `user`'s counts. Marks the output's characters that come from strings of `user`, except from
 * a "role" that is one of those that templates know: they make special tokens of it.
 * `now` is the time, in seconds since 1970, that strftime_now shows (as UTC). The run fails once
 * fv_clock_s() reaches `until_s` (0: never), checked every few thousand steps. FV_EINVAL: the
 * program refuses (raise_exception), fails on these variables or reaches a bound (steps, bytes,
 * nesting), with line and reason; FV_EDEADLINE: `until_s` has passed; FV_ENOMEM: out of memory.
 * Gives *out. */
fv_status fv_jinja_run(const fv_jinja *p, const json_t *vars, const json_t *user, int64_t now,
                       double until_s, fv_jinja_text *out);
/* Returns the steps that such a run takes, whether it succeeds or not. */
int64_t fv_jinja_count_steps(const fv_jinja *p, const json_t *vars);
void fv_jinja_text_free(fv_jinja_text *t);

#endif
