#ifndef FOVEA_TESTS_SUPPORT_ANSWER_H
#define FOVEA_TESTS_SUPPORT_ANSWER_H

/* Answers of `fovea ask --json`, and their comparison. For Criterion. */
#include <jansson.h>
#include <stdbool.h>

/* Runs it with `where` ("--to ADDRESS", "--checkpoint DIR") and further arguments, and expects
 * success. The caller frees the result with json_decref. */
json_t *answer_ask(const char *where, const char *args);

json_t *answer_report(const json_t *answer, const char *key); /* borrowed */

/* Text, tokens with their log-probabilities, finish reason and digests are equal; with `report`, so
 * is everything in it except times and the route. Releases both; `what` is for the message. */
void answer_assert_same(json_t *a, json_t *b, bool report, const char *what);

/* The same question to one process with the checkpoint in dir/ck and to a fleet. */
void answer_assert_one_process(const char *dir, const char *address, const char *args);

#endif
