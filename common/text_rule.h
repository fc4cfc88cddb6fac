#ifndef FOVEA_COMMON_TEXT_RULE_H
#define FOVEA_COMMON_TEXT_RULE_H

/* WHEN TEXT BECOMES CODES (packed/text_codes.h): the prompt's text after the prompt has run, and
 * later text T tokens at a time, between two tokens. With P prompt tokens and h tokens run,
 * positions below
 *
 *     c(h) = P - 1 + T floor((h - P) / T)     h >= P; with T = 0: P - 1; before that 0
 *
 * are codes. This depends on these numbers only, so it is the same wherever the answer continues.
 * Two tokens are never codes: the layer's first text token, an attention sink, and the last token
 * that has run.
 *
 * Pure functions; any thread. */
#include <stdbool.h>
#include <stdint.h>

typedef struct fv_text_rule {
    uint8_t bits;  /* bits of a code: 8 or 4; 0: text stays uncompressed */
    bool values;   /* values too; otherwise keys only */
    int32_t again; /* T, a multiple of 16; 0: only the prompt's text */
} fv_text_rule;

/* Rows of a layer's text that never become codes. */
enum { FV_TEXT_SINK = 1, FV_TEXT_LAST = 1 };

/* c(h) */
static inline int32_t fv_text_coded(const fv_text_rule *r, int32_t n_prompt, int32_t run) {
    if (r->bits == 0 || run < n_prompt) return 0;
    int32_t more = r->again > 0 ? (run - n_prompt) / r->again * r->again : 0;
    return n_prompt - FV_TEXT_LAST + more;
}

/* Number of tokens that may run after h before c changes. */
static inline int32_t fv_text_until(const fv_text_rule *r, int32_t n_prompt, int32_t run) {
    if (r->bits == 0) return INT32_MAX;
    if (run < n_prompt) return n_prompt - run;
    return r->again > 0 ? r->again - (run - n_prompt) % r->again : INT32_MAX;
}

#endif
