#ifndef FOVEA_GATEWAY_API_SCHEMA_H
#define FOVEA_GATEWAY_API_SCHEMA_H

/* SCHEMA: the JSON Schema of a request's body, from the table that drives the reader
 * (gateway/api/request.h), and of answers. Any thread. */
#include <jansson.h>

#include "gateway/api/request.h"

/* Gives the schema of the kind's body; NULL: out of memory. Other fields are allowed: the reader
 * ignores them. */
json_t *fv_api_schema(fv_api_kind kind);

/* Gives the schemas that these refer to, by name, as OpenAPI's "components"/"schemas" has them. */
json_t *fv_api_schemas(void);

/* Gives the name among them of the kind's answer. */
const char *fv_api_answer_schema(fv_api_kind kind);

#endif
