#!/usr/bin/env python3
"""What PyTorch and transformers need on the same GPU for what bench_gpu has measured.

    bench/gpu/compare_torch.py NUMBERS            NUMBERS: what bench_gpu has written
    bench/gpu/compare_torch.py NUMBERS --parts product,sdpa,packed,network    some of it
    bench/gpu/compare_torch.py NUMBERS --small    on the CPU, tiny: only that every line runs

Products and attention (scaled_dot_product_attention, bf16) at the shapes of bench_gpu; attention of one query row per sequence over 4096 full keys and values (scaled_dot_product_attention,
bf16) beside attention on packed rows of rank 64; LLaVA-1.5-7B with random weights in bf16 beside
our prefill and decode steps (sdpa; the step as PyTorch issues it, and as a CUDA graph over a
StaticCache). Times are medians between events of the device; two caches take turns. What cannot be
imported or does not run is said, and left out. Exit status: 0, or 77 without PyTorch or a GPU.
"""
import argparse
import statistics
import sys
import time

ROUNDS = 9


def skip(why):
    print(f"skip: {why}")
    sys.exit(77)


try:
    import torch
except ImportError as e:
    skip(f"PyTorch is not installed ({e})")


def read_numbers(path):
    """Returns {key: seconds}."""
    with open(path, encoding="utf-8") as f:
        return {key: float(value) for key, value in (line.split() for line in f)}


class Clock:
    """Median times by device events; on the CPU, by the host's clock."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"

    def one(self, work, calls):
        if not self.cuda:
            begin = time.perf_counter()
            for i in range(calls):
                work(i)
            return (time.perf_counter() - begin) / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(calls):
            work(i)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / calls

    def median(self, work, calls, rounds=ROUNDS):
        for i in range(3):
            work(i)
        return statistics.median(self.one(work, calls) for _ in range(rounds))


def row(name, theirs, ours, aim=None):
    """Prints a row; ours None: bench_gpu has no such row."""
    if ours is None:
        print(f"{name:58} {theirs * 1e6:10.1f} us")
        return
    ratio = theirs / ours
    word = "" if aim is None else f"  aim {aim:g}: {'reached' if ratio >= aim else 'missed'}"
    print(f"{name:58} {theirs * 1e6:10.1f} us, ours {ours * 1e6:10.1f} us: {ratio:6.2f} x{word}")


# ---- attention -----------------------------------------------------------------------------

def attention(clock, device, ours, small):
    heads, rows, width = (2, 64, 16) if small else (32, 4096, 128)
    for batch in (16, 32, 64):
        b = 2 if small else batch
        q = torch.randn(b, heads, 1, width, device=device, dtype=torch.bfloat16)
        kv = [torch.randn(2, b, heads, rows, width, device=device, dtype=torch.bfloat16)
              for _ in range(2)]

        def work(i):
            torch.nn.functional.scaled_dot_product_attention(q, kv[i % 2][0], kv[i % 2][1])

        row(f"sdpa on full KV, {batch} x 4096 rows; ours packed, rank 64",
            clock.median(work, 1 if small else 20), ours.get(f"packed_{batch}x4096"), 12)
        del q, kv


def sdpa(clock, device, ours, small):
    """The shapes of bench/gpu/attention.c, keys and values in one piece."""
    for key, batch, rows, keys, kv_heads in (
            ("full_1x640", 1, 1, 640, 32), ("full_16x640", 16, 1, 640, 32),
            ("full_64x640", 64, 1, 640, 32), ("full_16x4096", 16, 1, 4096, 32),
            ("gqa_64x4096", 64, 1, 4096, 8), ("prefill_640", 1, 640, 640, 32),
            ("prefill_4096", 1, 4096, 4096, 32)):
        heads, width = 32, 128
        if small:
            batch, rows, keys, heads, kv_heads, width = 2, min(rows, 9), 9, 4, 2, 16
        q = torch.randn(batch, heads, rows, width, device=device, dtype=torch.bfloat16)
        kv = [torch.randn(2, batch, kv_heads, keys, width, device=device, dtype=torch.bfloat16)
              for _ in range(2)]

        def work(i):
            torch.nn.functional.scaled_dot_product_attention(
                q, kv[i % 2][0], kv[i % 2][1], is_causal=rows > 1, enable_gqa=kv_heads < heads)

        row(f"sdpa, {key}", clock.median(work, 1 if small else 20), ours.get(key), 1)
        del q, kv


def linear(clock, device, ours, small):
    for rows in (1, 16, 64, 640, 4096):
        for name, n, k in (("qkv", 12288, 4096), ("down", 4096, 11008)):
            if small:
                n = k = 64
            x = torch.randn(rows, k, device=device, dtype=torch.bfloat16)
            weights = [torch.randn(n, k, device=device, dtype=torch.bfloat16)
                       for _ in range(1 if small else max(2, int(512e6 / (2 * n * k)) + 1))]
            key = f"linear_{name}_{rows}"
            row(f"linear, {key}",
                clock.median(lambda i: torch.nn.functional.linear(x, weights[i % len(weights)]),
                             1 if small else 20), ours.get(key), 1)
            del x, weights


def product(clock, device, small):
    n = 64 if small else 8192
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = clock.median(lambda i: a @ b, 1 if small else 10)
    print(f"{f'bf16 product of {n}^3':58} {seconds * 1e6:10.1f} us: "
          f"{2 * n ** 3 / seconds * 1e-12:.1f} TFLOP/s")


# ---- the network ---------------------------------------------------------------------------

def make_model(device, small):
    import transformers
    vision = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24,
                  num_attention_heads=16, image_size=336, patch_size=14, projection_dim=768)
    text = dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
                num_attention_heads=32, num_key_value_heads=32, vocab_size=32064,
                max_position_embeddings=8192)
    if small:
        vision.update(hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                      num_attention_heads=2, image_size=28)
        text.update(hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                    num_attention_heads=2, num_key_value_heads=2, vocab_size=100)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**vision),
        text_config=transformers.LlamaConfig(**text), image_token_index=text["vocab_size"] - 1,
        vision_feature_layer=-2, vision_feature_select_strategy="default")
    with torch.device("meta"):
        model = transformers.LlavaForConditionalGeneration(config)
    model = model.to(torch.bfloat16).to_empty(device=device).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.05, 0.05)
        for name, buffer in model.named_buffers():  # to_empty leaves them uninitialised
            if "position_ids" in name:
                buffer.copy_(torch.arange(buffer.shape[-1], device=device).expand_as(buffer))
            else:
                buffer.fill_(0.5)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, sdpa, bf16")
    return model, config


def prompt_of(config, batch, rows, visual, device):
    """Returns token ids: `rows` in all, of which the first `visual` are image tokens."""
    ids = torch.arange(rows, device=device) * 7919 % (config.image_token_index - 1)
    ids[:visual] = config.image_token_index
    return ids.expand(batch, rows).contiguous()


def prefills(clock, model, config, ours, device, small):
    side, patch = config.vision_config.image_size, config.vision_config.patch_size
    visual = (side // patch) ** 2
    pixels = torch.rand(1, 3, side, side, device=device, dtype=torch.bfloat16)
    ids = prompt_of(config, 1, visual + 64, visual, device)
    row("first token, a picture and 64 of text",
        clock.median(lambda i: model(input_ids=ids, pixel_values=pixels, logits_to_keep=1), 1),
        ours.get("ttft"), 1)
    for rows in (640, 1024, 2048, 4096):
        ids = prompt_of(config, 1, 9 if small else rows, 0, device)
        row(f"prefill, {rows} rows", clock.median(lambda i: model(input_ids=ids, logits_to_keep=1), 1),
            ours.get(f"net_prefill_{rows}"), 1)


def steps(clock, model, config, ours, device, batch, small):
    """Times a step of one token per sequence after 640 rows, without a graph."""
    import transformers
    context, b = (9, 2) if small else (640, batch)
    cache = transformers.DynamicCache(config=config.text_config)
    model(input_ids=prompt_of(config, b, context, 0, device), past_key_values=cache,
          logits_to_keep=1)
    token = torch.ones(b, 1, device=device, dtype=torch.long)
    row(f"decode step, {batch} x 640 rows",
        clock.median(lambda i: model(input_ids=token, past_key_values=cache).logits.cpu(), 1),
        ours.get(f"net_step_{batch}"), 1)


def graph_steps(clock, model, config, ours, device, batch):
    """Times the same step as a CUDA graph, always at one position of a StaticCache."""
    import transformers
    cache = transformers.StaticCache(config=config.text_config, max_cache_len=704)
    model(input_ids=prompt_of(config, batch, 640, 0, device), past_key_values=cache,
          logits_to_keep=1)
    token = torch.ones(batch, 1, device=device, dtype=torch.long)
    place = torch.full((batch, 1), 640, device=device, dtype=torch.long)

    def step():
        return model(input_ids=token, past_key_values=cache, position_ids=place).logits

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()

    def work(_):
        graph.replay()
        logits.cpu()

    row(f"decode step, {batch} x 640 rows, CUDA graph", clock.median(work, 1),
        ours.get(f"net_step_{batch}"), 1)


def network(clock, device, ours, small):
    try:
        model, config = make_model(device, small)
    except ImportError as e:
        print(f"skip: transformers is not installed ({e})")
        return
    attempts = [("prefill", lambda: prefills(clock, model, config, ours, device, small))]
    for batch in (1, 16, 64):
        attempts.append((f"steps of {batch}",
                         lambda b=batch: steps(clock, model, config, ours, device, b, small)))
        if device.type == "cuda":
            attempts.append((f"graph of {batch}",
                             lambda b=batch: graph_steps(clock, model, config, ours, device, b)))
    for name, attempt in attempts:
        try:
            attempt()
        except Exception as e:  # any exception: transformers is not ours
            print(f"skip: {name}: {type(e).__name__}: {e}")
            if small:
                raise
        if device.type == "cuda":
            torch.cuda.empty_cache()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("numbers")
    arguments.add_argument("--small", action="store_true")
    arguments.add_argument("--parts", default="product,sdpa,packed,network")
    a = arguments.parse_args()
    if not a.small and not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    device = torch.device("cpu" if a.small else "cuda")
    clock, ours = Clock(device), read_numbers(a.numbers)
    with torch.inference_mode():
        for part in a.parts.split(","):
            if part == "product":
                product(clock, device, a.small)
                linear(clock, device, ours, a.small)
            elif part == "sdpa":
                sdpa(clock, device, ours, a.small)
            elif part == "packed":
                attention(clock, device, ours, a.small)
            elif part == "network":
                network(clock, device, ours, a.small)
            else:
                arguments.error(f"there is no part {part}")


if __name__ == "__main__":
    main()
