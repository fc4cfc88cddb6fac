#!/usr/bin/env python3
"""Mistral's own layout (params.json, consolidated.safetensors) against transformers on the same weights.

    mistral_live.py [FOVEA] [--seed N] [--networks N]

Synthetic networks of Pixtral, Mistral Small 3.1, Ministral 3 and of text models alone are written in transformers'
layout, and from that in Mistral's: names, order of rows of queries and keys, and params.json are the inverse of
transformers' converters. fovea reads the second, transformers the first.
"""
import argparse
import dataclasses
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile

import cases
import compare
import engine
import families
import reference

HERE = pathlib.Path(__file__).resolve().parent
N_TOKENS = 12
TEXT = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "intermediate_size": "hidden_dim",
        "num_attention_heads": "n_heads", "num_key_value_heads": "n_kv_heads", "rms_norm_eps": "norm_eps",
        "vocab_size": "vocab_size", "head_dim": "head_dim", "rope_theta": "rope_theta",
        "max_position_embeddings": "max_position_embeddings", "tie_word_embeddings": "tied_embeddings"}
NAMES = [(r"^(model\.)?(language_model\.)?(model\.)?embed_tokens\.", "tok_embeddings."),
         (r"^(language_model\.)?lm_head\.", "output."),
         (r"^(model\.)?vision_tower\.transformer\.layers\.", "vision_encoder.transformer.layers."),
         (r"^(model\.)?vision_tower\.", "vision_encoder."),
         (r"^(model\.)?multi_modal_projector\.linear_1\.", "vision_language_adapter.w_in."),
         (r"^(model\.)?multi_modal_projector\.linear_2\.", "vision_language_adapter.w_out."),
         (r"^(model\.)?multi_modal_projector\.patch_merger\.", "patch_merger."),
         (r"^(model\.)?multi_modal_projector\.norm\.", "pre_mm_projector_norm."),
         (r"^(model\.)?(language_model\.)?(model\.)?layers\.", "layers."),
         (r"^(model\.)?(language_model\.)?(model\.)?norm\.", "norm."),
         (r"\.(self_attn|attention)\.([qkvo])_proj\.", r".attention.w\2."),
         (r"\.(mlp|feed_forward)\.gate_proj\.", ".feed_forward.w1."),
         (r"\.(mlp|feed_forward)\.down_proj\.", ".feed_forward.w2."),
         (r"\.(mlp|feed_forward)\.up_proj\.", ".feed_forward.w3."),
         (r"\.input_layernorm\.", ".attention_norm."), (r"\.post_attention_layernorm\.", ".ffn_norm.")]


def own_name(name):
    for pattern, to in NAMES:
        name = re.sub(pattern, to, name)
    return name


def neighbours(t, heads):
    """Rows in the order that RoPE of neighbours needs: the inverse of transformers' permute_for_rope."""
    each = t.shape[0] // heads
    return t.view(heads, 2, each // 2, *t.shape[1:]).transpose(1, 2).reshape(t.shape)


def params_of(config):
    text = config.get("text_config", config)
    params = {own: text[hub] for hub, own in TEXT.items() if hub in text}
    params["tied_embeddings"] = config.get("tie_word_embeddings", False)
    if text.get("sliding_window"):
        params["sliding_window"] = str(text["sliding_window"])
    rope = text.get("rope_parameters")
    if rope:
        params |= {"rope_theta": rope["rope_theta"], "llama_4_scaling": {"beta": rope["llama_4_scaling_beta"]},
                   "yarn": {"factor": rope["factor"], "beta": rope["beta_fast"], "alpha": rope["beta_slow"],
                            "original_max_position_embeddings": rope["original_max_position_embeddings"],
                            "apply_scale": False}}
    if "vision_config" not in config:
        return params
    vision = config["vision_config"]
    tower = {k: vision[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                    "image_size", "patch_size", "rope_theta")}
    tower |= {"num_channels": 3, "adapter_bias": config["multimodal_projector_bias"],
              "image_token_id": config["image_token_index"]}
    if config["model_type"] == "mistral3":
        tower |= {"mm_projector_id": "patch_merge", "spatial_merge_size": config["spatial_merge_size"],
                  "add_pre_mm_projector_layer_norm": True, "max_image_size": vision["image_size"]}
    return params | {"vision_encoder": tower}


def convert(folder, config, out, n_file):
    """Writes `folder` in Mistral's layout, in one file or in several with an index."""
    from safetensors.torch import load_file, save_file
    text, vision = config.get("text_config", config), config.get("vision_config", {})
    out.mkdir()
    tensors = {}
    for path in folder.glob("*.safetensors"):
        for name, t in load_file(path).items():
            own = own_name(name)
            heads = {"q": text["num_attention_heads"], "k": text["num_key_value_heads"]}
            if own.startswith("vision_encoder."):
                heads = dict.fromkeys("qk", vision.get("num_attention_heads"))
            kind = re.search(r"\.attention\.w([qk])\.", own)
            tensors[own] = neighbours(t, heads[kind[1]]).contiguous() if kind else t
    names = sorted(tensors)
    parts = [names[i::n_file] for i in range(n_file)]
    for i, part in enumerate(parts):
        name = f"consolidated-{i + 1:05}-of-{n_file:05}.safetensors" if n_file > 1 else "consolidated.safetensors"
        save_file({k: tensors[k] for k in part}, out / name)
    if n_file > 1:
        (out / "consolidated.safetensors.index.json").write_text(json.dumps({"weight_map": {
            k: f"consolidated-{i + 1:05}-of-{n_file:05}.safetensors" for i, part in enumerate(parts) for k in part}}))
    (out / "params.json").write_text(json.dumps(params_of(config)))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, out / name)


def settle(case, rng):
    """The same network within what params.json can say."""
    config = json.loads(json.dumps(case.config))
    text = config.get("text_config", config)
    text |= {"hidden_act": "silu", "head_dim": text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]}
    for key in ("rope_scaling", "attention_bias", "rope_parameters"):
        text.pop(key, None)
    if text["model_type"] == "ministral3":
        text.pop("rope_theta", None)
        text["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 1e6, "factor": rng.choice([2.0, 16.0]),
                                   "original_max_position_embeddings": rng.choice([32, 64]), "beta_fast": 32.0, "beta_slow": 1.0,
                                   "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
    else:
        text["rope_theta"] = rng.choice([1e4, 1e6, 1e9])
    if "vision_config" in config:
        vision = config["vision_config"]
        vision["hidden_act"] = "silu"
        vision.pop("rope_parameters", None)
        vision["rope_theta"] = rng.choice([1e4, 500.0])
        config |= {"projector_hidden_act": "gelu", "vision_feature_layer": -1}
    return dataclasses.replace(case, config=config, dialect="hub", shards=1)


def chosen(n, seed):
    """Networks of which each kind comes first, whose texts are of Mistral's families."""
    found = {}
    for k in range(n):
        if sum(map(len, found.values())) >= 2 * n:
            break
        pool = (families.make_family_cases(4, seed + k, names=["pixtral", "mistral3", "ministral3"])
                + cases.make_text_cases(8, seed + k) + cases.make_small_text_cases(8, seed + k))
        for case in pool:
            text = case.config.get("text_config", case.config)["model_type"]
            kind = case.name.rpartition("_")[0]
            if text in ("mistral", "ministral3") and kind in ("pixtral", "mistral3", "ministral3", "text", "small_text"):
                found.setdefault(kind, []).append(case)
    lists = list(found.values())
    return [l[i] for i in range(n) for l in lists if i < len(l)][:n]


def run(program, case, n_file, directory):
    paths = []
    for name, data in case.images:
        paths.append(directory / name)
        paths[-1].write_bytes(data)
    theirs_dir, folder = directory / "theirs", directory / "own"
    program.synth(case, theirs_dir)
    convert(theirs_dir, case.config, folder, n_file)
    for path in theirs_dir.glob("*processor_config.json"):
        path.write_text(json.dumps(sized(json.loads(path.read_text()), case.config)))
    copy_template(theirs_dir, folder)
    ours = program.trace(case, folder, paths, directory / "trace", N_TOKENS)
    ref = reference.Reference(theirs_dir, case.has_vision)
    theirs = ref.run(case, paths, N_TOKENS, forced=ours["tokens"], directory=directory)
    return compare.compare(ours, theirs, ref.n_vocab)


def sized(processor, config):
    """What params.json says of images, and it says nothing of means."""
    part = processor.get("image_processor", processor)
    part["size"] = {"longest_edge": config["vision_config"]["image_size"]}
    part |= {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3}
    for key in ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb", "rescale_factor"):
        part.pop(key, None)
    return processor


def copy_template(theirs_dir, folder):
    for name in ("chat_template.jinja", "chat_template.json"):
        if (theirs_dir / name).exists():
            shutil.copy(theirs_dir / name, folder / name)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("bin", nargs="?", type=pathlib.Path, default=HERE.parents[1] / "build/cpu/bin/fovea")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--networks", type=int, default=15)
    a = p.parse_args()
    reference.setup(2)
    program, rng, bad = engine.Engine(a.bin), random.Random(a.seed), 0
    for i, case in enumerate(chosen(a.networks, a.seed)):
        case = settle(case, rng)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                result = run(program, case, 1 + i % 2 * 2, pathlib.Path(scratch))
            except engine.EngineError as e:
                result = compare.Result(wrong=[str(e)])
        print(f"{case.name:14} {'FAIL' if result.wrong else 'ok':4} vision {result.vision}  embeds {result.embeds}  "
              f"logits {result.logits_max:.1e}  tokens {result.tokens_equal}/{result.n_tokens}", flush=True)
        for sentence in result.wrong:
            print(f"    {sentence}")
        bad += bool(result.wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
