#ifndef FOVEA_GATEWAY_API_RESPONSE_H
#define FOVEA_GATEWAY_API_RESPONSE_H

/* RESPONSE: the JSON of OpenAI's Responses API: a response, its items, and the events of a stream.
 * Functions that return json_t give it; NULL: out of memory. Any thread. */
#include "gateway/api/answer.h"

/* The members of a response that repeat its request, as an object; json_t values are shared by all
 * states of the response. */
json_t *fv_api_response_echo(const fv_api_request *q);

/* A response: `echo` and what it is now. status: "in_progress", "completed", "incomplete", "failed".
 * output: a list of items, a new reference of which it takes; error: an object, or NULL; it is
 * taken. usage: NULL while it is not known. */
json_t *fv_api_response(const fv_api_names *names, const json_t *echo, const char *status,
                        json_t *output, json_t *error, const fv_api_usage *usage);

/* Items. `done`: complete. text: [n] bytes of an item that is done. logprobs: a list of entries of the
 * text's tokens, a new reference of which they hold; NULL: none. */
json_t *fv_api_item_message(const char *id, bool done, const char *text, size_t n,
                            json_t *logprobs);
json_t *fv_api_item_reasoning(const char *id, bool done, const char *text, size_t n);
json_t *fv_api_item_call(const char *id, bool done, const fv_api_call *call);

/* A part of a message's or a reasoning's content; logprobs as above, of a message alone. */
json_t *fv_api_content(bool thought, const char *text, size_t n, json_t *logprobs);

/* The items of turns that a request has brought, as "input_items" lists them; images as data: URLs.
 * id: the response's, from which the items' ids are made. */
json_t *fv_api_input_items(const Fovea__Inference__V1__GenerateRequest *m, const char *id);

/* The turn of the assistant that these items are; in the arena. */
fv_status fv_api_output_turn(const json_t *output, fv_arena *arena,
                             Fovea__Inference__V1__Turn **out);

#endif
