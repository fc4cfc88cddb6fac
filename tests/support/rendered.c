/* Goldens of the methods: reading them, and drawing the random numbers they were computed from. */
#include "tests/support/rendered.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

json_t *rendered_read(const char *method) {
    char path[512];
    json_error_t err;
    snprintf(path, sizeof path, FOVEA_TEST_DATA "/golden/methods/%s.json", method);
    json_t *root = json_load_file(path, 0, &err);
    cr_assert_not_null(root, "%s: %s", path, err.text);
    return root;
}

void rendered_uniform(uint64_t *state, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t z = (*state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        x[i] = (float)((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1);
    }
}

const json_t *rendered_at(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    cr_assert_not_null(value, "the golden has no %s", key);
    return value;
}

int32_t rendered_int(const json_t *object, const char *key) {
    const json_t *value = rendered_at(object, key);
    cr_assert(json_is_integer(value), "%s is no whole number", key);
    return (int32_t)json_integer_value(value);
}

const char *rendered_text(const json_t *object, const char *key) {
    const json_t *value = rendered_at(object, key);
    cr_assert(json_is_string(value), "%s is no text", key);
    return json_string_value(value);
}

double rendered_off(const float *x, const json_t *numbers) {
    double off = 0, most = 0;
    for (size_t i = 0; i < json_array_size(numbers); i++) {
        double want = json_number_value(json_array_get(numbers, i));
        double d = fabs((double)x[i] - want);
        if (!(d <= off)) off = d; /* NaN counts as the largest difference */
        if (fabs(want) > most) most = fabs(want);
    }
    return off / most;
}

void rendered_spans(const int32_t *pos, int32_t n, char *text, size_t cap) {
    size_t at = 0;
    text[0] = '\0';
    for (int32_t i = 0, end; i < n && at < cap; i = end) {
        for (end = i + 1; end < n && pos[end] == pos[end - 1] + 1;) end++;
        at += (size_t)snprintf(text + at, cap - at, i ? " %d" : "%d", pos[i]);
        if (end > i + 1 && at < cap)
            at += (size_t)snprintf(text + at, cap - at, "-%d", pos[end - 1]);
    }
    cr_assert_lt(at, cap);
}
