#ifndef FOVEA_TEXT_CHAT_H
#define FOVEA_TEXT_CHAT_H

/* CHAT TEMPLATES: turns -> the prompt text that the checkpoint was trained on.
 *
 * A checkpoint's template is a Jinja program (chat_template.jinja, chat_template.json,
 * processor_config.json or tokenizer_config.json, in this order), and it runs as transformers'
 * apply_chat_template runs it. Without one the text family decides; a text-only checkpoint then
 * has no template. Users cannot write special tokens: rendered text records for each byte whether it comes
 * from a turn, and a special token that a turn spells is plain text (fv_text_marks). */
#include "common/status.h"
#include "text/calls/thinking.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_chat fv_chat; /* a template; opaque, immutable: any thread */

typedef struct fv_chat_part {
    const char *text;  /* UTF-8, NUL-terminated; NULL: the next image */
    bool video;        /* without text: the next video */
    const char *ahead; /* of an image: a text directly ahead of it (fv_prompt_put_ahead), or NULL */
} fv_chat_part;

typedef struct fv_chat_turn {
    const char *role; /* any that the template takes: "system", "user", "assistant", "tool" ... */
    const char *text; /* UTF-8, NUL-terminated; NULL: no content, as of a turn of tool calls */
    int32_t n_image;  /* images that stand before the text */
    int32_t n_part;   /* above 0: the turn is `part`, and neither text nor n_image is read */
    const fv_chat_part *part; /* [n_part] in order */
    /* Other members of the message as templates read it, a JSON object: name, tool_calls,
     * tool_call_id, reasoning_content ...; NULL or "": none. */
    const char *members;
} fv_chat_turn;

typedef enum fv_chat_flag { FV_CHAT_UNSET = 0, FV_CHAT_NO, FV_CHAT_YES } fv_chat_flag;

typedef struct fv_chat_options {
    const char *variables;  /* more variables of the template, a JSON object; NULL or "": none */
    fv_chat_flag opens;     /* add_generation_prompt; unset: unless the last text is continued */
    fv_chat_flag continues; /* continue_final_message; unset: if `opens` is unset too, and the last
                             * turn is an assistant's with a text and without tool calls */
    fv_chat_flag special;   /* the tokenizer adds its special tokens; unset: as transformers does */
} fv_chat_options;          /* {0} is the default */

typedef struct fv_chat_text {
    char *text; /* NUL-terminated; owned */
    size_t n;
    uint8_t *user;          /* [n] 1: a byte of a turn; owned */
    bool adds_special;      /* the tokenizer must add its special tokens: the text has no BOS */
    fv_reasoning reasoning; /* whether it ends inside the reasoning of the answer, or behind it */
} fv_chat_text;             /* {0} is empty and may be freed */

/* Opens the template `spec` for the checkpoint in `dir`, whose text model is of `family` ("llama",
 * "mistral", "qwen2"): "" is the checkpoint's own; "vicuna", "llava", "chatml", "mistral",
 * "internvl2_5", "Hermes-2", "phi3-chat" or "none" (the text of one user turn as it is); anything with a '{' in it is the text of a program.
 * The family decides if a checkpoint with vision has no template. FV_EUNSUPPORTED: the program has a
 * construct that this interpreter lacks; FV_EDATA: the program is broken. Errors name line and construct,
 * and how to go on (--chat, --raw). A failure of the checkpoint's own files has the origin
 * FV_ORIGIN_CHECKPOINT. Gives *out. */
fv_status fv_chat_open(const char *spec, const char *dir, const char *family, bool has_vision,
                       fv_chat **out);
void fv_chat_free(fv_chat *c); /* NULL is fine */

/* The template's name: "vicuna" and so on, or the file that it is from; "--chat" for a program's text. */
const char *fv_chat_name(const fv_chat *c);

/* The names of the forms in which the template has its model write tool calls (text/calls/calls.h) and
 * reasoning (text/calls/thinking.h), constants; "": none is known. */
const char *fv_chat_tool_parser(const fv_chat *c);
const char *fv_chat_reasoning_parser(const fv_chat *c);

/* The program's text; "" for "none". Borrowed. */
const char *fv_chat_program(const fv_chat *c);

/* Turns a command line's --chat VALUE into a spec: the contents of a file whose name ends in
 * ".jinja", otherwise VALUE itself. Gives *spec (free it). */
fv_status fv_chat_read_spec(const char *value, char **spec);

/* Number of images and videos in the turn. */
int32_t fv_chat_turn_images(const fv_chat_turn *turn);

/* The seconds that a rendering may take where nothing else bounds it. Bounded steps make it end well
 * before that on a machine that is not overloaded. */
#define FV_CHAT_SECONDS 10.0

/* Renders n turns as transformers' apply_chat_template does; images appear as the template writes
 * them. Which turns may follow each other is for the template to say. Texts of a turn are joined by
 * line feeds where the template takes content as text (vLLM). opt: NULL is {0}. `until_s` is when
 * the rendering must have ended, by fv_clock_s(); 0: no bound.
 * Gives *out. FV_EINVAL for turns that the template refuses, variables or members that are no JSON, a
 * last text that cannot be continued, or a template that works too much; FV_EUNSUPPORTED for images
 * if the template takes turns as text; FV_EDEADLINE when `until_s` has come. */
fv_status fv_chat_render(const fv_chat *c, const fv_chat_turn *turns, int32_t n,
                         const fv_chat_options *opt, double until_s, fv_chat_text *out);

/* Renders the text that follows an answer: the answer's end as the template writes it, the user's next
 * turn, an open answer. `ended` is the special token that the answer ended with, "" for none: if the
 * template writes the same one, it is not repeated. Prompt, answer and this text joined are the
 * rendering of the whole conversation, if the template writes a turn without looking back
 * further than the answer before it; a special token that the template does not write stays in
 * between. Of opt (NULL: {0}) the variables count. Gives *out. FV_EINVAL unless it is one user turn
 * without images. */
fv_status fv_chat_continue(const fv_chat *c, const fv_chat_turn *turns, int32_t n,
                           const fv_chat_options *opt, const char *ended, double until_s,
                           fv_chat_text *out);
void fv_chat_text_free(fv_chat_text *t);

#ifdef __cplusplus
}
#endif
#endif
