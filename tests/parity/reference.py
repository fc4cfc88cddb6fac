"""Hugging Face transformers: the same request, computed by PyTorch in float32 unless said otherwise."""
import contextlib
import os
import types
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on disk; ask nobody

import numpy as np
import torch
import transformers
from PIL import Image, ImageSequence
from transformers import (AutoImageProcessor, AutoModelForCausalLM, AutoModelForImageTextToText,
                          AutoProcessor, PreTrainedTokenizerFast)
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel
from transformers.video_utils import VideoMetadata
from transformers.vision_utils import get_vision_window_index

# Names that transformers itself can load. `original` is LLaVA's own layout, `bare` has no head.
LOADABLE = {"llava": ("hub", "v4.52", "v5.6", "base"), "text": ("original", "bare")}


def setup(n_threads):
    torch.set_num_threads(n_threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message="Converting a tensor with requires_grad")


def vocabulary(tokenizer):
    """Rows from here on are padding: no token has their number."""
    return max(tokenizer.get_vocab().values()) + 1


def tiles_of(pixels, sizes=None):
    """[tiles, 3, h, w] of all images in turn, without the zeros that pad a batch; where images have
    sizes of their own, in a row."""
    if sizes is not None and pixels.dim() == 4:
        images = [image[:, :h, :w] for image, (h, w) in zip(pixels, sizes.tolist())]
        same = len({image.shape for image in images}) == 1
        return torch.stack(images) if same else torch.cat([image.flatten() for image in images])
    if pixels.dim() == 5:
        pixels = pixels.flatten(0, 1)
        pixels = pixels[pixels.flatten(1).abs().sum(1) > 0]
    return pixels


def unpatched(patches, grids, size, merge, video=False):
    """[patches, 3 * 2 * size^2] of images, token by token and each twice, or of a video's frames -> their pixels,
    in a row or, where they have one size, [n, 3, h, w]."""
    out = []
    for part, (t, h, w) in zip(patches.split(grids.prod(1).tolist()), grids.tolist()):
        if part.dim() == 4:  # PaddleOCR-VL's, row by row
            out.append(part.reshape(h, w, 3, size, size).permute(2, 0, 3, 1, 4).reshape(3, h * size, w * size))
            continue
        grid = part.reshape(t, h // merge, w // merge, merge, merge, 3, 2, size, size)
        grid = grid.permute(0, 6, 5, 1, 3, 7, 2, 4, 8).reshape(2 * t, 3, h * size, w * size)
        assert video or (t == 1 and torch.equal(grid[0], grid[1]))
        out += list(grid) if video else [grid[0]]
    same = len({image.shape for image in out}) == 1
    return torch.stack(out) if same else torch.cat([image.flatten() for image in out])


def of_gemma4(rows, positions):
    """[n, most, width] of n images -> for each its rows [h, w, width], without those that pad."""
    out = []
    for part, at in zip(rows, positions):
        w, h = (int(n) + 1 for n in at.max(0).values)
        out.append(part[:h * w].reshape(h, w, -1))
    return out


def pixels_of_gemma4(patches, positions):
    """Pixels of images in a row or, where they have one size, [n, 3, h, w]."""
    out = []
    for grid in of_gemma4(patches, positions):
        h, w, width = grid.shape
        p = round((width // 3) ** 0.5)
        out.append(grid.reshape(h, w, p, p, 3).permute(4, 0, 2, 1, 3).reshape(3, h * p, w * p))
    same = len({image.shape for image in out}) == 1
    return torch.stack(out) if same else torch.cat([image.flatten() for image in out])


def features_of_gemma4(states, positions, merge):
    """Hidden states of patches, those of a token side by side."""
    out = [merged(grid.flatten(0, 1), [grid.shape[:2]], 1, merge) for grid in of_gemma4(states, positions)]
    return torch.cat(out)


def merged(features, sizes, patch, merge):
    """[patches, d] of images of sizes (h, w) -> [tokens, merge^2 d]: patches of a token side by side."""
    out = []
    patches = [(int(h) // patch, int(w) // patch) for h, w in sizes]
    sizes = [(int(h) // patch // merge, int(w) // patch // merge) for h, w in sizes]
    for part, (h, w), (rows, cols) in zip(features.split([h * w for h, w in patches]), sizes, patches):
        grid = part.reshape(rows, cols, -1)[:h * merge, :w * merge]  # without those beyond the last whole token
        grid = grid.reshape(h, merge, w, merge, -1).transpose(1, 2)
        out.append(grid.reshape(h * w, -1))
    return torch.cat(out)


@contextlib.contextmanager
def watched(model, made):
    """Keeps the connector's input, and the tokens of all images, in `made`."""
    glm = hasattr(model, "visual") and hasattr(model.visual, "downsample")
    connector = (model.vision_tower.encoder if model.config.model_type == "gemma4" else
                 model.embed_vision.pos_norm if model.config.model_type == "gemma4_unified" else
                 model.projector if hasattr(model, "projector") else model.visual.downsample if glm else model.visual.merger if hasattr(model, "visual") else
                 model.multi_modal_projector if hasattr(model, "multi_modal_projector")
                 else model.vision_projection if hasattr(model, "vision_projection")
                 else model.connector.modality_projection)
    kind = "get_video_features" if "video" in made else "get_image_features"
    compute = getattr(model, kind)

    def keep_gemma4(_module, _args, output):
        states = output if torch.is_tensor(output) else output.last_hidden_state
        merge = 1 if torch.is_tensor(output) else model.config.vision_config.pooling_kernel_size
        features = features_of_gemma4(states, made["positions"], merge)
        made["vision_features"] = features.float().numpy()

    def keep_features(_module, args, _output):
        features = args[0]
        paddle = hasattr(model, "projector")
        if paddle:
            tower = model.config.vision_config
            features = merged(args[0].flatten(0, -2), [(h * tower.patch_size, w * tower.patch_size) for _, h, w in args[1].tolist()],
                              tower.patch_size, tower.spatial_merge_size)
        elif glm:  # [tokens, d, merge, merge]
            features = features.permute(0, 2, 3, 1).flatten(1)
        elif hasattr(model, "visual"):
            tower = model.config.vision_config
            merge = tower.spatial_merge_size
            features = features.reshape(-1, merge * merge * features.shape[-1])
            if hasattr(tower, "window_size"):  # rows are window by window
                order, _ = get_vision_window_index(made["grids"], merge, tower.window_size,
                                                   tower.patch_size)
                features = features[torch.argsort(order)]
        if hasattr(model.config, "mm_tokens_per_image"):  # Gemma 3's takes the mean of patches itself
            size, patch = model.config.vision_config.image_size, model.config.vision_config.patch_size
            side = size // patch
            merge = side // round(model.config.mm_tokens_per_image ** 0.5)
            features = merged(args[0].flatten(0, 1), [(side * patch, side * patch)] * len(args[0]), patch, merge)
        if len(args) > 1 and not paddle:  # Mistral 3's connector merges patches itself
            config = model.config
            features = merged(args[0], args[1], config.vision_config.patch_size,
                              config.spatial_merge_size)
        made["vision_features"] = features.reshape(-1, features.shape[-1]).float().numpy()

    def keep_tokens(*args, **kwargs):
        out = compute(*args, **kwargs)
        if "positions" in made:
            made["image_embeds"] = torch.as_tensor(out.pooler_output if torch.is_tensor(out.pooler_output) else
                                                   torch.cat(list(out.pooler_output))).float().numpy()
            return out
        parts = [out.pooler_output, *(getattr(out, "deepstack_features", None) or [])]
        made["image_embeds"] = torch.cat([torch.cat(list(part)) for part in parts],
                                         1).float().numpy()
        return out
    hook = connector.register_forward_hook(keep_gemma4 if "positions" in made else keep_features)
    setattr(model, kind, keep_tokens)
    yield
    hook.remove()
    delattr(model, kind)


MARGIN = 1e-5  # two experts whose logits are closer than this are equally likely


def watch_routers(model, made):
    """Counts in `made` the choices of experts, and those in which the last one and the next were about equally likely."""
    made |= {"routed": 0, "close": 0}
    gemma4 = model.config.model_type == "gemma4"

    def are_close(scores, k):
        """In which rows the k-th highest score and the next are about equal."""
        ranked = scores.sort(-1, descending=True).values
        return ranked[:, k - 1] - ranked[:, k] < MARGIN if k < ranked.shape[-1] else torch.zeros(len(ranked), dtype=torch.bool)

    def count(_module, _args, output):
        logits = output[0].float().log() if gemma4 else output[0].float()  # of which one gives probabilities
        made["routed"] += len(logits)
        made["close"] += int(are_close(logits, output[2].shape[-1]).sum())

    def count_glm(module, _args, output):
        scores = output[0].sigmoid() + module.e_score_correction_bias
        groups = scores.unflatten(-1, (module.num_group, -1))
        best = groups.topk(2, dim=-1)[0].sum(-1)
        close = are_close(best, module.topk_group)
        open_groups = torch.zeros_like(best, dtype=torch.bool).scatter(1, best.topk(module.topk_group)[1], True)
        scores = groups.masked_fill(~open_groups[..., None], float("-inf")).flatten(-2)
        close |= are_close(scores, module.top_k)
        made["routed"] += len(scores)
        made["close"] += int(close.sum())
    hooks = {"TopKRouter": count, "TextRouter": count, "TopkRouter": count_glm}
    return [m.register_forward_hook(hook) for m in model.modules() for name, hook in hooks.items() if type(m).__name__.endswith(name)]


class Reference:
    """One checkpoint directory, loaded with its weights as `dtype`, which it computes in."""

    def __init__(self, directory, has_vision, dtype=torch.float32):
        kind = AutoModelForImageTextToText if has_vision else AutoModelForCausalLM
        self.model, info = kind.from_pretrained(directory, dtype=dtype,
                                                attn_implementation="eager",
                                                output_loading_info=True)
        wrong = {k: sorted(v)[:3] for k, v in info.items() if len(v) > 0}
        if wrong:
            raise ValueError(f"transformers does not load {directory} as it is: {wrong}")
        self.model.eval()
        if any(hasattr(self.model.config.get_text_config(), key) for key in ("num_experts", "n_routed_experts")):
            self.model.set_experts_implementation("eager")  # others want widths of whole vectors
        self.any_size = has_vision and self.model.config.vision_config.model_type == "pixtral"
        self.qwen_vl = hasattr(self.model.model, "visual")
        self.has_vision = has_vision
        if has_vision:
            # Pillow resizes, as in the files that checkpoints were trained with.
            # Videos have no such backend, so the image processor is put in by itself.
            self.processor = AutoProcessor.from_pretrained(directory)
            self.processor.image_processor = AutoImageProcessor.from_pretrained(directory,
                                                                                backend="pil")
            if self.model.config.model_type == "gemma4_unified":  # which has none: tokens are larger patches
                of = self.processor.image_processor
                self.processor.image_processor = Gemma4ImageProcessorPil(
                    patch_size=of.patch_size * of.pooling_kernel_size, pooling_kernel_size=1,
                    max_soft_tokens=of.max_soft_tokens)
            if self.model.config.model_type.startswith("qwen3_5"):  # for which it takes the published pre-tokenizer
                self.processor.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
            self.tokenizer = self.processor.tokenizer
        else:
            # The class that takes tokenizer.json as it is: AutoTokenizer goes by the model's
            # family, and would read a synthetic Qwen2's as byte-level.
            self.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
        self.n_vocab = vocabulary(self.tokenizer)

    def render(self, case):
        """The prompt text, with one <image> for each picture."""
        if not case.chat:
            return case.prompt
        content = [{"type": "video"}] * bool(case.video) + [{"type": "image"}] * len(case.images) + [{"type": "text", "text": case.prompt}]
        turns = [{"role": "user", "content": content}]
        if case.system:
            turns.insert(0, {"role": "system",
                             "content": [{"type": "text", "text": case.system}]})
        return self.processor.apply_chat_template(turns, add_generation_prompt=True)

    def video_inputs(self, prompt, path, fps, made):
        """A video as its processor lays it out, of frames as Pillow scales them: by itself the processor has
        torchvision scale them, which made["torchvision"] says how far from Pillow's is."""
        frames = np.stack([np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(Image.open(path))])
        about = VideoMetadata(total_num_frames=len(frames), fps=fps, frames_indices=list(range(len(frames))))
        out = self.processor(videos=[frames], text=prompt, video_metadata=[about], do_sample_frames=False,
                             return_tensors="pt")
        made["video"] = True
        if not self.qwen_vl:  # Video-LLaVA: an image for each frame
            alone = self.processor.image_processor([Image.fromarray(f) for f in frames], return_tensors="pt")
            pixels = torch.as_tensor(alone.get("pixel_values", alone.get("pixel_values_images")))[None]
            made["torchvision"] = float((pixels - out["pixel_values_videos"]).abs().max())
            out["pixel_values_videos"] = pixels
            return out
        of = self.processor.video_processor
        pictures = [Image.fromarray(f) for f in frames]
        if self.model.config.model_type.startswith(("qwen3_vl", "qwen3_5")):  # whose limits are of all frames together
            _, rows, cols = out["video_grid_thw"][0].tolist()
            pictures = [f.resize((cols * of.patch_size, rows * of.patch_size), Image.Resampling.BICUBIC) for f in pictures]
            how = {"do_resize": False}
        else:
            how = {"size": {"shortest_edge": of.size["shortest_edge"], "longest_edge": of.size["longest_edge"]}}
        alone = self.processor.image_processor(pictures, return_tensors="pt", **how)
        pixels = unpatched(alone["pixel_values"], alone["image_grid_thw"], of.patch_size, of.merge_size)
        patches, *grid = of.patchify(pixels[None], patch_size=of.patch_size, merge_size=of.merge_size,
                                     temporal_patch_size=of.temporal_patch_size)
        assert [grid] == out["video_grid_thw"].tolist()
        made["torchvision"] = float((patches[0] - out["pixel_values_videos"]).abs().max())
        out["pixel_values_videos"] = patches[0]
        return out

    def inputs(self, prompt, images):
        if not self.has_vision:
            return self.tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        pictures = [Image.open(path) for path in images]
        out = self.processor(images=[pictures] if pictures else None, text=prompt,
                             return_tensors="pt")
        if "pixel_values_images" in out:  # Video-LLaVA's
            out["pixel_values"] = out.pop("pixel_values_images")
        return out

    def positions(self, ids):
        """Of the prompt [3, 1, n], and by how much those of the answer differ from their indices; or
        nothing, where positions have one dimension. An image is one tile and a whole grid."""
        if self.qwen_vl or "mrope_section" not in (
                self.model.config.get_text_config().rope_parameters or {}):
            return None, 0
        vision = self.model.config.vision_config
        side = vision.image_size // vision.patch_size
        kinds = (ids == self.model.config.image_token_id).long()
        qwen = types.SimpleNamespace(config=types.SimpleNamespace(
            vision_config=types.SimpleNamespace(spatial_merge_size=1)))
        qwen.get_vision_position_ids = types.MethodType(Qwen2VLModel.get_vision_position_ids, qwen)
        grids = torch.tensor([[1, side, side]]).expand(int(kinds.sum()) // side ** 2, 3)
        at, delta = Qwen2VLModel.get_rope_index(qwen, ids, kinds, image_grid_thw=grids)
        return at, int(delta)

    def first(self, inputs, made):
        """The prompt, and in `made` what it shows of the images."""
        if self.model.config.model_type == "gemma4_unified":
            # The class has two masks: that of its `forward`, Gemma 3's, and that which it makes for `generate`, which
            # is the one of the other Gemma 4 models: images are whole in sliding layers, inside of the window.
            inputs = dict(inputs)
            embeds = self.model.get_input_embeddings()(inputs["input_ids"].clamp(max=3))
            inputs["attention_mask"] = self.model.create_masks_for_generate(
                self.model.config, embeds, inputs["attention_mask"], None, None, inputs.get("mm_token_type_ids"))
        with watched(self.model.model, made) if "pixel_values" in made else contextlib.nullcontext():
            return self.model(**inputs, use_cache=True, logits_to_keep=1)

    @torch.no_grad()
    def run(self, case, images, n_tokens, forced=None, directory=None):
        """Greedy decoding of n_tokens. `forced`: tokens to go on with instead of the likeliest,
        so that every step can be compared although an earlier one was a tie."""
        made = {"prompt": self.render(case)}
        if case.video:
            inputs = self.video_inputs(made["prompt"], directory / case.video[0], case.video[2], made)
        else:
            inputs = self.inputs(made["prompt"], images)
        made["input_ids"] = inputs["input_ids"][0].numpy()
        if case.video and not self.qwen_vl:
            made["pixel_values"] = inputs["pixel_values_videos"][0].numpy()
        elif case.video:
            tower, made["grids"] = self.model.config.vision_config, inputs["video_grid_thw"]
            made["pixel_values"] = unpatched(inputs["pixel_values_videos"], made["grids"], tower.patch_size,
                                             tower.spatial_merge_size, video=True).numpy()
        elif self.has_vision and images:
            if "image_position_ids" in inputs:
                made["positions"] = inputs["image_position_ids"]
                made["pixel_values"] = pixels_of_gemma4(inputs["pixel_values"], made["positions"]).numpy()
            elif self.qwen_vl:
                tower, made["grids"] = self.model.config.vision_config, inputs["image_grid_thw"]
                made["pixel_values"] = unpatched(inputs["pixel_values"], made["grids"],
                                                 tower.patch_size, tower.spatial_merge_size).numpy()
            else:
                made["pixel_values"] = tiles_of(inputs["pixel_values"],
                                                inputs["image_sizes"] if self.any_size else
                                                None).numpy()
            inputs["pixel_values"] = inputs["pixel_values"].to(self.model.dtype)
        at, delta = self.positions(inputs["input_ids"])
        if at is not None:
            inputs["position_ids"] = at
        routers = watch_routers(self.model, made)
        out = self.first(inputs, made)
        logits, tokens = [], []
        for step in range(n_tokens):
            logits.append(out.logits[0, -1].float().numpy().copy())
            tokens.append(int(logits[-1][:self.n_vocab].argmax()))
            if step + 1 < n_tokens:
                token = tokens[-1] if forced is None else int(forced[step])
                kwargs = {}
                if at is not None:
                    kwargs["position_ids"] = torch.full((3, 1, 1), at.shape[2] + step + delta)
                out = self.model(input_ids=torch.tensor([[token]]), use_cache=True,
                                 past_key_values=out.past_key_values, **kwargs)
        for hook in routers:
            hook.remove()
        made["logits"] = np.stack(logits)
        made["tokens"] = np.array(tokens)
        made["answer"] = self.tokenizer.decode(tokens if forced is None else list(map(int, forced)),
                                               skip_special_tokens=True,
                                               clean_up_tokenization_spaces=False)
        return made
