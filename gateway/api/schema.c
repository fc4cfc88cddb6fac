/* The table says which fields a body has, and what the plain ones are; the rest have their schemas
 * here, as text. A field without one may be anything. */
#include "gateway/api/schema.h"

#include <string.h>

#define REF(name) "{\"$ref\": \"#/components/schemas/" name "\"}"
#define ID "{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 2147483647}"
#define IDS "{\"type\": \"array\", \"items\": " ID "}"
#define TEXT "{\"type\": \"string\", \"pattern\": \"^[^\\\\u0000]*$\"}"

static const struct compound {
    const char *name;
    unsigned kinds; /* 0: all */
    const char *schema;
} compounds[] = {
    {"model", 0, TEXT},
    {"messages", 0, "{\"type\": \"array\", \"minItems\": 1, \"items\": " REF("Message") "}"},
    {"prompt", FV_API_TEXT,
     "{\"anyOf\": [" TEXT ", " IDS ", {\"type\": \"array\", \"minItems\": 1, \"maxItems\": 128, "
     "\"items\": {\"anyOf\": [" TEXT ", " IDS "]}}]}"},
    {"prompt", FV_API_TOKENS, TEXT},
    {"tokens", 0, IDS},
    {"policy", 0, "{\"type\": \"string\", \"description\": \"a compression policy\"}"},
    {"top_k", 0, "{\"type\": \"integer\", \"minimum\": -1, \"maximum\": 2147483647}"},
    {"seed", 0, "{\"type\": \"integer\"}"},
    {"logit_bias", 0,
     "{\"type\": \"object\", \"propertyNames\": {\"pattern\": \"^[0-9]{1,9}$\"}, "
     "\"additionalProperties\": {\"type\": \"number\", \"minimum\": -100, \"maximum\": 100}}"},
    {"stop", 0,
     "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"array\", \"maxItems\": 16, \"items\": "
     "{\"type\": \"string\"}}]}"},
    {"logprobs", FV_API_CHAT, "{\"type\": \"boolean\"}"},
    {"logprobs", FV_API_TEXT, "{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 20}"},
    {"stream_options", 0,
     "{\"type\": \"object\", \"properties\": {\"include_usage\": {\"type\": \"boolean\"}, "
     "\"continuous_usage_stats\": {\"type\": \"boolean\"}}}"},
    {"conversation", 0, "{\"type\": \"string\"}"},
    {"cache_salt", 0, "{\"type\": \"string\", \"minLength\": 1, \"maxLength\": 256}"},
    {"cache", 0, "{\"enum\": [\"on\", \"off\"]}"},
    {"input", 0,
     "{\"anyOf\": [" TEXT ", {\"type\": \"array\", \"items\": {\"type\": \"object\"}}]}"},
    {"instructions", 0, TEXT},
    {"max_output_tokens", 0, "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 2147483647}"},
    {"previous_response_id", 0, "{\"type\": \"string\"}"},
    {"store", 0, "{\"type\": \"boolean\"}"},
    {"metadata", 0,
     "{\"type\": \"object\", \"maxProperties\": 16, \"additionalProperties\": {\"type\": "
     "\"string\", "
     "\"maxLength\": 128}}"},
    {"truncation", 0, "{\"enum\": [\"auto\", \"disabled\"]}"},
    {"include", 0, "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}"},
    {"speculate", 0, "{\"type\": \"boolean\"}"},
    {"prediction", 0,
     "{\"type\": \"object\", \"required\": [\"type\", \"content\"], \"properties\": {\"type\": "
     "{\"enum\": [\"content\"]}, \"content\": {\"anyOf\": [" TEXT
     ", {\"type\": \"array\", \"items\": {\"type\": \"object\"}}]}}}"},
    {"add_special_tokens", 0, "{\"type\": \"boolean\"}"},
};

static const struct named {
    const char *name, *schema;
} named[] = {
    {"Message",
     "{\"type\": \"object\", \"required\": [\"role\"], \"properties\": {\"role\": {\"type\": "
     "\"string\"}, \"content\": {\"anyOf\": [" TEXT ", {\"type\": \"array\", \"minItems\": 1, "
     "\"items\": " REF("Part") "}, {\"type\": \"null\"}]}}}"},
    {"Part",
     "{\"type\": \"object\", \"required\": [\"type\"], \"properties\": {\"type\": {\"enum\": "
     "[\"text\", \"image_url\", \"video_url\"]}, \"text\": " TEXT ", \"image_url\": {}, "
     "\"video_url\": {}}}"},
    {"Error",
     "{\"type\": \"object\", \"required\": [\"error\"], \"properties\": {\"error\": {\"type\": "
     "\"object\", \"required\": [\"message\", \"type\", \"param\", \"code\"], \"properties\": "
     "{\"message\": {\"type\": \"string\"}, \"type\": {\"type\": \"string\"}, \"param\": "
     "{\"type\": "
     "[\"string\", \"null\"]}, \"code\": {\"type\": [\"string\", \"null\"]}}}}}"},
    {"Usage",
     "{\"type\": \"object\", \"required\": [\"prompt_tokens\", \"completion_tokens\", "
     "\"total_tokens\"], \"properties\": {\"prompt_tokens\": {\"type\": \"integer\"}, "
     "\"completion_tokens\": {\"type\": \"integer\"}, \"total_tokens\": {\"type\": \"integer\"}, "
     "\"prompt_tokens_details\": {\"type\": \"object\", \"properties\": {\"cached_tokens\": "
     "{\"type\": \"integer\"}}}}}"},
    {"Choice", "{\"type\": \"object\", \"required\": [\"index\", \"finish_reason\", \"logprobs\"], "
               "\"properties\": {\"index\": {\"type\": \"integer\"}, \"finish_reason\": {\"type\": "
               "[\"string\", \"null\"]}, \"text\": {\"type\": \"string\"}, \"message\": {\"type\": "
               "\"object\"}}}"},
    {"Completion",
     "{\"type\": \"object\", \"required\": [\"id\", \"object\", \"created\", \"model\", "
     "\"choices\", "
     "\"usage\"], \"properties\": {\"id\": {\"type\": \"string\"}, \"object\": {\"type\": "
     "\"string\"}, \"created\": {\"type\": \"integer\"}, \"model\": {\"type\": \"string\"}, "
     "\"choices\": {\"type\": \"array\", \"items\": " REF("Choice") "}, \"usage\": " REF(
         "Usage") "}}"},
    {"Tokens",
     "{\"type\": \"object\", \"required\": [\"count\", \"tokens\"], \"properties\": {\"count\": "
     "{\"type\": \"integer\"}, \"tokens\": " IDS ", \"token_strs\": {\"type\": [\"array\", "
     "\"null\"]}}}"},
    {"Response", "{\"type\": \"object\", \"required\": [\"id\", \"object\", \"created_at\", "
                 "\"status\", \"model\", "
                 "\"output\"], \"properties\": {\"id\": {\"type\": \"string\"}, \"object\": "
                 "{\"type\": \"string\"}, "
                 "\"created_at\": {\"type\": \"integer\"}, \"status\": {\"type\": \"string\"}, "
                 "\"model\": {\"type\": "
                 "\"string\"}, \"output\": {\"type\": \"array\"}}}"},
    {"Text",
     "{\"type\": \"object\", \"required\": [\"prompt\"], \"properties\": {\"prompt\": {\"type\": "
     "\"string\"}}}"},
};

static json_t *parse(const char *text) { return json_loads(text, JSON_DECODE_ANY, NULL); }

static json_t *compound_schema(const char *name, fv_api_kind kind) {
    for (size_t i = 0; i < sizeof compounds / sizeof *compounds; i++) {
        const struct compound *c = &compounds[i];
        if (strcmp(c->name, name) == 0 && (c->kinds == 0 || c->kinds & kind))
            return parse(c->schema);
    }
    return json_object();
}

static json_t *schema_of(const fv_api_field_info *f, fv_api_kind kind) {
    switch (f->type) {
    case FV_API_NUMBER: return json_pack("{s:s}", "type", "number");
    case FV_API_FLAG: return json_pack("{s:s}", "type", "boolean");
    case FV_API_INTEGER:
        return json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum", (json_int_t)f->min,
                         "maximum", (json_int_t)f->max);
    default: return compound_schema(f->name, kind);
    }
}

/* A field that is null counts as not given. */
static json_t *or_null(json_t *schema) {
    if (json_object_size(schema) == 0) return schema;
    return json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
}

json_t *fv_api_schema(fv_api_kind kind) {
    json_t *properties = json_object(), *required = json_array();
    const char *needed = kind == FV_API_CHAT       ? "messages"
                         : kind == FV_API_TEXT     ? "prompt"
                         : kind == FV_API_IDS      ? "tokens"
                         : kind == FV_API_RESPONSE ? "input"
                                                   : "";
    fv_api_field_info f;
    for (int32_t i = 0; fv_api_field(i, &f); i++) {
        if (!(f.kinds & kind)) continue;
        const bool is_needed = strcmp(f.name, needed) == 0;
        json_t *schema = schema_of(&f, kind);
        json_object_set_new(properties, f.name, is_needed ? schema : or_null(schema));
        if (is_needed) json_array_append_new(required, json_string(f.name));
    }
    json_t *out = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    if (json_array_size(required) > 0) json_object_set(out, "required", required);
    json_decref(required);
    return out;
}

json_t *fv_api_schemas(void) {
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        json_object_set_new(out, named[i].name, parse(named[i].schema));
    return out;
}

const char *fv_api_answer_schema(fv_api_kind kind) {
    return kind == FV_API_TOKENS     ? "Tokens"
           : kind == FV_API_IDS      ? "Text"
           : kind == FV_API_RESPONSE ? "Response"
                                     : "Completion";
}
