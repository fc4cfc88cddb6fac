#ifndef FOVEA_MODEL_NET_WEIGHTS_H
#define FOVEA_MODEL_NET_WEIGHTS_H

/* The tensors of the network, as views into a mapped checkpoint or other memory of the caller.
 * MODEL.md lists each with its equation. Absent biases have data == NULL. */
#include "kernels/tensor.h"

typedef struct fv_text_layer {
    fv_tensor attn_norm;  /* [1, d] */
    fv_tensor q, k, v, o; /* [H D, d] [Hkv D, d] [Hkv D, d] [d, H D]; with a gate q is
                           * [H 2 D, d], of each head the query, then the gate */
    fv_tensor q_bias, k_bias, v_bias, o_bias;
    fv_tensor q_norm, k_norm;                /* [1, D], of each head */
    fv_tensor mlp_norm;                      /* [1, d] */
    fv_tensor attn_post_norm, mlp_post_norm; /* [1, d], with post_norms */
    fv_tensor scale;                         /* [1, 1] with layer_scale; the decoder's is [1, d] */
    fv_tensor gate, up, down;                /* [m, d] [m, d] [d, m] */
    fv_tensor gate_bias, up_bias, down_bias;
    /* In a sparse layer these take the place of gate, up and down: [E, d]; [E 2m, d], of each expert
     * its gate and then its up projection; [E d, m]. m is the width of an expert. */
    fv_tensor router, experts_in, experts_out;
    fv_tensor router_bias; /* [1, E] or absent; the decoder's is F32 */
    /* With dense_beside: norms of the router's input (in files its factors, [1, d]) and of the experts',
     * of the dense FFN's output and of theirs; a factor of each expert [1, E]. */
    fv_tensor router_norm, experts_norm, dense_post_norm, experts_post_norm, expert_scale;
    /* With per-layer embeddings of width p (layer_inputs_internal.h): [p, d] [d, p] [1, d]; and this layer's rows
     * [p, d] of input_project below, which the decoder fills in. */
    fv_tensor input_gate, input_out, input_norm, input_rows;
    fv_tensor shared_gate; /* [1, d] with shared_gated; gate, up and down are the shared expert's */
    /* A recurrent layer has these in place of q, k, v and o: Hv value heads, C columns. */
    fv_tensor delta_qkv, delta_z, delta_b, delta_a; /* [C, d] [Hv Dv, d] [Hv, d] [Hv, d] */
    fv_tensor delta_conv;                           /* [C, taps] */
    fv_tensor delta_log_rate, delta_shift;          /* [1, Hv] */
    fv_tensor delta_norm, delta_out;                /* [1, Dv] [d, Hv Dv] */
} fv_text_layer;

/* An expert of a layer whose experts are tensors of their own, in place of experts_in and experts_out. */
typedef struct fv_text_expert {
    fv_tensor gate, up, down; /* [m, d] [m, d] [d, m] */
} fv_text_expert;

typedef struct fv_text_weights {
    fv_tensor embed;      /* [vocab, d] */
    fv_text_layer *layer; /* [N + n_sharer]; those that share have no k, v and k_norm */
    /* With per-layer embeddings of width p: [vocab, (N + n_sharer) p], [(N + n_sharer) p, d], [1, p].
     * The table is only ever read row by row where the file is mapped. */
    fv_tensor input_table, input_project, input_norm;
    fv_text_layer *recurrent; /* [N, recurrent layers ahead of each]; absent without them */
    /* [N + recurrent layers, E], those of recurrent layers last; NULL: experts are not apart */
    fv_text_expert *expert;
    fv_tensor norm; /* [1, d] */
    fv_tensor head; /* [vocab, d]; the embedding itself when tied */
} fv_text_weights;

/* Bounds of a linear layer's input and output, [1, 1] each. */
typedef struct fv_vision_clip {
    fv_tensor in_min, in_max, out_min, out_max;
} fv_vision_clip;

typedef struct fv_vision_layer {
    fv_tensor norm1, norm1_bias, norm2, norm2_bias;       /* [1, d] */
    fv_tensor q, k, v, o, q_bias, k_bias, v_bias, o_bias; /* [d, d], [1, d] */
    fv_tensor qkv, qkv_bias; /* [3 d, d], [1, 3 d]: q, k, v in one; the single ones are absent
                              * then */
    fv_tensor fc1, fc1_bias, fc2, fc2_bias; /* [m, d] [1, m] [d, m] [1, d] */
    fv_tensor gate, gate_bias;              /* [m, d] [1, m]; fc1 is then the up projection */
    fv_tensor q_norm, k_norm, scale1,
        scale2; /* [1, d], of norms [1, D] with qk_norm_heads or head_norms, or absent */
    fv_tensor attn_post_norm, mlp_post_norm; /* [1, d], with post_norms */
    fv_vision_clip q_clip, k_clip, v_clip, o_clip, gate_clip, fc1_clip, fc2_clip; /* with clipped */
} fv_vision_layer;

typedef struct fv_projector_weights {
    fv_tensor norm, norm_bias; /* [1, feature width or d] or absent */
    fv_tensor
        merger; /* [d or d_text, d merge^2], columns in the order (channel, y, x); or absent */
    fv_tensor merger_bias; /* [1, d_text] or absent */
    fv_tensor gate, up; /* [d_between, d_text] of GLM's gated FFN, whose down projection is fc2 */
    fv_tensor fc1, fc1_bias; /* [w, feature width] [1, w]: all of a linear connector; with
                                * mean_pool [d, d_text] */
    fv_tensor fc2, fc2_bias; /* [d_text, w] [1, d_text]; w is d_text, or the feature width */
    fv_tensor peg, peg_bias; /* [d_text, 9] [1, d_text]: MobileVLM V2's depthwise kernel, (y, x) */
    fv_tensor std_bias, std_scale; /* [1, d], with standardize */
    fv_tensor newline;             /* [1, d_text], in families whose rows of tokens end with one */
} fv_projector_weights;

typedef struct fv_vision_weights {
    fv_tensor cls; /* [1, d]; with a class token */
    /* [d, 3 p p]: the convolution kernel, (channel, y, x); for two frames [d, 6 p p], (channel,
     * frame, y, x) */
    fv_tensor patch;
    fv_tensor patch_bias; /* [1, d] or absent */
    fv_tensor position;   /* [1 + P, d], row 0 is CLS's, or [P, d] */
    /* with patch_norms [1, 3 p p] [1, d] [1, d], each with its bias */
    fv_tensor pixel_norm, pixel_norm_bias, patch_norm, patch_norm_bias, sum_norm, sum_norm_bias;
    fv_tensor pre_norm, pre_norm_bias, post_norm, post_norm_bias; /* [1, d] or absent */
    fv_vision_layer *layer; /* [N of the tower]; layers that are not run may lack tensors */
    fv_projector_weights *deepstack; /* [n_deepstack]: norm of a token's features, fc1 and fc2 */
} fv_vision_weights;

#endif
