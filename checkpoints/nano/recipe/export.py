"""state.pt -> a folder that transformers and fovea load as a LLaVA checkpoint, and the proof that the
network in it is the one that was trained: both give the same logits.

    python export.py --from build/train --to checkpoints/nano
"""

import argparse
import json
import os
import shutil

import torch
from safetensors.torch import save_file

import data
import ops
import tokenizer as tk
from model import LARGE, Network, Shape

SHARD = 14_000_000  # bytes
TEMPLATE = (
    "{% for message in messages %}{{ {'user': 'USER: ', 'assistant': 'ASSISTANT: '}[message['role']] }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for c in message['content'] if c['type'] == 'image' %}{{ '<image>\\n' }}{% endfor %}"
    "{% for c in message['content'] if c['type'] == 'text' %}{{ c['text'] }}{% endfor %}{% endif %}"
    "{{ eos_token if message['role'] == 'assistant' else ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def config(s, ids):
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_index": ids[tk.IMAGE],
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "image_seq_length": s.rows,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vision_config": {
            "model_type": "clip_vision_model", "hidden_size": s.vision_d, "intermediate_size": s.vision_m,
            "num_hidden_layers": s.vision_layers, "num_attention_heads": s.vision_heads, "image_size": s.side,
            "patch_size": s.patch, "projection_dim": s.d, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
        },
        "text_config": {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": s.d, "intermediate_size": s.m,
            "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "num_key_value_heads": s.heads,
            "head_dim": s.head_d, "max_position_embeddings": s.positions, "rms_norm_eps": 1e-5, "rope_theta": s.theta,
            "vocab_size": s.vocab, "tie_word_embeddings": False, "hidden_act": "silu", "attention_bias": False,
            "bos_token_id": ids[tk.BEGIN], "eos_token_id": ids[tk.END], "pad_token_id": ids[tk.PAD],
        },
    }  # fmt: skip


def names(net):
    """Our tensors under the names of the checkpoints on the hub."""
    s, w = net.shape, {k: v.detach() for k, v in net.w.items()}
    tower = "vision_tower.vision_model."
    yield tower + "embeddings.class_embedding", w["class"]
    yield tower + "embeddings.patch_embedding.weight", w["patch"].view(s.vision_d, 3, s.patch, s.patch)
    yield tower + "embeddings.position_embedding.weight", w["position"]
    for ours, theirs in (("pre", "pre_layrnorm"),):
        yield f"{tower}{theirs}.weight", w[ours]
        yield f"{tower}{theirs}.bias", w[ours + "_bias"]
    yield tower + "post_layernorm.weight", torch.ones(s.vision_d)  # LLaVA takes the rows before it
    yield tower + "post_layernorm.bias", torch.zeros(s.vision_d)
    for i in range(s.vision_layers):
        p, q = f"vision.{i}.", f"{tower}encoder.layers.{i}."
        for part, weight, bias in zip("qkv", w[p + "qkv"].chunk(3), w[p + "qkv_bias"].chunk(3)):
            yield f"{q}self_attn.{part}_proj.weight", weight
            yield f"{q}self_attn.{part}_proj.bias", bias
        for ours, theirs in (
            ("out", "self_attn.out_proj"), ("norm1", "layer_norm1"), ("norm2", "layer_norm2"), ("up", "mlp.fc1"), ("down", "mlp.fc2")
        ):  # fmt: skip
            yield f"{q}{theirs}.weight", w[p + ours]
            yield f"{q}{theirs}.bias", w[p + ours + "_bias"]
    for i in (1, 2):
        yield f"multi_modal_projector.linear_{i}.weight", w[f"project{i}"]
        yield f"multi_modal_projector.linear_{i}.bias", w[f"project{i}_bias"]
    text = "language_model.model."
    yield text + "embed_tokens.weight", w["embed"]
    for i in range(s.layers):
        p, q = f"text.{i}.", f"{text}layers.{i}."
        for part, weight in zip("qkv", w[p + "qkv"].chunk(3)):
            yield f"{q}self_attn.{part}_proj.weight", weight
        gate, up = w[p + "gate_up"].chunk(2)
        yield from (
            (f"{q}self_attn.o_proj.weight", w[p + "out"]), (f"{q}mlp.gate_proj.weight", gate), (f"{q}mlp.up_proj.weight", up),
            (f"{q}mlp.down_proj.weight", w[p + "down"]), (f"{q}input_layernorm.weight", w[p + "norm1"]),
            (f"{q}post_attention_layernorm.weight", w[p + "norm2"]),
        )  # fmt: skip
    yield text + "norm.weight", w["norm"]
    yield "language_model.lm_head.weight", w["head"]


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def write_weights(folder, tensors):
    shards, room = [{}], SHARD
    for name, t in tensors:
        t = t.to(torch.bfloat16).contiguous()
        if t.nbytes > room:
            shards.append({})
            room = SHARD
        shards[-1][name] = t
        room -= t.nbytes
    where, total = {}, 0
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(shard, os.path.join(folder, name), metadata={"format": "pt"})
        where.update(dict.fromkeys(shard, name))
        total += sum(t.nbytes for t in shard.values())
    write_json(folder, "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
    return total


def write_all(net, source, folder):
    s = net.shape
    bpe = tk.Tokenizer.from_file(os.path.join(source, "tokenizer.json"))
    ids = {t: bpe.token_to_id(t) for t in (tk.UNKNOWN, tk.BEGIN, tk.END, tk.IMAGE, tk.PAD)}
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(source, "tokenizer.json"), folder)
    write_json(folder, "config.json", config(s, ids))
    write_json(folder, "generation_config.json", {"bos_token_id": ids[tk.BEGIN], "eos_token_id": ids[tk.END], "pad_token_id": ids[tk.PAD]})
    special = dict(unk_token=tk.UNKNOWN, bos_token=tk.BEGIN, eos_token=tk.END, pad_token=tk.PAD)
    write_json(folder, "special_tokens_map.json", special)
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "model_max_length": s.positions,
        "extra_special_tokens": {"image_token": tk.IMAGE}, "processor_class": "LlavaProcessor", **special,
    })  # fmt: skip
    write_json(folder, "preprocessor_config.json", {
        "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": s.side}, "resample": 3,
        "do_center_crop": True, "crop_size": {"height": s.side, "width": s.side}, "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": True, "image_mean": data.MEAN.tolist(), "image_std": data.STD.tolist(), "do_convert_rgb": True,
    })  # fmt: skip
    write_json(folder, "processor_config.json", {
        "processor_class": "LlavaProcessor", "image_token": tk.IMAGE, "patch_size": s.patch,
        "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1,
    })  # fmt: skip
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write(TEMPLATE)
    return write_weights(folder, names(net))


@torch.no_grad()
def largest_difference(net, source, folder):
    """Of logits, relative to the largest: transformers on the folder, and our network with the rounded
    weights, on answers about scenes."""
    from transformers import LlavaForConditionalGeneration

    ops.IN_BF16 = False  # transformers computes in f32
    theirs = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    for w in net.w.values():
        w.data = w.data.to(torch.bfloat16).float()
    bpe = tk.Tokenizer.from_file(os.path.join(source, "tokenizer.json"))
    scenes = data.Source(data.LIBRARY, bpe, net.shape, "check")
    worst = 0.0
    for make in (scenes.single, scenes.double):
        b = make(0, 2, blocks=1)
        after = [torch.arange(first + b.rows.prefix, end) for first, end in b.rows.samples()]
        ours = net.say(data.rows_of(net, scenes.text, b, net.see(b.pixels)), b.rows, torch.cat(after))
        before, between = scenes.text.prefix(b.images)
        for i, own in enumerate(ours.split([len(rows) for rows in after])):
            picture = [scenes.text.image] * net.shape.rows
            ids = before + picture + (between + picture) * (b.images - 1) + b.ids[i]
            pixels = b.pixels.view(-1, b.images, *b.pixels.shape[1:])[i]
            logits = theirs(input_ids=torch.tensor([ids]), pixel_values=pixels).logits[0, b.rows.prefix :]
            worst = max(worst, float((logits - own).abs().max() / logits.abs().max()))
    return worst


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--from", dest="source", default=os.path.join(data.ROOT, "build", "train"))
    a.add_argument("--to", default=os.path.join(data.ROOT, "checkpoints", "nano"))
    a.add_argument("--size", choices=("nano", "large"), default="nano")
    args = a.parse_args()
    state = torch.load(os.path.join(args.source, "state.pt"))
    net = Network(LARGE if args.size == "large" else Shape(), state["flat"])
    total = write_all(net, args.source, args.to)
    worst = largest_difference(net, args.source, args.to)
    print(f"wrote {args.to}: {total} bytes of weights; logits differ from transformers by {worst:.1e} of the largest")
    if worst > 1e-3:
        raise SystemExit("that is too much: the folder is not the network that was trained")


if __name__ == "__main__":
    main()
