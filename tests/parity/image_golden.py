#!/usr/bin/env python3
"""Images and their expected pixels, from Pillow and transformers' CLIPImageProcessorPil.

  image_golden.py            writes tests/golden/image/: encoded files of every kind, and
                             golden.txt, which tests/unit/prefill-worker/image/test_image.c replays
  image_golden.py --live N image_dump
                             compares N random decodes, resizes and preprocessings with that
                             program; exits 1 on a difference

golden.txt has one line per expectation; CRC is zlib's crc32 of the bytes, in hexadecimal:

  decode FILE W H CRC                   RGB of an encoded file
  resize SEED w h W H RESAMPLE CRC      RGB after Image.resize of pattern(SEED, w, h)
  pixels SEED w h FLAGS EDGE RW RH TILE RESAMPLE FACTOR MEAN*3 STD*3 CRC
                                        float32 CHW; the fields are those of image_dump.c
"""
import argparse
import io
import pathlib
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import PIL
from PIL import Image, ImageFile, ImageOps

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "image"
RESIZE, CROP, RESCALE, NORMALIZE, PAD = 1, 2, 4, 8, 16
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

ImageFile.MAXBLOCK = 1 << 24  # else Pillow's JPEG encoder runs out of room on noise
warnings.filterwarnings("ignore", "Palette images with Transparency")


def pattern(seed, w, h, channels=3):
    """Pixels that test_image.c can make too: noise, a noisy gradient, or hard black and white."""
    y, x, c = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in (h, w, channels)),
                          indexing="ij")
    v = x * np.uint32(73856093) ^ y * np.uint32(19349663) ^ (c + 1) * np.uint32(83492791)
    v ^= np.uint32(seed * 2654435761 & 0xFFFFFFFF)
    for shift in (13, 15):
        v = (v ^ v >> np.uint32(shift)) * np.uint32(0x5BD1E995)
    v ^= v >> np.uint32(16)
    if seed % 3 == 1:
        v = x * 2 + y * 3 + c * 85 + (v & 15)
    elif seed % 3 == 2:
        v = np.where((x >> 2 ^ y >> 1 ^ v >> 7 & 1) & 1, np.uint32(255), np.uint32(0))
    return (v & 255).astype(np.uint8)


# ---------------------------------------------------------------- encoded files

def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(samples, depth, colour, palette=None, trns=None, interlaced=False, extra=b""):
    """samples [h, w, channels] of `depth` bits. Pillow writes neither Adam7 nor all depths."""
    h, w, _ = samples.shape

    def rows(part):
        out = b""
        for i, row in enumerate(part):
            if depth == 16:
                raw = row.astype(">u2").tobytes()
            elif depth == 8:
                raw = row.astype(np.uint8).tobytes()
            else:
                bits = (row.reshape(-1, 1) >> np.arange(depth - 1, -1, -1)) & 1
                raw = np.packbits(bits.astype(np.uint8)).tobytes()
            if i % 2 and depth >= 8:  # filter 1 (Sub) on every other row
                step = depth // 8 * row.shape[-1]
                a = np.frombuffer(raw, np.uint8)
                raw = b"\1" + (a - np.concatenate([np.zeros(step, np.uint8), a[:-step]])
                               ).astype(np.uint8).tobytes() if len(a) >= step else b"\0" + raw
            else:
                raw = b"\0" + raw
            out += raw
        return out

    if interlaced:
        adam7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
                 (1, 0, 2, 2), (0, 1, 1, 2))
        data = b"".join(rows(samples[y::dy, x::dx]) for x, y, dx, dy in adam7
                        if x < w and y < h)
    else:
        data = rows(samples)
    chunks = [png_chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, interlaced))]
    chunks.append(extra)
    if palette is not None:
        chunks.append(png_chunk(b"PLTE", palette.astype(np.uint8).tobytes()))
    if trns is not None:
        chunks.append(png_chunk(b"tRNS", trns))
    z = zlib.compress(data, 9)
    half = len(z) // 2  # two IDAT chunks, as most encoders write several
    chunks += [png_chunk(b"IDAT", z[:half]), png_chunk(b"IDAT", z[half:]), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def png_files():
    grey, grey_alpha, rgb, rgba, indexed = 0, 4, 2, 6, 3
    files = {}
    for depth in (1, 2, 4, 8, 16):
        top = (1 << depth) - 1
        ramp = (np.arange(29 * 21).reshape(21, 29, 1) * 2654435761 >> 7) & top
        if depth == 16:  # half of the values below 256, where Pillow's rule for grey shows
            ramp = np.where(np.arange(29)[None, :, None] < 15, ramp & 511, ramp)
        for lace in (False, True):
            tag = f"{depth}{'_adam7' if lace else ''}"
            files[f"grey_{tag}.png"] = png(ramp, depth, grey, interlaced=lace)
            if depth < 16:
                files[f"palette_{tag}.png"] = png(
                    ramp, depth, indexed, pattern(3, 1 << depth, 1)[0], interlaced=lace)
    wide = pattern(6, 23, 17, 8).astype(np.uint32)
    wide = wide[..., :4] << 8 | wide[..., 4:]
    for lace in (False, True):
        tag = "_adam7" if lace else ""
        files[f"rgb_8{tag}.png"] = png(wide[..., :3] >> 8, 8, rgb, interlaced=lace)
        files[f"rgba_8{tag}.png"] = png(wide >> 8, 8, rgba, interlaced=lace)
        files[f"rgb_16{tag}.png"] = png(wide[..., :3], 16, rgb, interlaced=lace)
        files[f"rgba_16{tag}.png"] = png(wide, 16, rgba, interlaced=lace)
        files[f"grey_alpha_8{tag}.png"] = png(wide[..., :2] >> 8, 8, grey_alpha, interlaced=lace)
        files[f"grey_alpha_16{tag}.png"] = png(wide[..., :2], 16, grey_alpha, interlaced=lace)
    files["palette_trns.png"] = png(ramp[..., :1] & 7, 8, indexed, pattern(9, 8, 1)[0],
                                    trns=bytes([0, 128, 255, 3]))
    files["palette_trns_one.png"] = png(ramp & 3, 2, indexed, pattern(9, 4, 1)[0],
                                        trns=bytes([255, 0]))
    files["palette_short.png"] = png(ramp & 7, 8, indexed, pattern(9, 5, 1)[0])  # 5 of 8 colours
    files["grey_trns.png"] = png(ramp & 255, 8, grey, trns=struct.pack(">H", 7))
    files["grey_16_trns.png"] = png(ramp, 16, grey, trns=struct.pack(">H", 7))
    for depth, key in ((1, 1), (1, 0), (2, 1), (4, 3)):
        files[f"grey_{depth}_trns_{key}.png"] = png(ramp & (1 << depth) - 1, depth, grey,
                                                    trns=struct.pack(">H", key))
    one = wide[3:4, 5:6, :3] * np.ones((9, 9, 1), np.uint32)  # a square in the transparent colour
    for depth in (8, 16):
        samples = wide[..., :3] >> 16 - depth
        samples[4:13, 4:13] = one >> 16 - depth
        files[f"rgb_{depth}_trns.png"] = png(samples, depth, rgb,
                                             trns=struct.pack(">3H", *samples[5, 5]))
    files["rgb_trns.png"] = png(wide[..., :3] >> 8, 8, rgb, trns=struct.pack(">3H", 1, 2, 3))
    for depth in (1, 2, 4):
        files[f"palette_{depth}_trns.png"] = png(ramp & (1 << depth) - 1, depth, indexed,
                                                 pattern(9, 1 << depth, 1)[0], trns=b"\x55\xcc")
    gamma = png_chunk(b"gAMA", struct.pack(">I", 100000))
    text = png_chunk(b"tEXt", b"Comment\0nothing that changes a pixel")
    files["rgb_gamma.png"] = png(wide[..., :3] >> 8, 8, rgb, extra=gamma + text)
    files["one_pixel.png"] = png(np.array([[[1, 2, 3]]]), 8, rgb)
    files["column_adam7.png"] = png(pattern(0, 1, 37), 8, rgb, interlaced=True)
    return files


def encode(array, mode, fmt, **options):
    buf = io.BytesIO()
    Image.fromarray(array, mode).save(buf, fmt, **options)
    return buf.getvalue()


def photo(seed, w, h, channels=3):
    """Smooth enough to be worth compressing, with a few edges and some noise."""
    y, x = np.mgrid[0:h, 0:w]
    planes = []
    for c in range(channels):
        v = 128 + 90 * np.sin((x * (c + 2) + seed * 5) / 17) * np.cos(y * (3 - c / 2) / 23)
        v = np.where((x // 11 + y // 7) % 5 == c, 255 - v, v)
        planes.append(v + pattern(seed * 3, w, h, 1)[..., 0] / 16)
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def jpeg_swap_sampling(data):
    """4:2:2 (2x1) to 4:4:0 (1x2): as many blocks, so the file stays whole."""
    at = data.index(b"\xff\xc0") + 11
    assert data[at] == 0x21, hex(data[at])
    return data[:at] + b"\x12" + data[at + 1:]


def jpeg_files():
    files = {}
    image = photo(1, 53, 37)
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        files[f"{name}.jpg"] = encode(image, "RGB", "JPEG", quality=85, subsampling=sampling)
        files[f"{name}_progressive.jpg"] = encode(image, "RGB", "JPEG", quality=70,
                                                  subsampling=sampling, progressive=True)
    files["440.jpg"] = jpeg_swap_sampling(
        encode(photo(2, 64, 64), "RGB", "JPEG", quality=80, subsampling=1))
    files["low.jpg"] = encode(image, "RGB", "JPEG", quality=3)
    files["high.jpg"] = encode(image, "RGB", "JPEG", quality=100)
    files["restart.jpg"] = encode(image, "RGB", "JPEG", quality=60, restart_marker_blocks=2)
    files["rgb.jpg"] = encode(image, "RGB", "JPEG", quality=80, keep_rgb=True)
    files["grey.jpg"] = encode(image[..., 0], "L", "JPEG", quality=80)
    files["grey_progressive.jpg"] = encode(image[..., 0], "L", "JPEG", quality=80,
                                           progressive=True)
    cmyk = encode(photo(3, 41, 30, 4), "CMYK", "JPEG", quality=80)
    adobe = cmyk.index(b"Adobe") - 4
    assert cmyk[adobe:adobe + 2] == b"\xff\xee" and cmyk[adobe + 15] == 0
    files["cmyk_adobe.jpg"] = cmyk
    files["ycck.jpg"] = cmyk[:adobe + 15] + b"\2" + cmyk[adobe + 16:]
    files["cmyk_plain.jpg"] = cmyk[:adobe] + cmyk[adobe + 16:]
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    files["exif.jpg"] = encode(image, "RGB", "JPEG", quality=50, exif=exif)
    files["one_pixel.jpg"] = encode(image[:1, :1], "RGB", "JPEG")
    files["column.jpg"] = encode(photo(4, 1, 70), "RGB", "JPEG")
    files["larger.jpg"] = encode(photo(5, 403, 299), "RGB", "JPEG", quality=75)
    return files


def webp_files():
    files = {}
    image, alpha = photo(6, 53, 37), photo(7, 53, 37, 4)
    files["lossy.webp"] = encode(image, "RGB", "WEBP", quality=80)
    files["lossy_low.webp"] = encode(image, "RGB", "WEBP", quality=5)
    files["lossy_alpha.webp"] = encode(alpha, "RGBA", "WEBP", quality=80, exact=True)
    files["lossless.webp"] = encode(image, "RGB", "WEBP", lossless=True)
    files["lossless_alpha.webp"] = encode(alpha, "RGBA", "WEBP", lossless=True, exact=True)
    files["one_pixel.webp"] = encode(image[:1, :1], "RGB", "WEBP")
    files["palette.webp"] = encode(image // 128 * 255, "RGB", "WEBP", lossless=True)
    return files


# ---------------------------------------------------------------- expectations

def pil_rgb(data):
    from transformers.image_transforms import convert_to_rgb
    return convert_to_rgb(ImageOps.exif_transpose(Image.open(io.BytesIO(data))), return_numpy=True)


def pil_resize(image, w, h, resample):
    return np.array(Image.fromarray(image).resize((w, h), resample))


class Config:
    """What a LLaVA-1.5 preprocessor can say, in the order of a `pixels` line."""

    def __init__(self, flags=RESIZE | CROP | RESCALE | NORMALIZE, edge=336, rw=0, rh=0, tile=336,
                 resample=3, factor=1 / 255, mean=CLIP_MEAN, std=CLIP_STD):
        self.flags, self.edge, self.resample, self.factor = flags, edge, resample, factor
        self.resize, self.tile, self.mean, self.std = (rw, rh), tile, mean, std

    def line(self):
        ints = (self.flags, self.edge, *self.resize, self.tile, self.resample)
        singles = (float(np.float32(v)).hex() for v in (*self.mean, *self.std))
        return " ".join([*map(str, ints), float(self.factor).hex(), *singles])

    def expected(self, image):
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

        pil = Image.fromarray(image)
        if self.flags & PAD:
            pil = expand2square(pil, tuple(int(m * 255) for m in self.mean))
        size = ({"shortest_edge": self.edge} if self.edge else
                {"width": self.resize[0], "height": self.resize[1]})
        processor = CLIPImageProcessorPil(
            do_resize=bool(self.flags & RESIZE), size=size, resample=self.resample,
            do_center_crop=bool(self.flags & CROP),
            crop_size={"width": self.tile, "height": self.tile},
            do_rescale=bool(self.flags & RESCALE), rescale_factor=self.factor,
            do_normalize=bool(self.flags & NORMALIZE), image_mean=list(self.mean),
            image_std=list(self.std))
        out = processor(pil, return_tensors="np")["pixel_values"][0]
        return np.ascontiguousarray(out.astype(np.float32))


def expand2square(pil, colour):
    """As in the LLaVA repository (llava/mm_utils.py)."""
    w, h = pil.size
    if w == h:
        return pil
    side = max(w, h)
    square = Image.new(pil.mode, (side, side), colour)
    square.paste(pil, ((side - w) // 2, (side - h) // 2))
    return square


SIZES = ((336, 336), (640, 480), (480, 640), (337, 335), (335, 337), (1, 1), (3, 2), (1, 500),
         (500, 1), (7, 900), (1000, 30), (100, 350), (1001, 999), (340, 1400), (50, 336), (7, 17))
RESIZES = ((64, 48, 33, 21), (64, 48, 64, 21), (64, 48, 33, 48), (64, 48, 64, 48),
           (33, 21, 64, 48), (50, 50, 80, 20), (300, 30, 10, 29), (30, 300, 29, 10),
           (7, 900, 5, 100), (900, 7, 100, 5), (1, 1, 5, 4), (1, 500, 3, 20), (3, 2, 1, 1),
           (200, 120, 90, 60), (121, 200, 60, 121), (10, 10, 199, 1))
PLAIN = RESIZE | CROP | RESCALE | NORMALIZE
CONFIGS = (
    (SIZES, Config()),
    (SIZES, Config(PLAIN | PAD)),
    (((640, 480), (31, 77)), Config(edge=224, tile=224)),
    (((90, 60), (60, 91)), Config(edge=33, tile=40)),  # black borders, odd and even
    (((90, 60), (60, 91)), Config(edge=40, tile=33)),
    (((90, 60), (16, 17)), Config(edge=0, rw=37, rh=29, tile=33, resample=2)),
    (((90, 60), (16, 17)), Config(PLAIN - CROP, edge=0, rw=37, rh=37, tile=37, resample=1)),
    (((90, 60), (16, 17)), Config(edge=30, tile=30, resample=0)),
    (((90, 60), (16, 17), (5, 99)), Config(PLAIN - RESIZE, tile=24)),
    (((90, 60),), Config(PLAIN - RESCALE, edge=24, tile=24, mean=(100.5, 120.25, 7),
                         std=(60, 55.5, 3))),
    (((90, 60),), Config(PLAIN - NORMALIZE, edge=24, tile=24)),
    (((90, 60),), Config(RESIZE | CROP, edge=24, tile=24)),
    (((90, 60),), Config(RESIZE | CROP | RESCALE, edge=24, tile=24, factor=0.0123456789)),
    (((90, 60), (61, 90)), Config(PLAIN | PAD, edge=24, tile=24, mean=(0.5,) * 3,
                                  std=(0.5,) * 3)),
)


def write_golden():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    import transformers

    lines = [f"# written by tests/parity/image_golden.py with Pillow {PIL.__version__}, "
             f"transformers {transformers.__version__}"]
    for name, data in sorted({**png_files(), **jpeg_files(), **webp_files()}.items()):
        (OUT / name).write_bytes(data)
        rgb = pil_rgb(data)
        lines.append(f"decode {name} {rgb.shape[1]} {rgb.shape[0]} {zlib.crc32(rgb):08x}")
    seed = 0
    for w, h, to_w, to_h in RESIZES:
        for resample in range(4):
            seed += 1
            out = pil_resize(pattern(seed, w, h), to_w, to_h, resample)
            lines.append(f"resize {seed} {w} {h} {to_w} {to_h} {resample} {zlib.crc32(out):08x}")
    for sizes, config in CONFIGS:
        for w, h in sizes:
            seed += 1
            out = config.expected(pattern(seed, w, h))
            lines.append(f"pixels {seed} {w} {h} {config.line()} {zlib.crc32(out):08x}")
    (OUT / "golden.txt").write_text("\n".join(lines) + "\n")
    total = sum(f.stat().st_size for f in OUT.iterdir())
    print(f"{len(lines) - 1} expectations, {total / 1e3:.0f} kB in {OUT.relative_to(ROOT)}")


# ---------------------------------------------------------------- live comparison

class Dump:
    def __init__(self, program):
        self.proc = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line, data, dtype, shape):
        """The answer as an array, or a string when it is a failure."""
        self.proc.stdin.write(line.encode() + b"\n" + data)
        self.proc.stdin.flush()
        head = self.proc.stdout.readline().decode().rstrip("\n")
        if not head.startswith("ok "):
            return head or "image_dump died"
        w, h, n = map(int, head.split()[1:])
        return np.frombuffer(self.proc.stdout.read(n), dtype).reshape(shape(w, h))

    def decode(self, data):
        return self.ask(f"decode {len(data)}", data, np.uint8, lambda w, h: (h, w, 3))

    def resize(self, image, w, h, resample):
        line = f"resize {w} {h} {resample} {image.shape[1]} {image.shape[0]}"
        return self.ask(line, image.tobytes(), np.uint8, lambda w, h: (h, w, 3))

    def pixels(self, image, config):
        line = f"pixels {config.line()} {image.shape[1]} {image.shape[0]}"
        return self.ask(line, image.tobytes(), np.float32, lambda w, h: (3, h, w))


def random_side(rng):
    return int(rng.choice([rng.integers(1, 8), rng.integers(1, 120), rng.integers(300, 380),
                           int(2 ** rng.uniform(0, 10.5))]))


def random_image(rng, w, h, channels=3):
    kind = rng.integers(3)
    if kind == 0:
        return rng.integers(0, 256, (h, w, channels), dtype=np.uint8)
    if kind == 1:
        return photo(int(rng.integers(1000)), w, h, channels)
    return pattern(3 * int(rng.integers(1000)) + 2, w, h, channels)


def random_file(rng):
    w, h = min(random_side(rng), 400), min(random_side(rng), 400)
    kind = rng.integers(8)
    if kind < 4:
        mode, channels = (("RGB", 3), ("RGB", 3), ("L", 1), ("CMYK", 4))[kind]
        image = random_image(rng, w, h, channels)
        return encode(image[..., 0] if channels == 1 else image, mode, "JPEG",
                      quality=int(rng.integers(1, 101)), subsampling=int(rng.integers(3)),
                      progressive=bool(rng.integers(2)), optimize=bool(rng.integers(2)))
    if kind < 6:
        channels = int(rng.integers(3, 5))
        return encode(random_image(rng, w, h, channels), ("RGB", "RGBA")[channels - 3], "WEBP",
                      quality=int(rng.integers(0, 101)), lossless=bool(rng.integers(2)),
                      exact=bool(rng.integers(2)))
    depth, colour = [(d, c) for d in (1, 2, 4, 8, 16) for c in (0, 2, 3, 4, 6)
                     if (d >= 8 or c in (0, 3)) and not (d == 16 and c == 3)][rng.integers(15)]
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    samples = rng.integers(0, 1 << depth, (h, w, channels))
    palette = rng.integers(0, 256, (1 << depth, 3)) if colour == 3 else None
    trns = None
    if colour in (0, 2, 3) and rng.integers(2):
        trns = (bytes(rng.integers(0, 256, rng.integers(1, (1 << depth) + 1), dtype=np.uint8))
                if colour == 3 else struct.pack(f">{channels}H", *samples[0, 0]))
    return png(samples, depth, colour, palette, trns, interlaced=bool(rng.integers(2)))


def random_config(rng):
    flags = PLAIN if rng.integers(3) else int(rng.integers(16)) | CROP
    flags |= PAD * int(rng.integers(4) == 0)
    edge, (rw, rh, tile) = int(rng.integers(1, 400)), rng.integers(1, 400, 3)
    if rng.integers(2):
        edge = tile = 336
    fixed = rng.integers(4) == 0
    mean, std = rng.uniform(0, 1, 3), rng.uniform(0.1, 1, 3)
    clip = rng.integers(2)
    # A mean that float32 keeps exactly, because fv_image_config stores float32.
    return Config(flags, 0 if fixed else edge, int(rw), int(rh), int(tile),
                  int(rng.integers(4)), 1 / 255 if clip else float(rng.uniform(0, 2)),
                  CLIP_MEAN if clip else tuple(np.float32(mean).tolist()),
                  CLIP_STD if clip else tuple(np.float32(std).tolist()))


def compare(what, got, want):
    if isinstance(got, str):
        print(f"{what}: {got}")
        return 1
    if got.shape != want.shape:
        print(f"{what}: shape {got.shape}, expected {want.shape}")
        return 1
    if np.array_equal(got.view(np.uint8), want.view(np.uint8)):
        return 0
    gap = np.abs(got.astype(np.float64) - want.astype(np.float64))
    print(f"{what}: {np.count_nonzero(gap)} of {gap.size} values differ, most by {gap.max():g}")
    return 1


def live(program, n, seed):
    rng = np.random.default_rng(seed)
    bad = {"decode": 0, "resize": 0, "pixels": 0}
    dump = Dump(program)
    for i in range(n):
        data = random_file(rng)
        kind = data[:4] + data[12:16] if data[:4] == b"RIFF" else data[:4]
        bad["decode"] += compare(f"decode {i} {kind}", dump.decode(data), pil_rgb(data))

        image = random_image(rng, random_side(rng), random_side(rng))
        to_w, to_h, resample = random_side(rng), random_side(rng), int(rng.integers(4))
        bad["resize"] += compare(
            f"resize {i} {image.shape} to {to_h} x {to_w}, filter {resample}",
            dump.resize(image, to_w, to_h, resample),
            pil_resize(image, to_w, to_h, resample))

        config = random_config(rng)
        bad["pixels"] += compare(f"pixels {i} {image.shape} {config.line()}",
                                 dump.pixels(image, config), config.expected(image))
    for what, count in bad.items():
        print(f"{what}: {n - count} of {n} equal bit for bit")
    return 1 if any(bad.values()) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--live", type=int, metavar="N", help="compare N random cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("program", nargs="?", help="image_dump, for --live")
    args = parser.parse_args()
    if args.live:
        return live(args.program, args.live, args.seed)
    write_golden()
    return 0


if __name__ == "__main__":
    sys.exit(main())
