#ifndef FOVEA_POLICY_DEPENDS_H
#define FOVEA_POLICY_DEPENDS_H

/* WHAT DEPENDS ON WHAT: the inputs that a method's result for an image depends on, as the table declares them
 * (FV_DEPENDS in methods.def).
 *
 * The result for an image is which of its tokens are kept in a place of the KV store, and the bytes that they are stored
 * as, given their keys and values as they were computed. Parameters, the checkpoint, the sizes of images and the text before the image are no
 * inputs in this sense: everything may depend on them, and they are in the key of whatever is kept (kv/cache/chain.h).
 *
 * A result without `images`, `length`, `question` and `answer` is the same in every prompt that begins with the same
 * image: it can be kept for them. policy/plan/prefix.h says what follows for a plan. Pure functions, any thread. */
#include "policy/policy.h"

typedef enum fv_input {
    FV_INPUT_OWN = 1,      /* the content of the image itself */
    FV_INPUT_IMAGES = 2,   /* other images of the prompt: their content or their number */
    FV_INPUT_LENGTH = 4,   /* the number of the prompt's tokens */
    FV_INPUT_QUESTION = 8, /* the text after the image */
    FV_INPUT_ANSWER = 16,  /* tokens of the answer, or their number */
    FV_INPUT_ALL = 31,
    FV_INPUT_NONE = 0,
} fv_input;

enum { FV_N_INPUT = 5, FV_INPUTS_TEXT = 64 };

/* Name of input 1 << i: "own image", "other images", "length", "question", "answer". */
const char *fv_input_name(int32_t i);

/* Writes the names of a set of inputs: "own image, question"; "nothing" for none. */
void fv_inputs_print(uint32_t inputs, char out[FV_INPUTS_TEXT]);

/* Inputs of a choice with its parameters: those of all rows that it matches, and all inputs if it matches none. 0 for a
 * stage without a method. */
uint32_t fv_choice_inputs(const fv_choice *c);

/* Inputs of a method, whatever its parameters. */
uint32_t fv_method_inputs(const fv_method_info *m);

/* Whether a result with these inputs is the same for all prompts that begin with the same image. */
static inline bool fv_inputs_are_own(uint32_t inputs) {
    return !(inputs & ~(uint32_t)FV_INPUT_OWN);
}

#endif
