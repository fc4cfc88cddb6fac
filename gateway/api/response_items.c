/* The items of a request's input, made of the turns that it was read into. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/base64.h"
#include "gateway/api/message_json.h"
#include "gateway/api/response.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Turn turn_message;

typedef struct listing {
    const request_message *request;
    const char *id;
    size_t n_image; /* images so far */
    json_t *items;
} listing;

static const char *media_type(const ProtobufCBinaryData *image) {
    const uint8_t *b = image->data;
    if (image->len < 4) return "application/octet-stream";
    return b[0] == 0x89 && b[1] == 'P'    ? "image/png"
           : b[0] == 0xFF && b[1] == 0xD8 ? "image/jpeg"
           : memcmp(b, "RIFF", 4) == 0    ? "image/webp"
                                          : "application/octet-stream";
}

static json_t *image_part(const ProtobufCBinaryData *image) {
    char head[64];
    const int n = snprintf(head, sizeof head, "data:%s;base64,", media_type(image));
    char *url = malloc((size_t)n + FV_BASE64_SIZE(image->len) + 1);
    if (!url) return NULL;
    memcpy(url, head, (size_t)n);
    const size_t all = (size_t)n + fv_base64_write(FV_BASE64, image->data, image->len, url + n);
    json_t *part = json_pack("{s:s, s:s, s:o}", "type", "input_image", "detail", "auto",
                             "image_url", json_stringn(url, all));
    free(url);
    return part;
}

static json_t *text_part(const char *role, const char *text) {
    const bool output = strcmp(role, "assistant") == 0;
    return json_pack("{s:s, s:o}", "type", output ? "output_text" : "input_text", "text",
                     fv_json_text(text, strlen(text)));
}

static json_t *content_of(listing *l, const turn_message *t) {
    json_t *list = json_array();
    if (t->n_parts == 0) json_array_append_new(list, text_part(t->role, t->text));
    for (size_t i = 0; i < t->n_parts; i++) {
        const bool text = t->parts[i]->kind_case == FOVEA__INFERENCE__V1__PART__KIND_TEXT;
        if (text)
            json_array_append_new(list, text_part(t->role, t->parts[i]->text));
        else if (l->n_image < l->request->n_images)
            json_array_append_new(list, image_part(&l->request->images[l->n_image++]->data));
    }
    return list;
}

/* Appends an item and gives it its id; takes it. */
static void add(listing *l, const char *prefix, json_t *item) {
    char id[192];
    snprintf(id, sizeof id, "%s_%s_%zu", prefix, l->id, json_array_size(l->items));
    json_object_set_new(item, "id", json_string(id));
    json_array_append_new(l->items, item);
}

static void add_calls(listing *l, const json_t *members) {
    const json_t *call;
    size_t i;
    json_array_foreach(json_object_get(members, "tool_calls"), i, call) {
        const json_t *f = json_object_get(call, "function");
        add(l, "fc",
            json_pack("{s:s, s:s, s:O?, s:O?, s:O?}", "type", "function_call", "status",
                      "completed", "call_id", json_object_get(call, "id"), "name",
                      json_object_get(f, "name"), "arguments", json_object_get(f, "arguments")));
    }
}

static void add_output(listing *l, const turn_message *t, const json_t *members) {
    json_t *output = t->n_parts ? content_of(l, t) : fv_json_text(t->text, strlen(t->text));
    add(l, "fco",
        json_pack("{s:s, s:s, s:O?, s:o}", "type", "function_call_output", "status", "completed",
                  "call_id", json_object_get(members, "tool_call_id"), "output", output));
}

static void add_turn(listing *l, const turn_message *t) {
    json_t *members = *t->members ? json_loads(t->members, 0, NULL) : NULL;
    const char *thought = json_string_value(json_object_get(members, "reasoning_content"));
    if (thought) add(l, "rs", fv_api_item_reasoning("", true, thought, strlen(thought)));
    if (strcmp(t->role, "tool") == 0)
        add_output(l, t, members);
    else if (!t->no_content)
        add(l, "msg",
            json_pack("{s:s, s:s, s:s, s:o}", "type", "message", "status", "completed", "role",
                      t->role, "content", content_of(l, t)));
    add_calls(l, members);
    json_decref(members);
}

json_t *fv_api_input_items(const request_message *m, const char *id) {
    listing l = {.request = m, .id = id, .items = json_array()};
    const Fovea__Inference__V1__Chat *chat = m->prompt->chat;
    for (size_t i = 0; i < chat->n_turns; i++) add_turn(&l, chat->turns[i]);
    return l.items;
}
