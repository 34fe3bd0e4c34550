"""Damaged copies of valid files, from without and from within."""

from __future__ import annotations

import gzip
import io
import re
import struct
import zipfile
from collections.abc import Iterator

import numpy as np

_NUMBERS = (0, 1, -1, 2, 8, 255, 65535, 10**6, 2**28, 2**31 - 1, -(2**31), 2**40, 2**63 - 1)
_WORDS = (
    *("-1", "0", "1e999", "nan", "99999999999999999999", "1" * 5000, "1_000", "1,2", "null", "[]"),
    *('"\\ud800"', "[" * 3000, "../../etc/passwd", "\x00", "é", "object", "NIFTI_TYPE_RGB24"),
    *("CIFTI_INDEX_TYPE_LABELS", "ExternalFileBinary", "ASCII", "9", "#N/A"),
)
_TOKEN = re.compile(rb"-?\d+(?:\.\d+)?|\w{3,}")


def mutants(content: bytes, n: int, seed: int = 0) -> Iterator[bytes]:
    """Return `n` damaged copies, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        if rng.random() < 0.5 and content.startswith(b"\x1f\x8b"):
            yield gzip.compress(_damaged(gzip.decompress(content), rng), 1)
        elif rng.random() < 0.5 and content.startswith(b"PK"):
            yield _with_damaged_member(content, rng)
        else:
            yield _damaged(content, rng)


def _damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Return content that is cut, spliced, flipped, or has other numbers or words."""
    # Headers and directories lie at the ends.
    start = int(
        rng.choice([rng.integers(600), len(content) - rng.integers(400), rng.integers(2**62)])
    )
    start %= max(1, len(content))
    end = start + int(rng.integers(1, 300))
    number = struct.pack(
        rng.choice(["<q", ">q"]), int(rng.choice(np.array(_NUMBERS, dtype=object)))
    )
    width = int(rng.choice([2, 4, 8]))
    word = str(rng.choice(_WORDS)).encode()
    tokens = [match.span() for match in _TOKEN.finditer(content[:20_000])] or [(0, 0)]
    first, last = tokens[rng.integers(len(tokens))]
    flipped = bytearray(content)
    for position in rng.integers(len(content), size=rng.integers(1, 12)):
        flipped[(position + start) % len(content)] ^= 1 << int(rng.integers(8))
    ways = (
        content[:start],
        bytes(flipped),
        content[:start] + number[:width] + content[start + width :],
        content[:start] + number[-width:] + content[start + width :],
        content[:start] + content[end:],
        content[:end] + content[start:],
        content[:start] + bytes(end - start) + content[end:],
        content + rng.bytes(end - start),
        content[:first] + word + content[last:],
        content[:first] + word + content[last:],
    )
    return ways[rng.integers(len(ways))]


def _with_damaged_member(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a zip with one member damaged; its checksums are right again."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        method = archive.infolist()[0].compress_type
    # The header of a record says what the others are.
    name = str(rng.choice(sorted(members)))
    if "header.npy" in members and rng.random() < 0.5:
        name = "header.npy"
    members[name] = _damaged(members[name] or b"\0", rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return stream.getvalue()
