/* Chat templates as a table: what stands before and after the text of each role.
 *
 * A checkpoint's template is a Jinja program. It is not run; it is recognised by the string
 * literals it is made of, and only when those can give nothing but one of the forms below. A
 * template that adds words of its own (a default system sentence) is not one of ours. */
#include "model/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json.h"

enum { PATH_CAP = 4096, TEMPLATE_MAX = 1 << 20, CONFIG_MAX = 16 << 20, IMAGES_MAX = 1024 };

typedef enum role { SYSTEM = 0, USER, ASSISTANT, N_ROLE } role;
static const char *const role_names[N_ROLE] = {"system", "user", "assistant"};

typedef struct form {
    const char *name;
    const char *before[N_ROLE], *after[N_ROLE];
    const char *answer;        /* opens the answer */
    const char *family;        /* the text family that has it when nothing else is said */
    const char *literal[5];    /* all of these are in the template's text ... */
    const char *no_literal[4]; /* ... and none of these */
} form;

static const form forms[FV_N_CHAT] = {
    [FV_CHAT_VICUNA] = {"vicuna",
                        {"", "USER: ", "ASSISTANT: "},
                        {" ", " ", "</s>"},
                        "ASSISTANT:",
                        "llama",
                        {"'USER: '", "'ASSISTANT: '", "'ASSISTANT:'", "eos_token"},
                        {"A chat between", "+'\\n'", "upper"}},
    [FV_CHAT_LLAVA_HF] = {"llava",
                          {"", "USER: ", "ASSISTANT: "},
                          {" ", " ", " "},
                          "ASSISTANT:",
                          NULL,
                          {".upper()+': '", "['text']+' '", "'<image>\\n'", "'ASSISTANT:'"},
                          {"eos_token", "</s>", "A chat between"}},
    [FV_CHAT_CHATML] = {"chatml",
                        {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
                        {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},
                        "<|im_start|>assistant\n",
                        "qwen2",
                        {"'<|im_start|>'+message['role']+'\\n'", "'<|im_start|>assistant\\n'"},
                        {"<|im_start|>system", "'<image>'", "tools"}},
    /* A published template of this form ends answers with "<\s>", a slip for </s>. */
    [FV_CHAT_MISTRAL] = {"mistral",
                         {"<<SYS>>\n", "[INST] ", " "},
                         {"\n<</SYS>>\n\n", " [/INST]", "</s> "},
                         "",
                         "mistral",
                         {"'[INST] '", "' [/INST]'"},
                         {"'<image>'", "tools", "AVAILABLE_TOOLS"}},
    [FV_CHAT_NONE] = {.name = "none"},
};

const char *fv_chat_name(fv_chat_template t) { return forms[t].name; }

fv_status fv_chat_by_name(const char *name, fv_chat_template *out) {
    for (int t = 0; t < FV_N_CHAT; t++) {
        if (strcmp(name, forms[t].name) != 0) continue;
        *out = (fv_chat_template)t;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL,
                   "chat template '%s' is unknown: vicuna, llava, chatml, mistral and none exist",
                   name);
}

/* ---- detection ------------------------------------------------------------------------- */

/* Spaces around + are dropped and double quotes made single, so that literals can be told. */
static void normalise(char *s) {
    char *to = s;
    for (const char *from = s; *from; from++) {
        bool before_plus = *from == ' ' && from[1 + strspn(from + 1, " ")] == '+';
        bool after_plus = *from == ' ' && to > s && to[-1] == '+';
        if (before_plus || after_plus) continue;
        *to++ = *from == '"' ? '\'' : *from;
    }
    *to = '\0';
}

static bool matches(const form *f, const char *text) {
    if (!f->literal[0]) return false;
    for (size_t i = 0; i < sizeof f->literal / sizeof *f->literal && f->literal[i]; i++)
        if (!strstr(text, f->literal[i])) return false;
    for (size_t i = 0; i < sizeof f->no_literal / sizeof *f->no_literal && f->no_literal[i]; i++)
        if (strstr(text, f->no_literal[i])) return false;
    return true;
}

static fv_status recognise(char *text, const char *path, fv_chat_template *out) {
    normalise(text);
    for (int t = 0; t < FV_N_CHAT; t++) {
        if (!matches(&forms[t], text)) continue;
        *out = (fv_chat_template)t;
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: the chat template is none that the engine knows; say --chat vicuna, llava, "
                   "chatml, mistral or none, or --raw",
                   path);
}

/* "chat_template" of a JSON file: a string, or a list of {name, template} with a default. */
static const char *template_of(const json_t *root) {
    const json_t *v = json_object_get(root, "chat_template");
    if (!json_is_array(v)) return json_string_value(v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && !strcmp(name, "default"))
            return json_string_value(json_object_get(item, "template"));
    }
    return NULL;
}

/* Gives the template text of one file, NULL when it has none. */
static fv_status read_template(const char *path, bool is_json, char **out) {
    *out = NULL;
    if (!fv_file_exists(path)) return FV_OK;
    size_t bytes = 0;
    if (!is_json) return fv_file_read(path, TEMPLATE_MAX, out, &bytes);
    char *text = NULL;
    FV_TRY(fv_file_read(path, CONFIG_MAX, &text, &bytes));
    json_t *root = NULL;
    fv_status st = fv_json_object(text, bytes, path, &root);
    free(text);
    FV_TRY(st);
    const char *found = template_of(root);
    if (found && !(*out = strdup(found))) st = FV_FAIL(FV_ENOMEM, "%s: no memory", path);
    json_decref(root);
    return st;
}

fv_status fv_chat_detect(const char *dir, const fv_model_config *cfg, fv_chat_template *out) {
    static const struct {
        const char *name;
        bool is_json;
    } files[] = {{"chat_template.jinja", false},
                 {"chat_template.json", true},
                 {"processor_config.json", true},
                 {"tokenizer_config.json", true}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[PATH_CAP], *text = NULL;
        FV_TRY(fv_path_join(dir, files[i].name, path, sizeof path));
        FV_TRY(read_template(path, files[i].is_json, &text));
        if (!text) continue;
        fv_status st = recognise(text, path, out);
        free(text);
        return st;
    }
    *out = FV_CHAT_NONE;
    for (int t = 0; t < FV_N_CHAT && cfg->has_vision; t++)
        if (forms[t].family && !strcmp(forms[t].family, cfg->text.family))
            *out = (fv_chat_template)t;
    return FV_OK;
}

fv_status fv_chat_choose(const char *name, const char *dir, const fv_model_config *cfg,
                         fv_chat_template *out) {
    return name[0] ? fv_chat_by_name(name, out) : fv_chat_detect(dir, cfg, out);
}

/* ---- rendering ------------------------------------------------------------------------- */

static fv_status role_of(const fv_chat_turn *turn, int32_t i, role *out) {
    for (int r = 0; r < N_ROLE; r++) {
        if (strcmp(turn->role, role_names[r]) != 0) continue;
        *out = (role)r;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL, "turn %d has role '%s'; system, user and assistant exist", i,
                   turn->role);
}

/* (system) user (assistant user)* */
static fv_status check_turns(const fv_chat_turn *turns, int32_t n) {
    role before = ASSISTANT;
    for (int32_t i = 0; i < n; i++) {
        role r;
        FV_TRY(role_of(&turns[i], i, &r));
        bool fits = r == SYSTEM ? i == 0 : r == USER ? before != USER : before == USER;
        if (!fits)
            return FV_FAIL(FV_EINVAL,
                           "turn %d (%s) is out of order: a system turn may come first, then user "
                           "and assistant take turns",
                           i, turns[i].role);
        if (turns[i].n_image < 0 || turns[i].n_image > (r == USER ? IMAGES_MAX : 0))
            return FV_FAIL(FV_EINVAL,
                           "turn %d (%s) has %d images; a user turn takes 0..%d, others none", i,
                           turns[i].role, turns[i].n_image, IMAGES_MAX);
        before = r;
    }
    if (n < 1 || before != USER) return FV_FAIL(FV_EINVAL, "the last turn must be the user's");
    return FV_OK;
}

static void put_turn(FILE *f, const fv_chat_turn *turn, const char *before, const char *after) {
    fputs(before, f);
    for (int32_t k = 0; k < turn->n_image; k++) fputs("<image>\n", f);
    fputs(turn->text, f);
    fputs(after, f);
}

/* Closes a stream over *out, which then is the text. */
static fv_status close_text(FILE *f, char **out, char **text) {
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        free(*out);
        return FV_FAIL(FV_ENOMEM, "no memory for a prompt");
    }
    *text = *out;
    return FV_OK;
}

static const char *or_empty(const char *s) { return s ? s : ""; }

fv_status fv_chat_render(fv_chat_template t, const fv_chat_turn *turns, int32_t n, char **text) {
    FV_TRY(check_turns(turns, n));
    if (t == FV_CHAT_NONE && n != 1)
        return FV_FAIL(FV_EINVAL, "without a chat template there is one user turn, not %d turns",
                       n);
    char *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    if (!f) return FV_FAIL(FV_ENOMEM, "no memory for a prompt");
    for (int32_t i = 0; i < n; i++) {
        role r = USER;
        (void)role_of(&turns[i], i, &r); /* checked above */
        put_turn(f, &turns[i], or_empty(forms[t].before[r]), or_empty(forms[t].after[r]));
    }
    fputs(or_empty(forms[t].answer), f);
    return close_text(f, &out, text);
}

fv_status fv_chat_continue(fv_chat_template t, const fv_chat_turn *turns, int32_t n,
                           const char *ended, char **text) {
    if (n != 1 || strcmp(turns[0].role, role_names[USER]) != 0 || turns[0].n_image != 0)
        return FV_FAIL(FV_EINVAL,
                       "a conversation goes on with one user turn without images, and no other");
    const char *end = or_empty(forms[t].after[ASSISTANT]);
    size_t n_ended = strlen(ended);
    if (strncmp(end, ended, n_ended) == 0) end += n_ended;
    char *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    if (!f) return FV_FAIL(FV_ENOMEM, "no memory for a prompt");
    fputs(end, f);
    put_turn(f, turns, or_empty(forms[t].before[USER]), or_empty(forms[t].after[USER]));
    fputs(or_empty(forms[t].answer), f);
    return close_text(f, &out, text);
}
