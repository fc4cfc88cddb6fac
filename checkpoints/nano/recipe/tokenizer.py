"""The tokenizer of the checkpoint: byte-pair encoding in the form of Llama 2, with byte fallback.

Words keep the space before them as U+2581, merges never cross words, digits stay alone, and what the
vocabulary lacks is spelled in bytes, so any text has ids.
"""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

UNKNOWN, BEGIN, END, IMAGE, PAD = "<unk>", "<s>", "</s>", "<image>", "<pad>"
SPACE = "\u2581"


def train(lines, size):
    """Merges learned from `lines`; a tokenizer of `size` ids in all."""
    first = [UNKNOWN, BEGIN, END] + [f"<0x{i:02X}>" for i in range(256)]
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(SPACE, "merged_with_next"),
         pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Split("\n", "isolated")]
    )
    printable = [chr(i) for i in range(33, 127)] + [SPACE, "\n"]
    learner.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=size - len(first) - 2, initial_alphabet=printable, show_progress=False)
    )
    learned = json.loads(learner.to_str())["model"]
    tokens = [t for t, _ in sorted(learned["vocab"].items(), key=lambda x: x[1])]
    tokens += [f"<unused{i}>" for i in range(size - len(first) - 2 - len(tokens))]
    vocab = {t: i for i, t in enumerate(first + tokens)}
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in learned["merges"]]
    t = Tokenizer(models.BPE(vocab, merges, unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True))
    t.normalizer = learner.normalizer
    t.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    t.add_special_tokens([AddedToken(x, normalized=False, special=True) for x in (UNKNOWN, BEGIN, END)])
    t.add_special_tokens([AddedToken(x, normalized=False, special=True) for x in (IMAGE, PAD)])
    t.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, vocab[BEGIN])]
    )
    return t
