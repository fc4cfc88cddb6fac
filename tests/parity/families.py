"""Random networks of the families beside LLaVA-1.5: several tiles, portrait and panorama, several images.

Sizes are small fractions of real ones: a tile has 16 to 100 pixels.
"""
import io
import random

import cases
import glm
import internvl_chat
from cases import Case, deal

# llava_mrope is LLaVA with the text model of a Qwen-VL family, and so with positions in a grid.
FAMILIES = ["llava_next", "llava_onevision", "idefics3", "smolvlm", "llava_siglip", "llava_mrope",
            "internvl", "internvl_chat", "mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "gemma3", "video_llava", "mobilevlm", "qwen2_vl_video", "qwen2_5_vl_video", "qwen3_vl_video", "qwen3_5_video", "video_llava_video",
            "llava_granite", "llava_phi3", "ministral3", "qwen3_vl_moe", "qwen3_vl_moe_video", "qwen3_5_moe", "qwen3_5_moe_video", "pixtral", "shieldgemma2", "gemma4", "gemma4_unified", "gemma4_experts", "gemma4_shared", *glm.FAMILIES, "lighton_ocr", "paddleocr_vl"]
# Families of the list that are others with a certain text model.
WITH_TEXT = {"llava_granite": ("llava_next", "granite"), "llava_phi3": ("llava", "phi3"),
             "ministral3": ("mistral3", "ministral3"), "gemma4_experts": ("gemma4", "gemma4_text"), "gemma4_shared": ("gemma4", "gemma4_text")}
CLASSES = {"llava_next": "LlavaNext", "llava_onevision": "LlavaOnevision", "idefics3": "Idefics3",
           "smolvlm": "SmolVLM", "llava": "Llava", "internvl": "InternVL",
           "mistral3": "Mistral3", "pixtral": "Llava", "qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe", "qwen3_vl_moe": "Qwen3VLMoe",
           "gemma3": "Gemma3", "shieldgemma2": "ShieldGemma2", "gemma4": "Gemma4", "gemma4_unified": "Gemma4Unified", "video_llava": "VideoLlava", "lighton_ocr": "LightOnOcr", "paddleocr_vl": "PaddleOCRVL"} | glm.CLASSES
GEMMA4 = ("gemma4", "gemma4_unified")
QWEN_VL = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
# The text of an image in a prompt.
IMAGE_TOKENS = {"gemma3": "<start_of_image>", "shieldgemma2": "<start_of_image>", "internvl": "<IMG_CONTEXT>", "internvl_chat": "<IMG_CONTEXT>", "mistral3": "[IMG]", "pixtral": "[IMG]", "lighton_ocr": "<|image_pad|>", "paddleocr_vl": "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"} | dict.fromkeys(
    QWEN_VL, "<|vision_start|><|image_pad|><|vision_end|>") | dict.fromkeys(glm.FAMILIES, glm.IMAGE) | dict.fromkeys(GEMMA4, "<|image|>")
# (patch, patches along a side, merged along a side, pixels left over)
MERGED = [(14, 4, 2, 0), (4, 6, 3, 0), (5, 4, 4, 3), (8, 2, 1, 0), (7, 6, 2, 5), (4, 25, 5, 0),
          (3, 12, 4, 0), (16, 4, 2, 0), (9, 3, 3, 1), (6, 8, 2, 0)]
GRIDS = [(14, 2, 0), (7, 4, 0), (4, 5, 0), (5, 3, 2), (8, 3, 0), (6, 5, 1), (10, 3, 0), (9, 2, 4),
         (4, 9, 0), (13, 1, 0)]
TWELVES = [(2, 24, 0), (3, 24, 1), (4, 24, 0), (2, 36, 1), (5, 24, 3)]  # of MobileVLM
# Width and height over a tile's side.
SHAPES = [(1.0, 1.0), (0.4, 2.6), (3.1, 0.3), (2.0, 2.0), (1.7, 0.9), (0.9, 1.6), (2.9, 2.1),
          (0.2, 0.3), (1.01, 0.99), (2.2, 3.7), (5.0, 0.6), (0.5, 4.0)]


def images_of(rng, shapes, tile):
    images = []
    for k, (w, h) in enumerate(shapes):
        w, h = (max(2, round(x * tile) + rng.randrange(-1, 2)) for x in (w, h))
        out = io.BytesIO()
        if rng.random() < 0.5:
            cases.picture(rng, w, h).save(out, "JPEG", quality=rng.randrange(60, 96))
            images.append((f"{k}.jpg", out.getvalue()))
        else:
            cases.picture(rng, w, h).quantize(rng.choice([8, 16])).save(out, "PNG")
            images.append((f"{k}.png", out.getvalue()))
    return images


def tower(card, kind, image):
    heads, dim = card["vision_heads"]
    config = {"model_type": kind, "hidden_size": heads * dim,
              "intermediate_size": card["vision_ffn"], "num_hidden_layers": card["vision_layers"],
              "num_attention_heads": heads, "image_size": image, "patch_size": card["grid"][0],
              "hidden_act": card["vision_act"], "layer_norm_eps": card["eps"]}
    if kind == "clip_vision_model":
        config["projection_dim"] = 16
    if kind == "siglip_vision_model":
        config["vision_use_head"] = card["head"]
    return config


def pinpoints(rng, tile):
    """[height, width] of 1 to 3 tiles each way."""
    every = [[tile * h, tile * w] for h in (1, 2, 3) for w in (1, 2, 3)]
    return rng.sample(every, rng.randrange(2, 7))


def internvl(rng, card, image):
    patch, side, merge, _ = card["grid"]
    both = rng.random() < 0.5  # two equal numbers, or one
    layer = cases.feature_layers(rng, card["features"], card["vision_layers"])
    vision = tower(card, "internvl_vision", image) | {
        "image_size": [image, image] if both else image, "patch_size": [patch, patch] if both else patch,
        "attention_bias": card["bias"], "use_qk_norm": rng.random() < 0.5,
        "norm_type": rng.choice(["layer_norm", "rms_norm"]), "use_mean_pooling": rng.random() < 0.7,
        "use_mask_token": rng.random() < 0.2}
    return {"vision_config": vision, "downsample_ratio": 1 / merge,
            "image_seq_length": (side // merge) ** 2, "projector_hidden_act": card["projector_act"],
            "vision_feature_layer": -1 if isinstance(layer, list) else layer,
            "vision_feature_select_strategy": "default"}


def mistral3(rng, card):
    heads, _ = card["vision_heads"]
    dim = rng.choice([4, 8, 12, 20])
    patch, _, merge, _ = card["grid"]
    vision = {"model_type": "pixtral", "hidden_size": heads * dim,
              "intermediate_size": card["vision_ffn"], "num_hidden_layers": card["vision_layers"],
              "num_attention_heads": heads, "image_size": rng.choice([90, 120, 180]),
              "patch_size": patch, "hidden_act": rng.choice(["silu", "gelu"])}
    theta = rng.choice([10000.0, 500.0])
    vision |= rng.choice([{"rope_theta": theta, "head_dim": dim},
                          {"rope_parameters": {"rope_type": "axial", "rope_theta": theta}}])
    layer = cases.feature_layers(rng, card["features"], card["vision_layers"])
    return {"vision_config": vision, "spatial_merge_size": merge,
            "projector_hidden_act": card["projector_act"],
            "multimodal_projector_bias": card["projector_bias"],
            "vision_feature_layer": -1 if isinstance(layer, list) else layer}


def qwen_vl(rng, card, family, width):
    """The tower; `width` is the text model's."""
    heads, _ = card["vision_heads"]
    dim = rng.choice([4, 8, 12, 20])
    patch, _, merge, _ = card["grid"]
    vision = {"model_type": rng.choice([family, family + "_vision"]) if family != "qwen2_5_vl" else
              family + "_vision", "depth": card["vision_layers"], "num_heads": heads,
              "patch_size": patch, "spatial_merge_size": merge,
              rng.choice(["in_channels", "in_chans"]): 3}
    if rng.random() < 0.3:
        vision["rope_parameters"] = {"rope_type": "axial", "rope_theta": 500.0}
    if rng.random() < 0.5:
        vision["temporal_patch_size"] = 2
    if family == "qwen2_vl":
        return vision | {"embed_dim": heads * dim, "hidden_size": width,
                         "mlp_ratio": rng.choice([2, 3, 4]),
                         "hidden_act": rng.choice(["quick_gelu", "gelu"])}
    vision |= {"hidden_size": heads * dim, "intermediate_size": card["vision_ffn"],
               "out_hidden_size": width}
    if family.startswith("qwen3_5"):
        return vision | {"hidden_act": rng.choice(["gelu_pytorch_tanh", "gelu"]),
                         "num_position_embeddings": rng.choice([4, 9, 25])}
    if family.startswith("qwen3_vl"):
        every = range(min(card["layers"] - 1, card["vision_layers"]))
        return vision | {"hidden_act": rng.choice(["gelu_pytorch_tanh", "gelu"]),
                         "num_position_embeddings": rng.choice([4, 9, 25]),
                         "deepstack_visual_indexes": sorted(rng.sample(range(card["vision_layers"]), len(every)))}
    return vision | {"hidden_act": "silu",
                     "window_size": patch * merge * rng.choice([1, 2, 3]) + rng.randrange(patch),
                     "fullatt_block_indexes": rng.choice([[], [0], [1], [7, 1]])}


def gemma4(rng, card, family):
    """The tower, or the matrix in place of one."""
    heads, _ = card["vision_heads"]
    dim = rng.choice([4, 8, 12, 20])
    patch, _, merge, _ = card["grid"]
    if family == "gemma4_unified":
        width = rng.choice([16, 24, 37])
        return {"model_type": "gemma4_unified_vision", "patch_size": patch, "pooling_kernel_size": merge,
                "mm_embed_dim": width, "output_proj_dims": width, "mm_posemb_size": rng.choice([70, 90]),
                "rms_norm_eps": card["eps"]}
    return {"model_type": "gemma4_vision", "hidden_size": heads * dim, "intermediate_size": card["vision_ffn"],
            "num_hidden_layers": card["vision_layers"], "num_attention_heads": heads, "num_key_value_heads": heads,
            "head_dim": dim, "patch_size": patch, "pooling_kernel_size": merge,
            "position_embedding_size": 70 * merge + rng.randrange(9), "standardize": rng.random() < 0.5,
            "use_clipped_linears": bool(card["shared"]), "rms_norm_eps": card["eps"],
            "hidden_activation": rng.choice(["gelu_pytorch_tanh", "silu"]),
            "rope_parameters": {"rope_type": "axial", "rope_theta": rng.choice([100.0, 30.0])}}


def qwen_vl_processor(rng, card, family):
    """preprocessor_config.json, as older files have it; or None: the usual one."""
    if rng.random() < 0.5:
        return None
    patch, _, merge, _ = card["grid"]
    token = (patch * merge) ** 2
    least, most = rng.choice([1, 3, 20]) * token, rng.choice([20, 33, 60]) * token + token // 3
    kind = "PaddleOCRVL" if family == "paddleocr_vl" else "Qwen2VL" if family in QWEN_VL else "Glm4v" if family in ("glm4v", "glm4v_moe") else "Glm46V"
    keys = {"image_processor_type": kind + "ImageProcessor", "patch_size": patch,
            "merge_size": merge, "temporal_patch_size": 1 if family == "paddleocr_vl" else 2, "min_pixels": least, "max_pixels": most,
            "image_mean": [0.48, 0.45, 0.4], "image_std": [0.26, 0.26, 0.27]}
    if family in glm.FAMILIES:  # which reads no other names
        keys["size"] = {"shortest_edge": 2 * keys.pop("min_pixels"), "longest_edge": 2 * keys.pop("max_pixels") + rng.randrange(2)}
    elif rng.random() < 0.5:
        keys["size"] = {"min_pixels": least, "max_pixels": most}  # which says nothing
    return keys


def lighton_processor(rng, card, pictures):
    """preprocessor_config.json, whose patches are those that sides are multiples of: the tower's, or whole tokens, which
    an image must have at least one of."""
    patch, _, merge, _ = card["grid"]
    edge = rng.choice([90, 120, 180])
    least = min(60 * min(w, h) * min(1, edge / (60 * max(w, h))) for w, h in pictures)
    unit = rng.choice([patch, patch * merge]) if least > patch * merge + 2 else patch * merge
    return {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": edge},
            "patch_size": rng.choice([unit, {"height": unit, "width": unit}]),
            "image_mean": [0.48, 0.45, 0.4], "image_std": [0.26, 0.26, 0.27]}


def paddleocr_tower(rng, card):
    heads, _ = card["vision_heads"]
    patch, _, merge, _ = card["grid"]
    return {"model_type": rng.choice(["paddleocr_vl", "paddleocr_vl_vision"]), "hidden_size": heads * rng.choice([4, 8, 12, 20]),
            "intermediate_size": card["vision_ffn"], "num_hidden_layers": card["vision_layers"], "num_attention_heads": heads,
            "image_size": patch * rng.choice([2, 3, 5]) + rng.randrange(patch), "patch_size": patch, "spatial_merge_size": merge,
            "hidden_act": rng.choice(["gelu_pytorch_tanh", "gelu"]), "layer_norm_eps": card["eps"]}


def mobilevlm(rng, card, text, image):
    """The original layout; `fovea synth` puts vision_config into the tower's directory."""
    vision = tower(card, "clip_vision_model", image)
    layers = card["vision_layers"]
    return {k: v for k, v in text.items() if k != "model_type"} | {
        "architectures": ["MobileLlamaForCausalLM"], "model_type": "mobilevlm", "vision_config": vision,
        "vision_tower_type": "clip", "mm_projector_type": "ldpnetv2", "mm_hidden_size": vision["hidden_size"],
        "mm_vision_select_layer": rng.choice([-2, -1, 1, -layers]), "mm_vision_select_feature": "patch",
        "mm_use_im_start_end": False, "mm_use_im_patch_token": False,
        "image_aspect_ratio": rng.choice(["pad", "pad", "square"]), "tie_word_embeddings": card["tied"]}


def config_of(rng, card, family):
    vocab = rng.randrange(380, 480)
    image_token = rng.randrange(vocab - 30, vocab - 3)
    patch, side, rest = card["grid"][0], card["grid"][1], card["grid"][-1]
    image = patch * side + min(rest, patch - 1)
    if family == "mobilevlm":
        return mobilevlm(rng, card, cases.text_config(rng, card, vocab, False), image), image
    name = "llava" if family in ("llava_siglip", "llava_mrope") else family
    config = {"architectures": [CLASSES.get(name, "") + "ForConditionalGeneration"], "model_type": name,
              "text_config": cases.text_config(rng, card, vocab, False),
              "tie_word_embeddings": card["tied"]}
    if name in ("idefics3", "smolvlm"):
        kind = rng.choice([name, name + "_vision"])  # files of the hub have the first
        config |= {"vision_config": tower(card, kind, image), "image_token_id": image_token,
                   "scale_factor": card["grid"][2]}
        return config, image
    if name in ("gemma3", "shieldgemma2"):
        if name == "shieldgemma2":
            config["architectures"] = ["ShieldGemma2ForImageClassification"]
        side = card["grid"][1] // card["grid"][2]
        return config | {"vision_config": tower(card, "siglip_vision_model", image),
                         "image_token_index": image_token, "boi_token_index": image_token - 2,
                         "eoi_token_index": image_token - 1, "mm_tokens_per_image": side * side}, image
    if name in GEMMA4:
        if rng.random() < 0.5:
            config["text_config"]["tie_word_embeddings"] = card["tied"]
        return config | {"vision_config": gemma4(rng, card, name), "image_token_id": image_token,
                         "video_token_id": image_token + 1, "boi_token_id": image_token - 4, "audio_config": None,
                         "eoi_token_id": image_token - 3, "boa_token_id": image_token - 2,
                         "eoa_token_index": image_token - 1}, patch * card["grid"][2] * 6
    if name == "mistral3":
        return config | mistral3(rng, card) | {"image_token_index": image_token}, 60
    if name == "paddleocr_vl":
        text = config["text_config"]
        add_sections(rng, card, text)
        config |= {"vision_config": paddleocr_tower(rng, card), "image_token_id": image_token}
        if rng.random() < 0.5:  # as published
            del config["text_config"], text["model_type"]
            config = text | config
        return config, patch * card["grid"][2] * 4
    if name == "lighton_ocr":
        keys = mistral3(rng, card)
        return config | {key: keys[key] for key in ("vision_config", "spatial_merge_size")} | {"image_token_id": image_token}, 60
    if name == "pixtral":  # patches of 12 pixels or more: each is a token
        card["grid"] = (max(12, patch), side, 1, 0)
        config |= mistral3(rng, card) | {"model_type": "llava", "image_token_index": image_token,
                                         "vision_feature_select_strategy": "full"}
        del config["spatial_merge_size"]
        return config, 60
    if name in glm.FAMILIES:
        add_sections(rng, card, config["text_config"])
        return config | glm.config_of(rng, card, name, config["text_config"], image_token), patch * card["grid"][2] * 4
    if name in QWEN_VL:
        add_sections(rng, card, config["text_config"])
        text = config["text_config"]
        config |= {"vision_config": qwen_vl(rng, card, name, text["hidden_size"]),
                   "image_token_id": image_token, "video_token_id": image_token + 1}
        if rng.random() < 0.5 and not name.startswith("qwen3"):  # as older files have it
            del config["text_config"], text["model_type"]
            config = text | config
        return config, patch * card["grid"][2] * 4
    if name == "internvl_chat":
        return internvl_chat.config_of(rng, card, config["text_config"], tower(card, "intern_vit_6b", image)), image
    if name == "internvl":
        return config | internvl(rng, card, image) | {"image_token_id": image_token}, image
    siglip = family != "video_llava" and (family != "llava_next" or rng.random() < 0.2)
    config |= {"vision_config": tower(card, "siglip_vision_model" if siglip else
                                      "clip_vision_model", image),
               rng.choice(["image_token_index", "image_token_id"]): image_token,
               "projector_hidden_act": card["projector_act"],
               "vision_feature_select_strategy": "full" if siglip else "default",
               "vision_feature_layer": cases.feature_layers(rng, card["features"],
                                                            card["vision_layers"]),
               "multimodal_projector_bias": card["projector_bias"]}
    if name == "video_llava":
        return config | {"video_token_index": image_token + 1}, image
    if name != "llava":
        config["image_grid_pinpoints"] = pinpoints(rng, image)
    if name == "llava_onevision":
        config["video_token_index"] = image_token + 1
        config["vision_aspect_ratio"] = rng.choice(["anyres_max_9", "anyres_max_1", "anyres_max_2",
                                                    "anyres_max_4"])
    return config, image


def add_sections(rng, card, text):
    """M-RoPE's sections of head_dim / 2 frequencies, interleaved in Qwen3-VL and Qwen3.5."""
    interleaved = card["family"].startswith(("qwen3_vl", "qwen3_5"))
    heads, _, dim = card["heads"]
    half = cases.rotated(text | {"head_dim": dim}) // 2
    text["tie_word_embeddings"] = card["tied"]  # LLaVA's config asks for it
    if not interleaved and card["family"] not in ("glm_ocr_text", "glm4v_moe_text", "paddleocr_vl_text"):  # which goes by the width, whatever head_dim is
        text["hidden_size"] = heads * dim
    h, w = (rng.randrange(1, half // 3 + 1) for _ in range(2))
    key = "rope_parameters" if card["key_form"] == "v5" else "rope_scaling"
    glm_text = card["family"].startswith(("glm", "paddle"))
    rope = text.setdefault(key, {"rope_type": "default"} if interleaved or glm_text else {"type": "mrope"})
    rope["mrope_section"] = [half - h - w, h, w]
    if interleaved:
        rope["mrope_interleaved"] = True


def clip(rng, shape, tile, pairs, least):
    """(file name, a GIF of `least` frames or more, frames per second), which has every pixel as it is. `pairs`: an
    even number of frames, which is what fovea takes of a file for Qwen2-VL."""
    w, h = (max(2, round(x * tile)) for x in shape)
    frames = [cases.picture(rng, w, h).quantize(64) for _ in range(max(least, rng.randrange(1, 5) * (1 + pairs)))]
    out, ms = io.BytesIO(), rng.choice([20, 40, 100, 250, 500, 1000])
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=ms, disposal=2, loop=0)
    return ("clip.gif", out.getvalue(), 1000 / ms)


def make_family_cases(n, seed, pairs=True, names=FAMILIES):
    """n cases of each family."""
    made = []
    for name in names:
        family = name.removesuffix("_video")
        family, of_text = WITH_TEXT.get(family, (family, None))
        rng = random.Random(f"{name} {seed}")
        merged = family in ("idefics3", "smolvlm", "internvl", "internvl_chat", "mistral3", "gemma3", "shieldgemma2", "lighton_ocr", "paddleocr_vl") + QWEN_VL + GEMMA4 + glm.FAMILIES
        mrope = family == "llava_mrope"
        grids = [g for g in MERGED if (not family.startswith("internvl") or g[2] & (g[2] - 1) == 0) and (family != "gemma4" or g[2] > 1)]
        columns = {
            "family": [of_text] if of_text else ["qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"] if mrope else
                      [glm.text_of(family)] if family in glm.FAMILIES else ["gemma3_text"] if family == "shieldgemma2" else [family + "_text"] if family in QWEN_VL + GEMMA4 + ("gemma3",) else ["paddleocr_vl_text"] if family == "paddleocr_vl" else ["qwen3"] if family == "lighton_ocr" else ["llama"] if family == "mobilevlm" else
                      ["qwen2", "qwen3", "llama", "phi3"] if family == "internvl_chat" else
                      ["llama", "mistral", "qwen2", "qwen3"], "heads": glm.HEADS if family in glm.FAMILIES else cases.HEADS,
            "layers": [1, 2, 3], "width": [24, 36, 52, 60, 64], "ffn": [40, 77, 99],
            "eps": [1e-5, 1e-6], "act": ["silu"], "rope": cases.ROPES, "bias": [True, False],
            "tied": [False, False, True], "vision_heads": cases.VISION_HEADS,
            "vision_layers": [2, 3], "vision_ffn": [30, 41, 64], "head": [False, True],
            "grid": TWELVES if family == "mobilevlm" else grids if merged else GRIDS,
            "vision_act": ["gelu_pytorch_tanh", "gelu_pytorch_tanh", "quick_gelu", "gelu"],
            "features": ["-1", "-2", "list", "positive"], "projector_bias": [True, True, False],
            "projector_act": ["gelu", "gelu", "silu"], "dtype": ["f32", "bf16", "f16"],
            "dialect": ["hub", "v4.52", "v5.6"], "key_form": ["v4", "v5"],
            "n_image": [1, 1, 1, 2, 3], "question": cases.QUESTIONS[:6],
            "chat": [True, False, False]}
        dealt = {name: deal(rng, values, n) for name, values in columns.items()}
        shapes = deal(rng, SHAPES, 3 * n)
        for i in range(n):
            card = {key: values[i] for key, values in dealt.items()}
            card["experts"], card["shared"] = name == "gemma4_experts", name == "gemma4_shared"
            if mrope and card["chat"]:  # whose images would be beside each other
                card["n_image"] = 1
            config, tile = config_of(rng, card, family)
            if mrope:
                add_sections(rng, card, config["text_config"])
            pictures = [shapes.pop() for _ in range(card["n_image"])]
            prompt = card["question"]
            if not card["chat"]:
                layouts = [t for t in cases.LAYOUTS[card["n_image"]]
                           if not (mrope and "<image><image>" in t)]
                prompt = rng.choice(layouts).replace("{q}", prompt)
            prompt = prompt.replace("<image>", IMAGE_TOKENS.get(family, "<image>"))
            heads, kv, dim = card["heads"]
            about = (f"{family}: {card['family']} {card['layers']}L {heads}/{kv}x{dim}, tower "
                     f"{card['vision_layers']}L {tile}/{card['grid'][0]}, {card['dtype']} "
                     f"{card['dialect']} {card['key_form']}, images "
                     + " ".join(f"{w}x{h}" for w, h in pictures))
            processor = qwen_vl_processor(rng, card, family) if family in QWEN_VL + glm.FAMILIES + ("paddleocr_vl",) else None
            if family == "lighton_ocr":
                processor = lighton_processor(rng, card, pictures)
            if processor:
                card["key_form"] = "v4"  # whose files are two
            video = clip(rng, pictures[0], tile, pairs, 1 + family.startswith(("qwen3_vl", "qwen3_5"))) if name.endswith("_video") else None
            if video:
                pictures, processor, prompt, card["chat"] = [], None, card["question"], True
                if family == "qwen2_5_vl":
                    config["vision_config"]["tokens_per_second"] = rng.choice([1, 2, 4, 25])
            made.append(Case(name=f"{name}_{i}", processor=processor, about=about, config=config, video=video,
                             seed=rng.randrange(1 << 48), dialect=card["dialect"],
                             dtype=card["dtype"], shards=1, key_form=card["key_form"],
                             prompt=prompt, images=images_of(rng, pictures, tile),
                             chat=card["chat"], options=("--threads", "2")))
    return made
