/* A message has its role, its content in the form that the template reads, and the turn's other
 * members as they came, except that
 *   - a member that is null is left out, as vLLM does: clients send back whole answers, whose
 *     members that do not apply are null;
 *   - the arguments of tool calls, which OpenAI has as a text of JSON, are that JSON, as templates
 *     read them, and an empty list of calls is left out (vLLM);
 *   - reasoning is under each of the names that templates read (transformers). */
#include "text/chat_turns.h"

#include <stdlib.h>
#include <string.h>

/* ---- texts ------------------------------------------------------------------------------- */

/* Makes a string, which need not be valid UTF-8, of the texts of a turn's parts with line feeds
 * between them (vLLM), or of one text; `mark` is appended. NULL: out of memory. */
static json_t *joined(const fv_chat_part *part, int32_t n, const char *mark) {
    size_t bytes = strlen(mark) + 1;
    for (int32_t i = 0; i < n; i++) bytes += part[i].text ? strlen(part[i].text) + 1 : 0;
    char *all = malloc(bytes), *at = all;
    bool first = true;
    if (!all) return NULL;
    for (int32_t i = 0; i < n; i++) {
        if (!part[i].text) continue;
        if (!first) *at++ = '\n';
        first = false;
        at = stpcpy(at, part[i].text);
    }
    strcpy(at, mark);
    json_t *made = json_string_nocheck(all);
    free(all);
    return made;
}

static json_t *text_of(const char *text, const char *mark) {
    return joined(&(fv_chat_part){.text = text}, 1, mark);
}

static fv_status no_memory(void) { return FV_FAIL(FV_ENOMEM, "no memory for the turns of a chat"); }

fv_status fv_chat_object(const char *text, const char *what, json_t **out) {
    json_error_t error;
    json_t *made = json_loads(text, 0, &error);
    if (!made && json_error_code(&error) == json_error_out_of_memory) return no_memory();
    if (!json_is_object(made)) {
        json_decref(made);
        return FV_FAIL(FV_EINVAL, "%s must be a JSON object%s%s", what, made ? "" : ": ",
                       made ? "" : error.text);
    }
    *out = made;
    return FV_OK;
}

/* ---- content ----------------------------------------------------------------------------- */

/* The last part that is a text; -1: none is. */
static int32_t last_text(const fv_chat_turn *turn) {
    int32_t i = turn->n_part - 1;
    while (i >= 0 && !turn->part[i].text) i--;
    return i;
}

const char *fv_chat_last_text(const fv_chat_turn *turn) {
    const int32_t last = last_text(turn);
    if (turn->n_part == 0) return turn->text;
    return last < 0 ? NULL : turn->part[last].text;
}

/* Appends a part; false: out of memory. */
static bool append_part(json_t *parts, fv_chat_part p, const char *mark) {
    const char *type = p.text ? "text" : p.video ? "video" : "image";
    json_t *part = json_pack("{s:s}", "type", type);
    if (p.text && json_object_set_new_nocheck(part, "text", text_of(p.text, mark)) != 0) {
        json_decref(part);
        return false;
    }
    return json_array_append_new(parts, part) == 0;
}

static json_t *listed(const fv_chat_turn *turn, const char *mark) {
    const int32_t last = last_text(turn);
    json_t *parts = json_array();
    bool whole = parts != NULL;
    for (int32_t i = 0; whole && i < turn->n_part; i++)
        whole = append_part(parts, turn->part[i], i == last ? mark : "");
    if (turn->n_part) goto end;
    for (int32_t i = 0; whole && i < turn->n_image; i++)
        whole = append_part(parts, (fv_chat_part){0}, "");
    if (whole && (turn->text || !turn->n_image)) /* templates take the first part's text */
        whole = append_part(parts, (fv_chat_part){.text = turn->text ? turn->text : ""}, mark);
end:
    if (whole) return parts;
    json_decref(parts);
    return NULL;
}

/* A list stays a list and a text a text where the template takes either. */
static json_t *content_of(const fv_jinja *p, const fv_chat_turn *turn, const char *mark) {
    fv_jinja_content form = fv_jinja_content_form(p);
    const bool list = turn->n_part || turn->n_image;
    if (!turn->text && !list && fv_jinja_expects_none(p)) return json_null();
    if (form == FV_JINJA_CONTENT_PARTS || (form == FV_JINJA_CONTENT_EITHER && list))
        return listed(turn, mark);
    if (turn->n_part) return joined(turn->part, turn->n_part, mark);
    return text_of(turn->text ? turn->text : "", mark);
}

/* ---- other members ----------------------------------------------------------------------- */

static bool is_unset(const json_t *v) {
    return json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0);
}

/* Replaces the arguments of a call, a text of JSON, by that JSON. */
static fv_status read_arguments(json_t *call) {
    json_t *function = json_object_get(call, "function"),
           *given = json_object_get(function, "arguments"), *made;
    json_error_t error;
    if (!json_is_object(function)) return FV_OK;
    if (given && !is_unset(given)) {
        if (!json_is_string(given)) return FV_OK;
        made = json_loads(json_string_value(given), JSON_DECODE_ANY, &error);
        if (!made && json_error_code(&error) != json_error_out_of_memory)
            return FV_FAIL(FV_EINVAL, "the arguments of a tool call are not JSON: %s", error.text);
    } else {
        made = json_object();
    }
    return json_object_set_new(function, "arguments", made) == 0 ? FV_OK : no_memory();
}

static fv_status read_calls(json_t *message) {
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    if (!json_is_array(calls)) return FV_OK;
    if (json_array_size(calls) == 0) json_object_del(message, "tool_calls");
    json_array_foreach(calls, i, call) FV_TRY(read_arguments(call));
    return FV_OK;
}

static fv_status name_reasoning(json_t *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *given = NULL;
    for (size_t i = 0; i < 3 && !given; i++) given = json_object_get(message, names[i]);
    if (!given) return FV_OK;
    int lost = json_object_set(message, names[0], given);
    if (!json_object_get(message, names[1])) lost |= json_object_set(message, names[1], given);
    return lost ? no_memory() : FV_OK;
}

static fv_status add_members(const fv_chat_turn *turn, json_t *message) {
    json_t *members, *v;
    const char *key;
    int lost = 0;
    if (!turn->members || !*turn->members) return FV_OK;
    FV_TRY(fv_chat_object(turn->members, "the other members of a turn", &members));
    json_object_foreach(members, key, v) {
        if (json_is_null(v) || !strcmp(key, "role") || !strcmp(key, "content")) continue;
        lost |= json_object_set(message, key, v);
    }
    json_decref(members);
    if (lost) return no_memory();
    if (strcmp(turn->role, "assistant") == 0) FV_TRY(read_calls(message));
    return name_reasoning(message);
}

/* ---- messages ---------------------------------------------------------------------------- */

static fv_status add_message(const fv_jinja *p, const fv_chat_turn *turn, const char *mark,
                             json_t *messages) {
    json_t *message = json_object();
    if (json_array_append_new(messages, message) != 0) return no_memory();
    if (json_object_set_new_nocheck(message, "role", json_string_nocheck(turn->role)) != 0 ||
        json_object_set_new(message, "content", content_of(p, turn, mark)) != 0)
        return no_memory();
    return add_members(turn, message);
}

fv_status fv_chat_messages(const fv_jinja *p, const fv_chat_turn *turns, int32_t n, bool continues,
                           json_t **out) {
    json_t *messages = json_array();
    fv_status st = messages ? FV_OK : no_memory();
    for (int32_t i = 0; st == FV_OK && i < n; i++) {
        st = add_message(p, &turns[i], continues && i == n - 1 ? FV_CHAT_MARK : "", messages);
        if (st != FV_OK) fv_fail_prefix(st, "turn %d", i);
    }
    if (st != FV_OK) {
        json_decref(messages);
        return st;
    }
    *out = messages;
    return FV_OK;
}

bool fv_chat_ends_open(const fv_chat_turn *turns, int32_t n) {
    const fv_chat_turn *last = &turns[n - 1];
    return n > 0 && strcmp(last->role, "assistant") == 0 && fv_chat_last_text(last) &&
           !(last->members && strstr(last->members, "\"tool_calls\""));
}
