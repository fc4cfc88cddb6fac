/* grammar/schema*.c: which answers a JSON Schema allows, and what is refused. */
#include "tests/unit/grammar/grammar_support.h"

static void schema(const char *text, const char *const *good, const char *const *bad) {
    check_answers(FV_GRAMMAR_JSON_SCHEMA, text, good, bad);
}
static void refused(const char *text, const char *words) {
    check_refused(FV_GRAMMAR_JSON_SCHEMA, text, words);
}

Test(schema, types_and_their_values) {
    schema("{\"type\":\"null\"}", LIST("null"), LIST("nul", "0", ""));
    schema("{\"type\":\"boolean\"}", LIST("true", "false"), LIST("True", "1"));
    schema("{\"type\":[\"integer\",\"null\"]}", LIST("0", "-12", "null"), LIST("01", "1.5", "-"));
    schema("{\"type\":\"number\"}", LIST("0", "-1.25", "1e9", "2E-7"),
           LIST(".5", "1.", "+1", "1e"));
    schema("true", LIST("{\"a\":[1,{}]}", "\"x\"", "[]"), LIST("", "x"));
    schema("{}", LIST("[null,true]"), LIST("[1,]"));
}

Test(schema, strings_escape_what_json_escapes) {
    schema("{\"type\":\"string\"}",
           LIST("\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\"", "\"\xC3\xA9\xF0\x9F\x98\x80\""),
           LIST("\"a", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\xC3\"", "\"\xED\xA0\x80\""));
    schema("{\"enum\":[\"a\\\"b\"]}", LIST("\"a\\\"b\""), LIST("\"a\"b\""));
    schema("{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\]$\"}", LIST("\"\\\"\"", "\"\\\\\""),
           LIST("\"\"\"", "\"\\\""));
}

Test(schema, lengths_count_characters) {
    schema("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
           LIST("\"ab\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", "\"\\n\\ud83d\\ude00\""),
           LIST("\"a\"", "\"abcd\""));
    schema("{\"type\":\"string\",\"maxLength\":1000000}", LIST("\"\"", "\"abc\""), LIST("\"a"));
    schema("{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":2,\"maxLength\":3}",
           LIST("\"aa\"", "\"aaa\""), LIST("\"a\"", "\"aaaa\"", "\"ab\""));
}

Test(schema, patterns_are_searched_for) {
    schema("{\"type\":\"string\",\"pattern\":\"b+\"}", LIST("\"abc\"", "\"b\""), LIST("\"ac\""));
    schema("{\"type\":\"string\",\"pattern\":\"^a|c$\"}", LIST("\"ax\"", "\"xc\""),
           LIST("\"xax\""));
    schema("{\"type\":\"string\",\"pattern\":\"(^|,)a(,|$)\"}", LIST("\"a\"", "\"x,a,y\""),
           LIST("\"xa\""));
    schema("{\"allOf\":[{\"type\":\"string\",\"pattern\":\"a\"},{\"pattern\":\"b\"}]}",
           LIST("\"ab\"", "\"bxa\""), LIST("\"a\"", "\"b\""));
    refused("{\"type\":\"string\",\"pattern\":\"a(?=b)\"}", "lookahead");
    refused("{\"type\":\"string\",\"pattern\":\"(a\"}", "not closed");
}

Test(schema, formats) {
    schema("{\"type\":\"string\",\"format\":\"date\"}", LIST("\"2024-02-28\""),
           LIST("\"2024-02-30\"", "\"2024-13-01\""));
    schema("{\"type\":\"string\",\"format\":\"date-time\"}", LIST("\"2024-01-31T23:59:00Z\""),
           LIST("\"2024-01-31\""));
    schema("{\"type\":\"string\",\"format\":\"uuid\"}",
           LIST("\"01234567-89ab-cdef-0123-456789ABCDEF\""), LIST("\"0123\""));
    schema("{\"type\":\"string\",\"format\":\"email\"}", LIST("\"a.b@ex-ample.org\""),
           LIST("\"a@b\"", "\"@x.org\""));
    schema("{\"type\":\"string\",\"format\":\"ipv4\"}", LIST("\"255.0.10.1\""),
           LIST("\"256.0.0.1\"", "\"1.2.3\""));
}

Test(schema, numbers_within_limits) {
    schema("{\"type\":\"integer\",\"minimum\":-3,\"maximum\":120}",
           LIST("-3", "-1", "0", "7", "99", "120"), LIST("-4", "121", "1000", "-0", "1.0"));
    schema("{\"type\":\"integer\",\"exclusiveMinimum\":0}", LIST("1", "10", "123456"),
           LIST("0", "-1"));
    schema("{\"type\":\"number\",\"minimum\":0.5,\"exclusiveMaximum\":2.25}",
           LIST("0.5", "0.75", "2", "2.2", "2.249"), LIST("0.4", "0.49", "2.25", "2.3", "3", "-1"));
    schema("{\"type\":\"number\",\"maximum\":-1.5}", LIST("-1.5", "-1.50", "-2", "-100.1"),
           LIST("-1.4", "1", "0", "-1"));
}

Test(schema, multiples) {
    schema("{\"type\":\"integer\",\"multipleOf\":7}", LIST("0", "7", "14", "-21", "700"),
           LIST("1", "8", "-20"));
    refused("{\"type\":\"number\",\"multipleOf\":0.01}", "multipleOf");
}

Test(schema, members_in_the_order_of_the_schema) {
    const char *s = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{"
                    "\"type\":\"string\"},"
                    "\"c\":{}},\"required\":[\"b\"],\"additionalProperties\":false}";
    schema(
        s,
        LIST("{\"b\":\"\"}", "{\"a\":1,\"b\":\"x\"}", "{ \"a\" : 1 ,\n\"b\" : \"x\", \"c\": [] }"),
        LIST("{}", "{\"a\":1}", "{\"b\":\"\",\"a\":1}", "{\"b\":\"\",\"d\":1}", "{\"b\":\"\",}",
             "{,\"b\":\"\"}"));
    schema("{\"type\":\"object\",\"required\":[\"x\"]}", LIST("{\"x\":null}", "{\"x\":1,\"y\":2}"),
           LIST("{}", "{\"y\":2}"));
}

Test(schema, further_members) {
    schema("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
           "\"additionalProperties\":{\"type\":\"string\"}}",
           LIST("{}", "{\"a\":1}", "{\"a\":1,\"b\":\"\"}", "{\"aa\":\"\",\"b\":\"\"}"),
           LIST("{\"b\":1}", "{\"a\":\"\"}"));
    schema("{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},"
           "\"additionalProperties\":{\"type\":\"null\"}}",
           LIST("{\"x\":1,\"y\":null,\"xy\":2}"), LIST("{\"x\":null}", "{\"y\":1}"));
    schema("{\"type\":\"object\",\"properties\":{\"a\":{}}}", LIST("{\"a\":1}"), LIST("{\"b\":1}"));
    schema("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-c]$\"}}",
           LIST("{\"a\":1}", "{}"), LIST("{\"d\":1}"));
}

Test(schema, counts_of_members) {
    schema("{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
           LIST("{\"a\":1}", "{\"a\":1,\"b\":2}"), LIST("{}", "{\"a\":1,\"b\":2,\"c\":3}"));
    schema("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":1}",
           LIST("{\"a\":1}", "{\"b\":1}"), LIST("{}"));
}

Test(schema, arrays) {
    schema("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
           LIST("[1]", "[ 1 , 2, 3 ]"), LIST("[]", "[1,2,3,4]", "[\"\"]", "[1,]"));
    schema("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
           "\"items\":false}",
           LIST("[]", "[1]", "[1,\"\"]"), LIST("[\"\"]", "[1,\"\",1]"));
    schema(
        "{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2000,\"maxItems\":100000}",
        LIST(), LIST("[null]"));
    schema("{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"uniqueItems\":true}",
           LIST("[]", "[1,3]", "[2]"), LIST("[1,1]"));
    refused("{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
            "uniqueItems");
}

Test(schema, references_may_be_recursive) {
    const char *s =
        "{\"$ref\":\"#/$defs/"
        "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
        "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
        "t\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}}}";
    schema(s, LIST("{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"),
           LIST("{\"v\":1}"));
    refused("{\"$ref\":\"#/$defs/none\"}", "leads nowhere");
    refused("{\"$ref\":\"https://example.com/x.json\"}", "leads out");
    refused(
        "{\"$ref\":\"#/$defs/"
        "a\",\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/a\"}},"
        "\"required\":[\"a\"]}}}",
        "no text satisfies");
}

Test(schema, alternatives_keep_what_stands_beside_them) {
    schema("{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"integer\"}},\"required\":[\"k\"]"
           ",\"anyOf\":[{\"properties\":"
           "{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},{\"properties\":{\"b\":{\"type\":"
           "\"null\"}},\"required\":[\"b\"]}]}",
           LIST("{\"k\":1,\"a\":null}", "{\"k\":1,\"b\":null}"), LIST("{\"k\":1}", "{\"a\":null}"));
    schema("{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}]}", LIST("3", "5"),
           LIST("2", "6"));
    schema("{\"type\":\"string\",\"enum\":[\"a\",1,\"bcd\"],\"maxLength\":2}", LIST("\"a\""),
           LIST("1", "\"bcd\""));
}

Test(schema, one_of_needs_proof) {
    schema("{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", LIST("\"\"", "1"),
           LIST("null"));
    schema("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":"
           "[\"k\"]},"
           "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"},\"n\":{\"type\":"
           "\"integer\"}},\"required\":[\"k\",\"n\"]}]}",
           LIST("{\"k\":\"a\"}", "{\"k\":\"b\",\"n\":1}"),
           LIST("{\"k\":\"b\"}", "{\"k\":\"a\",\"n\":1}"));
    schema("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"oneOf\":[{"
           "\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
           LIST("{\"a\":1}", "{\"b\":1,\"c\":2}"), LIST("{}", "{\"a\":1,\"b\":1}"));
    refused("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf");
}

Test(schema, what_cannot_be_enforced_is_named) {
    refused("{\"type\":\"object\",\"if\":{\"required\":[\"a\"]},\"then\":{\"required\":[\"b\"]}}",
            "'if'");
    refused("{\"not\":{\"type\":\"string\"}}", "'not'");
    refused("{\"type\":\"array\",\"contains\":{\"type\":\"null\"}}", "'contains'");
    refused("{\"type\":\"thing\"}", "type must be");
    refused("{\"type\":\"object\",\"required\":true}", "required must be");
    refused("[1]", "a schema must be");
    refused("{", "not valid JSON");
    refused("{\"enum\":[{\"a\":1}],\"properties\":{\"a\":{}}}", "'properties'");
    schema("{\"type\":\"null\",\"title\":\"x\",\"description\":\"y\",\"default\":1,\"x-own\":2}",
           LIST("null"), LIST("1"));
    schema(
        "{\"type\":\"object\",\"not\":{\"required\":[\"a\"]},\"properties\":{\"a\":{},\"b\":{}}}",
        LIST("{\"b\":1}"), LIST("{\"a\":1}"));
}

Test(schema, runs_of_white_space_are_bounded) {
    schema("{\"type\":\"array\"}", LIST("[        ]", "[\n\n\n\n\n\n\n\n]"),
           LIST("[         ]", " []", "[] "));
}

Test(schema, any_object) {
    check_answers(FV_GRAMMAR_JSON_OBJECT, "", LIST("{}", "{\"a\":{\"b\":[1,\"x\"]}}"),
                  LIST("[]", "1", "{\"a\"}"));
}
