#ifndef FOVEA_MODEL_NET_EXPERTS_H
#define FOVEA_MODEL_NET_EXPERTS_H

/* A MIXTURE OF EXPERTS (arXiv 1701.06538, Qwen3's form): E gated FFNs of width m, of which a token
 * goes through the k that a router chooses.
 *
 *     r = h Wr^T                                        logits [E], a canonical product
 *     S = the k experts with the highest r; on a tie the lower index; NaN is lower than any number
 *     p_e = exp(r_e - max r),  g_e = p_e / sum of p over S     sums in the order of the indices
 *     f_e = (act(h Wgate_e^T) * (h Wup_e^T)) Wdown_e^T         canonical products
 *     y = (((g_a f_a) + g_b f_b) + ...)                        a < b < ... in S
 *
 * With router.sigmoid (config.h) the scores are s_e = sigmoid(r_e), and instead
 *
 *     t_e = s_e + bias_e
 *     S = the k experts with the highest t in the n_open groups of the highest sum of two t
 *     g_e = s_e / (1e-20 + sum of s over S)   if normed, otherwise s_e;   then g_e = scale g_e
 *
 * Gemma 4's router reads another norm of the hidden state than the experts do (`routed`), and g_e is
 * multiplied by a factor of the expert (expert_scale).
 *
 * Every product and sum above is rounded once. Which tokens are computed together, and how an
 * expert's matrices are cut among threads, changes no bit: the same token gives the same bits alone,
 * in a batch and in a chunk, on every instruction set.
 *
 * Tokens are grouped by expert, so a batch reads each active expert's weights once, and no others: one
 * token reads k of E. Routing and the last sum run on the host, so this needs a backend whose memory
 * is the host's.
 *
 * A mixture belongs to no family: a layer has one where it has a router (model/net/weights.h). */
#include "model/net/config.h"
#include "model/net/weights.h"
#include "model/net/workspace.h"

/* Chooses experts for n tokens from logits [n, E]; bias is [E] or NULL. expert and weight get
 * [n, n_active]: indices in ascending order, and their weights. */
void fv_experts_route(const fv_text_config *cfg, const float *bias, const float *logits, int32_t n,
                      int32_t *expert, float *weight);

/* FV_EUNSUPPORTED if the backend's memory is not the host's. */
fv_status fv_experts_check(const fv_backend *be);

/* Computes y [n, d] F32 from h [n, d] F32, which is the normed input, for a layer with a router, which
 * reads routed [n, d] F32, h itself in most models. `apart`: the layer's experts [E] where they are tensors
 * of their own, otherwise NULL. Memory is cut from `ws`, whose earlier cuts it releases; it grows with the
 * number of tokens up to a bound. y may be h. */
fv_status fv_experts_run(fv_workspace *ws, const fv_text_config *cfg, const fv_text_layer *layer,
                         const fv_text_expert *apart, fv_tensor routed, fv_tensor h, fv_tensor y);

#endif
