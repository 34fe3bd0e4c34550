"""Records: a frozen dataclass as named arrays and one JSON text. Models, diagnostics, weights and
pieces are records.

The dataclass declares in its annotations what its fields may hold, of arrays by `Numbers`. One
function, `rebuild`, checks all of it on reading. The class is the caller's, a file only fills it
in: reading runs no code. A field with a default may be absent from a file, so fields can be added
without a new version.

    @dataclass(frozen=True, eq=False)
    class Weights:
        matrix: Annotated[sparse.csr_array, Numbers("ts")]        # t targets × s sources
        coverage: Annotated[np.ndarray, Numbers("t", least=0)]    # of the same t targets
        method: Literal["adaptive", "barycentric"]
"""

from __future__ import annotations

import inspect
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse

from icofactor.errors import FileError, literal
from icofactor.io.archive import (
    Arrays,
    digest,
    read_npz,
    read_zarr,
    read_zarr_attributes,
    write_npz,
    write_zarr,
)
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import Unreadable, naming, open_file
from icofactor.io.json import parse_json

Record = TypeVar("Record")
_HEADER = "header"
_SPARSE = ("data", "indices", "indptr")
_PLAIN: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}
_KINDS = {"f": "real numbers", "i": "whole numbers", "b": "True or False"}


Class = TypeVar("Class", bound=type)


def plain_signature(cls: Class) -> Class:
    """For `help`: the signature of a record without types, which declare more than a reader wants
    to know.
    """
    parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]  # type: ignore[misc]
    cls.__signature__ = inspect.Signature([one.replace(annotation=one.empty) for one in parameters])  # type: ignore[attr-defined]
    return cls


@dataclass(frozen=True)
class Numbers:
    """Declares, in an annotation, what an array, a sparse matrix or (kind "text") a tuple of text
    must be.

    Parameters
    ----------
    shape : str
        One character per axis: a digit is its length; a letter stands for the same length wherever
        the record, or
        one inside it, uses it. A letter that only a record inside uses is that record's own.
    kind : {"f", "i", "b", "text"}, default "f"
        Real numbers, whole numbers, booleans, or text. "fi" allows either.
    finite : bool, default True
        Refuse NaN and infinity.
    least, below : number, optional
        Limits of the values; `below` may be a letter, or "k+1".
    order : bool, default False
        The values must be 0 to n − 1, each once.
    """

    shape: str
    kind: str = "f"
    finite: bool = True
    least: float | None = None
    below: float | str | None = None
    order: bool = False


def flatten(record: Any) -> tuple[dict[str, Any], Arrays]:
    """A record as JSON holds it, and the arrays that JSON does not hold, by name."""
    arrays: Arrays = {}
    return _flat(record, "", arrays), arrays


def _flat(value: Any, name: str, arrays: Arrays) -> Any:
    inside = f"{name}/" if name else ""
    if is_dataclass(value) and not isinstance(value, type):
        found = {}
        for one in fields(value):
            item, spec = getattr(value, one.name), _declared(type(value))[one.name][1]
            if spec is None or spec.kind == "text" or item is None or sparse.issparse(item):
                found[one.name] = _flat(item, inside + one.name, arrays)
            else:
                arrays[inside + one.name] = _little(item)
        return found
    if isinstance(value, sparse.csr_array):
        arrays |= {f"{inside}{part}": _little(getattr(value, part)) for part in _SPARSE}
        return list(map(int, value.shape))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_flat(item, f"{inside}{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(key): _flat(item, f"{inside}{key}", arrays) for key, item in value.items()}
    return value


def _little(values: Any) -> np.ndarray:
    """An array in the byte order of all files."""
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def rebuild(cls: type[Record], content: Any, arrays: Mapping[str, np.ndarray]) -> Record:
    """The record that `flatten` took apart, checked by what its class declares; `Unreadable` where
    it is not one.
    """
    left = dict(arrays)
    found = _rebuilt(cls, content, left, "", {})
    if left:
        raise Unreadable(
            f"is damaged: it contains {min(left)[:80]!r}, which this version does not know"
        )
    return found


def _rebuilt(cls: Any, content: Any, arrays: Arrays, name: str, outer: Mapping[str, int]) -> Any:
    if not isinstance(content, dict):
        raise Unreadable(f"is damaged: {name or 'its record'} is not a record of names and values")
    inside, sizes, values = f"{name}/" if name else "", dict(outer), {}
    mine = {one.name: one for one in fields(cls)}
    if unknown := set(content) - set(mine):
        raise Unreadable(
            f"is damaged: it contains {inside + min(unknown)[:80]!r}, which this version does not know"
        )
    declared = {
        one: (mine[one], hint, spec)
        for one, (hint, spec) in _declared(cls).items()
        if spec is not None
    }
    for one, (where, hint, spec) in declared.items():
        values[one] = _taken(where, hint, spec, content, arrays, inside)
        if values[one] is not None:
            _check_shape(inside + one, values[one], spec, sizes)
    for one, (_, _, spec) in declared.items():  # limits may be lengths that a later field has
        if values[one] is not None and spec.kind != "text":
            _check_values(inside + one, values[one], spec, sizes)
    for one, (hint, spec) in _declared(cls).items():
        if spec is None and one in content:
            values[one] = _plain(hint, content[one], arrays, inside + one, sizes)
        elif spec is None:
            values[one] = _default(mine[one], inside)
    return cls(**values)


def _taken(
    one: Field[Any], hint: Any, spec: Numbers, content: Any, arrays: Arrays, inside: str
) -> Any:
    """The array of a field, from wherever it lies; None where the field allows it."""
    name = inside + one.name
    if spec.kind == "text" and content.get(one.name) is not None:
        return _plain(tuple[str, ...], content[one.name], arrays, name, {})
    if name in arrays:
        return arrays.pop(name)
    if sparse.csr_array in (hint, *get_args(hint)) and content.get(one.name) is not None:
        shape = _plain(tuple[int, ...], content[one.name], arrays, name, {})
        lacking = [part for part in _SPARSE if f"{name}/{part}" not in arrays]
        if lacking or len(shape) != 2 or min(shape) < 0:
            raise Unreadable(f"is damaged: {name} is not a sparse matrix")
        found = sparse.csr_array(
            tuple(arrays.pop(f"{name}/{part}") for part in _SPARSE), shape=shape
        )
        found.check_format(full_check=True)
        return found
    return None if NoneType in get_args(hint) and one.name in content else _default(one, inside)


def _default(one: Field[Any], inside: str) -> Any:
    if one.default is not MISSING:
        return one.default
    if one.default_factory is not MISSING:
        return one.default_factory()
    raise Unreadable(f"is damaged: it lacks {inside}{one.name}")


def _check_shape(name: str, value: Any, spec: Numbers, sizes: dict[str, int]) -> None:
    shape = (len(value),) if spec.kind == "text" else value.shape
    expected = tuple(int(c) if c.isdigit() else sizes.get(c) for c in spec.shape)
    if len(shape) != len(expected) or any(
        n is not None and n != m for n, m in zip(expected, shape, strict=True)
    ):
        wanted = ", ".join("any" if n is None else str(n) for n in expected)
        raise Unreadable(f"is damaged: {name} has shape {shape}, not ({wanted})")
    for character, n in zip(spec.shape, shape, strict=True):
        if not character.isdigit() and sizes.setdefault(character, n) != n:  # twice in one shape
            raise Unreadable(f"is damaged: {name} has shape {shape}, which is not square")


def _check_values(name: str, found: Any, spec: Numbers, sizes: Mapping[str, int]) -> None:
    values = found.data if isinstance(found, sparse.csr_array) else found
    kind = "i" if values.dtype.kind == "u" else values.dtype.kind
    if kind not in spec.kind:
        raise Unreadable(
            f"is damaged: {name} contains {values.dtype}, not {' or '.join(_KINDS[k] for k in spec.kind)}"
        )
    if spec.finite and kind == "f" and not np.isfinite(values).all():
        raise Unreadable(f"is damaged: {name} contains values that are not finite")
    if spec.order and not np.array_equal(np.sort(values), np.arange(values.size)):
        raise Unreadable(f"is damaged: {name} is not an order of {values.size}")
    below = spec.below
    if isinstance(below, str):
        letter, _, more = below.partition("+")
        below = sizes[letter] + int(more or 0)
    if values.size and spec.least is not None and not values.min() >= spec.least:
        raise Unreadable(f"is damaged: {name} contains values below {spec.least}")
    if values.size and below is not None and not values.max() < below:
        raise Unreadable(f"is damaged: {name} contains values of {below} or more")


def _plain(hint: Any, value: Any, arrays: Arrays, name: str, sizes: Mapping[str, int]) -> Any:
    """A value that JSON holds, as its annotation says."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        hint = next(one for one in inner if one is not NoneType)
        return _plain(hint, value, arrays, name, sizes)
    if hint is Any or (origin is Literal and value in inner):
        return value
    if is_dataclass(hint):
        return _rebuilt(hint, value, arrays, name, sizes)
    if (
        origin is tuple
        and isinstance(value, list)
        and inner[-1] is not Ellipsis
        and len(value) == len(inner)
    ):
        each = enumerate(zip(inner, value, strict=True))
        return tuple(_plain(one, item, arrays, f"{name}/{i}", sizes) for i, (one, item) in each)
    if origin is tuple and isinstance(value, list) and inner[-1] is Ellipsis:
        return tuple(
            _plain(inner[0], item, arrays, f"{name}/{i}", sizes) for i, item in enumerate(value)
        )
    if origin is Mapping and isinstance(value, dict):
        return {
            key: _plain(inner[1], item, arrays, f"{name}/{key}", sizes)
            for key, item in value.items()
        }
    fits: Any = isinstance(value, _PLAIN.get(hint, ())) and (
        hint is bool or not isinstance(value, bool)
    )
    if fits and (hint is not float or math.isfinite(value)):
        return value
    what = (
        ", ".join(map(repr, inner)) if origin is Literal else getattr(hint, "__name__", str(hint))
    )
    raise Unreadable(f"is damaged: {name[:80]} is {str(value)[:40]!r}, not {what}")


@cache
def _declared(cls: Any) -> dict[str, tuple[Any, Any]]:
    """Field → its annotation, and its `Numbers` where it has any."""
    plain, full = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    extras = {name: getattr(full[name], "__metadata__", ()) for name in full}
    found = {
        name: next((one for one in extras[name] if isinstance(one, Numbers)), None) for name in full
    }
    return {one.name: (plain[one.name], found[one.name]) for one in fields(cls)}


# ---------------------------------------------------------------------- as files


def _text(content: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(content, ensure_ascii=False).encode(), dtype=np.uint8)


@dataclass(frozen=True)
class Form:
    """A kind of file that holds one record.

    Attributes
    ----------
    cls : the record's class.
    format : the name by which a file says what it is.
    what : what it holds, as in "does not hold a model".
    layout : number of the file's layout; files of another layout are refused.
    renew : how to make the file again.
    error : what is raised about a bad file.
    zarr : whether the file is a zarr group in a zip, which other programs read too; else an npz.
    """

    cls: type[Any]
    format: str
    what: str
    layout: int
    renew: str
    error: type[FileError] = FileError
    zarr: bool = False

    def save(self, record: Any, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write a record, whole or not at all. It is checked first: what is written can be read."""
        content, arrays = flatten(record)
        try:
            rebuild(self.cls, json.loads(json.dumps(content)), arrays)
        except Unreadable as problem:
            raise self.error(path, f"cannot be written: its content {problem}") from None
        header = {"format": self.format, "version": self.layout, "content": content}
        with atomic_path(Path(path), overwrite) as temporary:
            if self.zarr:
                write_zarr(temporary, sealed(header, arrays), arrays)
            else:
                write_sealed(temporary, header, arrays, compress=True)

    def load(self, path: str | os.PathLike[str]) -> Any:
        """Read a record that `save` wrote; anything else is refused by name."""
        file = Path(path)
        with suppress(PermissionError):  # which is said below
            if not file.exists():
                raise FileNotFoundError(f"{file}: no such file")
        with self.naming(file):
            with open_file(file) as opened:
                if not zipfile.is_zipfile(opened):
                    what = f"does not contain {self.what} of icofactor: it is not a zip file, or it is truncated"
                    raise Unreadable(what)
            check = partial(self._check_header, file)
            if self.zarr:
                check(read_zarr_attributes(file))
                header, arrays = read_zarr(file)
                check_seal(header, arrays)
            else:
                header, arrays = read_sealed(file, check)
            return rebuild(self.cls, header["content"], arrays)

    def _check_header(self, file: Path, header: Any) -> None:
        if not isinstance(header, dict) or header.get("format") != self.format:
            raise Unreadable(f"does not contain {self.what} of icofactor")
        if header.get("version") != self.layout:
            raise self.error(
                file,
                f"contains {self.what} in layout {literal(str(header.get('version'))[:40])}, from another version of "
                f"icofactor; this version reads layout {self.layout}: {self.renew}",
            )

    def naming(self, file: Path) -> AbstractContextManager[None]:
        """Whatever goes wrong inside becomes one error about the file."""
        return naming(
            file, f"file of {self.what}", self.error, f"Copy the file again, or {self.renew}"
        )


def write_sealed(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, Any], compress: bool = False
) -> None:
    """An npz of arrays and a header, with the checksum of both."""
    plain = {name: _little(array) for name, array in arrays.items()}
    write_npz(path, {_HEADER: _text(sealed(header, plain)), **plain}, compress)


def read_sealed(
    path: Path, check: Callable[[Any], None] | None = None
) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays that `write_sealed` wrote; `check` may refuse the header before the
    checksum is compared.
    """
    arrays = read_npz(path)
    header = parse_json(arrays.pop(_HEADER).tobytes()) if _HEADER in arrays else None
    if check is not None:
        check(header)
    return check_seal(header, arrays), arrays


def sealed(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The header with the checksum of itself and the arrays."""
    return {**header, "checksum": _checksum(header, arrays)}


def check_seal(header: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The header without its checksum, which is compared."""
    if not isinstance(header, dict) or "checksum" not in header:
        raise Unreadable("is damaged: it lacks its checksum")
    found = {name: value for name, value in header.items() if name != "checksum"}
    if header["checksum"] != _checksum(found, arrays):
        raise Unreadable("is damaged: its checksum is wrong")
    return found


def _checksum(header: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the header, and of the names, types, shapes and bytes of the arrays."""
    names = sorted(arrays)
    text = json.dumps([header, names], sort_keys=True).encode()
    return digest(np.frombuffer(text, np.uint8), *(arrays[name] for name in names))
