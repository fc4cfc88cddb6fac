"""Random networks of GLM-4.1V's families: glm4v, glm46v, glm_ocr."""

FAMILIES = ("glm4v", "glm46v", "glm_ocr")
CLASSES = {"glm4v": "Glm4v", "glm46v": "Glm46V", "glm_ocr": "GlmOcr"}
IMAGE = "<|begin_of_image|><|image|><|end_of_image|>"
# (heads, KV heads, head_dim): heads of which a half can be rotated in three sections
HEADS = [(4, 4, 16), (4, 2, 16), (6, 2, 12), (8, 2, 16), (2, 1, 64), (2, 2, 48), (1, 1, 32), (9, 3, 12), (3, 1, 80)]


def text_of(family):
    return "glm_ocr_text" if family == "glm_ocr" else "glm4v_text"


def text_keys(rng, card, text):
    """What the text models have of their own: partial RoPE, in pairs of neighbours; no other kinds of RoPE."""
    heads, _, dim = card["heads"]
    own = card["family"] == "glm_ocr_text" and rng.random() < 0.5  # whose head_dim counts
    if own:
        text["head_dim"] = dim
    else:
        text["hidden_size"] = heads * dim
    text.pop("bos_token_id")
    partial = rng.choice([p for p in (1.0, 0.5, 0.75) if dim * p >= 6 and dim * p % 2 == 0])
    if partial < 1:
        (text["rope_parameters"] if card["key_form"] == "v5" else text)["partial_rotary_factor"] = partial
    if not own:
        del text["head_dim"]


def config_of(rng, card, family, text, image_token):
    heads, _ = card["vision_heads"]
    dim = rng.choice([4, 8, 12, 20])
    patch, _, merge, _ = card["grid"]
    kind = "glm_ocr_vision" if family == "glm_ocr" else "glm4v_vision"
    vision = {"model_type": rng.choice([kind, family]) if family == "glm4v" else kind, "depth": card["vision_layers"],
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
