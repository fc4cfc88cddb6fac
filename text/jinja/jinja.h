#ifndef FOVEA_TEXT_JINJA_JINJA_H
#define FOVEA_TEXT_JINJA_JINJA_H

/* JINJA: the language of chat templates, run as transformers runs it.
 *
 * jinja2 3.1 with trim_blocks, lstrip_blocks, break, continue and {% generation %}, in the sandbox
 * where lists and dicts cannot be changed; values print as Python's do. A program reaches nothing
 * but its variables: no file, no environment, no clock but the one it is given. Steps, nesting and
 * bytes are bounded. What the language has and this interpreter lacks (import, include, extends,
 * block, call, recursive loops, string formatting) is an error that names line and construct. */
#include <jansson.h>

#include "common/status.h"

enum {
    FV_JINJA_PROGRAM_BYTES = 1 << 20, /* of a program */
    FV_JINJA_RUN_BYTES = 64 << 20,    /* of what a run keeps: values, text, scopes */
    FV_JINJA_STEPS = 4 << 20,         /* of a run: nodes evaluated, items and 64 bytes copied */
    FV_JINJA_DEPTH = 200              /* of expressions, blocks and macro calls in each other */
};

typedef struct fv_jinja fv_jinja; /* opaque; immutable, any thread may run it */

/* Parses n bytes of UTF-8; `where` names the program in errors. FV_EDATA: a syntax error;
 * FV_EUNSUPPORTED: a construct, filter or test that this interpreter lacks; both say line and
 * construct. Gives *out. */
fv_status fv_jinja_parse(const char *program, size_t n, const char *where, fv_jinja **out);
void fv_jinja_free(fv_jinja *p); /* NULL is fine */

/* How a program reads the content of messages: by what it does with something called "content". */
typedef enum fv_jinja_content {
    FV_JINJA_CONTENT_TEXT = 0, /* as one string */
    FV_JINJA_CONTENT_PARTS,    /* as a list of parts */
    FV_JINJA_CONTENT_EITHER    /* it asks which of the two it is */
} fv_jinja_content;
fv_jinja_content fv_jinja_content_form(const fv_jinja *p);

/* What a run has written. Each byte is known to come from the program or from the user: */
typedef struct fv_jinja_text {
    char *text; /* [n] and a NUL; owned */
    size_t n;
    uint8_t *user; /* [n] 1: the byte is from the variable `user` of the run; owned */
} fv_jinja_text;   /* {0} is empty and may be freed */

/* Runs p with the members of `vars` as its variables. Strings of the variable `user` (NULL: none)
 * and what is made of their characters are marked; values of keys called "role" and "type" in it
 * are not. `now` is the time, in seconds since 1970, that strftime_now shows (as UTC). FV_EINVAL:
 * the program refuses (raise_exception) or fails on these variables, with line and reason;
 * FV_ENOMEM: a bound was reached. */
fv_status fv_jinja_run(const fv_jinja *p, const json_t *vars, const char *user, int64_t now,
                       fv_jinja_text *out);
void fv_jinja_text_free(fv_jinja_text *t);

#endif
