"""Random text models, as checkpoints of fovea and PyTorch and as files of llama.cpp."""
import json
import os
import subprocess

import numpy as np

from classes import BIN, GGUF, SCRATCH


def make_model(name, layers):
    """Makes a text model of the shape in f32, in bf16 and as GGUF files."""
    where = SCRATCH / f"{name}-{layers}"
    for dtype in ("f32", "bf16"):
        if not (where / dtype / "config.json").exists():
            subprocess.run([BIN / "fovea", "synth", "--shape", name, "--family", "llama", "--layers", str(layers), "--dtype",
                            dtype, "--seed", "1", "--out", where / dtype], check=True, stdout=subprocess.DEVNULL)
    for name, (kind, head) in GGUF.items():
        write_gguf(where / "f32", where / f"{name}.gguf", kind, head)
    for file in (*where.glob("*.gguf"), *where.glob("*/model.safetensors")):
        leave_memory(file)
    return where


def leave_memory(path):
    """Drops a written file from the page cache: its small pages are read some 5 % slower than pages mapped from the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_gguf(directory, to, kind, head):
    if to.exists():
        return
    import gguf
    import torch
    from safetensors import safe_open
    c = json.loads((directory / "config.json").read_text())
    out = gguf.GGUFWriter(to.with_suffix(".part"), "llama")
    heads, kv = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
    out.add_context_length(c["max_position_embeddings"])
    out.add_embedding_length(c["hidden_size"])
    out.add_block_count(c["num_hidden_layers"])
    out.add_feed_forward_length(c["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_layer_norm_rms_eps(c.get("rms_norm_eps", 1e-6))
    out.add_rope_dimension_count(c.get("head_dim") or c["hidden_size"] // heads)
    out.add_tokenizer_model("llama")
    n = c["vocab_size"]
    out.add_token_list(["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(n - 3)])
    out.add_token_scores([0.0] * n)
    out.add_token_types([2, 3, 3] + [1] * (n - 3))
    names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    with safe_open(directory / "model.safetensors", "pt") as file:
        for key in file.keys():
            w = file.get_tensor(key).to(torch.float32).numpy()
            short = key.removeprefix("model.").removesuffix(".weight")
            own = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}.get(short)
            if own is None:
                _, layer, part = short.split(".", 2)
                own = f"blk.{layer}.{names[part]}"
                turned = {"attn_q": heads, "attn_k": kv}.get(names[part])
                if turned:
                    w = w.reshape(turned, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
            type_ = gguf.GGMLQuantizationType["F32" if w.ndim == 1 else head if own == "output" else kind]
            out.add_tensor(own + ".weight", gguf.quants.quantize(np.ascontiguousarray(w), type_), raw_dtype=type_)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    to.with_suffix(".part").rename(to)
