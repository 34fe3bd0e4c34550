"""Files that are made to do harm: they grow, never end, nest or lead elsewhere."""

from __future__ import annotations

import base64
import gzip
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

Bomb = tuple[str, Callable[[], object]]
Content = bytes | Callable[[], bytes]
"""Large ones are made when they are wanted."""


def bombs(file: Path, whole: bytes, form: str, large: bool = False) -> Iterator[Bomb]:
    """What to put in a valid file's place, one after the other; `large` adds those of 30 to 130 MB."""
    yield from _not_files(file)
    contents: dict[str, Content] = {
        "empty": b"",
        "zeros": bytes(5000),
        "another format": b"%PDF-1.7\n" + whole[9:],
        "text": b"no such thing\n",
        **_by_name(file.name, whole),
        **(_json_bombs() if form == "json" else {}),
        **(_zip_bombs(whole) if form == "zip" else {}),
    }
    for other in sorted(file.parent.iterdir()):
        if (
            other.suffix == file.suffix
            and other != file
            and other.is_file()
            and other.stat().st_size < 10**6
        ):
            contents[f"{other.name} in its place"] = other.read_bytes()
    for how, data in contents.items():
        if large or not callable(data):
            yield how, lambda data=data: file.write_bytes(data() if callable(data) else data)


def _not_files(file: Path) -> Iterator[Bomb]:
    def instead(make: Callable[[], object]) -> Callable[[], object]:
        def place() -> None:
            clear(file)
            make()

        return place

    yield "a folder", instead(file.mkdir)
    yield "a pipe that nobody writes to", instead(lambda: os.mkfifo(file))
    yield "a device without end", instead(lambda: file.symlink_to("/dev/zero"))
    yield "a link to itself", instead(lambda: file.symlink_to(file.name))
    yield "a plain file again", instead(lambda: file.write_bytes(b"\0"))


def clear(file: Path) -> None:
    """Nothing where the file was."""
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)


def _by_name(name: str, whole: bytes) -> Mapping[str, Content]:
    if name.endswith(".mgz"):
        return _mgz()
    if name.endswith(".mgh"):
        return {
            "a header of 8 EiB": struct.pack(">7i", 1, 2**31 - 1, 1, 1, 2**31 - 1, 3, 1)
            + bytes(300)
        }
    if name.endswith((".gii", ".gii.gz")):
        inside = _array(whole.decode("latin-1")[:3000].replace("<", "&lt;"), 642)
        return {**_gifti(), "a document inside the data": inside}
    if name.endswith((".npy", ".npz")) and not name.endswith(".npz"):
        return _npy()
    if name.endswith(".nii"):
        return _cifti(whole)
    if name.endswith(".annot"):
        return {
            "two thousand million vertices": struct.pack(">i", 2**31 - 1) + whole[4:],
            "a table of as many colours": whole[: 4 + 8 * 642]
            + struct.pack(">5i", 1, -2, 2**31 - 1, 0, 2**31 - 1),
            "a name of as many bytes": whole[: 4 + 8 * 642]
            + struct.pack(">6i", 1, -2, 3, 2**31 - 1, 3, 0),
        }
    if name in ("lh.sphere", "lh.thickness"):
        return {
            "two thousand million vertices": whole[:3]
            + b"x\n\n"
            + struct.pack(">2i", 2**31 - 1, 2**31 - 1)
        }
    if name.endswith((".tsv", ".label", ".md")):
        return {
            **_table_bombs(),
            "a cell without end": b"participant_id\n" + b"a" * 10**7,
            "quotes without end": b'participant_id\tx\n"' + b"a\n" * 10**5,
            "a million columns": b"\t".join(b"c%d" % i for i in range(10**6)) + b"\n",
            "nul": b"participant_id\n\0\n",
        }
    return {}


def _table_bombs() -> dict[str, Content]:
    head = b"participant_id\tx\n"
    rows = lambda form, n: b"".join(form % i for i in range(n))
    return {
        "60 MB of columns": lambda: rows(b"c%d\t", 6_700_000) + b"\n",
        "60 MB of rows": lambda: b"participant_id\n" + rows(b"%d\n", 7_500_000),
        "60 MB of empty rows": lambda: head + b"\n" * (6 * 10**7),
        "60 MB of one letter": lambda: head + b"a\tb\n" * 15_000_000,
        "as many cells as may be": lambda: head + rows(b"%d\t1.5\n", 1_490_000),
        "a long cell and many short ones": lambda: (
            head + b"a\t" + b"x" * 29_000 + b"\n" + rows(b"s%d\tq\n", 10**6)
        ),
        "methods of 127 MB": lambda: b"a b\n" * 31_750_000,
        "quotes in quotes": head + b'"' * 10**6,
        "quoted line breaks": head + b'a\t"' + b"\n" * 10**5 + b'"\n',
        **{
            f"control {control!a}": head + f"a\t1\nb{control}\t2\n".encode("utf-8", "surrogatepass")
            for control in (
                "\x1b[31m",
                "\x07",
                "\x85",
                "\u2028",
                "\u202e",
                "\u2066",
                "\ud800",
                "\ufeff",
                "\v",
            )
        },
        "control in a column": "participant_id\tx\u202ey\na\t1\n".encode(),
        "infinite": head + b"sub-01\t-inf\n",
    }


def _mgz() -> dict[str, bytes]:
    head = lambda n, m: struct.pack(">7i", 1, n, 1, 1, m, 3, 1) + bytes(284 - 28)
    zeros = _zeros(gzip_too=True)
    return {
        "gzip: 2 GiB of zeros, header tells": _gz(head(10**6, 512)) + zeros,
        "gzip: 2 GiB of zeros after a small map": _gz(head(642, 1) + bytes(4 * 642)) + zeros,
        "gzip: header of more than the file": _gz(head(5 * 10**6, 2**30)),
    }


def _gz(data: bytes) -> bytes:
    return gzip.compress(data, 1)


@cache
def _zeros(gzip_too: bool) -> bytes:
    """2 GiB of zeros, deflated; gzip lets members follow each other."""
    block = gzip.compress(bytes(2**24), 9) if gzip_too else zlib.compress(bytes(2**24), 9)
    return block * 128


def _array(
    data: str,
    n: int,
    encoding: str = "GZipBase64Binary",
    kind: str = "NIFTI_TYPE_FLOAT32",
    more: str = "",
) -> bytes:
    return (
        f'<?xml version="1.0"?><GIFTI Version="1.0" NumberOfDataArrays="1"><DataArray Intent="NIFTI_INTENT_SHAPE" '
        f'DataType="{kind}" ArrayIndexingOrder="RowMajorOrder" Dimensionality="1" Dim0="{n}" Encoding="{encoding}" '
        f'Endian="LittleEndian" {more}><Data>{data}</Data></DataArray></GIFTI>'
    ).encode("utf-8", "replace")


@cache
def _gifti() -> dict[str, bytes]:
    packed = lambda data: base64.b64encode(zlib.compress(data, 9)).decode()
    laughs = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
    one = _array(packed(bytes(4 * 5_000_000)), 5_000_000).decode()
    start, end = one.index("<DataArray"), one.index("</GIFTI>")
    made = {
        "zlib: more than it says": _array(packed(bytes(2**26)), 642),
        "zlib: 2 GiB": _array(base64.b64encode(_zeros(False)).decode(), 5_000_000),
        "sixty arrays of 20 MB": (one[:start] + one[start:end] * 60 + one[end:]).encode(),
        "numbers in text": _array("1 " * 2**22, 2**22, "ASCII"),
        "elements without end": b"<GIFTI>" + b"<a/>" * 2**21 + b"</GIFTI>",
        "arrays without end": b"<GIFTI>" + b"<DataArray/>" * 2**20 + b"</GIFTI>",
        "nested without end": b"<GIFTI>" + b"<a>" * 2**21,
        "a billion laughs": f'<!DOCTYPE x [<!ENTITY a0 "ha">{laughs}]><GIFTI>&a9;</GIFTI>'.encode(),
        "an entity that is a file": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><GIFTI>&e;</GIFTI>',
        "default attributes": _declared("DataArray", 8_000_000, "<DataArray/>" * 400),
        "default attributes of many": _declared("M", 4_000_000, "<M/>" * 400_000),
        "a DTD elsewhere and here": _declared("M", 10, "<M/>", 'SYSTEM "http://localhost:9/x.dtd"'),
        "a parameter entity": b'<!DOCTYPE x [<!ENTITY % e SYSTEM "file:///etc/passwd"> %e;]><GIFTI/>',
        "one attribute of 15 MB": b'<GIFTI a="' + b"A" * 15_000_000 + b'"/>',
        "attributes without end": b"<GIFTI "
        + b" ".join(b'a%d=""' % i for i in range(10**6))
        + b"/>",
        "values without end": b"<GIFTI>"
        + (b"<Value>" + b"A" * 10**6 + b"</Value>") * 15
        + b"</GIFTI>",
        "data without end": _array("A" * 15_000_000, 642),
        "a document type elsewhere": b'<!DOCTYPE GIFTI SYSTEM "http://localhost:9/x.dtd">'
        + _array("", 1),
        "data in another file": _array(
            "", 642, "ExternalFileBinary", more='ExternalFileName="/etc/passwd"'
        ),
        "numbers of 5000 digits": _array("", 642).replace(
            b'Dim0="642"', b'Dim0="' + b"9" * 5000 + b'"'
        ),
        "one name of 15 MB": b"<GIFTI><MetaData><MD><Name>"
        + "é\U0001f600".encode() * 2_500_000
        + b"</Name></MD></MetaData></GIFTI>",
        "gzip: 100 MB of elements": b"<GIFTI>" + b"<a/>" * 25_000_000,
    }
    return {how: _gz(data) for how, data in made.items()}


def _declared(tag: str, size: int, body: str, elsewhere: str = "") -> bytes:
    """Default attributes, which expat gives to every element."""
    return f'<!DOCTYPE GIFTI {elsewhere} [<!ATTLIST {tag} F CDATA "{"A" * size}">]><GIFTI>{body}</GIFTI>'.encode()


@cache
def _npy() -> dict[str, bytes]:
    return {
        "eight exabytes": npy_header(
            f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**40}, {2**21})}}"
        ),
        "a pickle": npy_header("{'descr': '|O', 'fortran_order': False, 'shape': (3, 642)}")
        + b"cos\nsystem\n(S'id'\ntR.",
        "a header that nests": npy_header("(" * 4000 + ")" * 4000),
        "a header of signs": npy_header("-" * 9000 + "1"),
        "a type of 4 GiB": npy_header(
            "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (3,)}"
        ),
        "a shape below zero": npy_header(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, -642)}"
        )
        + bytes(8000),
        "sixty-four dimensions": npy_header(
            f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 200}}}"
        )
        + bytes(4),
    }


def npy_header(text: str) -> bytes:
    """The start of a npy file of version 2."""
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text) + 1) + text.encode() + b"\n"


def _cifti(whole: bytes) -> dict[str, bytes]:
    def lie(at: int, form: str, value: int) -> bytes:
        return whole[:at] + struct.pack(form, value) + whole[at + struct.calcsize(form) :]

    return {
        "maps without end": lie(56, "<q", 2**50),
        "columns without end": lie(64, "<q", 2**50),
        "data before the file": lie(168, "<q", -(2**40)),
        "data behind the file": lie(168, "<q", 2**40),
        "an extension without end": lie(544, "<i", 2**31 - 1),
        "an extension of no size": lie(544, "<i", 0),
        **{how: _with_xml(whole, data) for how, data in _cifti_xml().items()},
        "vertices without end": whole.replace(
            b'SurfaceNumberOfVertices="642"', b'SurfaceNumberOfVertices="999"'
        ),
    }


def _with_xml(whole: bytes, xml: bytes) -> bytes:
    """A CIFTI file with another header."""
    (offset,) = struct.unpack_from("<q", whole, 168)
    size = -(-(len(xml) + 8) // 16) * 16
    head = whole[:168] + struct.pack("<q", 544 + size) + whole[176:544]
    return head + struct.pack("<2i", size, 32) + xml.ljust(size - 8, b"\0") + whole[offset:]


@cache
def _cifti_xml() -> dict[str, bytes]:
    return {
        "default attributes": _declared("M", 4_000_000, "<M/>" * 3000).replace(b"GIFTI", b"CIFTI"),
        "elements without end": b'<CIFTI Version="2">' + b"<M/>" * 2**20,
        "one attribute of 15 MB": b'<CIFTI Version="2" a="' + b"A" * 15_000_000 + b'"/>',
        "a name of 15 MB": b'<CIFTI Version="2"><MapName>'
        + b"A" * 15_000_000
        + b"</MapName></CIFTI>",
    }


def _json_bombs() -> dict[str, Content]:
    return {
        "120 MB of lists": lambda: b"[" + b"[]," * 40_000_000 + b"[]]",
        "60 MB of lists": lambda: b"[" + b"[]," * 20_000_000 + b"[]]",
        "60 MB of numbers": lambda: b"[" + b"1," * 30_000_000 + b"1]",
        "60 MB of small records": lambda: b"[" + b'{"a":1},' * 7_500_000 + b"{}]",
        "as many values as may be": lambda: b"[" + b'"abcdefgh",' * 3_999_990 + b'"x"]',
        "as many characters as may be": lambda: (
            b"[" + ('"' + "é€" * 400_000 + '",').encode() * 30 + b"1]"
        ),
        "one text of 100 MB": lambda: b'{"a": "' + b"x" * 10**8 + b'"}',
        "one text of 60 MB": lambda: b'{"a": "' + b"x" * (6 * 10**7) + b'"}',
        "control characters": b'{"a\\u202e": "\\u001b[31m\\u2028\\u0000"}',
        "lists in lists": b"[" * 10**6,
        "lists in lists that end": b"[" * 900 + b"]" * 900,
        "records in records": b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
        "a number of 10 MB": b"1" * 10**7,
        "half a character": b'{"format": "\\ud800"}',
        "only null": b"null",
        "only a list": b"[1, 2, 3]",
        "no UTF-8": b'{"a": "\xff\xfe"}',
    }


def _zip_bombs(whole: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        content = {info.filename: archive.read(info) for info in archive.infolist()}
    large = next(name for name in content if not name.endswith(".json"))
    zeros = npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (100, 250000)}") + bytes(
        10**8
    )
    made = {
        "a member of 100 MB of zeros": _zip(content | {large: zeros}, zipfile.ZIP_DEFLATED),
        "bzip2": _zip(content, zipfile.ZIP_BZIP2),
        "lzma": _zip(content, zipfile.ZIP_LZMA),
        "one member twice": _doubled(content),
        "names that lead out": _zip(
            {f"../../{name}": data for name, data in content.items()}, zipfile.ZIP_STORED
        ),
        "twenty thousand members": _zip(
            {f"{i}.npy": b"" for i in range(20_000)} | content, zipfile.ZIP_STORED
        ),
        "nothing": _zip({}, zipfile.ZIP_STORED),
    }
    for how, data in _npy().items():
        made[f"an array: {how}"] = _zip(content | {large: data}, zipfile.ZIP_STORED)
    if "zarr.json" in content:
        made |= _zarr_bombs(content)
    return made


def _zip(content: dict[str, bytes], how: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _doubled(content: dict[str, bytes]) -> bytes:
    import warnings

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in [*content.items(), *content.items()]:
            archive.writestr(name, data)
    return stream.getvalue()


@cache
def _packed_zeros() -> bytes:
    """512 MB in 50 kB."""
    from numcodecs import Zstd

    return bytes(Zstd().encode(np.zeros(2**29, dtype=np.uint8)))


def _zarr_bombs(content: dict[str, bytes]) -> dict[str, bytes]:
    import json

    record = json.loads(content["scale/zarr.json"])

    def with_mean(chunk: bytes | None = None, **changes: object) -> bytes:
        new = content | {"scale/zarr.json": json.dumps({**record, **changes}).encode()}
        if chunk is not None:
            new["scale/c/0"] = chunk
        return _zip(new, zipfile.ZIP_STORED)

    grid = lambda *shape: {"name": "regular", "configuration": {"chunk_shape": list(shape)}}
    small = _packed_zeros()
    deep = b"[" * 10**5
    return {
        "a zarr chunk of 512 MB": with_mean(small),
        "a zarr chunk of 512 MB, told": with_mean(small, shape=[2**26], chunk_grid=grid(2**26)),
        "a zarr array of 8 EiB": with_mean(shape=[2**60]),
        "a zarr array of 8 EiB in one chunk": with_mean(shape=[2**60], chunk_grid=grid(2**60)),
        "zarr chunks without end": with_mean(shape=[2**40], chunk_grid=grid(1)),
        "a zarr array of another type": with_mean(data_type="int64"),
        "a zarr codec that unpickles": with_mean(
            codecs=[{"name": "numcodecs.pickle", "configuration": {}}]
        ),
        "a zarr record that nests": _zip(content | {"scale/zarr.json": deep}, zipfile.ZIP_STORED),
        "attributes that nest": _zip(
            content | {"zarr.json": b'{"attributes":' + deep}, zipfile.ZIP_STORED
        ),
    }
