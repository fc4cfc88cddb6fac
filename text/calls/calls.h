#ifndef FOVEA_TEXT_CALLS_CALLS_H
#define FOVEA_TEXT_CALLS_CALLS_H

/* CALLS: the text of an answer, as it comes -> its text without tool calls, and the calls.
 *
 * Checkpoints write calls in different forms; a form is a row of forms.c. A parser looks for the
 * form's marks and holds back what follows one until the call is complete. Text that only looks
 * like a call stays text: broken JSON, a name that is no tool's, a call that is cut off.
 *
 *     I look. <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>
 *     ^text   ^held, then call("f", "{\"x\":1}")
 *
 * Space around calls is dropped. A parser holds at most FV_CALLS_HELD_MAX bytes, and its work is
 * linear in the text, however it is cut into pieces. One thread at a time. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

enum {
    FV_CALLS_HELD_MAX = 1 << 20, /* bytes of a call; longer ones stay text */
    FV_CALLS_MAX = 128,          /* calls of an answer; further ones stay text */
    FV_CALLS_NAME_MAX = 64,      /* bytes of a tool's name */
};

typedef struct fv_calls_form fv_calls_form; /* a form; a constant */

/* Returns the form of this name ("hermes", "qwen3_xml", ...), NULL: there is none. */
const fv_calls_form *fv_calls_form_named(const char *name);

/* Returns the form that a chat template of this text teaches its model, NULL: none is found. */
const fv_calls_form *fv_calls_form_of_template(const char *program);

/* Returns the form of an answer that is a call by a grammar: {"name", "arguments"}, or with `named` the
 * arguments alone, of the one tool that the parser is given. */
const fv_calls_form *fv_calls_form_forced(bool named);

const char *fv_calls_form_name(const fv_calls_form *f);

/* Tells whether the form's marks are special tokens, which must then be part of the text. */
bool fv_calls_form_is_special(const fv_calls_form *f);

/* Tells whether the form's templates take only ids of nine letters and digits for calls. */
bool fv_calls_form_has_short_ids(const fv_calls_form *f);

/* Makes the structural tag (grammar/tag_format.c) of an answer with or without calls of these tools, in which arguments of
 * functions with "strict" are as their parameters say, and others any. Gives *out (json_decref it); NULL with FV_OK: the
 * form writes arguments in no way that a grammar can hold. */
fv_status fv_calls_form_tag(const fv_calls_form *f, const json_t *tools, json_t **out);

/* The names of all forms for an error: "hermes, qwen3_xml, ...". */
const char *fv_calls_form_names(void);

typedef struct fv_calls_events {
    /* n > 0 bytes of text, not terminated; a piece may end inside a character if the input's do. */
    fv_status (*text)(void *user, const char *text, size_t n);
    /* arguments: a JSON object as text. Both are terminated and borrowed for the call. */
    fv_status (*call)(void *user, const char *name, const char *arguments);
} fv_calls_events;

typedef struct fv_calls_parser fv_calls_parser; /* opaque */

/* Opens a parser. tools: a list as in OpenAI's requests, [{"type": "function", "function": {"name",
 * "parameters"}}]; other names are no calls, and a form without types takes them from the
 * parameters. NULL: all names are calls. Everything is borrowed until the parser is closed.
 * Gives *out. */
fv_status fv_calls_parser_open(const fv_calls_form *form, const json_t *tools,
                               const fv_calls_events *events, void *user, fv_calls_parser **out);
void fv_calls_parser_close(fv_calls_parser *p); /* NULL is fine */

/* _feed takes the next n bytes of the answer, none of which is NUL; _end what is held back, when the answer is over.
 * FV_ENOMEM, or a failure of an event. Nothing may be fed after a failure. */
fv_status fv_calls_parser_feed(fv_calls_parser *p, const char *text, size_t n);
fv_status fv_calls_parser_end(fv_calls_parser *p);

#endif
