#ifndef FOVEA_TEXT_CALLS_THINKING_H
#define FOVEA_TEXT_CALLS_THINKING_H

/* THINKING: the text of an answer, as it comes -> the reasoning that a model writes first, and the
 * answer proper.
 *
 *     <think>It is red.</think>Red.  ->  thought "It is red.", text "Red."
 *
 * Only what an answer begins with is reasoning; a mark further on is text. Where the prompt ends
 * with the opening mark, the answer begins inside. Space next to the marks is dropped. Memory is
 * constant, and the work linear in the text. One thread at a time. */
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

typedef struct fv_thinking_form fv_thinking_form; /* a pair of marks; a constant */

/* Returns the form of this name ("think", "mistral"), NULL: there is none. */
const fv_thinking_form *fv_thinking_form_named(const char *name);
/* Returns the form whose marks a chat template of this text has, NULL: none. */
const fv_thinking_form *fv_thinking_form_of_template(const char *program);
const char *fv_thinking_form_name(const fv_thinking_form *f);
const char *fv_thinking_form_names(void); /* all, for an error */

/* Gives the marks, constants. */
void fv_thinking_form_marks(const fv_thinking_form *f, const char **opens, const char **closes);

typedef enum fv_reasoning {
    FV_REASONING_MAY = 0, /* the answer may begin with the opening mark */
    FV_REASONING_OPEN, /* the prompt ends with the opening mark and space: the answer begins inside */
    FV_REASONING_OVER, /* the prompt ends with the closing mark and space: there is none */
} fv_reasoning;

/* Tells how a prompt of n bytes ends. user: [n] 1: a byte of a turn, which is no mark. */
fv_reasoning fv_thinking_after(const fv_thinking_form *f, const char *prompt,
                               const unsigned char *user, size_t n);

enum { FV_THINKING_HELD_MAX = 128 };

typedef struct fv_thinking {
    /* private */
    const fv_thinking_form *form;
    unsigned char state;
    bool begun; /* a character of the present part has been given out */
    size_t n_held;
    char held[FV_THINKING_HELD_MAX];
} fv_thinking;

/* `open`: the answer begins inside. */
fv_thinking fv_thinking_begin(const fv_thinking_form *form, bool open);

/* Gets n > 0 bytes, not terminated, of reasoning (`thought`) or of the answer. */
typedef fv_status (*fv_thinking_part)(void *user, bool thought, const char *text, size_t n);

/* _feed takes the next n bytes; _end what is held back, when the answer is over. Fail as `part`
 * does. */
fv_status fv_thinking_feed(fv_thinking *t, const char *text, size_t n, fv_thinking_part part,
                           void *user);
fv_status fv_thinking_end(fv_thinking *t, fv_thinking_part part, void *user);

/* Tells whether the next byte belongs to the reasoning, as far as is known. */
bool fv_thinking_is_inside(const fv_thinking *t);

#endif
