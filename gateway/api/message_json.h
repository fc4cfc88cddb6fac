#ifndef FOVEA_GATEWAY_API_MESSAGE_JSON_H
#define FOVEA_GATEWAY_API_MESSAGE_JSON_H

/* Any protobuf message -> JSON, under the names of the .proto files. Any thread. */
#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Leaves out fields that are unset, 0, "" or empty; writes enums as names, bytes as base64. NULL:
 * out of memory. */
json_t *fv_message_json(const ProtobufCMessage *m);

/* Makes a string of n bytes; replaces bytes that are not UTF-8 by U+FFFD. NULL: out of memory. */
json_t *fv_json_text(const char *text, size_t n);

#endif
