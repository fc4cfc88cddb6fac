"""Random networks of GLM-4.1V's families: glm4v, glm46v, glm4v_moe, glm_ocr."""

FAMILIES = ("glm4v", "glm46v", "glm4v_moe", "glm_ocr")
CLASSES = {"glm4v": "Glm4v", "glm46v": "Glm46V", "glm4v_moe": "Glm4vMoe", "glm_ocr": "GlmOcr"}
IMAGE = "<|begin_of_image|><|image|><|end_of_image|>"
# (heads, KV heads, head_dim): heads of which a half can be rotated in three sections
HEADS = [(4, 4, 16), (4, 2, 16), (6, 2, 12), (8, 2, 16), (2, 1, 64), (2, 2, 48), (1, 1, 32), (9, 3, 12), (3, 1, 80)]


def text_of(family):
    return "glm4v_text" if family == "glm46v" else family + "_text"


def expert_keys(rng, text):
    """GLM-4.5V's router, by groups or not, its shared expert and the dense layers ahead of the sparse ones."""
    groups, size = rng.choice([(1, 5), (1, 8), (2, 3), (2, 4), (4, 2), (3, 4)])
    best = rng.randrange(1, groups + 1)
    text |= {"n_routed_experts": groups * size, "n_group": groups, "topk_group": best,
             "num_experts_per_tok": rng.randrange(1, min(best * size, 5) + 1), "moe_intermediate_size": rng.choice([11, 33, 71]),
             "n_shared_experts": rng.choice([1, 1, 2]), "first_k_dense_replace": rng.choice([0, 1]),
             "norm_topk_prob": rng.random() < 0.7, "routed_scaling_factor": rng.choice([1.0, 2.5])}


def text_keys(rng, card, text):
    """What the text models have of their own: partial RoPE, in pairs of neighbours; no other kinds of RoPE."""
    heads, _, dim = card["heads"]
    moe = card["family"] == "glm4v_moe_text"
    own = moe or card["family"] == "glm_ocr_text" and rng.random() < 0.5  # whose head_dim counts
    if own:
        text["head_dim"] = dim
    else:
        text["hidden_size"] = heads * dim
    text.pop("bos_token_id")
    if moe:
        expert_keys(rng, text)
        text["attention_bias"] = card["bias"]
    partial = rng.choice([p for p in (1.0, 0.5, 0.25 if moe else 0.75) if dim * p >= 6 and dim * p % 2 == 0])
    if partial < 1 or moe:  # whose default is 0.5
        (text["rope_parameters"] if card["key_form"] == "v5" else text)["partial_rotary_factor"] = partial
    if not own:
        del text["head_dim"]


def config_of(rng, card, family, text, image_token):
    heads, _ = card["vision_heads"]
    dim = rng.choice([4, 8, 12, 20])
    patch, _, merge, _ = card["grid"]
    kind = "glm4v_vision" if family == "glm46v" else family + "_vision"
    vision = {"model_type": rng.choice([kind, family]) if family.startswith("glm4v") else kind, "depth": card["vision_layers"],
              "hidden_size": heads * dim, "num_heads": heads, "intermediate_size": card["vision_ffn"],
              "image_size": patch * rng.choice([2, 3, 5]), "patch_size": patch, "spatial_merge_size": merge,
              "in_channels": 3, "out_hidden_size": text["hidden_size"], "hidden_act": rng.choice(["silu", "gelu"]),
              "rms_norm_eps": rng.choice([1e-5, 1e-6]), "attention_bias": card["bias"]}
    if rng.random() < 0.3:
        vision["rope_parameters"] = {"rope_type": "axial", "rope_theta": 500.0}
    if rng.random() < 0.5:
        vision["temporal_patch_size"] = 2
    return {"vision_config": vision, "image_token_id": image_token, "video_token_id": image_token + 1,
            "image_start_token_id": image_token - 2, "image_end_token_id": image_token - 1,
            "video_start_token_id": image_token - 4, "video_end_token_id": image_token - 3}
