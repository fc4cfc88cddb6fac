#ifndef FOVEA_TESTS_SUPPORT_RENDERED_H
#define FOVEA_TESTS_SUPPORT_RENDERED_H

/* What tests/parity/methods computed of the methods' equations, in golden/methods/<method>.json,
 * and the random numbers that it drew for that. For Criterion. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* The caller's to json_decref. */
json_t *rendered_read(const char *method);

/* n numbers in [-1, 1), as Draws.uniform of tests/parity/methods/draws.py: a state that was seeded
 * and goes on. */
void rendered_uniform(uint64_t *state, float *x, size_t n);

/* What stands under a key, which must be there. Borrowed. */
const json_t *rendered_at(const json_t *object, const char *key);
int32_t rendered_int(const json_t *object, const char *key);
const char *rendered_text(const json_t *object, const char *key);

/* Greatest difference from an array of numbers, as a share of the greatest of them. */
double rendered_off(const float *x, const json_t *numbers);

/* Positions as the goldens write them: 0 1 2 5 5 is "0-2 5 5". */
void rendered_spans(const int32_t *pos, int32_t n, char *text, size_t cap);

#endif
