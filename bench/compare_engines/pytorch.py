"""PyTorch with transformers, eager and compiled, each in its own process for all rounds."""
import contextlib
import multiprocessing
import time

from classes import BATCHES, CLASSES


class Torch:
    def __init__(self, where, precision, compiled, o):
        import torch
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(o.threads)
        self.torch, self.o, self.compiled = torch, o, compiled
        dtype = CLASSES[precision][1]
        source = where / ("f32" if precision == "f32" else "bf16")
        kept = torch.float32 if dtype == "int8" else getattr(torch, dtype)
        self.model = AutoModelForCausalLM.from_pretrained(source, dtype=kept).eval()
        if dtype == "int8":
            self.model = torch.ao.quantization.quantize_dynamic(self.model, {torch.nn.Linear}, dtype=torch.qint8)
        self.call, self.kept = self.model, {}
        if compiled:
            import torch._inductor.config as inductor
            inductor.freezing, torch._dynamo.config.recompile_limit = True, 64
            self.call = torch.compile(self.model)
        for _ in range(2):  # warm-up: both runs compile, the second for existing caches
            self.run()

    def cache(self, batch, use):
        """Returns a cache; a compiled model is tied to the addresses of its static caches, so these are reused."""
        from transformers import DynamicCache, StaticCache
        if not self.compiled:
            return DynamicCache(config=self.model.config)
        if (batch, use) not in self.kept:
            self.kept[batch, use] = StaticCache(config=self.model.config, max_cache_len=self.o.prompt + self.o.tokens)
        else:
            self.kept[batch, use].reset()
        return self.kept[batch, use]

    def copies(self, of, batch):
        """Returns a cache of `batch` sequences, each a copy of the one sequence of `of`."""
        cache = self.cache(batch, "decode")
        for i, layer in enumerate(of.layers):
            keys, values = (t[:, :, :self.o.prompt].repeat(batch, 1, 1, 1) for t in (layer.keys, layer.values))
            cache.update(keys, values, i)
        return cache

    def run(self):
        torch, o, seconds = self.torch, self.o, {}
        with torch.inference_mode() if not self.compiled else torch.no_grad():
            one, ids = self.cache(1, "prefill"), torch.randint(3, self.model.config.vocab_size, (1, o.prompt))
            begin = time.perf_counter()
            self.call(input_ids=ids, past_key_values=one, use_cache=True, logits_to_keep=1, cache_position=torch.arange(o.prompt))
            seconds["prefill"] = time.perf_counter() - begin
            for batch in BATCHES:
                cache, ids = self.copies(one, batch), ids[:, :1].repeat(batch, 1)
                begin = time.perf_counter()
                for t in range(o.tokens):
                    out = self.call(input_ids=ids, past_key_values=cache, use_cache=True,
                                    cache_position=torch.tensor([o.prompt + t]))
                    ids = out.logits[:, -1:].argmax(-1)
                seconds[batch] = time.perf_counter() - begin
                ids = ids[:1]
        return seconds


def torch_worker(pipe, *of):
    """Main function of the process: sends None once ready, then runs a round per message."""
    try:
        engine = Torch(*of)
        pipe.send(None)
        while pipe.recv():
            pipe.send(engine.run())
    except EOFError:
        pass
    except Exception as e:  # a feature that this PyTorch lacks becomes a row of the table
        pipe.send(f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:80]}")


class TorchEngine:
    def __init__(self, *of):
        self.limit, spawn = of[-1].limit, multiprocessing.get_context("spawn")
        self.pipe, there = spawn.Pipe()
        self.process = spawn.Process(target=torch_worker, args=(there, *of), daemon=True)
        self.process.start()
        there.close()
        self.why = self.answer()

    def answer(self):
        try:
            got = self.pipe.recv() if self.pipe.poll(self.limit) else f"took longer than {self.limit} s"
        except EOFError:
            got = "its process ended"
        if isinstance(got, str):
            self.close()
        return got

    def run(self):
        self.pipe.send(True)
        return self.answer()

    def close(self):
        with contextlib.suppress(OSError):
            self.pipe.send(False)
        self.process.join(5)
        self.process.kill()
        self.process.join()
