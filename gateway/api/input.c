/* Reads "input" of the Responses API: a text, or a list of items, which become the turns of a chat:
 *
 *   message               a turn
 *   function_call         a tool call of the assistant's turn before it, or of one of its own
 *   function_call_output  a turn of the role "tool"
 *   reasoning             reasoning_content of the assistant's next turn
 *
 * The fields of an item come in any order, so it becomes a turn when it ends. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/reader.h"

typedef Fovea__Inference__V1__Turn turn_message;
typedef Fovea__Inference__V1__Chat chat_message;

static chat_message *chat_of(fv_api_reader *r) { return r->out->message.prompt->chat; }

/* ---- members of turns -------------------------------------------------------------------- */

/* Writes the members that an assistant's turn has collected. */
static fv_status close_turn(fv_api_reader *r) {
    fv_api_item *item = &r->item;
    if (!item->members) return FV_OK;
    char *text = json_dumps(item->members, JSON_COMPACT);
    fv_status st = text ? fv_arena_strndup(r->arena, text, strlen(text), &item->open->members)
                        : FV_FAIL(FV_ENOMEM, "out of memory for a request");
    free(text);
    json_decref(item->members);
    item->members = NULL;
    item->open = NULL;
    return st;
}

/* Gives an assistant's turn its members; reasoning before it is one. */
static fv_status open_turn(fv_api_reader *r, turn_message *turn) {
    fv_api_item *item = &r->item;
    FV_TRY(close_turn(r));
    item->members = json_object();
    item->open = turn;
    if (item->thought)
        json_object_set_new(item->members, "reasoning_content", json_string(item->thought));
    item->thought = NULL;
    return item->members ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a request");
}

static fv_status need(fv_api_reader *r, const char *value, const char *name) {
    if (value) return FV_OK;
    fv_api_name(r, name);
    return FV_FAIL(FV_EINVAL, "this field is required");
}

/* The turn of an item that becomes part of another one goes. */
static fv_status drop_turn(fv_api_reader *r) {
    for (size_t i = 0; i < r->turn->n_parts; i++)
        if (r->turn->parts[i]->kind_case != FOVEA__INFERENCE__V1__PART__KIND_TEXT)
            return FV_FAIL(FV_EINVAL, "such an item has no images");
    chat_of(r)->n_turns--;
    return FV_OK;
}

static fv_status end_call(fv_api_reader *r) {
    fv_api_item *item = &r->item;
    FV_TRY(need(r, item->call_id, "call_id"));
    FV_TRY(need(r, item->name, "name"));
    FV_TRY(need(r, item->arguments, "arguments"));
    if (item->open) { /* the assistant's turn before it goes on */
        FV_TRY(drop_turn(r));
    } else {
        r->turn->role = (char *)(uintptr_t) "assistant";
        r->turn->no_content = true;
        FV_TRY(open_turn(r, r->turn));
    }
    json_t *calls = json_object_get(item->members, "tool_calls");
    if (!calls) {
        json_object_set_new(item->members, "tool_calls", json_array());
        calls = json_object_get(item->members, "tool_calls");
    }
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", item->call_id, "type", "function",
                             "function", "name", item->name, "arguments", item->arguments);
    return json_array_append_new(calls, call) == 0
               ? FV_OK
               : FV_FAIL(FV_ENOMEM, "out of memory for a request");
}

static fv_status end_output(fv_api_reader *r) {
    fv_api_item *item = &r->item;
    FV_TRY(need(r, item->call_id, "call_id"));
    FV_TRY(close_turn(r));
    json_t *members = json_pack("{s:s}", "tool_call_id", item->call_id);
    char *text = members ? json_dumps(members, JSON_COMPACT) : NULL;
    json_decref(members);
    fv_status st = text ? fv_arena_strndup(r->arena, text, strlen(text), &r->turn->members)
                        : FV_FAIL(FV_ENOMEM, "out of memory for a request");
    free(text);
    r->turn->role = (char *)(uintptr_t) "tool";
    return st;
}

static fv_status end_reasoning(fv_api_reader *r) {
    const turn_message *t = r->turn;
    FV_TRY(close_turn(r));
    if (t->n_parts > 0 && t->parts[0]->kind_case == FOVEA__INFERENCE__V1__PART__KIND_TEXT)
        r->item.thought = t->parts[0]->text;
    return drop_turn(r);
}

static fv_status end_message(fv_api_reader *r) {
    if (!*r->turn->role) return FV_FAIL(FV_EINVAL, "the message has no role");
    if (strcmp(r->turn->role, "assistant") == 0) return open_turn(r, r->turn);
    return close_turn(r);
}

/* ---- items ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    fv_status (*end)(fv_api_reader *r);
} types[] = {{"message", end_message},
             {"function_call", end_call},
             {"function_call_output", end_output},
             {"reasoning", end_reasoning}};
enum { N_TYPE = sizeof types / sizeof *types };

static fv_status read_type(fv_api_reader *r, const fv_json_event *e) {
    for (int32_t i = 0; e->type == FV_JSON_STRING && i < N_TYPE; i++) {
        if (strcmp(types[i].name, e->text) != 0) continue;
        r->item.type = i;
        return FV_OK;
    }
    return FV_FAIL(FV_EINVAL,
                   "items of the type '%.32s' are not supported; use message, function_call, "
                   "function_call_output or reasoning",
                   e->type == FV_JSON_STRING ? e->text : "?");
}

static fv_status read_item_field(fv_api_reader *r, const char *key, const fv_json_event *e) {
    fv_api_item *item = &r->item;
    if (e->type == FV_JSON_NULL) return FV_OK;
    if (strcmp(key, "type") == 0) return read_type(r, e);
    if (strcmp(key, "role") == 0) return fv_api_turn_role(r, e);
    if (strcmp(key, "content") == 0 || strcmp(key, "output") == 0) return fv_api_turn_content(r, e);
    if (strcmp(key, "call_id") == 0) return fv_api_text(r, e, &item->call_id);
    if (strcmp(key, "name") == 0) return fv_api_text(r, e, &item->name);
    if (strcmp(key, "arguments") == 0) return fv_api_text(r, e, &item->arguments);
    return fv_api_skip(r, e);
}

static fv_status end_item(fv_api_reader *r) {
    r->turn->no_content = !r->has_text && r->turn->n_parts == 0;
    return types[r->item.type].end(r);
}

static const fv_api_shape item_shape = {.member = read_item_field, .end = end_item};

static fv_status add_item(fv_api_reader *r, const char *key, const fv_json_event *e) {
    (void)key;
    if (e->type != FV_JSON_OBJECT) return FV_FAIL(FV_EINVAL, "an item must be an object");
    FV_TRY(fv_api_new_turn(r));
    r->item.type = 0;
    r->item.call_id = r->item.name = r->item.arguments = NULL;
    return fv_api_enter(r, &item_shape);
}

static fv_status end_items(fv_api_reader *r) { return close_turn(r); }

static const fv_api_shape items = {.member = add_item, .end = end_items};

fv_status fv_api_input(fv_api_reader *r, const fv_json_event *e) {
    FV_TRY(fv_api_new_chat(r));
    if (e->type == FV_JSON_ARRAY) return fv_api_enter(r, &items);
    if (e->type != FV_JSON_STRING)
        return FV_FAIL(FV_EINVAL, "it must be a text or a list of items");
    FV_TRY(fv_api_new_turn(r));
    r->turn->role = (char *)(uintptr_t) "user";
    return fv_api_text(r, e, &r->turn->text);
}

void fv_api_item_fini(fv_api_item *item) { json_decref(item->members); }
