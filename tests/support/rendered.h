#ifndef FOVEA_TESTS_SUPPORT_RENDERED_H
#define FOVEA_TESTS_SUPPORT_RENDERED_H

/* Results that tests/parity/methods computed from the methods' equations, in
 * golden/methods/<method>.json, and the random numbers it drew for them. For Criterion. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* The caller frees it with json_decref. */
json_t *rendered_read(const char *method);

/* n numbers in [-1, 1), as Draws.uniform of tests/parity/methods/draws.py gives them: a seeded
 * state that advances. */
void rendered_uniform(uint64_t *state, float *x, size_t n);

/* The value of a key, which must exist. Borrowed. */
const json_t *rendered_at(const json_t *object, const char *key);
int32_t rendered_int(const json_t *object, const char *key);
const char *rendered_text(const json_t *object, const char *key);

/* Largest difference from an array of numbers, relative to the largest of them. */
double rendered_off(const float *x, const json_t *numbers);

/* Positions in the goldens' form: 0 1 2 5 5 is "0-2 5 5". */
void rendered_spans(const int32_t *pos, int32_t n, char *text, size_t cap);

#endif
