/* text/json: one object, typed members, errors that name the file and the key. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"

static json_t *object(const char *text) {
    json_t *obj = NULL;
    fv_status st = fv_json_object(text, strlen(text), "a.json", &obj);
    cr_assert_eq(st, FV_OK, "%s", fv_last_error());
    return obj;
}

static void refuse(const char *text, size_t n, const char *words) {
    json_t *obj = NULL;
    cr_assert_eq(fv_json_object(text, n, "a.json", &obj), FV_EDATA, "%.*s is accepted", (int)n,
                 text);
    cr_assert_null(obj);
    cr_assert_eq(strncmp(fv_last_error(), "a.json: ", 8), 0, "%s", fv_last_error());
    cr_assert_not_null(strstr(fv_last_error(), words), "%s", fv_last_error());
}

static void expect_edata(fv_status st, const char *words) {
    cr_assert_eq(st, FV_EDATA);
    cr_assert_not_null(strstr(fv_last_error(), words), "%s", fv_last_error());
}

Test(json, an_empty_object_is_an_object) {
    json_t *obj = object("{}");
    cr_assert_eq(json_object_size(obj), 0);
    json_decref(obj);
}

Test(json, text_that_is_not_json_is_refused_with_line_and_column) {
    static const char *const wrong[] = {
        "",           "{",         "{\"a\":1,}",   "{'a':1}",
        "{\"a\":01}", "{} x",      "{\"a\":NaN}",  "{\"a\":\"\xff\"}",
        "nul",        "{\"a\" 1}", "{\"a\":1e999}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(wrong[i], strlen(wrong[i]), "not valid JSON at line 1, column ");
    refuse("{\n\n  x", 6, "line 3");
}

Test(json, json_that_is_no_object_is_refused) {
    refuse("[1]", 3, "a JSON object is expected");
    refuse("[]", 2, "a JSON object is expected");
}

Test(json, a_key_that_stands_twice_is_refused) { refuse("{\"a\":1,\"a\":2}", 13, "duplicate"); }

Test(json, nesting_without_end_is_refused) {
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 5);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', DEPTH);
    refuse(text, DEPTH + 5, "not valid JSON");
    free(text);
}

Test(json, only_n_bytes_are_read) {
    json_t *obj = NULL;
    cr_assert_eq(fv_json_object("{}trailing", 2, "a.json", &obj), FV_OK);
    json_decref(obj);
    refuse("{\"a\":1}", 6, "not valid JSON");
}

Test(json, a_nul_in_a_string_is_kept) {
    json_t *obj = object("{\"s\":\"a\\u0000b\"}");
    cr_assert_eq(json_string_length(json_object_get(obj, "s")), 3);
    json_decref(obj);
}

Test(json, members_of_each_type_are_read) {
    json_t *obj = object("{\"i\":-7,\"d\":2.5,\"whole\":3,\"b\":true,\"no\":false,\"s\":\"text\"}");
    int32_t i = 0;
    double d = 0, whole = 0;
    float f = 0;
    bool b = false, no = true;
    const char *s = NULL;
    cr_assert_eq(fv_json_i32(obj, "i", "a.json", -10, 10, &i), FV_OK);
    cr_assert_eq(fv_json_f64(obj, "d", "a.json", &d), FV_OK);
    cr_assert_eq(fv_json_f64(obj, "whole", "a.json", &whole), FV_OK);
    cr_assert_eq(fv_json_f32(obj, "d", "a.json", &f), FV_OK);
    cr_assert_eq(fv_json_bool(obj, "b", "a.json", &b), FV_OK);
    cr_assert_eq(fv_json_bool(obj, "no", "a.json", &no), FV_OK);
    cr_assert_eq(fv_json_str(obj, "s", "a.json", &s), FV_OK);
    cr_assert(i == -7 && d == 2.5 && whole == 3.0 && f == 2.5f && b && !no);
    cr_assert_str_eq(s, "text");
    json_decref(obj);
}

Test(json, a_member_that_is_missing_or_null_leaves_the_default) {
    json_t *obj = object("{\"null\":null}");
    static const char *const keys[] = {"null", "absent"};
    for (int k = 0; k < 2; k++) {
        int32_t i = 5;
        double d = 5;
        float f = 5;
        bool b = true;
        const char *s = "default";
        cr_assert_eq(fv_json_i32(obj, keys[k], "a.json", 0, 1, &i), FV_OK);
        cr_assert_eq(fv_json_f64(obj, keys[k], "a.json", &d), FV_OK);
        cr_assert_eq(fv_json_f32(obj, keys[k], "a.json", &f), FV_OK);
        cr_assert_eq(fv_json_bool(obj, keys[k], "a.json", &b), FV_OK);
        cr_assert_eq(fv_json_str(obj, keys[k], "a.json", &s), FV_OK);
        cr_assert(i == 5 && d == 5 && f == 5 && b);
        cr_assert_str_eq(s, "default");
    }
    json_decref(obj);
}

Test(json, a_member_of_another_type_is_refused_and_leaves_the_default) {
    json_t *obj = object("{\"s\":\"1\",\"f\":1.0,\"i\":1,\"a\":[]}");
    int32_t i = 5;
    double d = 5;
    float f = 5;
    bool b = true;
    const char *s = "default";
    expect_edata(fv_json_i32(obj, "s", "a.json", 0, 9, &i), "a.json: key 's' must be an integer");
    expect_edata(fv_json_i32(obj, "f", "a.json", 0, 9, &i), "must be an integer");
    expect_edata(fv_json_f64(obj, "s", "a.json", &d), "key 's' must be a number");
    expect_edata(fv_json_f32(obj, "a", "a.json", &f), "key 'a' must be a number");
    expect_edata(fv_json_bool(obj, "i", "a.json", &b), "key 'i' must be true or false");
    expect_edata(fv_json_str(obj, "i", "a.json", &s), "key 'i' must be a string");
    cr_assert(i == 5 && d == 5 && f == 5 && b);
    cr_assert_str_eq(s, "default");
    json_decref(obj);
}

Test(json, an_integer_out_of_range_says_the_range) {
    json_t *obj = object("{\"n\":4294967297,\"low\":-1,\"max\":2147483647}");
    int32_t i = 5;
    expect_edata(fv_json_i32(obj, "n", "a.json", 1, 256, &i),
                 "a.json: key 'n' is 4294967297; it must be 1..256");
    expect_edata(fv_json_i32(obj, "low", "a.json", 0, 256, &i), "is -1; it must be 0..256");
    cr_assert_eq(i, 5);
    cr_assert_eq(fv_json_i32(obj, "max", "a.json", 0, INT32_MAX, &i), FV_OK);
    cr_assert_eq(i, INT32_MAX);
    json_decref(obj);
}

Test(json, a_number_that_no_float_holds_is_refused_as_float) {
    json_t *obj = object("{\"x\":1e300}");
    double d = 0;
    float f = 5;
    cr_assert_eq(fv_json_f64(obj, "x", "a.json", &d), FV_OK);
    cr_assert_eq(d, 1e300);
    expect_edata(fv_json_f32(obj, "x", "a.json", &f), "key 'x'");
    cr_assert_eq(f, 5.0f);
    json_decref(obj);
}
