#ifndef FOVEA_GATEWAY_API_MESSAGE_JSON_H
#define FOVEA_GATEWAY_API_MESSAGE_JSON_H

/* Any protobuf message -> JSON, under the names of the .proto files. Any thread. */
#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Fields that are unset, 0, "" or empty are left out; enums are their names, bytes are base64. NULL: out
 * of memory. */
json_t *fv_message_json(const ProtobufCMessage *m);

/* n bytes as a string: what is not UTF-8 becomes U+FFFD. NULL: out of memory. */
json_t *fv_json_text(const char *text, size_t n);

#endif
