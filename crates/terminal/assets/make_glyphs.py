#!/usr/bin/env python3
"""Makes glyphs.bin, the letters of PNG pictures, from DejaVu Sans Mono (see GLYPHS.md).

Usage: make_glyphs.py FONT.ttf glyphs.bin      (needs Pillow)

The file is one zlib stream: the number of glyphs, their code points in order, then 81 bytes
per glyph: 9 x 18 pixels of 4 bits, the left one in the high half. Numbers are 32 bits, little endian.
"""
import struct
import sys
import zlib

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT, SIZE = 9, 18, 15
RANGES = [
    (0x21, 0x7E), (0xA1, 0x17F), (0x370, 0x3FF), (0x400, 0x45F), (0x2010, 0x205E),
    (0x20A0, 0x20BF), (0x2100, 0x214F), (0x2190, 0x22FF), (0x2300, 0x23FF), (0x2500, 0x27BF),
    (0x2800, 0x28FF), (0xFFFD, 0xFFFD),
]


def main(font_path, target):
    font = ImageFont.truetype(font_path, SIZE, layout_engine=ImageFont.Layout.BASIC)
    ascent, _ = font.getmetrics()

    def draw(char):
        image = Image.new("L", (WIDTH, HEIGHT), 0)
        ImageDraw.Draw(image).text((0, ascent), char, fill=255, font=font, anchor="ls")
        return image.tobytes()

    missing = draw("\U0010fffe")
    points, pixels = [], bytearray()
    for first, last in RANGES:
        for point in range(first, last + 1):
            glyph = draw(chr(point))
            if glyph == missing or not any(glyph):
                continue
            points.append(point)
            nibbles = [value >> 4 for value in glyph]
            pixels += bytes(a << 4 | b for a, b in zip(nibbles[::2], nibbles[1::2]))
    raw = struct.pack(f"<I{len(points)}I", len(points), *points) + pixels
    packed = zlib.compress(raw, 9)
    open(target, "wb").write(packed)
    print(f"{len(points)} glyphs, {len(raw)} bytes, {len(packed)} packed")


main(*sys.argv[1:])
