"""Checkpoints that transformers itself writes, with the tokenizers and processors it writes.

fovea reads them as anybody's: nothing in them went through `fovea synth`.
"""
import dataclasses
import json
import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (CLIPVisionConfig, LlamaConfig, LlamaForCausalLM, LlamaTokenizer,
                          LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor,
                          MistralConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from cases import Case, encoded_picture

CORPUS = """A cat sits on the red chair near the window and looks at the small bird outside.
What is in the picture? There are two dogs, a tree and a house with a green roof.
How many people can be seen? Describe the image in one sentence, please.
Die Katze sitzt auf dem Stuhl; draußen fliegt ein Vogel über das Haus.
The answer is: 1234567890 + 42 = 1234567932. (Not sure!) "Quoted", 'single', [x] {y} <z>
Sur la photo, on voit un garçon qui mange une pêche à côté d'une fenêtre.
"""
VICUNA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ message['role'].upper() + ': '}}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\\n' }}{% endfor %}{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' '}}{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %}{{'<|im_end|>\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


# ---- tokenizers ----

def train(pre_tokenizer, size, head, alphabet):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=size, special_tokens=head, initial_alphabet=alphabet,
        limit_alphabet=len(alphabet), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def llama_tokenizer(size, legacy):
    head = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    alphabet = sorted(set("▁" + CORPUS.replace(" ", "").replace("\n", "")))[:90]
    vocab, merges = train(pre_tokenizers.Metaspace(), size, head, alphabet)
    tokenizer = LlamaTokenizer(vocab=vocab, merges=merges, legacy=legacy, add_bos_token=True)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"], "pad_token": "<pad>"})
    return tokenizer


def qwen2_tokenizer(size):
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    vocab, merges = train(pre_tokenizers.ByteLevel(add_prefix_space=False), size, [], alphabet)
    tokenizer = Qwen2Tokenizer(vocab=vocab, merges=merges)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>",
                                                                "<image>"]})
    return tokenizer


# ---- models ----

def fill(model, seed):
    """Random weights that keep activations near 1, as a trained network's are."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name or "layrnorm" in name:
                p.copy_(noise * 0.1 + (1 if name.endswith("weight") else 0))
            elif p.dim() > 1 and "embed" not in name:
                p.copy_(noise * (2 if "lm_head" in name else 1) / p[0].numel() ** 0.5)
            else:
                p.copy_(noise * (0.6 if "embed" in name else 0.05))


def text_keys(vocab, **more):
    return {"vocab_size": vocab, "hidden_size": 36, "intermediate_size": 50,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 12, "max_position_embeddings": 512, "bos_token_id": 1,
            "eos_token_id": 2} | more


def clip_config():
    return CLIPVisionConfig(hidden_size=18, intermediate_size=25, num_hidden_layers=3,
                            num_attention_heads=2, image_size=28, patch_size=7, projection_dim=16)


def write_llava(directory, tokenizer, text, dtype, seed, template, shard="5GB", **more):
    config = LlavaConfig(vision_config=clip_config(), text_config=text,
                         image_token_id=tokenizer.convert_tokens_to_ids("<image>"), **more)
    model = LlavaForConditionalGeneration(config)
    fill(model, seed)
    side, patch = config.vision_config.image_size, config.vision_config.patch_size
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": side},
                                              crop_size={"height": side, "width": side}),
        tokenizer=tokenizer, patch_size=patch, num_additional_image_tokens=1,
        vision_feature_select_strategy=config.vision_feature_select_strategy,
        chat_template=template)
    model.to(dtype).save_pretrained(directory, max_shard_size=shard)
    processor.save_pretrained(directory)


def write_text(directory, tokenizer, model, dtype, seed):
    fill(model, seed)
    model.to(dtype).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def llama_llava(directory):
    tokenizer = llama_tokenizer(370, legacy=True)
    write_llava(directory, tokenizer, LlamaConfig(**text_keys(384)), torch.bfloat16, 1, VICUNA,
                projector_hidden_act="gelu")


def qwen2_llava(directory):
    tokenizer = qwen2_tokenizer(330)
    text = Qwen2Config(**text_keys(360, tie_word_embeddings=True, head_dim=12, bos_token_id=None,
                                   eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>")))
    write_llava(directory, tokenizer, text, torch.float16, 2, CHATML,
                vision_feature_layer=[-1, -3], tie_word_embeddings=True)


def mistral_llava(directory):
    tokenizer = llama_tokenizer(400, legacy=False)
    text = MistralConfig(**text_keys(430, sliding_window=None, num_attention_heads=6))
    write_llava(directory, tokenizer, text, torch.float32, 3, VICUNA, shard="60KB",
                vision_feature_select_strategy="full", vision_feature_layer=-1,
                multimodal_projector_bias=False)


def llama_alone(directory):
    tokenizer = llama_tokenizer(400, legacy=False)
    config = LlamaConfig(**text_keys(420, attention_bias=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}))
    write_text(directory, tokenizer, LlamaForCausalLM(config), torch.bfloat16, 4)


def qwen2_alone(directory):
    tokenizer = qwen2_tokenizer(320)
    config = Qwen2Config(**text_keys(340, tie_word_embeddings=True, bos_token_id=None))
    write_text(directory, tokenizer, Qwen2ForCausalLM(config), torch.float32, 5)


@dataclasses.dataclass
class Written(Case):
    write: object = None

    @property
    def has_vision(self):
        return "alone" not in self.name


def make_written():
    """A Case for each, its checkpoint still to be written by case.write(directory)."""
    rng = random.Random(7)

    def case(name, about, write, prompt, kinds, **more):
        images = [encoded_picture(rng, kind, i) for i, kind in enumerate(kinds)]
        return Written(name=name, about=about, config={}, seed=0, dialect="written", dtype="",
                       shards=0, key_form="", prompt=prompt, images=images,
                       options=("--threads", "2"), write=write, **more)
    return [
        case("hf_llama", "llama, LlamaTokenizer, bf16, vicuna template", llama_llava,
             "What is in the picture?", ["jpeg"], chat=True),
        case("hf_qwen2", "qwen2, byte-level tokenizer, f16, tied, layers [-1,-3], chatml",
             qwen2_llava, "Wie viele Vögel? 鳥 🐦", ["png-RGB", "webp-lossy"], chat=True,
             system="Be brief."),
        case("hf_mistral", "mistral, f32 in shards, strategy full, no projector bias",
             mistral_llava, "<image>\nDescribe it; à côté? <image>", ["png-L", "jpeg"]),
        case("hf_llama_alone", "LlamaForCausalLM, bf16, biases, rope llama3", llama_alone,
             "The cat sits on the chair, and the draußen 猫", []),
        case("hf_qwen2_alone", "Qwen2ForCausalLM, f32, tied", qwen2_alone,
             "How many dogs? There're  two,\n\nplease 12345", []),
    ]
