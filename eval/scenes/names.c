/* Names of things. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "eval/scenes/ask_internal.h"

int32_t fv_attribute_values(fv_attribute a) {
    static const int32_t values[FV_N_ATTRIBUTE] = {FV_N_COLOR, FV_N_SHAPE, FV_N_SIZE};
    return values[a];
}

int32_t fv_attribute_of(const fv_scene_object *o, fv_attribute a) {
    return a == FV_ATTRIBUTE_COLOR ? o->color : a == FV_ATTRIBUTE_SHAPE ? o->shape : o->size;
}

int32_t fv_attribute_count(const fv_scene *s, fv_attribute a, int32_t value) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_object; i++) n += fv_attribute_of(&s->object[i], a) == value;
    return n;
}

int32_t fv_peer_count(const fv_scene *s, int32_t shape, int32_t color) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_object; i++)
        n += s->object[i].shape == shape && s->object[i].color == color;
    return n;
}

void fv_say(char *out, size_t cap, const char *text, const char *a, const char *b) {
    size_t n = 0;
    while (*text) {
        const char *put = NULL;
        if (strncmp(text, "{a}", 3) == 0) put = a;
        if (strncmp(text, "{b}", 3) == 0) put = b;
        size_t length = put ? strlen(put) : 1;
        assert(n + length < cap);
        memcpy(out + n, put ? put : text, length);
        n += length;
        text += put ? 3 : 1;
    }
    out[n] = 0;
}

void fv_name_pair(char out[FV_NAME_MAX], int32_t shape, int32_t color) {
    snprintf(out, FV_NAME_MAX, "%s %s", fv_color_word(color), fv_shape_word(shape));
}

void fv_name_with_article(char out[FV_NAME_MAX], const char *name) {
    snprintf(out, FV_NAME_MAX, "%s %s", strchr("aeiou", name[0]) ? "an" : "a", name);
}

void fv_name_plural(char out[FV_NAME_MAX], fv_attribute a, int32_t value) {
    if (a == FV_ATTRIBUTE_SHAPE)
        snprintf(out, FV_NAME_MAX, "%s%s", fv_shape_word(value),
                 value == FV_SHAPE_CROSS ? "es" : "s");
    else
        snprintf(out, FV_NAME_MAX, "%s objects",
                 a == FV_ATTRIBUTE_COLOR ? fv_color_word(value) : fv_size_word(value));
}

bool fv_name_unique(const fv_scene *s, int32_t i, fv_random *pick, char out[FV_NAME_MAX]) {
    const fv_scene_object *o = &s->object[i];
    char names[3][FV_NAME_MAX];
    int32_t n = 0;
    if (fv_attribute_count(s, FV_ATTRIBUTE_COLOR, o->color) == 1)
        snprintf(names[n++], FV_NAME_MAX, "%s object", fv_color_word(o->color));
    if (fv_attribute_count(s, FV_ATTRIBUTE_SHAPE, o->shape) == 1)
        snprintf(names[n++], FV_NAME_MAX, "%s", fv_shape_word(o->shape));
    if (fv_peer_count(s, o->shape, o->color) == 1) fv_name_pair(names[n++], o->shape, o->color);
    if (n == 0) return false;
    memcpy(out, names[fv_random_below(pick, n)], FV_NAME_MAX);
    return true;
}

void fv_name_cell(char out[FV_NAME_MAX], int32_t x, int32_t y) {
    static const char *const rows[3] = {"top", "middle", "bottom"};
    static const char *const columns[3] = {"left", "center", "right"};
    snprintf(out, FV_NAME_MAX, "%s %s", rows[fv_scene_third(y)], columns[fv_scene_third(x)]);
}

void fv_name_number(char out[FV_NAME_MAX], const fv_scene_number *n) {
    for (int32_t i = 0; i < n->n_digit; i++) out[i] = (char)('0' + n->digit[i]);
    out[n->n_digit] = 0;
}
