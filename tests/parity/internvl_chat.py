"""InternVL's original layout, internvl_chat: random configurations, and the same checkpoint in the layout that
transformers reads (internvl). Names, keys and the conversation are written from the original repository's classes.
"""
import json
import re
import shutil

from safetensors.torch import load_file, save_file

# Each template: what begins a turn of a role, what ends it, and the system message.
OLD = "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，英文名叫InternVL, 是一个有用无害的人工智能助手。"
TEMPLATES = {
    "internvl2_5": ("<|im_start|>{}\n", "<|im_end|>\n",
                    "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"),
    "Hermes-2": ("<|im_start|>{}\n", "<|im_end|>", OLD),
    "phi3-chat": ("<|{}|>\n", "<|end|>", OLD),
}
PARTS = [("vision_model.embeddings.class_embedding", "embeddings.cls_token"),
         ("vision_model.embeddings.position_embedding", "embeddings.position_embeddings"),
         ("vision_model.embeddings.patch_embedding", "embeddings.patch_embeddings.projection")]
LAYER = {"norm1": "layernorm_before", "norm2": "layernorm_after", "attn.proj": "attention.projection_layer",
         "attn.q_norm": "attention.q_norm", "attn.k_norm": "attention.k_norm", "ls1": "lambda_1", "ls2": "lambda_2",
         "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
CONNECTOR = {"0": "layer_norm", "1": "linear_1", "3": "linear_2"}


def config_of(rng, card, text, vision):
    """config.json of a random network; `vision` has the keys that all towers have."""
    _, _, merge, _ = card["grid"]
    least, most = rng.choice([(1, 6), (1, 12), (2, 5), (1, 1)])
    layers = card["vision_layers"]
    return {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "llm_config": text,
            "vision_config": vision | {"qkv_bias": card["bias"], "qk_normalization": rng.random() < 0.5,
                                       "norm_type": rng.choice(["layer_norm", "rms_norm"])},
            "downsample_ratio": 1 / merge, "dynamic_image_size": rng.random() < 0.8, "force_image_size": vision["image_size"],
            "min_dynamic_patch": least, "max_dynamic_patch": most, "use_thumbnail": True, "pad2square": False,
            "ps_version": "v2", "select_layer": rng.choice([-1, -1, -2, 1, layers]),
            "template": rng.choice(list(TEMPLATES)), "tie_word_embeddings": card["tied"]}


def config_as_internvl(config, image_token):
    vision = dict(config["vision_config"])
    vision |= {"model_type": "internvl_vision", "attention_bias": vision.pop("qkv_bias"),
               "use_qk_norm": vision.pop("qk_normalization")}
    return {"architectures": ["InternVLForConditionalGeneration"], "model_type": "internvl",
            "text_config": config["llm_config"], "vision_config": vision,
            "downsample_ratio": config["downsample_ratio"], "projector_hidden_act": "gelu",
            "vision_feature_layer": config["select_layer"], "vision_feature_select_strategy": "default",
            "image_token_id": image_token, "tie_word_embeddings": config["tie_word_embeddings"],
            "image_seq_length": round((vision["image_size"] // vision["patch_size"] * config["downsample_ratio"]) ** 2)}


def renamed(name, tensor):
    """The tensors of internvl that one of internvl_chat holds."""
    tail = name.rpartition(".")[2]
    for own, other in PARTS:
        if name == own or name.startswith(own + "."):
            yield "vision_tower." + other + name[len(own):], tensor
            return
    layer = re.match(r"vision_model\.encoder\.layers\.(\d+)\.(.*)", name)
    if layer:
        first, part = f"vision_tower.encoder.layer.{layer[1]}.", layer[2]
        stem = part if part in LAYER else part.rpartition(".")[0]
        if stem == "attn.qkv":
            for kind, third in zip("qkv", tensor.chunk(3)):
                yield f"{first}attention.{kind}_proj.{tail}", third.clone()
        else:
            yield first + LAYER[stem] + part[len(stem):], tensor
    elif name.startswith("mlp1."):
        yield f"multi_modal_projector.{CONNECTOR[name.split('.')[1]]}.{tail}", tensor
    else:
        yield name, tensor


def conversation(template):
    """The chat as a template in Jinja for transformers' apply_chat_template."""
    begin, end, system = (json.dumps(s, ensure_ascii=False) for s in TEMPLATES[template])
    return ("{%- macro turn(role, text) %}{{ " + begin + ".replace('{}', role) + text + " + end + " }}{% endmacro -%}"
            "{%- if messages[0].role != 'system' %}{{ turn('system', " + system + ") }}{% endif -%}"
            "{%- for m in messages %}{%- set ns = namespace(text='') %}{%- for p in m.content %}"
            "{%- set ns.text = ns.text + ('<IMG_CONTEXT>\\n' if p.type == 'image' else p.text) %}{%- endfor %}"
            "{{- turn(m.role, ns.text) }}{%- endfor -%}"
            "{%- if add_generation_prompt %}{{ " + begin + ".replace('{}', 'assistant') }}{% endif -%}")


def convert(checkpoint, directory):
    """Writes the checkpoint in transformers' layout; returns its directory."""
    shutil.copytree(checkpoint, directory, ignore=shutil.ignore_patterns("model*"))
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    tokens = {t["content"]: t["id"] for t in json.loads((checkpoint / "tokenizer.json").read_text())["added_tokens"]}
    (directory / "config.json").write_text(json.dumps(config_as_internvl(config, tokens["<IMG_CONTEXT>"])))
    for path in ("preprocessor_config.json", "processor_config.json"):
        if (directory / path).exists():
            keys = json.loads((directory / path).read_text(encoding="utf-8"))
            image = keys.get("image_processor", keys)
            if "size" in image:
                image |= {"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": True,
                          "size": {"height": image["size"], "width": image["size"]}}
                image |= dict(zip(("min_patches", "max_patches"), tiles_of(config)))
                del image["crop_size"], image["do_center_crop"]
            (directory / path).write_text(json.dumps(keys))
    weights = {}
    for path in sorted(checkpoint.glob("model*.safetensors")):
        for name, tensor in load_file(path).items():
            weights |= dict(renamed(name, tensor))
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "chat_template.jinja").write_text(conversation(config["template"]), encoding="utf-8")
    return directory


def tiles_of(config):
    return (config["min_dynamic_patch"], config["max_dynamic_patch"]) if config["dynamic_image_size"] else (1, 1)
