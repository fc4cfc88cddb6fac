/* Inputs of methods, by patterns in the text form (policy/conflicts.h), because some depend on a parameter. Immutable
 * data, any thread. */
#include "policy/depends.h"

#include <stdio.h>
#include <string.h>

#include "policy/conflicts.h"

typedef struct depends {
    const char *pattern;
    uint32_t inputs;
} depends;

/* The words of the table. */
enum {
    NONE = FV_INPUT_NONE,
    OWN = FV_INPUT_OWN,
    IMAGES = FV_INPUT_IMAGES,
    LENGTH = FV_INPUT_LENGTH,
    QUESTION = FV_INPUT_QUESTION,
    ANSWER = FV_INPUT_ANSWER
};

static const depends table[] = {
#define FV_DEPENDS(pattern, inputs) {pattern, inputs},
#include "policy/methods.def"
};

enum { N = sizeof table / sizeof table[0] };

const char *fv_input_name(int32_t i) {
    static const char *const names[FV_N_INPUT] = {"own image", "other images", "length", "question",
                                                  "answer"};
    return names[i];
}

void fv_inputs_print(uint32_t inputs, char out[FV_INPUTS_TEXT]) {
    size_t n = 0;
    snprintf(out, FV_INPUTS_TEXT, "nothing");
    for (int32_t i = 0; i < FV_N_INPUT; i++)
        if (inputs & 1U << i)
            n += (size_t)snprintf(out + n, FV_INPUTS_TEXT - n, "%s%s", n ? ", " : "",
                                  fv_input_name(i));
}

uint32_t fv_choice_inputs(const fv_choice *c) {
    fv_policy p = {0};
    uint32_t inputs = 0;
    bool found = false;
    if (!c->method) return FV_INPUT_NONE;
    p.stage[c->method->stage] = *c;
    for (int i = 0; i < N; i++) {
        if (!fv_policy_matches(&p, table[i].pattern)) continue;
        inputs |= table[i].inputs;
        found = true;
    }
    return found ? inputs : (uint32_t)FV_INPUT_ALL;
}

/* Whether a pattern is of this method: "stage=method", and words perhaps. */
static bool names(const char *pattern, const fv_method_info *m) {
    char head[64];
    size_t n = (size_t)snprintf(head, sizeof head, "%s=%s", fv_stage_name(m->stage), m->name);
    return strncmp(pattern, head, n) == 0 && (pattern[n] == '\0' || pattern[n] == ',');
}

uint32_t fv_method_inputs(const fv_method_info *m) {
    uint32_t inputs = 0;
    bool found = false;
    for (int i = 0; i < N; i++) {
        if (!names(table[i].pattern, m)) continue;
        inputs |= table[i].inputs;
        found = true;
    }
    return found ? inputs : (uint32_t)FV_INPUT_ALL;
}
