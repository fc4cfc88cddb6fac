#!/usr/bin/env python3
"""Vision models as llama.cpp's own converter writes them: a text model and an mmproj file of each family.

    gguf_vision.py LLAMA_CPP           writes tests/golden/gguf/vision again
    gguf_vision.py LLAMA_CPP --check   converts again, and compares every tensor and key with those files

LLAMA_CPP is a checkout of llama.cpp with convert_hf_to_gguf.py. The checkpoints are those of `fovea synth`
with the configs beside the files, so that tests/unit/model/test_gguf_vision.c makes them again without
Python and compares every weight. All have SentencePiece tokenizers: the converter is told to take them for
that.
"""
import argparse
import contextlib
import io
import json
import logging
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/gguf/vision"
FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma3", "idefics3", "smolvlm", "pixtral",
            "mistral3", "internvl", "llava"]
# Also in several files, with so many tensors each, and none in the first: gate and up of experts come apart.
SPLIT = {"gemma3": 8, "qwen3_vl_moe": 5}
TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 384, "moe_intermediate_size": 16}
VISION = {"hidden_size": 16, "embed_dim": 16, "intermediate_size": 24, "num_hidden_layers": 3, "depth": 3,
          "num_attention_heads": 2, "num_heads": 2, "head_dim": 8, "patch_size": 4}
# What GGUF has no key for has the value that every published model has.
GEMMA = {"query_pre_attn_scalar": 8, "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0,
         "rope_theta": 1e6,
         "vocab_size": 348}  # as many as the tokenizer has: the converter drops the others' rows


def shrink(config, sizes):
    config.update({k: v for k, v in sizes.items() if k in config})


def small_config(fovea, family, scratch):
    """The config of `fovea synth --shape tiny-gqa`, with smaller sizes."""
    out = scratch / "shape"
    subprocess.run([fovea, "synth", "--shape", "tiny-gqa", "--family", family, "--dtype", "bf16", "--out", out],
                   check=True, capture_output=True)
    config = json.loads((out / "config.json").read_text())
    text, vision = config.get("text_config", config), config["vision_config"]
    shrink(text, TEXT)
    shrink(vision, VISION)
    for rope in (text.get("rope_scaling"), text.get("rope_parameters")):
        if rope and "mrope_section" in rope:
            rope["mrope_section"] = [2, 1, 1]
    if "out_hidden_size" in vision:
        vision["out_hidden_size"] = TEXT["hidden_size"]
    if "embed_dim" in vision:
        vision["hidden_size"] = TEXT["hidden_size"]
    if "deepstack_visual_indexes" in vision:
        vision["deepstack_visual_indexes"] = [1]
    if "fullatt_block_indexes" in vision:
        vision["fullatt_block_indexes"] = [1]
    if "image_size" in vision:
        vision["image_size"] = 16
    if "full_attention_interval" in text:
        text.update(num_hidden_layers=text["full_attention_interval"], head_dim=16, linear_key_head_dim=16,
                    linear_value_head_dim=32)
    if "mlp_only_layers" in text:
        text["mlp_only_layers"] = []  # llama.cpp has no such models
    if family == "internvl":
        vision["num_hidden_layers"] = 4  # the converter knows names of connectors up to that number
    if "window_size" in vision:
        vision["window_size"] = 112
    if family == "pixtral":
        config.update({"vision_feature_layer": -1, "vision_feature_select_strategy": "full"})
    if family == "gemma3":
        text.update(GEMMA)
        config["tie_word_embeddings"] = text["tie_word_embeddings"] = True
    last = text["vocab_size"] - 1
    for key in ("image_token_index", "image_token_id", "video_token_id", "vision_start_token_id",
                "vision_end_token_id", "boi_token_index", "eoi_token_index"):
        if key in config:
            config[key] += 343 - 480
    return config


def convert(llama_cpp, folder, out, mmproj, *options, kind="bf16"):
    """Runs convert_hf_to_gguf.py's main."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import convert_hf_to_gguf
    from conversion import base
    base.TextModel._set_vocab_gpt2 = base.TextModel._set_vocab_llama_hf
    logging.disable(logging.CRITICAL)
    sys.argv = ["convert", str(folder), "--outtype", kind, "--outfile", str(out), *options]
    sys.argv += ["--mmproj"] * mmproj
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            convert_hf_to_gguf.main()
        except SystemExit as e:
            raise RuntimeError(f"the converter refuses {folder}") from e


# Classes that published files name, and by which the converter chooses.
ARCHITECTURES = {"llava": {"text_config": "LlamaForCausalLM"}, "idefics3": {"text_config": "VLlama3ForCausalLM"}, "smolvlm": {"text_config": "VLlama3ForCausalLM"},
                 "internvl": {"text_config": "Qwen2ForCausalLM", "vision_config": "InternVisionModel"}}


def name_classes(folder, family):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for part, name in ARCHITECTURES.get(family, {}).items():
        config[part]["architectures"] = [name]
    path.write_text(json.dumps(config))


def add_mtp(folder):
    """A layer that predicts tokens further ahead, as published files have it: a copy of the last one."""
    import torch
    from safetensors.torch import load_file, save_file
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = config["text_config"]
    text["mtp_num_hidden_layers"] = 1
    path.write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    last = f"model.language_model.layers.{text['num_hidden_layers'] - 1}."
    more = {name.replace(last, "mtp.layers.0."): t.clone() for name, t in tensors.items() if name.startswith(last)}
    d = text["hidden_size"]
    more |= {f"mtp.{n}.weight": torch.zeros(d) for n in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    save_file(tensors | more | {"mtp.fc.weight": torch.zeros(d, 2 * d)}, folder / "model.safetensors",
              {"format": "pt"})


# llama.cpp's converter of LLaVA's towers (tools/mtmd/legacy-models) reads other files. It writes these names: the two
# matrices of an FFN have each other's.
LLAVA = [("multi_modal_projector.linear_1", "mm.0"), ("multi_modal_projector.linear_2", "mm.2"),
         ("vision_tower.vision_model.", "v."), ("encoder.layers", "blk"), ("embeddings.", ""), ("_proj", ""),
         ("self_attn.", "attn_"), ("layer_norm", "ln"), ("layernorm", "ln"), ("layrnorm", "ln"), ("mlp.fc1", "ffn_down"),
         ("mlp.fc2", "ffn_up"), ("embedding", "embd")]


def convert_llava(folder, out):
    """The tower up to its last feature layer, and the connector, as that converter writes them."""
    from gguf import GGUFWriter
    from safetensors.torch import load_file
    config = json.loads((folder / "config.json").read_text())
    vision, layer = config["vision_config"], config["vision_feature_layer"]
    last = layer if layer >= 0 else vision["num_hidden_layers"] + layer + 1
    w = GGUFWriter(out, "clip")
    w.add_bool("clip.has_text_encoder", False)
    w.add_bool("clip.has_vision_encoder", True)
    w.add_bool("clip.has_llava_projector", True)
    w.add_string("clip.projector_type", "mlp")
    for own, hub in (("image_size", "image_size"), ("patch_size", "patch_size"), ("embedding_length", "hidden_size"),
                     ("feed_forward_length", "intermediate_size"), ("attention.head_count", "num_attention_heads")):
        w.add_uint32(f"clip.vision.{own}", vision[hub])
    w.add_uint32("clip.vision.projection_dim", 768)  # CLIP's, not the connector's
    w.add_float32("clip.vision.attention.layer_norm_epsilon", vision.get("layer_norm_eps", 1e-5))
    w.add_uint32("clip.vision.block_count", last)
    pixels = json.loads((folder / "preprocessor_config.json").read_text())
    w.add_array("clip.vision.image_mean", pixels["image_mean"])
    w.add_array("clip.vision.image_std", pixels["image_std"])
    w.add_bool("clip.use_gelu", False)
    for name, data in load_file(folder / "model.safetensors").items():
        number = name.partition("encoder.layers.")[2].partition(".")[0]
        if name.startswith("language_model") or "post_layernorm" in name or (number and int(number) >= last):
            continue
        for a, b in LLAVA:
            name = name.replace(a, b)
        data = data.float().squeeze().numpy()
        w.add_tensor(name, data.astype("float16") if data.ndim in (2, 4) else data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def same(a, b):
    from gguf import GGUFReader
    a, b = GGUFReader(a), GGUFReader(b)
    if {k: v.contents() for k, v in a.fields.items() if not k.startswith("GGUF.")} != \
            {k: v.contents() for k, v in b.fields.items() if not k.startswith("GGUF.")}:
        return False
    x, y = ({t.name: (t.tensor_type, tuple(t.shape), t.data.tobytes()) for t in r.tensors} for r in (a, b))
    return x == y


def make(a, family, scratch, into):
    config = into / f"{family}.json"
    config.write_text(json.dumps(small_config(a.bin, family, scratch), indent=1) + "\n")
    folder = scratch / "model"
    subprocess.run([a.bin, "synth", "--config", config, "--dtype", "bf16", "--out", folder,
                    "--dialect", "v4.52" if family == "internvl" else "hub"], check=True,
                   capture_output=True)
    name_classes(folder, family)
    if family.startswith("qwen3_5"):
        add_mtp(folder)
    convert(a.llama_cpp, folder, into / f"{family}.gguf", False)
    if family == "llava":
        convert_llava(folder, into / f"{family}.mmproj.gguf")
    else:
        convert(a.llama_cpp, folder, into / f"{family}.mmproj.gguf", True)
    if family in SPLIT:
        convert(a.llama_cpp, folder, into / f"{family}-split.gguf", False, "--split-max-tensors", str(SPLIT[family]),
                "--no-tensor-first-split")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("llama_cpp", type=pathlib.Path)
    p.add_argument("--check", action="store_true")
    p.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cpu/bin/fovea")
    p.add_argument("--only", help="this family")
    a = p.parse_args()
    bad = []
    for family in FAMILIES:
        if a.only and family != a.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            into = scratch / "new" if a.check else GOLDEN
            into.mkdir(parents=True, exist_ok=True)
            make(a, family, scratch, into)
            if a.check:
                bad += [f.name for f in into.glob("*.gguf") if not same(f, GOLDEN / f.name)]
        print(family, flush=True)
    print(f"{len(bad)} files differ {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
