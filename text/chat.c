/* Turns -> variables of a template -> text. Any thread. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/log.h"
#include "gguf/texts.h"
#include "text/chat_known.h"
#include "text/jinja/jinja.h"
#include "text/json.h"

enum { CONFIG_MAX = 16 << 20, IMAGES_MAX = 1024 };

struct fv_chat {
    const char *name; /* a constant */
    fv_jinja *program;
    json_t *special; /* {"bos_token": "<s>", ...} */
    bool
        adds_special; /* unless BOS was written; else never: as tokenizers' own templates are run */
};

static bool is_none(const fv_chat *c) { return strcmp(c->name, "none") == 0; }

const char *fv_chat_name(const fv_chat *c) { return c->name; }

void fv_chat_free(fv_chat *c) {
    if (!c) return;
    fv_jinja_free(c->program);
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

/* Special tokens, strings or {content}, as variables of their names. A checkpoint that does not say
 * has the first two from its tokenizer's class. */
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

/* "chat_template" of a JSON file: a string, or a list of {name, template} with a default. */
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

/* Gives the text of the checkpoint's template and the file that it is from, a constant; NULL where
 * there is none. */
static fv_status read_own(const char *dir, char **program, const char **file) {
    static const char *const names[] = {"chat_template.jinja", "chat_template.json",
                                        "processor_config.json", "tokenizer_config.json"};
    char path[FV_CHECKPOINT_PATH];
    size_t bytes;
    *file = names[0];
    FV_TRY(fv_checkpoint_file(dir, names[0], FV_JINJA_PROGRAM_BYTES, path, program, &bytes));
    for (size_t i = 1; i < sizeof names / sizeof *names && !*program; i++) {
        json_t *root;
        *file = names[i];
        FV_TRY(read_json(dir, names[i], &root));
        const json_t *found = template_of(root);
        fv_status st = FV_OK;
        if (found && !json_is_string(found))
            st = FV_FAIL(FV_EUNSUPPORTED,
                         "%s: key 'chat_template' is no text, and no list of named texts with a "
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
    fv_status st = fv_jinja_parse(program, strlen(program), c->name, &c->program);
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
                       "none, or a file FILE.jinja",
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
            return FV_FAIL(FV_EINVAL, "%s: a chat template has a '{'; this file has none", value);
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

static bool is_blank(const char *text) { return !text[strspn(text, " \t\r\n")]; }

fv_status fv_chat_check_question(const fv_chat_turn *turns, int32_t n) {
    if (n < 1 || fv_chat_turn_images(&turns[n - 1]) > 0) return FV_OK;
    const fv_chat_turn *last = &turns[n - 1];
    bool blank = last->n_part > 0 || is_blank(last->text);
    for (int32_t i = 0; i < last->n_part; i++) blank = blank && is_blank(last->part[i].text);
    return blank ? FV_FAIL(FV_EINVAL, "the question is empty") : FV_OK;
}

/* (system) user (assistant user)* */
static fv_status check_turns(const fv_chat_turn *turns, int32_t n) {
    enum { SYSTEM = 0, USER, ASSISTANT, N_ROLE };
    static const char *const names[N_ROLE] = {"system", "user", "assistant"};
    int before = ASSISTANT;
    for (int32_t i = 0; i < n; i++) {
        int role = 0;
        while (role < N_ROLE && strcmp(turns[i].role, names[role]) != 0) role++;
        if (role == N_ROLE)
            return FV_FAIL(FV_EINVAL, "turn %d has role '%s'; system, user and assistant exist", i,
                           turns[i].role);
        if (role == SYSTEM ? i != 0 : role == USER ? before == USER : before != USER)
            return FV_FAIL(FV_EINVAL,
                           "turn %d (%s) is out of order: an optional system turn comes first, "
                           "then user and assistant alternate",
                           i, turns[i].role);
        int32_t n_image = fv_chat_turn_images(&turns[i]);
        if (n_image < 0 || n_image > (role == USER ? IMAGES_MAX : 0))
            return FV_FAIL(FV_EINVAL,
                           "turn %d (%s) has %d images; a user turn can have 0..%d, others none", i,
                           turns[i].role, n_image, IMAGES_MAX);
        before = role;
    }
    if (n < 1 || before != USER) return FV_FAIL(FV_EINVAL, "the last turn must be the user's");
    return FV_OK;
}

/* Text that need not be valid UTF-8. */
static json_t *string_of(const char *s) { return json_string_nocheck(s); }

/* False: out of memory. */
static bool append_part(json_t *parts, fv_chat_part p) {
    const char *type = p.text ? "text" : p.video ? "video" : "image";
    json_t *part = json_pack("{s:s}", "type", type);
    if (p.text && json_object_set_new_nocheck(part, "text", string_of(p.text)) != 0) {
        json_decref(part);
        return false;
    }
    return json_array_append_new(parts, part) == 0;
}

/* Texts alone, where a template takes no parts, joined as they are. */
static json_t *joined(const fv_chat_turn *turn) {
    size_t n = 0;
    for (int32_t i = 0; i < turn->n_part; i++) n += strlen(turn->part[i].text);
    char *all = malloc(n + 1), *at = all;
    if (!all) return NULL;
    for (int32_t i = 0; i < turn->n_part; i++) at = stpcpy(at, turn->part[i].text);
    *at = '\0';
    json_t *made = string_of(all);
    free(all);
    return made;
}

static json_t *content_of(const fv_chat_turn *turn, fv_jinja_content form) {
    bool images = fv_chat_turn_images(turn) > 0;
    if (form == FV_JINJA_CONTENT_TEXT || (form == FV_JINJA_CONTENT_EITHER && !images))
        return turn->n_part ? joined(turn) : string_of(turn->text);
    json_t *parts = json_array();
    bool whole = parts != NULL;
    for (int32_t i = 0; whole && i < turn->n_part; i++) whole = append_part(parts, turn->part[i]);
    for (int32_t i = 0; whole && !turn->n_part && i < turn->n_image; i++)
        whole = append_part(parts, (fv_chat_part){0});
    if (whole && !turn->n_part) whole = append_part(parts, (fv_chat_part){.text = turn->text});
    if (whole) return parts;
    json_decref(parts);
    return NULL;
}

static fv_status variables(const fv_chat *c, const fv_chat_turn *turns, int32_t n, json_t **out) {
    fv_jinja_content form = fv_jinja_content_form(c->program);
    json_t *vars = json_copy(c->special), *messages = json_array();
    bool lost = false; /* jansson fails where it is handed what could not be made */
    for (int32_t i = 0; i < n; i++) {
        json_t *message = json_pack("{s:s}", "role", turns[i].role);
        lost |= json_object_set_new_nocheck(message, "content", content_of(&turns[i], form)) != 0;
        lost |= json_array_append_new(messages, message) != 0;
    }
    lost |= json_object_set_new(vars, "messages", messages) != 0;
    lost |= json_object_set_new(vars, "tools", json_null()) != 0;
    lost |= json_object_set_new(vars, "documents", json_null()) != 0;
    lost |= json_object_set_new(vars, "add_generation_prompt", json_true()) != 0;
    if (lost) {
        json_decref(vars);
        return FV_FAIL(FV_ENOMEM, "no memory for the turns of a chat");
    }
    *out = vars;
    return FV_OK;
}

/* ---- rendering --------------------------------------------------------------------------- */

static fv_status render(const fv_chat *c, const fv_chat_turn *turns, int32_t n, double until_s,
                        fv_chat_text *out) {
    const char *bos = json_string_value(json_object_get(c->special, "bos_token"));
    fv_jinja_text made;
    json_t *vars;
    FV_TRY(variables(c, turns, n, &vars));
    fv_status st =
        fv_jinja_run(c->program, vars, "messages", fv_log_time_ns() / 1000000000, until_s, &made);
    json_decref(vars);
    FV_TRY(st);
    bool has_bos = bos && *bos && strncmp(made.text, bos, strlen(bos)) == 0 && !made.user[0];
    *out = (fv_chat_text){made.text, made.n, made.user, c->adds_special && !has_bos};
    return FV_OK;
}

fv_status fv_chat_render(const fv_chat *c, const fv_chat_turn *turns, int32_t n, double until_s,
                         fv_chat_text *out) {
    bool images = false;
    FV_TRY(check_turns(turns, n));
    if (is_none(c) && n != 1)
        return FV_FAIL(FV_EINVAL, "without a chat template there is one user turn, not %d turns",
                       n);
    for (int32_t i = 0; i < n; i++) images |= fv_chat_turn_images(&turns[i]) > 0;
    if (images && fv_jinja_content_form(c->program) == FV_JINJA_CONTENT_TEXT)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: the chat template takes turns as text and has no place for images: "
                       "choose one with --chat, or give the whole prompt with --raw",
                       c->name);
    return render(c, turns, n, until_s, out);
}

/* Leaves the first n bytes out. */
static void cut(fv_chat_text *t, size_t n) {
    t->n -= n;
    memmove(t->text, t->text + n, t->n + 1);
    memmove(t->user, t->user + n, t->n);
}

/* Renders a conversation with an answer that no template writes by itself: what stands after it
 * goes on after any answer. */
fv_status fv_chat_continue(const fv_chat *c, const fv_chat_turn *turns, int32_t n,
                           const char *ended, double until_s, fv_chat_text *out) {
    static const char answer[] = "\xEE\x80\x80"; /* U+E000 */
    fv_chat_text t;
    if (n != 1 || strcmp(turns[0].role, "user") != 0 || fv_chat_turn_images(&turns[0]) != 0)
        return FV_FAIL(FV_EINVAL, "a conversation continues with one user turn, without images");
    if (is_none(c)) return render(c, turns, 1, until_s, out);
    const fv_chat_turn all[] = {
        {.role = "user", .text = "q"}, {.role = "assistant", .text = answer}, turns[0]};
    FV_TRY(render(c, all, 3, until_s, &t));
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
