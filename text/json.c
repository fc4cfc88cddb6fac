/* Typed, checked access to parsed JSON. Any thread. */
#include "text/json.h"

#include <float.h>
#include <math.h>

#include "common/file.h"

fv_status fv_json_object(const char *text, size_t n, const char *where, json_t **out) {
    json_error_t err;
    const size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
    json_t *root = json_loadb(text, n, flags, &err);
    /* tokenizer_config.json has 10^30 for "no limit" */
    if (!root && json_error_code(&err) == json_error_numeric_overflow)
        root = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, &err);
    if (!root && fv_file_is_pointer(text, n)) return fv_file_pointer_error(where);
    if (!root)
        return FV_FAIL(FV_EDATA, "%s: not valid JSON at line %d, column %d: %s", where, err.line,
                       err.column, err.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return FV_FAIL(FV_EDATA, "%s: a JSON object is expected", where);
    }
    *out = root;
    return FV_OK;
}

static const json_t *member(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

fv_status fv_json_i32(const json_t *obj, const char *key, const char *where, int32_t min,
                      int32_t max, int32_t *out) {
    const json_t *v = member(obj, key);
    if (!v) return FV_OK;
    if (!json_is_integer(v))
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be an integer", where, key);
    json_int_t i = json_integer_value(v);
    if (i < min || i > max)
        return FV_FAIL(FV_EDATA, "%s: key '%s' is %lld; it must be %d..%d", where, key,
                       (long long)i, min, max);
    *out = (int32_t)i;
    return FV_OK;
}

fv_status fv_json_f64(const json_t *obj, const char *key, const char *where, double *out) {
    const json_t *v = member(obj, key);
    if (!v) return FV_OK;
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be a number", where, key);
    *out = json_number_value(v);
    return FV_OK;
}

fv_status fv_json_f32(const json_t *obj, const char *key, const char *where, float *out) {
    double d = *out;
    FV_TRY(fv_json_f64(obj, key, where, &d));
    if (fabs(d) > FLT_MAX) return FV_FAIL(FV_EDATA, "%s: key '%s' is too large", where, key);
    *out = (float)d;
    return FV_OK;
}

fv_status fv_json_bool(const json_t *obj, const char *key, const char *where, bool *out) {
    const json_t *v = member(obj, key);
    if (!v) return FV_OK;
    if (!json_is_boolean(v))
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be true or false", where, key);
    *out = json_is_true(v);
    return FV_OK;
}

fv_status fv_json_str(const json_t *obj, const char *key, const char *where, const char **out) {
    const json_t *v = member(obj, key);
    if (!v) return FV_OK;
    if (!json_is_string(v)) return FV_FAIL(FV_EDATA, "%s: key '%s' must be a string", where, key);
    *out = json_string_value(v);
    return FV_OK;
}
