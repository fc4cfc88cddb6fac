#ifndef FOVEA_TEXT_CHAT_TURNS_H
#define FOVEA_TEXT_CHAT_TURNS_H

/* CHAT TURNS: turns -> the messages that a template reads, as transformers and vLLM make them of
 * OpenAI's. Any thread. */
#include <jansson.h>

#include "text/chat.h"
#include "text/jinja/jinja.h"

/* The characters that mark the end of a text that is continued: U+E000, and a blank that tells
 * whether the template trims the text. */
#define FV_CHAT_MARK "\xEE\x80\x80 "

/* Makes the list of messages in the form that p reads. `continues`: FV_CHAT_MARK is appended to the
 * text of the last turn, which must have one. FV_EINVAL: a turn's members are no JSON object, or its
 * tool calls are not as OpenAI has them. Gives *out. */
fv_status fv_chat_messages(const fv_jinja *p, const fv_chat_turn *turns, int32_t n, bool continues,
                           json_t **out);

/* Tells whether the last turn is an assistant's with a text, which can be continued. */
bool fv_chat_ends_open(const fv_chat_turn *turns, int32_t n);

/* The text of a turn that is continued: its last part of text; NULL: it has none. */
const char *fv_chat_last_text(const fv_chat_turn *turn);

/* Cuts the rendering of these messages, whose last text has the mark behind it, where that text ends.
 * `name`: the template's, for the error. FV_EINVAL: the template does not write the text as it is. */
fv_status fv_chat_cut(const char *name, const json_t *messages, fv_chat_text *t);

/* Reads a text that must be one JSON object; of members with one name the last counts. FV_EINVAL
 * names `what`. Gives *out. */
fv_status fv_chat_object(const char *text, const char *what, json_t **out);

#endif
