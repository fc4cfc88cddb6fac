#!/usr/bin/env python3
"""Images of every format and orientation, with the pixels that Pillow and transformers' load_image give.

  image_formats.py             writes tests/golden/formats/, which unit/image and unit/prefill-worker/image replay
  image_formats.py --live N image_dump
                               compares N random files, of all formats and orientations, with that program; exits 1 on a
                               difference

golden.txt has one line per file:

  decode FILE W H CRC          RGB is the same; CRC is zlib's crc32 of the bytes, in hexadecimal
  near FILE W H MOST REF       samples differ by at most MOST from the PNG file REF: decoders of lossy formats round differently

HEIC needs the package pillow-heif beside Pillow; without it those files are left as they are.
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
from PIL import Image, ImageOps, PngImagePlugin, TiffImagePlugin

try:
    import pillow_heif
    pillow_heif.register_heif_opener()
except ImportError:
    pillow_heif = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "formats"
ORIENTATION = 0x0112
NEAR = {"avif": 2, "heic": 1, "jpeg.tiff": 1, "cmyk.tiff": 1}
warnings.simplefilter("ignore")


def reference(data):
    """load_image, and the image processors' white behind transparent pixels."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return np.array(image.convert("RGB"))


def picture(seed, w, h, channels=3):
    """Smooth, so that lossy formats keep it, with edges."""
    y, x = np.mgrid[0:h, 0:w]
    planes = []
    for c in range(channels):
        v = 128 + 90 * np.sin((x * (c + 2) + seed * 5) / 17) * np.cos(y * (3 - c / 2) / 23)
        planes.append(np.where((x // 11 + y // 7 + seed) % 5 == c, 255 - v, v))
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def save(image, fmt, **options):
    buf = io.BytesIO()
    image.save(buf, fmt, **options)
    return buf.getvalue()


def exif_of(orientation, **others):
    exif = Image.Exif()
    exif[0x010F] = others.get("make", "A camera with a name longer than four bytes")
    exif[ORIENTATION] = orientation
    return exif


def xmp_of(orientation, element=False):
    value = (f"<tiff:Orientation>{orientation}</tiff:Orientation>" if element
             else f'<rdf:Description tiff:Orientation="{orientation}"/>')
    return f'<x:xmpmeta xmlns:x="adobe:ns:meta/">{value}</x:xmpmeta>'.encode()


# ---------------------------------------------------------------- orientations

STORED = {1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
          5: lambda a: a.swapaxes(0, 1), 6: lambda a: np.rot90(a), 7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
          8: lambda a: np.rot90(a, -1)}


def stored(upright, orientation):
    """The pixels of a file that has this orientation and shows `upright`."""
    return Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_insert(data, chunk, behind_pixels=False):
    at = data.index(b"IEND") - 4 if behind_pixels else 33
    return data[:at] + chunk + data[at:]


def raw_profile(orientation):
    data = exif_of(orientation).tobytes()
    return b"\nexif\n%8d\n" % len(data) + b"\n".join(
        data.hex().encode()[i:i + 72] for i in range(0, 2 * len(data), 72)) + b"\n"


def jpeg_insert(data, *segments):
    body = b"".join(b"\xff\xe1" + struct.pack(">H", len(s) + 2) + s for s in segments)
    return data[:2] + body + data[2:]


def png_orientations(upright):
    """The ways to state an orientation in a PNG."""
    plain = save(stored(upright, 6), "PNG")
    exif = png_chunk(b"eXIf", exif_of(6).tobytes()[6:])
    other = png_chunk(b"eXIf", exif_of(3).tobytes()[6:])
    text = png_chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(6))
    deflated = png_chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw_profile(6)))
    xmp = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp_of(6))
    xmp_deflated = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0en\0\0" + zlib.compress(xmp_of(6, True)))
    xmp3 = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp_of(3))
    return {
        "exif_behind.png": png_insert(plain, exif, behind_pixels=True),
        "exif_twice.png": png_insert(plain, other + exif),
        "raw_profile.png": png_insert(plain, text),
        "raw_profile_deflated.png": png_insert(plain, deflated),
        "xmp.png": png_insert(plain, xmp),
        "xmp_deflated.png": png_insert(plain, xmp_deflated),
        "xmp_and_exif.png": png_insert(plain, xmp3 + exif),
    }


def jpeg_orientations(upright):
    plain = save(stored(upright, 6), "JPEG", quality=90)
    head = b"http://ns.adobe.com/xap/1.0/\0"
    whole = exif_of(6).tobytes()
    half = 30  # in the directory
    wrong = bytearray(exif_of(6).tobytes())
    broken = wrong[:14] + b"\xff\xff" + wrong[16:]  # more entries than there are
    exif9 = exif_of(9).tobytes()
    return {
        "xmp.jpg": jpeg_insert(plain, head + xmp_of(6)),
        "xmp_element.jpg": jpeg_insert(plain, head + xmp_of(6, True)),
        "xmp_and_exif.jpg": jpeg_insert(plain, head + xmp_of(3), whole),
        "exif_split.jpg": jpeg_insert(plain, whole[:half], b"Exif\0\0" + whole[half:]),
        "exif_big.jpg": jpeg_insert(plain, b"Exif\0\0MM\0*" + big_endian(whole[6:])[4:]),
        "exif_broken.jpg": jpeg_insert(plain, bytes(broken)),
        "exif_9.jpg": jpeg_insert(plain, exif9, head + xmp_of(6)),
    }


def big_endian(little):
    """The same directory, of SHORT orientation alone, in the other byte order."""
    del little
    return b"MM\0*\0\0\0\x08\0\1" + struct.pack(">HHIHH", ORIENTATION, 3, 1, 6, 0) + b"\0\0\0\0"


def orientation_files():
    files = {}
    upright = picture(1, 29, 17)
    for o in range(1, 9):
        image, exif = stored(upright, o), exif_of(o)
        files[f"exif_{o}.jpg"] = save(image, "JPEG", quality=90, exif=exif)
        files[f"exif_{o}.png"] = save(image, "PNG", exif=exif)
        files[f"exif_{o}.webp"] = save(image, "WEBP", lossless=True, exif=exif)
        files[f"exif_{o}.tiff"] = save(image, "TIFF", compression="tiff_lzw",
                                       tiffinfo={ORIENTATION: o})
        files[f"exif_{o}.avif"] = save(image, "AVIF", quality=100, subsampling="4:4:4", exif=exif)
    files.update(png_orientations(upright))
    files.update(jpeg_orientations(upright))
    files["xmp.webp"] = save(stored(upright, 6), "WEBP", lossless=True, xmp=xmp_of(6))
    return files


# ---------------------------------------------------------------- formats

def gif_files():
    files = {}
    image = Image.fromarray(picture(2, 31, 19))
    palette = image.quantize(60)
    files["plain.gif"] = save(palette, "GIF", interlace=0)
    files["interlaced.gif"] = save(palette, "GIF", interlace=1)
    files["grey.gif"] = save(image.convert("L"), "GIF")
    see_through = palette.copy()
    see_through.info["transparency"] = 7
    files["transparent.gif"] = save(see_through, "GIF", transparency=7)
    frames = [Image.fromarray(picture(s, 31, 19)).quantize(60) for s in (3, 4, 5)]
    files["animated.gif"] = save(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)
    whole = save(palette, "GIF", interlace=0)
    at = whole.index(b"\x2c", 13 + 3 * (2 << (whole[10] & 7)))
    wide = bytearray(whole)  # the frame is in the middle of a larger canvas
    wide[6:10] = struct.pack("<HH", 40, 30)
    wide[at + 1:at + 5] = struct.pack("<HH", 5, 6)
    files["partial.gif"] = bytes(wide)
    cut = files["animated.gif"]
    files["cut_behind.gif"] = cut[:-400]  # in the last frame
    files["87a.gif"] = b"GIF87a" + whole[6:]
    return files


def bmp(w, h, bits, compression, masks, rows, palette=b"", size=40, planes_h=None):
    head = struct.pack("<IiiHHIIiiII", size, w, planes_h or h, 1, bits, compression, len(rows), 0, 0,
                       len(palette) // 4, 0)
    extra = masks + b"\0" * (size - 40 - len(masks)) if size > 40 else masks
    at = 14 + len(head) + len(extra) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(rows), 0, 0, at) + head + extra + palette + rows


def bmp_rows(values, bits):
    """values [h, w], the first row at the bottom."""
    out = b""
    for row in values[::-1]:
        if bits < 8:
            digits = (row.reshape(-1, 1) >> np.arange(bits - 1, -1, -1)) & 1
            line = np.packbits(digits.astype(np.uint8)).tobytes()
        else:
            line = row.astype(f"<u{bits // 8}").tobytes()
        out += line + b"\0" * (-len(line) % 4)
    return out


def bmp_files():
    files = {}
    image = picture(6, 21, 13)
    pil = Image.fromarray(image)
    files["rgb.bmp"] = save(pil, "BMP")
    files["grey.bmp"] = save(pil.convert("L"), "BMP")
    files["palette.bmp"] = save(pil.quantize(100), "BMP")
    files["bilevel.bmp"] = save(pil.convert("1"), "BMP")
    files["rgba.bmp"] = save(Image.fromarray(picture(7, 21, 13, 4)), "BMP")
    wide = image.astype(np.uint32)
    r, g, b = wide[..., 0], wide[..., 1], wide[..., 2]
    colours = bytes(picture(8, 16, 1, 4)[0, :, :3].tobytes())
    palette = b"".join(colours[3 * i:3 * i + 3] + b"\0" for i in range(16))
    index = (r >> 4).astype(np.uint8)
    files["palette_4.bmp"] = bmp(21, 13, 4, 0, b"", bmp_rows(index, 4), palette)
    files["palette_1.bmp"] = bmp(21, 13, 1, 0, b"", bmp_rows(index & 1, 1), palette[:8])
    files["555.bmp"] = bmp(21, 13, 16, 0, b"", bmp_rows(r >> 3 << 10 | g >> 3 << 5 | b >> 3, 16))
    files["565.bmp"] = bmp(21, 13, 16, 3, struct.pack("<III", 0xF800, 0x7E0, 0x1F),
                           bmp_rows(r >> 3 << 11 | g >> 2 << 5 | b >> 3, 16))
    files["rgbx.bmp"] = bmp(21, 13, 32, 0, b"", bmp_rows(r << 16 | g << 8 | b | g << 24, 32))
    files["bitfields.bmp"] = bmp(21, 13, 32, 3, struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000),
                                 bmp_rows(r << 16 | g << 8 | b | g << 24, 32), size=108)
    top = bmp_rows((r << 16 | g << 8 | b)[::-1], 32)
    files["top_down.bmp"] = bmp(21, 13, 32, 0, b"", top, planes_h=-13)
    runs = b"".join(bytes([20, y]) + b"\1\5" + b"\0\0" for y in range(12)) + b"\0\3\1\2\3\0\x12\7\0\1"
    files["rle8.bmp"] = bmp(21, 13, 8, 1, b"", runs, (palette * 16)[:1024])
    return files


def tiff_files():
    files = {}
    image = Image.fromarray(picture(9, 37, 23))
    for name, how in (("raw", None), ("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate"),
                      ("packbits", "packbits"), ("jpeg", "jpeg"), ("zstd", "zstd")):
        files[f"{name}.tiff"] = save(image, "TIFF", compression=how)
    files["grey.tiff"] = save(image.convert("L"), "TIFF")
    files["palette.tiff"] = save(image.quantize(99), "TIFF", compression="tiff_lzw")
    files["bilevel.tiff"] = save(image.convert("1"), "TIFF", compression="group4")
    files["rgba.tiff"] = save(Image.fromarray(picture(10, 37, 23, 4)), "TIFF", compression="tiff_lzw")
    files["cmyk.tiff"] = save(Image.fromarray(picture(10, 37, 23, 4), "CMYK"), "TIFF")
    ramp = (np.arange(37 * 23).reshape(23, 37) * 37 & 0xFFFF).astype(np.uint16)
    ramp[:, :20] &= 511
    files["grey16.tiff"] = save(Image.fromarray(ramp), "TIFF", compression="tiff_lzw")
    pages = save(image, "TIFF", save_all=True, append_images=[image.convert("L").rotate(90)])
    files["pages.tiff"] = pages
    files["big.tiff"] = save(image, "TIFF", big_tiff=True)
    files["strips.tiff"] = save(image, "TIFF", compression="tiff_lzw", tiffinfo={TiffImagePlugin.ROWSPERSTRIP: 5})
    wide = picture(11, 9, 7).astype(np.uint32) * 257 ^ 0x55
    files["rgb16.tiff"] = tiff(9, 7, wide.astype(">u2").tobytes(), 3, 16)
    files["rgbx.tiff"] = tiff(9, 7, picture(12, 9, 7, 4).tobytes(), 4, 8, extra=0)
    return files


def tiff(w, h, pixels, samples, bits, extra=None):
    """A big-endian file with one strip."""
    entries = [(256, 3, 1, w), (257, 3, 1, h), (258, 3, samples, None), (259, 3, 1, 1), (262, 3, 1, 2),
               (273, 4, 1, None), (277, 3, 1, samples), (278, 3, 1, h), (279, 4, 1, len(pixels))]
    if extra is not None:
        entries.append((338, 3, 1, extra))
    at = 8 + 2 + 12 * len(entries) + 4
    strip = at + 2 * samples
    out = b"MM\0*\0\0\0\x08" + struct.pack(">H", len(entries))
    for tag, kind, n, value in entries:
        value = at if tag == 258 else strip if tag == 273 else value
        out += struct.pack(">HHI", tag, kind, n)
        out += struct.pack(">HH", value, 0) if kind == 3 and tag != 258 else struct.pack(">I", value)
    return out + b"\0\0\0\0" + struct.pack(f">{samples}H", *[bits] * samples) + pixels


def webp_files():
    frames = [Image.fromarray(picture(s, 33, 21)) for s in (1, 2)]
    see_through = [Image.fromarray(picture(s, 33, 21, 4)) for s in (3, 4)]
    small = Image.new("RGBA", (33, 21), (0, 0, 0, 0))
    small.paste(see_through[0].crop((0, 0, 14, 9)), (8, 6))
    more = {"save_all": True, "duration": 100, "lossless": True, "exact": True}
    return {
        "animated.webp": save(frames[0], "WEBP", append_images=frames[1:], **more),
        "animated_alpha.webp": save(see_through[0], "WEBP", append_images=see_through[1:], **more),
        "animated_part.webp": save(small, "WEBP", append_images=see_through[1:], minimize_size=True, **more),
        "animated_exif.webp": save(frames[0], "WEBP", append_images=frames[1:], exif=exif_of(6), **more),
    }


def png_files():
    """Files that are damaged where Pillow does not look, and an animation, of which the default image counts."""
    image = Image.fromarray(picture(13, 25, 15))
    frames = [Image.fromarray(picture(s, 25, 15)) for s in (13, 14)]
    plain = save(image, "PNG")
    text = bytearray(png_chunk(b"tEXt", b"Comment\0hello"))
    text[-1] ^= 1
    end = plain.index(b"IEND") - 4
    return {
        "apng.png": save(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        "no_end.png": plain[:end],
        "no_checksum.png": plain[:end - 4],
        "wrong_end.png": plain[:-4] + b"\0\0\0\0",
        "bad_text_behind.png": png_insert(plain, bytes(text), behind_pixels=True),
    }


def avif_files():
    image, alpha = Image.fromarray(picture(15, 45, 27)), Image.fromarray(picture(16, 45, 27, 4))
    files = {f"{s.replace(':', '')}.avif": save(image, "AVIF", quality=80, subsampling=s)
             for s in ("4:0:0", "4:2:0", "4:2:2", "4:4:4")}
    files["limited.avif"] = save(image, "AVIF", quality=80, range="limited")
    files["alpha.avif"] = save(alpha, "AVIF", quality=90)
    return files


def heic_files():
    image, alpha = Image.fromarray(picture(17, 64, 64)), Image.fromarray(picture(18, 70, 66, 4))
    files = {f"{s}.heic": save(image, "HEIF", quality=80, chroma=s) for s in (420, 422, 444)}
    files["alpha.heic"] = save(alpha, "HEIF", quality=90)
    files["odd.heic"] = save(Image.fromarray(picture(19, 71, 37)), "HEIF", quality=80)
    files["grid.heic"] = heic_grid()
    files["grey.heic"] = save(image.convert("L"), "HEIF", quality=80)
    return files


def box(name, *parts, version=None):
    data = b"".join(parts)
    if version is not None:
        data = struct.pack(">I", version << 24) + data
    return struct.pack(">I", len(data) + 8) + name + data


def find_box(data, name):
    at = data.index(name) - 4
    return data[at:at + struct.unpack(">I", data[at:at + 4])[0]]


def heic_grid():
    """Four tiles of 64 x 64 for an image of 100 x 90, turned by irot and mirrored by imir, as telephones write them."""
    whole = np.zeros((128, 128, 3), np.uint8)
    whole[:90, :100] = picture(20, 100, 90)
    tiles = [save(Image.fromarray(whole[y:y + 64, x:x + 64]), "HEIF", quality=80)
             for y in (0, 64) for x in (0, 64)]
    coded = [t[t.index(b"mdat") + 4:] for t in tiles]
    config = find_box(tiles[0], b"hvcC")
    assert all(find_box(t, b"hvcC") == config for t in tiles)
    grid = struct.pack(">BBBBHH", 0, 0, 1, 1, 100, 90)
    ids = range(1, 6)  # 1: the grid
    infos = [box(b"infe", struct.pack(">HH4s", i, 0, b"grid" if i == 1 else b"hvc1") + b"\0", version=2) for i in ids]
    ispe = [box(b"ispe", struct.pack(">II", *size), version=0) for size in ((100, 90), (64, 64))]
    colour = find_box(tiles[0], b"colr")
    props = box(b"ipco", *ispe, config, box(b"irot", b"\1"), box(b"imir", b"\1"), colour)
    uses = {1: (1, 4, 5, 6)} | {i: (2, 3, 6) for i in ids[1:]}
    ipma = box(b"ipma", struct.pack(">I", 5), *(struct.pack(">HB", i, len(u)) + bytes(u) for i, u in uses.items()),
               version=0)
    refs = box(b"iref", box(b"dimg", struct.pack(">6H", 1, 4, *ids[1:])), version=0)

    def meta(base):
        at, places = base, b""
        for i in ids:
            in_idat, n = (1, len(grid)) if i == 1 else (0, len(coded[i - 2]))
            places += struct.pack(">HHHHII", i, in_idat, 0, 1, 0 if in_idat else at, n)
            at += 0 if in_idat else n
        return box(b"meta", box(b"hdlr", b"\0" * 4 + b"pict" + b"\0" * 13, version=0),
                   box(b"pitm", struct.pack(">H", 1), version=0),
                   box(b"iinf", struct.pack(">H", 5), *infos, version=0), refs, box(b"iprp", props, ipma),
                   box(b"iloc", b"\x44\0" + struct.pack(">H", 5) + places, version=1), box(b"idat", grid), version=0)

    ftyp = box(b"ftyp", b"mif1\0\0\0\0mif1heic")
    return ftyp + meta(len(ftyp) + len(meta(0)) + 8) + box(b"mdat", *coded)


def all_files():
    files = {**orientation_files(), **gif_files(), **bmp_files(), **tiff_files(), **webp_files(), **png_files(),
             **avif_files()}
    if pillow_heif:
        files.update(heic_files())
    else:
        files.update({p.name: p.read_bytes() for p in OUT.glob("*.heic")})
    return files


def nearness(name):
    """The largest difference of a sample; 0: none."""
    return max((most for end, most in NEAR.items() if name.endswith(end)), default=0)


def write_golden():
    OUT.mkdir(parents=True, exist_ok=True)
    lines = [f"# written by tests/parity/image_formats.py with Pillow {PIL.__version__}"]
    for name, data in sorted(all_files().items()):
        rgb, most = reference(data), nearness(name)
        (OUT / name).write_bytes(data)
        size = f"{rgb.shape[1]} {rgb.shape[0]}"
        if most:
            (OUT / f"{name}.png").write_bytes(save(Image.fromarray(rgb), "PNG", optimize=True))
            lines.append(f"near {name} {size} {most} {name}.png")
        else:
            lines.append(f"decode {name} {size} {zlib.crc32(rgb):08x}")
    (OUT / "golden.txt").write_text("\n".join(lines) + "\n")


# ---------------------------------------------------------------- live

def ask(proc, data):
    proc.stdin.write(f"decode {len(data)}\n".encode() + data)
    proc.stdin.flush()
    head = proc.stdout.readline().decode().rstrip("\n")
    if not head.startswith("ok "):
        return head
    w, h, n = map(int, head.split()[1:])
    return np.frombuffer(proc.stdout.read(n), np.uint8).reshape(h, w, 3)


def random_file(rng):
    w, h = (int(rng.integers(1, 90)) for _ in range(2))
    o = int(rng.integers(1, 9))
    pixels = picture(int(rng.integers(99)), w, h, int(rng.choice([3, 3, 4])))
    image = Image.fromarray(np.ascontiguousarray(pixels))
    fmt = str(rng.choice(["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "AVIF"] + ["HEIF"] * bool(pillow_heif)))
    if fmt in ("JPEG", "BMP"):
        image = image.convert("RGB")
    if fmt == "JPEG":
        return fmt, save(image, fmt, quality=90, exif=exif_of(o))
    if fmt == "PNG":
        return fmt, save(image, fmt, exif=exif_of(o))
    if fmt == "WEBP":
        more = {"save_all": True, "append_images": [image.rotate(90)]} if rng.integers(2) else {}
        return fmt, save(image, fmt, lossless=True, exact=True, exif=exif_of(o), **more)
    if fmt == "TIFF":
        how = str(rng.choice(["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]))
        return fmt, save(image, fmt, compression=how, tiffinfo={ORIENTATION: o})
    if fmt == "GIF":
        return fmt, save(image, fmt, save_all=True, append_images=[image.rotate(90)])
    if fmt == "BMP":
        return fmt, save(image.quantize(50) if rng.integers(2) else image, fmt)
    if fmt == "AVIF":
        return fmt, save(image, fmt, quality=85, exif=exif_of(o),
                         subsampling=str(rng.choice(["4:2:0", "4:2:2", "4:4:4"])))
    return fmt, save(image, fmt, quality=85)


def live(program, n, seed):
    rng = np.random.default_rng(seed)
    proc = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worst, bad = {}, 0
    cases = [(name, data) for name, data in sorted(all_files().items())] if n == 0 else \
        [random_file(rng) for _ in range(n)]
    for name, data in cases:
        want, got = reference(data), ask(proc, data)
        if isinstance(got, str) or got.shape != want.shape:
            print(f"{name}: {got if isinstance(got, str) else got.shape}, not {want.shape}")
            bad += 1
            continue
        most = int(np.abs(got.astype(int) - want.astype(int)).max())
        allowed = nearness(name.lower().replace("heif", "heic"))
        worst[name] = max(worst.get(name, 0), most)
        if most > allowed:
            print(f"{name}: differs by {most}")
            bad += 1
    for name, most in sorted(worst.items()):
        if most:
            print(f"{name}: at most {most}")
    print(f"{len(cases) - bad} of {len(cases)} agree")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--live", type=int, metavar="N", help="compare N random files; 0: the golden ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("program", nargs="?", help="image_dump, for --live")
    args = parser.parse_args()
    if args.live is not None:
        return live(args.program, args.live, args.seed)
    write_golden()
    return 0


if __name__ == "__main__":
    sys.exit(main())
