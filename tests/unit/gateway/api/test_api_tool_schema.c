/* gateway/api/tool_schema.h: the schema of a call, and where references in it lead. */
#include <criterion/criterion.h>
#include <string.h>

#include "gateway/api/tool_schema.h"

static const char tools[] = "[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"b\","
                            "\"parameters\":{\"type\":\"object\","
                            "\"properties\":{\"x\":{\"$ref\":\"#/$defs/"
                            "X\"},\"l\":{\"items\":[{\"$ref\":\"#\"},{\"$ref\":\"other\"}"
                            "]}},\"$defs\":{\"X\":{\"type\":\"string\"}}}}}]";

static void expect(const char *name, const char *schema) {
    fv_arena arena = {0};
    json_t *list = json_loads(tools, 0, NULL);
    char *got;
    cr_assert_eq(fv_api_tool_schema(list, name, &arena, &got), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(got, schema);
    json_decref(list);
    fv_arena_fini(&arena);
}

Test(api_tool_schema, a_function_that_is_named_has_its_parameters) {
    expect("a", "{\"type\":\"object\"}");
    expect("b",
           "{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/X\"},\"l\":{\"items\":[{"
           "\"$ref\":\"#\"},{\"$ref\":\"other\"}]}},\"$defs\":{\"X\":{\"type\":\"string\"}}}");
}

Test(api_tool_schema, references_follow_the_parameters) {
    expect(
        NULL,
        "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"a\"},\"arguments\":"
        "{"
        "\"type\":\"object\"}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":"
        "false},{"
        "\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"b\"},\"arguments\":{\"type\":"
        "\"object\","
        "\"properties\":{\"x\":{\"$ref\":\"#/anyOf/1/properties/arguments/$defs/"
        "X\"},\"l\":{\"items\":[{"
        "\"$ref\":\"#/anyOf/1/properties/"
        "arguments\"},{\"$ref\":\"other\"}]}},\"$defs\":{\"X\":{\"type\":"
        "\"string\"}}}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}]}");
}

Test(api_tool_schema, nesting_has_a_limit) {
    fv_arena arena = {0};
    char *got;
    json_t *deep = json_object();
    for (int i = 0; i < 600; i++) deep = json_pack("{s:o}", "items", deep);
    json_t *list = json_pack("[{s:{s:s, s:o}}]", "function", "name", "f", "parameters", deep);
    cr_assert_eq(fv_api_tool_schema(list, NULL, &arena, &got), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "nested deeper"));
    json_decref(list);
    fv_arena_fini(&arena);
}
