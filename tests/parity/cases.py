"""Random LLaVA networks, prompts and pictures to compare with.

Every property that matters (family, heads, dialect, dtype, ...) is a column whose values are dealt
out like cards, so that N networks together have each value about equally often, in combinations
that depend on the seed.
"""
import dataclasses
import io
import random

import glm
import numpy as np
from PIL import Image


@dataclasses.dataclass
class Case:
    name: str
    about: str
    config: dict
    seed: int
    dialect: str
    dtype: str
    shards: int
    key_form: str
    prompt: str
    images: list  # (file name, bytes)
    processor: dict | None = None  # preprocessor_config.json, in place of the usual one
    chat: bool = False  # the prompt is a question, rendered by the checkpoint's template
    system: str | None = None
    video: tuple | None = None  # (file name, bytes of a GIF, frames per second)
    options: tuple = ()  # of `fovea trace`; none of them changes a result

    @property
    def has_vision(self):
        return "vision_config" in self.config


# (heads, KV heads, head_dim)
HEADS = [(4, 4, 16), (4, 2, 16), (6, 2, 10), (6, 1, 10), (8, 2, 8), (3, 3, 14), (5, 1, 24),
         (2, 1, 64), (2, 2, 48), (12, 4, 8), (7, 7, 6), (4, 1, 36), (1, 1, 32), (9, 3, 12),
         (2, 1, 128), (3, 1, 80)]
VISION_HEADS = [(2, 12), (3, 14), (4, 8), (1, 20), (2, 33), (5, 7), (3, 16), (2, 24)]
# (patch, patches along a side)
GRIDS = [(14, 4), (7, 4), (4, 5), (5, 3), (8, 3), (14, 2), (6, 5), (10, 3), (4, 12), (13, 1)]
ROPES = [
    {"rope_type": "default", "rope_theta": 10000.0},
    {"rope_type": "default", "rope_theta": 500000.0},
    {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64, "rope_theta": 10000.0},
]
QUESTIONS = [
    "What is in the picture?",
    "Beschreibe das Bild: Füße, Äpfel, größer als ein Haus!",
    "图片里有什么？ 三只猫 🐈🐈‍⬛ と犬",
    "Сколько здесь кошек?\n- одна\n- две",
    "  two  spaces,\ttab, \u00a0no-break  ",
    "e\u0301 = é? ﬁ ½ ℝ 👩‍👩‍👧 \U0001F1E9\U0001F1EA",
    "a</s>b <s> <unk> <0x41> <image",
    "the quick brown fox there then that these those interesting nation",
    "1+2=3; f(x)=[x^2]/{3}_4 & \"quoted\" 'single' \\ ~ | `code`",
    "ΑαΒβΓγ ÀÉÎõü ¡¿",
]
# The rows of pictures in each prompt; {q} is the question.
LAYOUTS = {
    0: ["USER: {q} ASSISTANT:", "{q}"],
    1: ["USER: <image>\n{q} ASSISTANT:", "{q}<image>", "<image>{q}", "A <image> b {q}"],
    2: ["USER: <image>\n<image>\n{q} ASSISTANT:", "<image><image>{q}", "<image> {q} <image>"],
    3: ["<image>{q}<image>\n<image> ASSISTANT:", "<image><image><image>{q}"],
}


def deal(rng, values, n):
    """n of the values in random order, each as often as any other, give or take one."""
    values = list(values)
    first = rng.sample(values, len(values))
    cards = [first[i % len(first)] for i in range(n)]
    rng.shuffle(cards)
    return cards


# ---- pictures ----

def picture(rng, width, height):
    """Waves and a rectangle: smooth enough to be small as a file, with edges to resample."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    channels = []
    for _ in range(3):
        a, b, c = (rng.uniform(-0.2, 0.2) for _ in range(3))
        channels.append(127.5 + 127 * np.sin(a * x + b * y + 6 * c))
    rgb = np.stack(channels, -1)
    x0, y0 = rng.randrange(width), rng.randrange(height)
    rgb[y0:y0 + height // 2 + 1, x0:x0 + width // 2 + 1] = [rng.randrange(256) for _ in range(3)]
    return Image.fromarray(rgb.round().astype(np.uint8), "RGB")


def encoded_picture(rng, kind, index):
    """(file name, bytes) of one picture of a kind: "jpeg", "png-P", "webp-lossy", ..."""
    side = 110 if kind in ("jpeg", "jpeg-grey", "webp-lossy") else 44
    width, height = rng.randrange(5, side), rng.randrange(5, side)
    image = picture(rng, width, height)
    out = io.BytesIO()
    form, _, mode = kind.partition("-")
    if form == "jpeg":
        if mode == "grey":
            image = image.convert("L")
        image.save(out, "JPEG", quality=rng.randrange(50, 96), subsampling=rng.randrange(3),
                   progressive=rng.random() < 0.3)
    elif form == "png":
        if mode == "RGBA":
            image.putalpha(picture(rng, width, height).convert("L"))
        else:
            image = image.convert(mode)
        image.save(out, "PNG")
    else:
        image.save(out, "WEBP", lossless=mode == "lossless", quality=80)
    return f"{index}.{'jpg' if form == 'jpeg' else form}", out.getvalue()


KINDS = ["jpeg", "jpeg-grey", "png-RGB", "png-RGBA", "png-L", "png-P", "webp-lossy",
         "webp-lossless"]


# ---- configurations ----

def rope_keys(rng, rope, key_form):
    """The same rotary embedding as version 5 writes it, or as version 4 did."""
    if key_form == "v5":
        return {"rope_parameters": dict(rope)}
    keys = {"rope_theta": rope["rope_theta"]}
    if rope["rope_type"] != "default":
        scaling = {k: v for k, v in rope.items() if k != "rope_theta"}
        if rng.random() < 0.5:
            scaling["type"] = scaling.pop("rope_type")  # as it was called first
        keys["rope_scaling"] = scaling
    return keys


def gemma_keys(rng, card, text):
    """What Gemma 3 has of its own: layers that slide, each kind with its RoPE."""
    heads, _, dim = card["heads"]
    text["hidden_size"] += -text["hidden_size"] % heads  # transformers refuses others
    text["head_dim"] = dim
    text["hidden_activation"] = text.pop("hidden_act")
    text["attention_bias"] = card["bias"]
    text |= {"query_pre_attn_scalar": dim + rng.randrange(9), "sliding_window": rng.randrange(2, 40)}
    if rng.random() < 0.5:
        text["sliding_window_pattern"] = rng.randrange(2, 4)
    else:
        types = ["sliding_attention", "full_attention"]
        text["layer_types"] = [types[0]] + rng.choices(types, k=card["layers"] - 1)
    slides = {"rope_type": "default", "rope_theta": rng.choice([10000.0, 300.0])}
    if card["key_form"] == "v5":
        text["rope_parameters"] = {"full_attention": text["rope_parameters"], "sliding_attention": slides}
    else:
        text["rope_local_base_freq"] = slides["rope_theta"]
        scaling = text.get("rope_scaling", {})
        if "type" in scaling:  # which transformers does not read here
            scaling["rope_type"] = scaling.pop("type")


def add_text_keys(rng, card, text):
    """What only some text models have: scales of Ministral 3 and Granite, Phi-3's window, experts."""
    family = card["family"]
    if family == "ministral3":  # whose RoPE is always in rope_parameters
        rope = text["rope_parameters"]
        rope.setdefault("original_max_position_embeddings", rng.choice([8, 20, 64]))
        rope["llama_4_scaling_beta"] = rng.choice([0.1, 0.7])
    if family in ("ministral3", "phi3"):
        text["sliding_window"] = rng.choice([None, None, 9, 1024])
    if family == "phi3":
        text["pad_token_id"] = 0
    if family == "granite":
        text |= {"embedding_multiplier": rng.choice([12.0, 1.5, 1]), "logits_scaling": rng.choice([8.0, 3.0, 1]),
                 "residual_multiplier": rng.choice([0.22, 0.7, 1]), "attention_multiplier": rng.choice([0.015625, 0.2, 0.4])}
    if family == "qwen3_5_moe_text":
        text["shared_expert_intermediate_size"] = rng.choice([10, 37, 64])
    if family.endswith("_moe_text") and not family.startswith("glm"):
        experts = rng.choice([2, 5, 8, 16])
        text |= {"num_experts": experts, "num_experts_per_tok": rng.randrange(1, min(experts, 5)),
                 "moe_intermediate_size": rng.choice([11, 33, 71]),  # square matrices are not transposed there
                 "decoder_sparse_step": rng.choice([1, 1, 2]),
                 "mlp_only_layers": rng.choice([[], [], [1]])}


def recurrent_keys(rng, card, text):
    """What Qwen3.5 has of its own: recurrent layers ahead of each that has attention, and partial RoPE."""
    _, _, dim = card["heads"]
    keys, run = rng.randrange(1, 4), rng.randrange(1, 4)
    text["num_hidden_layers"] = card["layers"] * (run + 1)
    if rng.random() < 0.5:
        text["full_attention_interval"] = run + 1
    else:
        text["layer_types"] = (["linear_attention"] * run + ["full_attention"]) * card["layers"]
    text |= {"linear_num_key_heads": keys, "linear_num_value_heads": keys * rng.randrange(1, 4),
             "linear_key_head_dim": rng.choice([16, 32, 48]), "linear_value_head_dim": rng.choice([16, 32, 64, 80]),
             "linear_conv_kernel_dim": rng.randrange(2, 6), "attn_output_gate": True,
             "attention_bias": card["bias"]}
    partial = [p for p in (1.0, 0.5, 0.25) if dim * p >= 6 and dim * p % 2 == 0]
    (text["rope_parameters"] if card["key_form"] == "v5" else text)["partial_rotary_factor"] = rng.choice(partial)


def shared_keys(rng, card, text):
    """Adds the parts that only E2B and E4B have: layers that share keys and values, and embeddings of each layer."""
    own, shared = rng.choice([2, 3, 4]), rng.randrange(0, 5)
    every = ["sliding_attention", "full_attention"]
    first = rng.sample(every, 2) + rng.choices(every, k=own - 2)
    types = first + (rng.choices(every, k=shared - 1) + every[1:] if shared else [])
    if not shared:
        types[-1] = every[1]
    # The class does not run layers that share without per-layer embeddings.
    text |= {"num_hidden_layers": own + shared, "layer_types": types, "num_kv_shared_layers": shared,
             "use_double_wide_mlp": rng.random() < 0.5, "use_bidirectional_attention": None,
             "hidden_size_per_layer_input": rng.choice([12 if shared else 0, 8, 20, 32]), "vocab_size_per_layer_input": text["vocab_size"]}


def gemma4_keys(rng, card, text):
    """What Gemma 4 has of its own: two kinds of heads, of which those that slide may be smaller and more."""
    heads, kv, dim = card["heads"]
    unified = text["model_type"] == "gemma4_unified_text"
    del text["hidden_act"]
    for key in ("rope_theta", "rope_scaling"):
        text.pop(key, None)
    every = ["sliding_attention", "full_attention"]
    text |= {"head_dim": dim, "global_head_dim": dim * rng.choice([1, 2, 2, 3]), "attention_k_eq_v": rng.random() < 0.7,
             "num_global_key_value_heads": rng.choice([n for n in range(1, kv + 1) if kv % n == 0]),
             "layer_types": rng.choices(every, k=card["layers"] - 1) + every[1:], "sliding_window": rng.randrange(2, 40),
             "final_logit_softcapping": rng.choice([None, 10.0, 30.0]),
             "use_bidirectional_attention": rng.choice(["vision", "vision", None]),
             "hidden_activation": "gelu_pytorch_tanh",
             "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": rng.choice([1e4, 1e6]),
                                                    "partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": rng.choice([1e4, 300.0])}}}
    if not unified:
        text["hidden_size_per_layer_input"] = 0
    if card.get("shared"):
        shared_keys(rng, card, text)
    if card.get("experts"):
        experts = rng.choice([2, 5, 8, 16])
        text |= {"enable_moe_block": True, "num_experts": experts, "top_k_experts": rng.randrange(1, min(experts, 5)),
                 "moe_intermediate_size": rng.choice([11, 33, 71])}


def rotated(text):
    """How many dimensions of a head RoPE rotates."""
    return int(text["head_dim"] * text.get("rope_parameters", text).get("partial_rotary_factor", 1.0))


def text_config(rng, card, vocab, image_token_last):
    heads, kv, dim = card["heads"]
    family = card["family"]
    if family == "phi3" or family.startswith(("glm", "paddle")):
        card["rope"] = {"rope_type": "default", "rope_theta": card["rope"]["rope_theta"]}
    if family == "ministral3":
        card["key_form"] = "v5"
    text = {"model_type": family, "vocab_size": vocab, "hidden_size": card["width"],
            "intermediate_size": card["ffn"], "num_hidden_layers": card["layers"],
            "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim,
            "max_position_embeddings": 2048, "rms_norm_eps": card["eps"],
            "hidden_act": card["act"], "eos_token_id": 2,
            "bos_token_id": None if family.startswith("qwen") else 1}
    text |= rope_keys(rng, card["rope"], card["key_form"])
    if family in ("llama", "granite", "phi3"):  # transformers refuses others, although nothing depends on it
        text["hidden_size"] += -text["hidden_size"] % heads
    if rng.random() < 0.3 and not family.startswith(("qwen3", "glm", "paddle")):  # head_dim as files leave it out
        text["hidden_size"] = heads * dim
        del text["head_dim"]
    if family in ("llama", "granite", "qwen3", "qwen3_vl_text", "qwen3_vl_moe_text"):
        text["attention_bias"] = card["bias"]
    if family == "paddleocr_vl_text":
        text["use_bias"] = card["bias"]
    if family in ("llama", "granite"):
        text["mlp_bias"] = rng.random() < 0.3
    if family == "mistral":
        text["sliding_window"] = rng.choice([None, 1024])
    add_text_keys(rng, card, text)
    if family == "gemma3_text":
        gemma_keys(rng, card, text)
    if family.startswith("gemma4"):
        gemma4_keys(rng, card, text)
    if family.startswith("glm"):
        glm.text_keys(rng, card, text)
    if family.startswith("qwen3_5"):
        recurrent_keys(rng, card, text)
    if image_token_last:
        text["pad_token_id"] = 0
    return text


def feature_layers(rng, kind, n):
    """vision_feature_layer for a tower of n layers."""
    if kind == "list":
        return rng.sample(range(-n - 1, 0), min(2, n)) + ([rng.randrange(n + 1)] if n > 2 else [])
    return {"-2": -2, "-1": -1, "negative": -n, "positive": rng.randrange(1, n + 1),
            "first": [0]}[kind]  # 0 outside a list is a layer that transformers 5 does not find


def llava_config(rng, card):
    vocab = rng.randrange(300, 480)
    image_token = vocab - 1 if rng.random() < 0.15 else rng.randrange(vocab - 30, vocab - 1)
    vision_heads, vision_dim = card["vision_heads"]
    patch, side = card["grid"]
    config = {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
        "text_config": text_config(rng, card, vocab, image_token == vocab - 1),
        "vision_config": {
            "model_type": "clip_vision_model", "hidden_size": vision_heads * vision_dim,
            "intermediate_size": card["vision_ffn"], "num_hidden_layers": card["vision_layers"],
            "num_attention_heads": vision_heads, "image_size": patch * side, "patch_size": patch,
            "hidden_act": card["vision_act"], "layer_norm_eps": card["eps"],
            "projection_dim": 16},
        rng.choice(["image_token_index", "image_token_id"]): image_token,
        "image_seq_length": side * side, "projector_hidden_act": card["projector_act"],
        "vision_feature_select_strategy": card["strategy"],
        "vision_feature_layer": feature_layers(rng, card["features"], card["vision_layers"]),
        "multimodal_projector_bias": card["projector_bias"]}
    tie(rng, config, card)
    return config


def tie(rng, config, card):
    """A tied head is said at the top, in the text model's part, or in both."""
    tied = card["tied"] or card["dialect"] == "base"
    where = rng.choice(["top", "text", "both"]) if tied else "none"
    if where in ("top", "both", "none"):
        config["tie_word_embeddings"] = tied
    if where in ("text", "both"):
        config["text_config"]["tie_word_embeddings"] = tied


def forget(rng, config):
    """Leaves out keys that have a default, as files do: readers must know the same defaults."""
    text, vision = config["text_config"], config["vision_config"]
    optional = [(config, k) for k in (
        "architectures", "image_seq_length", "projector_hidden_act", "vision_feature_layer",
        "vision_feature_select_strategy", "multimodal_projector_bias")]
    optional += [(text, k) for k in (
        "hidden_act", "rms_norm_eps", "max_position_embeddings", "rope_theta", "rope_scaling",
        "rope_parameters", "bos_token_id", "eos_token_id", "attention_bias", "mlp_bias")]
    optional += [(vision, k) for k in ("hidden_act", "layer_norm_eps", "projection_dim",
                                       "model_type")]
    if text["model_type"] == "llama":
        optional += [(text, "num_key_value_heads"), (text, "model_type")]
    forgotten = []
    for part, key in rng.sample(optional, 6):
        if part.pop(key, None) is not None:
            forgotten.append(key)
    return forgotten


def processor_of(rng, kind, side):
    """A preprocessor_config.json that differs from CLIP's, or None."""
    if kind == "usual":
        return None
    base = {"image_processor_type": "CLIPImageProcessor", "do_convert_rgb": True,
            "do_resize": True, "do_rescale": True, "do_normalize": True,
            "rescale_factor": 0.00392156862745098, "resample": rng.randrange(4),
            "image_mean": [0.5, 0.4, 0.3], "image_std": [0.25, 0.5, 0.26862954]}
    if kind == "box":
        return base | {"do_center_crop": False, "size": {"height": side, "width": side}}
    return base | {"do_center_crop": True, "size": {"shortest_edge": side + rng.randrange(-3, 9)},
                   "crop_size": {"height": side, "width": side}}


def describe(config, card, n_image):
    text, vision = config["text_config"], config["vision_config"]
    heads, kv, dim = card["heads"]
    layer = config["vision_feature_layer"]
    parts = [f"{text['model_type']} {text['num_hidden_layers']}L {heads}/{kv}x{dim} "
             f"d{text['hidden_size']} m{text['intermediate_size']} {text['hidden_act']}",
             f"clip {vision['num_hidden_layers']}L {card['vision_heads'][0]}x"
             f"{card['vision_heads'][1]} {vision['image_size']}/{vision['patch_size']} "
             f"@{str(layer).replace(' ', '')} {card['strategy']}",
             f"{card['dtype']} {card['dialect']} {card['key_form']} x{card['shards']}",
             f"rope {card['rope']['rope_type']}", f"{n_image} image{'s' if n_image != 1 else ''}"]
    tied = config.get("tie_word_embeddings") or text.get("tie_word_embeddings")
    parts += [word for word, on in (("tied", tied), ("chat", card["chat"]),
                                    (card["processor"], card["processor"] != "usual")) if on]
    return ", ".join(parts)


def make_cases(n, seed):
    """n cases that depend on nothing but their number and the seed."""
    rng = random.Random(seed)
    columns = {
        "family": ["llama", "mistral", "qwen2"], "heads": HEADS, "layers": [1, 2, 3, 4],
        "width": [24, 36, 40, 52, 60, 66, 72, 90, 100, 64],
        "ffn": [40, 52, 77, 88, 99, 101, 130, 48], "eps": [1e-5, 1e-6],
        "act": ["silu", "silu", "silu", "gelu", "gelu_pytorch_tanh", "relu"],
        "rope": ROPES, "bias": [True, False], "tied": [True, False, False],
        "vision_heads": VISION_HEADS, "vision_layers": [2, 3, 4],
        "vision_ffn": [30, 41, 64, 85, 100], "grid": GRIDS,
        "vision_act": ["quick_gelu", "quick_gelu", "gelu", "gelu_pytorch_tanh", "silu"],
        "features": ["-2", "-2", "-1", "negative", "positive", "list", "list", "first"],
        "strategy": ["default", "default", "full"], "projector_bias": [True, True, False],
        "projector_act": ["gelu", "gelu", "gelu_pytorch_tanh", "silu", "quick_gelu"],
        "dtype": ["f32", "bf16", "f16"], "shards": [1, 2, 3],
        "dialect": ["hub", "v4.52", "v5.6", "original", "base"], "key_form": ["v4", "v5"],
        "n_image": [1, 1, 2, 3, 0], "question": QUESTIONS,
        "processor": ["usual", "usual", "usual", "usual", "box", "crop"],
        "chat": [True, False, False, False], "forget": [True, False, False],
        "isa": ["auto", "auto", "plain"],
        "chunk": [512, 0, 7, 64], "threads": [2, 1, 2],
    }
    dealt = {name: deal(rng, values, n) for name, values in columns.items()}
    kinds = deal(rng, KINDS, 3 * n)
    cases = []
    for i in range(n):
        card = {name: values[i] for name, values in dealt.items()}
        if card["processor"] != "usual":
            card["key_form"] = "v4"  # where the file is one of its own
        config = llava_config(rng, card)
        n_image = card["n_image"]
        images = [encoded_picture(rng, kinds.pop(), k) for k in range(n_image)]
        prompt = card["question"]
        card["chat"] &= "</s>" not in card["question"]  # in a chat of ours it is text
        if not card["chat"]:
            prompt = rng.choice(LAYOUTS[n_image]).replace("{q}", prompt)
        about = describe(config, card, n_image)
        if card["forget"]:
            about += ", without " + " ".join(forget(rng, config))
        cases.append(Case(
            name=f"{i:02d}", about=about, config=config,
            seed=rng.randrange(1 << 48), dialect=card["dialect"], dtype=card["dtype"],
            shards=card["shards"], key_form=card["key_form"], prompt=prompt, images=images,
            processor=processor_of(rng, card["processor"], config["vision_config"]["image_size"]),
            chat=card["chat"], system="Be brief." if card["chat"] and rng.random() < 0.3 else None,
            options=("--isa", card["isa"], "--chunk", str(card["chunk"]),
                     "--threads", str(card["threads"]))))
    return cases


YARNS = [{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
          "rope_theta": 10000.0},
         {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32,
          "rope_theta": 10000.0, "attention_factor": 1.25, "beta_fast": 16.0, "beta_slow": 2.0},
         {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 48,
          "rope_theta": 1000000.0, "mscale": 1.0, "mscale_all_dim": 0.5},
         {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 40,
          "rope_theta": 10000.0, "truncate": False}]
CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral", "qwen3": "Qwen3"}


def make_text_cases(n, seed, classes=CLASSES, name="text", ropes=ROPES + YARNS):
    """Text models on their own: no tower, no pictures."""
    rng = random.Random(f"{name} {seed}")
    columns = {"family": list(classes), "heads": HEADS, "layers": [1, 2, 3],
               "width": [36, 52, 64], "ffn": [77, 96], "eps": [1e-5, 1e-6],
               "act": ["silu", "silu", "gelu"], "rope": ropes, "bias": [True, False],
               "dtype": ["f32", "bf16", "f16"], "dialect": ["original", "bare"],
               "key_form": ["v4", "v5"], "question": QUESTIONS}
    dealt = {name: deal(rng, values, n) for name, values in columns.items()}
    cases = []
    for i in range(n):
        card = {name: values[i] for name, values in dealt.items()}
        config = text_config(rng, card, rng.randrange(300, 480), False)
        config["architectures"] = [classes[card["family"]] + "ForCausalLM"]
        config["tie_word_embeddings"] = card["dialect"] == "bare"
        heads, kv, dim = card["heads"]
        about = (f"{card['family']} alone {card['layers']}L {heads}/{kv}x{dim}, {card['dtype']} "
                 f"{card['dialect']} {card['key_form']}, rope {card['rope']['rope_type']}")
        cases.append(Case(name=f"{name}_{i}", about=about, config=config,
                          seed=rng.randrange(1 << 48), dialect=card["dialect"],
                          dtype=card["dtype"], shards=1, key_form=card["key_form"],
                          prompt=card["question"], images=[]))
    return cases


def make_gemma_text_cases(n, seed):
    return make_text_cases(n, seed, {"gemma3_text": "Gemma3"}, "gemma3_text", ROPES)


def make_gemma4_text_cases(n, seed):
    return make_text_cases(n, seed, {"gemma4_text": "Gemma4", "gemma4_unified_text": "Gemma4Unified"}, "gemma4_text", ROPES)


def make_small_text_cases(n, seed):
    """Text models that differ from Llama in a scale, or in how their files hold tensors."""
    classes = {"ministral3": "Ministral3", "granite": "Granite", "phi3": "Phi3"}
    return make_text_cases(n, seed, classes, "small_text")


def make_sliding_cases(n, seed):
    """Text models whose attention slides, alone and in LLaVA."""
    rng = random.Random(f"sliding {seed}")
    some = make_text_cases(3 * n, f"sliding {seed}") + make_cases(3 * n, f"sliding {seed}")
    rng.shuffle(some)
    texts = [(case, case.config.get("text_config", case.config)) for case in some]
    chosen = [(c, t) for c, t in texts if t.get("model_type") in ("mistral", "qwen2", "qwen3")][:n]
    for i, (case, text) in enumerate(chosen):
        layers = text.get("num_hidden_layers", 1)
        text["sliding_window"] = rng.randrange(2, 40)
        if text["model_type"] != "mistral":
            text["use_sliding_window"] = True
            text["max_window_layers"] = rng.randrange(layers)
            if rng.random() < 0.5:
                types = ["sliding_attention", "full_attention"]
                text["layer_types"] = [types[0]] + rng.choices(types, k=layers - 1)
        case.name = f"sliding_{i}"
        case.about += f", window {text['sliding_window']}"
    return [case for case, _ in chosen]
