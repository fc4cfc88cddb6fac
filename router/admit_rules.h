#ifndef FOVEA_ROUTER_ADMIT_RULES_H
#define FOVEA_ROUTER_ADMIT_RULES_H

/* ADMIT RULES: checks which tokens a request's answer may have, and what it returns of the prompt. Any
 * thread. */
#include "common/status.h"
#include "inference.pb-c.h"

/* FV_EINVAL names the field, its value and its range, for a model of n_vocab ids. Costs no more than the
 * limits of the lists, whatever their lengths. */
fv_status fv_admit_rules(const Fovea__Inference__V1__GenerateRequest *r, uint32_t n_vocab);

#endif
