#ifndef FOVEA_POLICY_PLAN_PREFIX_H
#define FOVEA_POLICY_PLAN_PREFIX_H

/* WHAT OF A PROMPT'S BEGINNING IS THE SAME, WHATEVER FOLLOWS IT: how far a cache may keep it under a plan. It follows
 * from where stages act, and from what their methods depend on (policy/depends.h):
 *
 *   condense   before the first layer. If an image is condensed by its own content alone, its tokens are the same in
 *              every prompt, and so are all keys and values; otherwise nothing is.
 *   lazy       within the layers, likewise.
 *   prune      between the layers: before the first layer that drops tokens, or in which more than the prompt's last
 *              token is looked at, nothing depends on what follows. Masks of attention there are part of what shapes
 *              the rows.
 *   select, pack, expand, evict    after the layers: they change nothing that is computed.
 *
 * Pure functions, any thread. */
#include "policy/plan/plan.h"

enum { FV_PLAN_PREFIX_TEXT = FV_POLICY_TEXT_MAX + 16 * FV_PLAN_MAX_LAYERS };

/* Number of first layers whose keys and values of a prompt's beginning do not depend on what follows: all of them, or
 * those before a layer from which on all tokens must run, or 0. */
int32_t fv_plan_prefix_layers(const fv_plan *plan);

/* Writes the stages that shape these rows, as text: plans with the same text compute the same rows. "" if they are
 * those of `exact`, in all layers. */
void fv_plan_prefix_stages(const fv_plan *plan, char out[FV_PLAN_PREFIX_TEXT]);

#endif
