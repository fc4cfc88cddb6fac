/* Chat templates as a table: the text before and after that of each role.
 *
 * A checkpoint's template is a Jinja program. It is not run: it is compared with the programs that
 * are known (text/chat_known.c), and one that differs in more than spelling is refused. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "text/chat_known.h"
#include "text/jinja.h"
#include "text/json.h"

enum { PATH_CAP = 4096, TEMPLATE_MAX = 1 << 20, CONFIG_MAX = 16 << 20, IMAGES_MAX = 1024 };

typedef enum role { SYSTEM = 0, USER, ASSISTANT, N_ROLE } role;
static const char *const role_names[N_ROLE] = {"system", "user", "assistant"};

typedef struct form {
    const char *name;
    const char *before[N_ROLE], *after[N_ROLE];
    const char *answer; /* opens the answer */
    const char *family; /* the text family that has it when nothing else is said */
} form;

static const char end_token[] = "</s>";

static const form forms[FV_N_CHAT] = {
    [FV_CHAT_VICUNA] =
        {"vicuna", {"", "USER: ", "ASSISTANT: "}, {" ", " ", "</s>"}, "ASSISTANT:", "llama"},
    [FV_CHAT_LLAVA_HF] =
        {"llava", {"", "USER: ", "ASSISTANT: "}, {" ", " ", " "}, "ASSISTANT:", NULL},
    [FV_CHAT_CHATML] = {"chatml",
                        {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
                        {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},
                        "<|im_start|>assistant\n",
                        "qwen2"},
    [FV_CHAT_MISTRAL] = {"mistral",
                         {"<<SYS>>\n", "[INST] ", " "},
                         {"\n<</SYS>>\n\n", " [/INST]", "</s> "},
                         "",
                         "mistral"},
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
                   "unknown chat template '%s'; available: vicuna, llava, chatml, mistral, none",
                   name);
}

/* ---- detection ------------------------------------------------------------------------- */

/* Whether the template is the known one, spelling aside. */
static fv_status compare(const fv_chat_known *k, const char *spelling, bool *same) {
    char *known;
    FV_TRY(fv_jinja_spelling(k->program, &known));
    *same = strcmp(known, spelling) == 0;
    free(known);
    return FV_OK;
}

/* "eos_token" of tokenizer_config.json, a string or {content}, is the one that the forms have. A
 * checkpoint that does not name one has it from its tokenizer's class. */
static fv_status check_end(const char *dir) {
    char path[PATH_CAP], *text = NULL;
    size_t bytes;
    json_t *root = NULL;
    FV_TRY(fv_path_join(dir, "tokenizer_config.json", path, sizeof path));
    if (!fv_file_exists(path)) return FV_OK;
    FV_TRY(fv_file_read(path, CONFIG_MAX, &text, &bytes));
    fv_status st = fv_json_object(text, bytes, path, &root);
    free(text);
    FV_TRY(st);
    const json_t *eos = json_object_get(root, "eos_token");
    if (json_is_object(eos)) eos = json_object_get(eos, "content");
    const char *token = json_string_value(eos);
    if (token && strcmp(token, end_token) != 0)
        st = FV_FAIL(FV_EUNSUPPORTED,
                     "%s: the chat template ends answers with eos_token, which is '%s'; fovea "
                     "knows this template with %s only: name one with --chat, or give the whole "
                     "prompt with --raw",
                     path, token, end_token);
    json_decref(root);
    return st;
}

static fv_status find_known(const char *spelling, bool has_vision, const fv_chat_known **out) {
    *out = NULL;
    for (int32_t i = 0; i < fv_n_chat_known; i++) {
        const fv_chat_known *k = &fv_chat_known_templates[i];
        bool same;
        if (k->text_only && has_vision) continue;
        FV_TRY(compare(k, spelling, &same));
        if (same) *out = k;
    }
    return FV_OK;
}

static fv_status recognise(const char *text, size_t bytes, const char *path, bool has_vision,
                           fv_chat_template *out) {
    const fv_chat_known *found = NULL;
    char *spelling = NULL;
    fv_status st = fv_jinja_spelling(text, &spelling);
    if (st == FV_OK) st = find_known(spelling, has_vision, &found);
    free(spelling);
    if (st == FV_ENOMEM) return st;
    if (st == FV_OK && found && strlen(text) == bytes) {
        *out = found->form;
        return FV_OK;
    }
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "%s: unknown chat template (templates are compared, not executed): choose one with --chat "
        "vicuna, llava, chatml, mistral or none, or give the whole prompt with --raw",
        path);
}

/* "chat_template" of a JSON file: a string, or a list of {name, template} with a default. One that
 * is neither is unknown, as the empty template is. */
static const char *template_of(const json_t *root) {
    const json_t *v = json_object_get(root, "chat_template");
    if (!v || json_is_null(v)) return NULL;
    const char *text = json_string_value(v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && !strcmp(name, "default"))
            text = json_string_value(json_object_get(item, "template"));
    }
    return text ? text : "";
}

/* Gives the template text of one file, NULL when it has none. */
static fv_status read_template(const char *path, bool is_json, char **out, size_t *bytes) {
    *out = NULL;
    if (!fv_file_exists(path)) return FV_OK;
    if (!is_json) return fv_file_read(path, TEMPLATE_MAX, out, bytes);
    char *text = NULL;
    FV_TRY(fv_file_read(path, CONFIG_MAX, &text, bytes));
    json_t *root = NULL;
    fv_status st = fv_json_object(text, *bytes, path, &root);
    free(text);
    FV_TRY(st);
    const char *found = template_of(root);
    if (found && !(*out = strdup(found))) st = FV_FAIL(FV_ENOMEM, "%s: no memory", path);
    if (*out) *bytes = strlen(*out);
    json_decref(root);
    return st;
}

fv_status fv_chat_detect(const char *dir, const char *family, bool has_vision,
                         fv_chat_template *out) {
    static const struct {
        const char *name;
        bool is_json;
    } files[] = {{"chat_template.jinja", false},
                 {"chat_template.json", true},
                 {"processor_config.json", true},
                 {"tokenizer_config.json", true}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[PATH_CAP], *text = NULL;
        size_t bytes = 0;
        FV_TRY(fv_path_join(dir, files[i].name, path, sizeof path));
        FV_TRY(read_template(path, files[i].is_json, &text, &bytes));
        if (!text) continue;
        fv_status st = recognise(text, bytes, path, has_vision, out);
        free(text);
        return st == FV_OK && *out == FV_CHAT_VICUNA ? check_end(dir) : st;
    }
    *out = FV_CHAT_NONE;
    for (int t = 0; t < FV_N_CHAT && has_vision; t++)
        if (forms[t].family && !strcmp(forms[t].family, family)) *out = (fv_chat_template)t;
    return FV_OK;
}

fv_status fv_chat_choose(const char *name, const char *dir, const char *family, bool has_vision,
                         fv_chat_template *out) {
    return name[0] ? fv_chat_by_name(name, out) : fv_chat_detect(dir, family, has_vision, out);
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

fv_status fv_chat_check_question(const fv_chat_turn *turns, int32_t n) {
    if (n < 1 || turns[n - 1].n_image > 0) return FV_OK;
    const char *text = turns[n - 1].text;
    if (text[strspn(text, " \t\r\n")]) return FV_OK;
    return FV_FAIL(FV_EINVAL, "the question is empty");
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
                           "turn %d (%s) is out of order: an optional system turn comes first, "
                           "then user and assistant alternate",
                           i, turns[i].role);
        if (turns[i].n_image < 0 || turns[i].n_image > (r == USER ? IMAGES_MAX : 0))
            return FV_FAIL(FV_EINVAL,
                           "turn %d (%s) has %d images; a user turn can have 0..%d, others none", i,
                           turns[i].role, turns[i].n_image, IMAGES_MAX);
        before = r;
    }
    if (n < 1 || before != USER) return FV_FAIL(FV_EINVAL, "the last turn must be the user's");
    return FV_OK;
}

/* A growing text, and the positions of its images. */
typedef struct page {
    FILE *f;
    size_t n;
    size_t *at; /* NULL: not wanted */
    int32_t n_at;
} page;

static void put(page *p, const char *s) {
    fputs(s, p->f);
    p->n += strlen(s);
}

static void put_turn(page *p, const fv_chat_turn *turn, const char *before, const char *after) {
    put(p, before);
    for (int32_t k = 0; k < turn->n_image; k++) {
        if (p->at) p->at[p->n_at++] = p->n;
        put(p, "<image>\n");
    }
    put(p, turn->text);
    put(p, after);
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

static fv_status render(fv_chat_template t, const fv_chat_turn *turns, int32_t n, size_t *at,
                        char **text) {
    char *out = NULL;
    size_t bytes = 0;
    page p = {.f = open_memstream(&out, &bytes), .at = at};
    if (!p.f) return FV_FAIL(FV_ENOMEM, "no memory for a prompt");
    for (int32_t i = 0; i < n; i++) {
        role r = USER;
        (void)role_of(&turns[i], i, &r); /* checked before */
        put_turn(&p, &turns[i], or_empty(forms[t].before[r]), or_empty(forms[t].after[r]));
    }
    put(&p, or_empty(forms[t].answer));
    return close_text(p.f, &out, text);
}

static fv_status check_form(fv_chat_template t, const fv_chat_turn *turns, int32_t n) {
    FV_TRY(check_turns(turns, n));
    if (t == FV_CHAT_NONE && n != 1)
        return FV_FAIL(FV_EINVAL, "without a chat template there is one user turn, not %d turns",
                       n);
    return FV_OK;
}

fv_status fv_chat_render(fv_chat_template t, const fv_chat_turn *turns, int32_t n, char **text) {
    FV_TRY(check_form(t, turns, n));
    return render(t, turns, n, NULL, text);
}

fv_status fv_chat_render_at(fv_chat_template t, const fv_chat_turn *turns, int32_t n, char **text,
                            size_t **at, int32_t *n_at) {
    size_t n_image = 0;
    FV_TRY(check_form(t, turns, n));
    for (int32_t i = 0; i < n; i++) n_image += (size_t)turns[i].n_image;
    size_t *list = malloc((n_image + 1) * sizeof *list);
    if (!list) return FV_FAIL(FV_ENOMEM, "no memory for a prompt");
    fv_status st = render(t, turns, n, list, text);
    if (st != FV_OK) {
        free(list);
        return st;
    }
    *at = list;
    *n_at = (int32_t)n_image;
    return FV_OK;
}

fv_status fv_chat_continue(fv_chat_template t, const fv_chat_turn *turns, int32_t n,
                           const char *ended, char **text) {
    if (n != 1 || strcmp(turns[0].role, role_names[USER]) != 0 || turns[0].n_image != 0)
        return FV_FAIL(FV_EINVAL, "a conversation continues with one user turn, without images");
    const char *end = or_empty(forms[t].after[ASSISTANT]);
    size_t n_ended = strlen(ended);
    if (strncmp(end, ended, n_ended) == 0) end += n_ended;
    char *out = NULL;
    size_t bytes = 0;
    page p = {.f = open_memstream(&out, &bytes)};
    if (!p.f) return FV_FAIL(FV_ENOMEM, "no memory for a prompt");
    put(&p, end);
    put_turn(&p, turns, or_empty(forms[t].before[USER]), or_empty(forms[t].after[USER]));
    put(&p, or_empty(forms[t].answer));
    return close_text(p.f, &out, text);
}
