#ifndef FOVEA_PREFILL_WORKER_EXPORT_LINKS_H
#define FOVEA_PREFILL_WORKER_EXPORT_LINKS_H

/* Turns the chain of a prompt into the links that a request for a grant carries. Any thread. */
#include "handoff/links.h"
#include "kv/cache/chain.h"

/* Makes *link[*n_link], which the caller frees. A chain of more than FV_LINKS_MAX is thinned out: the ends of images
 * stay, and of the ends of text those at multiples of 2, 4, 8, ... pages of text, so that long prompts with a common
 * beginning have links in common. */
fv_status fv_export_links(const fv_chain_link *chain, int32_t n, fv_wire_link **link,
                          uint32_t *n_link);

#endif
