/* Makes a template's variables of chat turns, and renders them to text. Any thread. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/log.h"
#include "gguf/texts.h"
#include "text/calls/calls.h"
#include "text/calls/thinking.h"
#include "text/chat_known.h"
#include "text/chat_turns.h"
#include "text/jinja/jinja.h"
#include "text/json.h"

enum { CONFIG_MAX = 16 << 20, IMAGES_MAX = 1024 };

struct fv_chat {
    const char *name; /* a constant */
    fv_jinja *program;
    char *text;        /* of the program */
    json_t *special;   /* {"bos_token": "<s>", ...} */
    bool adds_special; /* unless the template wrote BOS; false: never, as transformers does */
    const fv_calls_form *calls;       /* NULL: not known */
    const fv_thinking_form *thinking; /* NULL: not known */
};

static bool is_none(const fv_chat *c) { return strcmp(c->name, "none") == 0; }

const char *fv_chat_name(const fv_chat *c) { return c->name; }

const char *fv_chat_program(const fv_chat *c) { return is_none(c) ? "" : c->text; }

const char *fv_chat_tool_parser(const fv_chat *c) {
    return c->calls ? fv_calls_form_name(c->calls) : "";
}

const char *fv_chat_reasoning_parser(const fv_chat *c) {
    return c->thinking ? fv_thinking_form_name(c->thinking) : "";
}

void fv_chat_free(fv_chat *c) {
    if (!c) return;
    fv_jinja_free(c->program);
    free(c->text);
    json_decref(c->special);
    free(c);
}

/* ---- the checkpoint's files -------------------------------------------------------------- */

static fv_status read_json(const char *dir, const char *name, json_t **out) {
    char path[FV_CHECKPOINT_PATH], *text;
    size_t bytes;
    *out = NULL;
    FV_TRY(fv_checkpoint_file(dir, name, CONFIG_MAX, path, &text, &bytes));
    if (!text) return FV_OK;
    fv_status st = fv_json_object(text, bytes, path, out);
    free(text);
    return st;
}

/* Reads special tokens, strings or {content}, as variables of their names. BOS and EOS that a checkpoint of
 * a SentencePiece family does not name are those of its tokenizer's class. */
static fv_status read_special(const char *dir, const char *family, json_t **out) {
    json_t *config, *made = json_object();
    const char *key;
    json_t *v;
    bool sentencepiece = !strcmp(family, "llama") || !strcmp(family, "mistral");
    fv_status st = made ? read_json(dir, "tokenizer_config.json", &config)
                        : FV_FAIL(FV_ENOMEM, "no memory for a chat template");
    if (st != FV_OK) {
        json_decref(made);
        return st;
    }
    json_object_foreach(config, key, v) {
        const json_t *token = json_is_object(v) ? json_object_get(v, "content") : v;
        size_t n = strlen(key);
        if (n > 6 && !strcmp(key + n - 6, "_token") && json_is_string(token))
            json_object_set(made, key, (json_t *)(uintptr_t)token);
    }
    if (sentencepiece && !json_object_get(config, "bos_token"))
        json_object_set_new(made, "bos_token", json_string("<s>"));
    if (sentencepiece && !json_object_get(config, "eos_token"))
        json_object_set_new(made, "eos_token", json_string("</s>"));
    json_decref(config);
    *out = made;
    return FV_OK;
}

/* Finds "chat_template" of a JSON file: a string, or the default in a list of {name, template}. */
static const json_t *template_of(const json_t *root) {
    const json_t *v = json_object_get(root, "chat_template"), *item;
    size_t i;
    if (json_is_array(v)) {
        const json_t *list = v;
        json_array_foreach((json_t *)(uintptr_t)list, i, item) {
            const char *name = json_string_value(json_object_get(item, "name"));
            if (name && !strcmp(name, "default")) v = json_object_get(item, "template");
        }
    }
    return json_is_null(v) ? NULL : v;
}

/* Reads a template that is a file of its own. Transformers writes templates that have a name into a folder, and
 * the one named default mostly beside it. */
static fv_status read_jinja(const char *dir, char **program, const char **file) {
    static const char *const names[] = {"chat_template.jinja",
                                        "additional_chat_templates/default.jinja",
                                        "chat_templates/default.jinja"};
    char path[FV_CHECKPOINT_PATH];
    size_t bytes;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*program; i++) {
        *file = names[i];
        FV_TRY(fv_checkpoint_file(dir, names[i], FV_JINJA_PROGRAM_BYTES, path, program, &bytes));
    }
    return FV_OK;
}

/* Gives the text of the checkpoint's template, NULL if there is none, and the name of its file, a
 * constant. */
static fv_status read_own(const char *dir, char **program, const char **file) {
    static const char *const names[] = {"chat_template.json", "processor_config.json",
                                        "tokenizer_config.json"};
    FV_TRY(read_jinja(dir, program, file));
    for (size_t i = 0; i < sizeof names / sizeof *names && !*program; i++) {
        json_t *root;
        *file = names[i];
        FV_TRY(read_json(dir, names[i], &root));
        const json_t *found = template_of(root);
        fv_status st = FV_OK;
        if (found && !json_is_string(found))
            st = FV_FAIL(FV_EUNSUPPORTED,
                         "%s: key 'chat_template' must be a string, or a list with one named "
                         "'default': choose one with --chat, or give the whole prompt with --raw",
                         names[i]);
        else if (found && !(*program = strdup(json_string_value(found))))
            st = FV_FAIL(FV_ENOMEM, "no memory for a chat template");
        json_decref(root);
        FV_TRY(st);
    }
    return FV_OK;
}

/* ---- choice ------------------------------------------------------------------------------ */

static fv_status parse(fv_chat *c, const char *program, bool known) {
    c->text = strdup(program);
    if (!c->text) return FV_FAIL(FV_ENOMEM, "no memory for a chat template");
    fv_status st = fv_jinja_parse(program, strlen(program), c->name, &c->program);
    c->calls = fv_calls_form_of_template(program);
    c->thinking = fv_thinking_form_of_template(program);
    if (st == FV_OK || st == FV_ENOMEM || known) return st;
    return FV_FAIL(st, "%s: choose a template with --chat, or give the whole prompt with --raw",
                   fv_last_error());
}

static fv_status parse_known(fv_chat *c, const char *name, const char *family, bool has_vision) {
    const fv_chat_known *found = NULL;
    for (int32_t i = 0; i < fv_n_chat_known; i++) {
        const fv_chat_known *k = &fv_chat_known_templates[i];
        bool chosen = name[0] ? !strcmp(name, k->name)
                              : has_vision && k->family && !strcmp(family, k->family);
        if (chosen) found = k;
    }
    if (!found && name[0])
        return FV_FAIL(FV_EINVAL,
                       "unknown chat template '%.64s'; available: vicuna, llava, chatml, mistral, "
                       "internvl2_5, Hermes-2, phi3-chat, none, or a file FILE.jinja",
                       name);
    if (!found) found = &fv_chat_known_templates[fv_n_chat_known - 1];
    c->name = found->name;
    c->adds_special = true;
    return parse(c, found->program, true);
}

static fv_status open_template(fv_chat *c, const char *spec, const char *dir, const char *family,
                               bool has_vision) {
    char *own = NULL;
    FV_TRY(fv_fail_origin(read_special(dir, family, &c->special), FV_ORIGIN_CHECKPOINT));
    c->adds_special = has_vision;
    if (!spec[0]) FV_TRY(fv_fail_origin(read_own(dir, &own, &c->name), FV_ORIGIN_CHECKPOINT));
    if (strchr(spec, '{')) c->name = "--chat";
    if (!own && !strchr(spec, '{')) return parse_known(c, spec, family, has_vision);
    fv_status st = parse(c, own ? own : spec, false);
    if (own) st = fv_fail_origin(st, FV_ORIGIN_CHECKPOINT);
    free(own);
    return st;
}

fv_status fv_chat_open(const char *spec, const char *dir, const char *family, bool has_vision,
                       fv_chat **out) {
    fv_chat *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "no memory for a chat template");
    fv_status st = open_template(c, spec, dir, family, has_vision);
    if (st != FV_OK) {
        fv_chat_free(c);
        return st;
    }
    *out = c;
    return FV_OK;
}

fv_status fv_chat_read_spec(const char *value, char **spec) {
    static const char end[] = ".jinja";
    size_t n = strlen(value), bytes;
    if (n > sizeof end - 1 && strcmp(value + n - (sizeof end - 1), end) == 0) {
        char *text;
        FV_TRY(fv_file_read(value, FV_JINJA_PROGRAM_BYTES, &text, &bytes));
        if (!strchr(text, '{')) {
            free(text);
            return FV_FAIL(FV_EINVAL, "%s is not a chat template: it has no '{'", value);
        }
        *spec = text;
        return FV_OK;
    }
    *spec = strdup(value);
    return *spec ? FV_OK : FV_FAIL(FV_ENOMEM, "no memory for a chat template");
}

/* ---- turns ------------------------------------------------------------------------------- */

int32_t fv_chat_turn_images(const fv_chat_turn *turn) {
    int32_t n = 0;
    if (turn->n_part == 0) return turn->n_image;
    for (int32_t i = 0; i < turn->n_part; i++) n += !turn->part[i].text;
    return n;
}

static fv_status check_turns(const fv_chat *c, const fv_chat_turn *turns, int32_t n) {
    bool images = false;
    if (n < 1) return FV_FAIL(FV_EINVAL, "the chat has no turns");
    if (is_none(c) && n != 1)
        return FV_FAIL(FV_EINVAL, "without a chat template there is one user turn, not %d turns",
                       n);
    for (int32_t i = 0; i < n; i++) {
        int32_t n_image = fv_chat_turn_images(&turns[i]);
        images |= n_image > 0;
        if (!*turns[i].role) return FV_FAIL(FV_EINVAL, "turn %d has no role", i);
        if (n_image < 0 || n_image > IMAGES_MAX)
            return FV_FAIL(FV_EINVAL, "turn %d (%.64s) has %d images; a turn can have 0..%d", i,
                           turns[i].role, n_image, IMAGES_MAX);
    }
    if (images && fv_jinja_content_form(c->program) == FV_JINJA_CONTENT_TEXT)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: the chat template takes turns as text and has no place for images: "
                       "choose one with --chat, or give the whole prompt with --raw",
                       c->name);
    return FV_OK;
}

/* ---- variables --------------------------------------------------------------------------- */

static fv_status no_memory(void) {
    return FV_FAIL(FV_ENOMEM, "no memory for the variables of a chat template");
}

/* Gives the variables that are the worker's: special tokens, and the rest as transformers has it
 * without tools and documents. */
static fv_status own_variables(const fv_chat *c, bool opens, json_t **out) {
    json_t *vars = json_copy(c->special);
    int lost = json_object_set_new(vars, "tools", json_null());
    lost |= json_object_set_new(vars, "documents", json_null());
    lost |= json_object_set_new(vars, "add_generation_prompt", json_boolean(opens));
    if (lost) {
        json_decref(vars);
        return no_memory();
    }
    *out = vars;
    return FV_OK;
}

/* Reads the caller's variables. Other names of transformers' function are no variables. */
static fv_status read_variables(const char *text, json_t **out) {
    static const char *const taken[] = {"messages", "chat_template", "continue_final_message",
                                        "tokenize"};
    FV_TRY(fv_chat_object(text && *text ? text : "{}", "chat_template_kwargs", out));
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (!json_object_get(*out, taken[i])) continue;
        json_decref(*out);
        return FV_FAIL(FV_EINVAL, "chat_template_kwargs: '%s' cannot be a variable", taken[i]);
    }
    return FV_OK;
}

static fv_status user_variables(const fv_chat *c, const fv_chat_turn *turns, int32_t n,
                                const char *variables, bool continues, json_t **out) {
    json_t *vars, *messages;
    FV_TRY(read_variables(variables, &vars));
    fv_status st = fv_chat_messages(c->program, turns, n, continues, &messages);
    if (st == FV_OK && json_object_set_new(vars, "messages", messages) != 0) st = no_memory();
    if (st != FV_OK) {
        json_decref(vars);
        return st;
    }
    *out = vars;
    return FV_OK;
}

/* ---- rendering --------------------------------------------------------------------------- */

static fv_status run(const fv_chat *c, const json_t *own, const json_t *user, double until_s,
                     fv_chat_flag special, fv_chat_text *out) {
    const char *bos = json_string_value(json_object_get(c->special, "bos_token"));
    fv_jinja_text made;
    FV_TRY(fv_jinja_run(c->program, own, user, fv_log_time_ns() / 1000000000, until_s, &made));
    bool has_bos = bos && *bos && strncmp(made.text, bos, strlen(bos)) == 0 && !made.user[0];
    bool adds = special == FV_CHAT_UNSET ? c->adds_special && !has_bos : special == FV_CHAT_YES;
    *out = (fv_chat_text){.text = made.text, .n = made.n, .user = made.user, .adds_special = adds};
    if (c->thinking) out->reasoning = fv_thinking_after(c->thinking, made.text, made.user, made.n);
    return FV_OK;
}

static fv_status render(const fv_chat *c, const fv_chat_turn *turns, int32_t n,
                        const fv_chat_options *opt, bool opens, bool continues, double until_s,
                        fv_chat_text *out) {
    json_t *own, *user;
    fv_chat_text t = {0};
    FV_TRY(own_variables(c, opens, &own));
    fv_status st = user_variables(c, turns, n, opt->variables, continues, &user);
    if (st == FV_OK) {
        st = run(c, own, user, until_s, opt->special, &t);
        if (st == FV_OK && continues)
            st = fv_chat_cut(c->name, json_object_get(user, "messages"), &t);
        json_decref(user);
    }
    json_decref(own);
    if (st == FV_OK)
        *out = t;
    else
        fv_chat_text_free(&t);
    return st;
}

/* Decides whether the answer has a turn of its own or continues the last one. */
static fv_status choose_end(const fv_chat_turn *turns, int32_t n, const fv_chat_options *opt,
                            bool *opens, bool *continues) {
    *continues = opt->continues == FV_CHAT_UNSET
                     ? opt->opens == FV_CHAT_UNSET && fv_chat_ends_open(turns, n)
                     : opt->continues == FV_CHAT_YES;
    *opens = opt->opens == FV_CHAT_UNSET ? !*continues : opt->opens == FV_CHAT_YES;
    if (*opens && *continues)
        return FV_FAIL(FV_EINVAL,
                       "add_generation_prompt and continue_final_message cannot both be true");
    if (*continues && !fv_chat_last_text(&turns[n - 1]))
        return FV_FAIL(FV_EINVAL, "continue_final_message: the last turn has no text to continue");
    return FV_OK;
}

fv_status fv_chat_render(const fv_chat *c, const fv_chat_turn *turns, int32_t n,
                         const fv_chat_options *opt, double until_s, fv_chat_text *out) {
    static const fv_chat_options none = {0};
    bool opens, continues;
    if (!opt) opt = &none;
    FV_TRY(check_turns(c, turns, n));
    FV_TRY(choose_end(turns, n, opt, &opens, &continues));
    return render(c, turns, n, opt, opens, continues, until_s, out);
}

/* Removes the first n bytes. */
static void cut(fv_chat_text *t, size_t n) {
    t->n -= n;
    memmove(t->text, t->text + n, t->n + 1);
    memmove(t->user, t->user + n, t->n);
}

/* Renders a conversation with an answer that no template writes by itself: the text after it can follow
 * any answer. */
fv_status fv_chat_continue(const fv_chat *c, const fv_chat_turn *turns, int32_t n,
                           const fv_chat_options *opt, const char *ended, double until_s,
                           fv_chat_text *out) {
    static const char answer[] = "\xEE\x80\x80"; /* U+E000 */
    static const fv_chat_options none = {0};
    fv_chat_text t;
    if (n != 1 || strcmp(turns[0].role, "user") != 0 || fv_chat_turn_images(&turns[0]) != 0)
        return FV_FAIL(FV_EINVAL, "a conversation continues with one user turn, without images");
    if (is_none(c)) return fv_chat_render(c, turns, 1, opt, until_s, out);
    const fv_chat_turn all[] = {
        {.role = "user", .text = "q"}, {.role = "assistant", .text = answer}, turns[0]};
    FV_TRY(render(c, all, 3, opt ? opt : &none, true, false, until_s, &t));
    const char *at = strstr(t.text, answer);
    if (!at) {
        fv_chat_text_free(&t);
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: the chat template does not write answers as they are: send the whole "
                       "conversation again",
                       c->name);
    }
    cut(&t, (size_t)(at - t.text) + strlen(answer));
    if (strncmp(t.text, ended, strlen(ended)) == 0) cut(&t, strlen(ended));
    *out = t;
    return FV_OK;
}

void fv_chat_text_free(fv_chat_text *t) {
    free(t->text);
    free(t->user);
    *t = (fv_chat_text){0};
}
