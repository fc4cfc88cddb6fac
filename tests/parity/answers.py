"""The evaluation in transformers: are greedy answers the same words?

`fovea eval` runs the first N items under `exact`; transformers gets the same images and turns, in
float32 with eager attention, and decodes greedily. Where the answers differ, the margin by
which transformers preferred its own token shows whether it was a tie of rounding."""
import json
import pathlib
import sys
import time

import compare

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "checkpoints" / "nano"
sys.path.insert(0, str(ROOT / "eval"))
MAX_TOKENS = {"caption": 320}  # as fv_suite_max_tokens has them
MAX_TOKENS_ELSE = 32
LIMIT = 0.995  # share of items whose answers must be equal


def our_answers(program, n, directory):
    """[items] lists of answers, and the tasks in their order."""
    program.run("eval", "--checkpoint", CHECKPOINT, "--policy", "exact", "--items", n,
                "--compute", "f32", "--out", directory, timeout=3600)
    head, *items = map(json.loads, (directory / "items.jsonl").read_text().splitlines())
    items.sort(key=lambda item: item["item"])
    return [item["answers"] for item in items], head["tasks"]


class Examinee:
    """transformers on the checkpoint, one chat at a time."""

    def __init__(self):
        import reference
        self.ref = reference.Reference(CHECKPOINT, True)
        self.side = self.ref.processor.image_processor.crop_size["height"]

    def pictures(self, library, item):
        from PIL import Image
        pixels = library.render(item.scenes, self.side)
        each = self.side * self.side * 3
        return [Image.frombytes("RGB", (self.side, self.side), bytes(pixels[i:i + each]))
                for i in range(0, len(pixels), each)]

    def answer(self, chat, pictures, task):
        """The text; and its tokens, with by how much each was preferred to the next likeliest,
        relative to the largest logit."""
        import torch
        prompt = self.ref.processor.apply_chat_template(chat, add_generation_prompt=True)
        inputs = self.ref.processor(images=pictures, text=prompt, return_tensors="pt")
        out = self.ref.model.generate(
            **inputs, do_sample=False, max_new_tokens=MAX_TOKENS.get(task, MAX_TOKENS_ELSE),
            output_logits=True, return_dict_in_generate=True)
        margins = []
        for step in out.logits:
            top = torch.topk(step[0], 2).values
            margins.append(float((top[0] - top[1]) / step[0].abs().max()))
        new = out.sequences[0, inputs["input_ids"].shape[1]:]
        return self.text(new), new, margins

    def text(self, ids):
        return self.ref.tokenizer.decode(ids, skip_special_tokens=True).strip()

    def sit(self, item, pictures, ours):
        """All turns of an item, each after the answers before it; and the margin where `ours` went
        another way, None when it did not."""
        chat, said = [], []
        for i, turn in enumerate(item.turns):
            content = [{"type": "image"}] * (len(pictures) if i == 0 else 0)
            chat.append({"role": "user", "content": [*content, {"type": "text", "text": turn.question}]})
            text, ids, margins = self.answer(chat, pictures, turn.task)
            chat.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
            said.append(text)
            if text != ours[i]:  # what comes after hangs on it
                alike = sum(ours[i].startswith(self.text(ids[:k + 1])) for k in range(len(ids)))
                return said, margins[min(alike, len(margins) - 1)]
        return said, None


def run(program, n, directory):
    """Prints what differs; False when too much does, or something for no reason of rounding."""
    import scenes
    begin = time.monotonic()
    ours, tasks = our_answers(program, n, directory)
    library = scenes.Scenes(str(ROOT / "build" / "cpu" / "bin" / "fovea_scene.so"))
    theirs, equal, unexplained = Examinee(), 0, 0
    for i, answers in enumerate(ours):
        item = library.item("test", tasks[i % len(tasks)], i // len(tasks))
        said, margin = theirs.sit(item, theirs.pictures(library, item), [a.strip() for a in answers])
        if margin is None:
            equal += 1
            continue
        tie = margin < compare.TIE
        unexplained += not tie
        print(f"item {i} ({item.task}): {answers} instead of {said}; its two best tokens there "
              f"differ by {margin:.1e} of the largest logit: {'a tie' if tie else 'NOT a tie'}", flush=True)
    print(f"{equal} of {n} items are answered alike in {time.monotonic() - begin:.0f} s; "
          f"{n - equal - unexplained} differ by a tie of rounding, {unexplained} for another reason")
    return equal >= LIMIT * n and unexplained == 0
