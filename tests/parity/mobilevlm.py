"""MobileVLM V2, which transformers does not have.

Its connector is written here in NumPy from the paper (arXiv 2402.03766, the lightweight downsample projector):

    f_0 = PW(GELU(PW(f)))    two point-wise convolutions: a linear layer for each patch
    f_1 = AvgPool(f_0)       2 x 2, of 24 x 24 patches; here 12 x 12 tokens of any grid that has 12 as a divisor
    H_v = DW(f_1) + f_1      a depth-wise 3 x 3 convolution

CLIP's tower and image processor and the Llama model around it are transformers'.
"""
import math
import pathlib
import types

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import (AutoImageProcessor, CLIPVisionModel, LlamaConfig, LlamaForCausalLM,
                          PreTrainedTokenizerFast)

import reference

SIDE = 12
erf = np.vectorize(math.erf)
BY = "tests/parity/mobilevlm.py"


def pooled(x, side):
    """[side^2, d] -> [12^2, d], means of squares."""
    n = side // SIDE
    return x.reshape(SIDE, n, SIDE, n, -1).mean((1, 3)).reshape(SIDE * SIDE, -1)


def depthwise(x, kernel, bias):
    """[12^2, d] with kernel [d, 3, 3], zeros around the grid."""
    grid = np.pad(x.reshape(SIDE, SIDE, -1), ((1, 1), (1, 1), (0, 0)))
    out = bias + sum(grid[i:i + SIDE, j:j + SIDE] * kernel[:, i, j] for i in range(3) for j in range(3))
    return out.reshape(SIDE * SIDE, -1)


def project(features, weights):
    """Features of one image's patches [side^2, d] -> tokens [144, d_text]."""
    def linear(x, name):
        return x @ weights[f"mlp.mlp.{name}.weight"].T + weights[f"mlp.mlp.{name}.bias"]
    side = round(len(features) ** 0.5)
    hidden = linear(features.astype(np.float64), 0)
    hidden = linear(hidden * 0.5 * (1 + erf(hidden / 2 ** 0.5)), 2)
    f_1 = pooled(hidden, side)
    return depthwise(f_1, weights["peg.peg.0.weight"][:, 0], weights["peg.peg.0.bias"]) + f_1


class Reference(reference.Reference):
    """One checkpoint directory with its tower's inside."""

    def __init__(self, directory):
        directory = pathlib.Path(directory)
        self.config = LlamaConfig.from_pretrained(directory).to_dict()
        tower = directory / self.config["mm_vision_tower"].rpartition("/")[2]
        weights = load_file(directory / "model.safetensors")
        self.model = LlamaForCausalLM(LlamaConfig.from_pretrained(directory, attn_implementation="eager")).float()
        text = {k: v for k, v in weights.items() if not k.startswith("model.mm_projector.")}
        missing, unexpected = self.model.load_state_dict(text, strict=False)
        if unexpected or missing not in ([], ["lm_head.weight"]):
            raise ValueError(f"{directory}: {missing} are missing, {unexpected} are too many")
        self.model.tie_weights()
        self.model.eval()
        self.projector = {k.removeprefix("model.mm_projector."): v.double().numpy()
                          for k, v in weights.items() if k not in text}
        self.tower = CLIPVisionModel.from_pretrained(tower, dtype=torch.float32, attn_implementation="eager").eval()
        self.processor_of_images = AutoImageProcessor.from_pretrained(tower, backend="pil")
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
        self.processor = types.SimpleNamespace(apply_chat_template=lambda *a, **k: self.tokenizer.apply_chat_template(
            *a, tokenize=False, **k))
        self.image_token = self.tokenizer.convert_tokens_to_ids("<image>")
        self.n_vocab = min(reference.vocabulary(self.tokenizer), self.config["vocab_size"])
        self.any_size = self.qwen_vl = False
        self.has_vision = True

    def square(self, image):
        """The image in the middle of a square of the mean colour."""
        image = image.convert("RGB")
        if self.config.get("image_aspect_ratio") != "pad":
            return image
        side = max(image.size)
        out = Image.new("RGB", (side, side), tuple(int(x * 255) for x in self.processor_of_images.image_mean))
        out.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
        return out

    def inputs(self, prompt, images):
        out = self.tokenizer(prompt.replace("<image>", "<image>" * SIDE * SIDE), return_tensors="pt",
                             return_token_type_ids=False)
        if images:
            out["pixel_values"] = self.processor_of_images([self.square(Image.open(i)) for i in images],
                                                           return_tensors="pt")["pixel_values"]
        return out

    def first(self, inputs, made):
        made["by"] = BY
        states = self.tower(inputs["pixel_values"], output_hidden_states=True).hidden_states
        features = states[self.config["mm_vision_select_layer"]][:, 1:]
        tower = self.tower.config
        side = tower.image_size // tower.patch_size
        rows = torch.from_numpy(np.concatenate([project(f.numpy(), self.projector) for f in features])).float()
        sizes = [(side * tower.patch_size,) * 2] * len(features)
        made["vision_features"] = reference.merged(features.flatten(0, 1), sizes, tower.patch_size,
                                                   side // SIDE).numpy()
        made["image_embeds"] = rows.numpy()
        ids = inputs["input_ids"]
        embeds = self.model.model.embed_tokens(ids.clamp(max=self.config["vocab_size"] - 1))
        embeds[ids == self.image_token] = rows
        return self.model(inputs_embeds=embeds, use_cache=True, logits_to_keep=1)
