#ifndef FOVEA_GATEWAY_API_TOOL_SCHEMA_H
#define FOVEA_GATEWAY_API_TOOL_SCHEMA_H

/* TOOL SCHEMA: the JSON Schema of an answer that must be a call of a tool. Any thread. */
#include <jansson.h>

#include "common/arena.h"

/* The tool of this name in a list of OpenAI's; NULL: there is none. Borrowed. */
const json_t *fv_api_find_tool(const json_t *tools, const char *name);

/* Makes the schema of arguments of the tool `name`, which must be in the list, or with NULL that of a call
 * {"name", "arguments"} of any of them; *out is in the arena. FV_EINVAL: parameters that nest too
 * deep. */
fv_status fv_api_tool_schema(const json_t *tools, const char *name, fv_arena *arena, char **out);

/* Tells whether a function of the list asks for arguments that its parameters describe ("strict"). */
bool fv_api_any_strict(const json_t *tools);

/* Writes a value, compactly; *out is in the arena. v NULL: out of memory. */
fv_status fv_api_write_json(const json_t *v, fv_arena *arena, char **out);

#endif
