"""PNG images from pixels, as data URIs. The same pixels give the same bytes with the same zlib."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

__all__ = ["data_uri", "levels_png", "rgba_png"]

Colour = tuple[int, int, int, int]

_PALETTE, _RGBA = 3, 6  # colour types of the PNG specification


def levels_png(width: int, height: int, levels: bytes, palette: Sequence[Colour]) -> bytes:
    """An image of up to 16 colours: `levels` holds the palette index of each pixel, row by row."""
    rows = [_packed(levels[start : start + width]) for start in range(0, width * height, width)]
    colours = b"".join(bytes(colour[:3]) for colour in palette)
    opacity = bytes(colour[3] for colour in palette)
    return _png(width, height, 4, _PALETTE, rows, [(b"PLTE", colours), (b"tRNS", opacity)])


def rgba_png(width: int, height: int, pixels: bytes) -> bytes:
    """An image with four bytes for each pixel: red, green, blue, opacity."""
    rows = [pixels[start : start + 4 * width] for start in range(0, 4 * width * height, 4 * width)]
    return _png(width, height, 8, _RGBA, rows, [])


def data_uri(png: bytes) -> str:
    """The image inside an address, so that a page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _png(
    width: int, height: int, depth: int, kind: int, rows: Sequence[bytes], chunks: Sequence[tuple[bytes, bytes]]
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)  # 0: the row is stored without a filter
    parts = [(b"IHDR", header), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _packed(row: bytes) -> bytes:
    """Two pixels to a byte, the left one in the high bits."""
    padded = row + b"\0" * (len(row) % 2)
    return bytes(left << 4 | right for left, right in zip(padded[::2], padded[1::2], strict=True))
