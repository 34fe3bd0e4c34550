"""How valid files are damaged: strategies that draw a damaged copy of some bytes, from without and from within."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from icofactor.io import archive, records

_NUMBERS = [
    0,
    1,
    -1,
    2,
    255,
    256,
    65535,
    10**6,
    2**24,
    2**28,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
]
_WORDS = [
    *(
        "-1",
        "0",
        "1e999",
        "nan",
        "NaN",
        "Infinity",
        "-0",
        "99999999999999999999",
        "1" * 5000,
        "2147483648",
        "0.5",
        "1,2",
    ),
    *(
        "null",
        "true",
        '""',
        "[]",
        "{}",
        '"x"',
        '"\\ud800"',
        "[" * 3000,
        '{"a":' * 2000,
        "../../etc/passwd",
        "\x00",
        "é",
    ),
    *(
        "bytes",
        "float64",
        "int8",
        "uint64",
        "object",
        "CIFTI_INDEX_TYPE_LABELS",
        "NIFTI_TYPE_FLOAT64",
        "ASCII",
        "12",
    ),
]
_TOKEN = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?|\"[^\"]{0,60}\"|\w{3,}")


def damaged(data: bytes, form: str) -> st.SearchStrategy[bytes]:
    """Damaged copies of a file.

    Parameters
    ----------
    form : "raw", "gzip", "zip", "json", "xml" or "text": what is inside is damaged too, and packed again properly.
    """
    ways = [_outside(data)]
    if form in ("json", "xml", "text"):
        ways.append(_tokens(data))
    if form == "gzip":
        inside = gzip.decompress(data)
        ways.append(
            st.one_of(_outside(inside), _tokens(inside)).map(lambda new: gzip.compress(new, 1))
        )
    if form == "zip":
        ways.append(_members(data))
    return st.one_of(*ways)


def _outside(data: bytes) -> st.SearchStrategy[bytes]:
    """Truncations, flipped bits, lying numbers, lost and doubled stretches, foreign bytes."""
    n = len(data)
    # headers and directories lie at the ends
    place = st.one_of(
        st.integers(0, min(600, n - 1)), st.integers(max(0, n - 400), n - 1), st.integers(0, n - 1)
    )
    return st.one_of(
        place.map(lambda at: data[:at]),
        st.lists(st.tuples(place, st.integers(0, 7)), min_size=1, max_size=12).map(
            lambda flips: _flipped(data, flips)
        ),
        st.lists(st.tuples(place, _packed_number()), min_size=1, max_size=3).map(
            lambda news: _overwritten(data, news)
        ),
        st.tuples(place, place).map(lambda ends: data[: min(ends)] + data[max(ends) :]),
        st.tuples(place, place).map(lambda ends: data[: max(ends)] + data[min(ends) :]),
        st.tuples(place, st.binary(min_size=1, max_size=40)).map(
            lambda new: data[: new[0]] + new[1] + data[new[0] :]
        ),
        st.tuples(place, st.integers(1, 300)).map(
            lambda gap: _overwritten(data, [(gap[0], bytes(gap[1]))])
        ),
        st.binary(min_size=1, max_size=200).map(lambda new: data + new),
        st.binary(max_size=200),
    )


def _packed_number() -> st.SearchStrategy[bytes]:
    forms = {"i": 32, "q": 64, "h": 16}

    def pack(drawn: tuple[int, str, str]) -> bytes:
        number, order, form = drawn
        bits = forms[form]
        return struct.pack(f"{order}{form.upper()}", number % 2**bits)

    return st.tuples(
        st.sampled_from(_NUMBERS), st.sampled_from("<>"), st.sampled_from(sorted(forms))
    ).map(pack)


def _flipped(data: bytes, flips: list[tuple[int, int]]) -> bytes:
    new = bytearray(data)
    for at, bit in flips:
        new[at] ^= 1 << bit
    return bytes(new)


def _overwritten(data: bytes, news: list[tuple[int, bytes]]) -> bytes:
    new = bytearray(data)
    for at, piece in news:
        new[at : at + len(piece)] = piece
    return bytes(new[: max(len(data), 1)])


def _tokens(data: bytes) -> st.SearchStrategy[bytes]:
    """Numbers and words of a text replaced, doubled or lost."""
    spots = [match.span() for match in _TOKEN.finditer(data[:20_000])] or [(0, 0)]
    word = st.one_of(
        st.sampled_from(_WORDS).map(str.encode),
        st.integers(-(2**70), 2**70).map(lambda n: str(n).encode()),
    )

    def replaced(drawn: list[tuple[tuple[int, int], bytes]]) -> bytes:
        new = data
        for (first, last), text in sorted(drawn, reverse=True):
            new = new[:first] + text + new[last:]
        return new

    return st.lists(
        st.tuples(st.sampled_from(spots), word), min_size=1, max_size=3, unique_by=lambda d: d[0]
    ).map(replaced)


def _members(data: bytes) -> st.SearchStrategy[bytes]:
    """One member of a zip damaged, left out or emptied; checksums are right again, of icofactor's own files often."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        content = {info.filename: archive.read(info) for info in archive.infolist()}
        how = archive.infolist()[0].compress_type

    def pack(change: Callable[[dict[str, bytes]], None]) -> bytes:
        new = dict(content)
        change(new)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", how) as archive:
            for name, piece in new.items():
                archive.writestr(name, piece)
        return stream.getvalue()

    own = "header.npy" in content or b"checksum" in content.get("zarr.json", b"")

    def one(name: str) -> st.SearchStrategy[bytes]:
        inside = (
            st.one_of(_outside(content[name]), _tokens(content[name]))
            if content[name]
            else st.just(b"")
        )
        found = st.one_of(
            inside.map(lambda new: pack(lambda all_: all_.__setitem__(name, new))),
            st.just(pack(lambda all_: all_.pop(name))),
        )
        return st.one_of(found, found.map(sealed_again)) if own else found

    # records of zarr and of npz say what the rest is: half of the damage goes there
    telling = [name for name in content if name.endswith((".json", "header.npy"))] or list(content)
    return st.one_of(
        st.sampled_from(telling).flatmap(one), st.sampled_from(sorted(content)).flatmap(one)
    )


def sealed_again(data: bytes) -> bytes:
    """A damaged file of icofactor's own with the checksum of what it holds now, if it can still be opened."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "a"
        file.write_bytes(data)
        try:
            if b"zarr.json" in data:
                header, arrays = archive.read_zarr(file)
                header.pop("checksum")
                archive.write_zarr(file, records.sealed(header, arrays), arrays)
            else:
                arrays = archive.read_npz(file)
                header = json.loads(arrays.pop("header").tobytes())
                header.pop("checksum")
                records.write_sealed(file, header, arrays)
        except Exception:
            return data
        return file.read_bytes()
