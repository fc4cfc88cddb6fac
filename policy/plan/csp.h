#ifndef FOVEA_POLICY_PLAN_CSP_H
#define FOVEA_POLICY_PLAN_CSP_H

/* Sizes of select=csp: the plan counts them, the prefill worker keeps that many rows, and the
 * decode worker reserves memory for them. Pure functions of the policy and the prompt's length. */
#include "policy/policy.h"

/* For a prompt of L rows with the policy's shares h and r, cross share rho and bias b:
 *     heavy = floor(h L);  window = floor(r L);  budget = heavy + window
 *     recent = floor(b window);  k = budget - recent
 *     cross = floor(rho k);  self = floor((1 - rho) k)
 * The authors' code has cross = 1 and self = 308 for rho = 0, whatever the length; this has not. */
typedef struct fv_csp_sizes {
    int32_t budget;      /* a layer with fewer rows keeps all; INT32_MAX: all layers do */
    int32_t window;      /* last tokens of the prompt whose attention counts */
    int32_t recent;      /* last rows that always stay */
    int32_t self, cross; /* rows chosen of the others, within a modality and across */
} fv_csp_sizes;

fv_csp_sizes fv_csp_sizes_of(const fv_select_csp_params *p, int32_t n_prompt);

#endif
