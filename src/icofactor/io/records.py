"""Records: a frozen dataclass as named arrays and one JSON text. Models and diagnostics are records.

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
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse

from icofactor.errors import FileError, shown
from icofactor.io.archive import Arrays, read_arrays, write_arrays
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import Unreadable, exists, naming

Record = TypeVar("Record")
Class = TypeVar("Class", bound=type)
_SPARSE = ("data", "indices", "indptr")
# Annotation → types that JSON may have for it.
_PLAIN: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}


def plain_signature(cls: Class) -> Class:
    """Leave the types out of a record's signature in `help`: they declare more than readers need."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())  # type: ignore[misc]
    plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters[1:]]
    cls.__signature__ = inspect.Signature(plain)  # type: ignore[attr-defined]
    return cls


@dataclass(frozen=True)
class Numbers:
    """Declares, in an annotation, what an array, a sparse matrix or a tuple of text must be.

    Parameters
    ----------
    shape : str
        One character per axis: a digit is its length; a letter stands for the same length wherever
        the record, or one inside it, uses it. A letter that only a record inside uses is that
        record's own.
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


@cache
def _declared(cls: Any) -> dict[str, tuple[Field[Any], Any, Numbers | None]]:
    """Return name → field, its annotation, and its `Numbers` if it has any."""
    hints = get_type_hints(cls)
    annotated = get_type_hints(cls, include_extras=True)
    declared = {}
    for field in fields(cls):
        extras = getattr(annotated[field.name], "__metadata__", ())
        numbers = next((extra for extra in extras if isinstance(extra, Numbers)), None)
        declared[field.name] = (field, hints[field.name], numbers)
    return declared


# ---------------------------------------------------------------------- taking records apart


def flatten(record: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a record as JSON holds it, and the arrays that JSON does not hold, by name."""
    arrays: Arrays = {}
    return _flat(record, "", arrays), arrays


def _flat(value: Any, name: str, arrays: Arrays) -> Any:
    prefix = f"{name}/" if name else ""
    if is_dataclass(value):
        content = {}
        for field, _, numbers in _declared(type(value)).values():
            item = getattr(value, field.name)
            is_array = numbers is not None and numbers.kind != "text" and item is not None
            if is_array and not sparse.issparse(item):
                arrays[prefix + field.name] = np.asarray(item)
            else:
                content[field.name] = _flat(item, prefix + field.name, arrays)
        return content
    if sparse.issparse(value):
        arrays.update({f"{prefix}{part}": getattr(value, part) for part in _SPARSE})
        return list(map(int, value.shape))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_flat(item, f"{prefix}{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(key): _flat(item, f"{prefix}{key}", arrays) for key, item in value.items()}
    return value


# ---------------------------------------------------------------------- putting records together


def rebuild(cls: type[Record], content: Any, arrays: Mapping[str, np.ndarray]) -> Record:
    """Return the record that `flatten` took apart, checked by what its class declares."""
    remaining = dict(arrays)
    record: Record = _rebuilt(cls, content, remaining, "", {})
    if remaining:
        raise Unreadable(f"is damaged: it contains {shown(min(remaining))}, which is unknown")
    return record


def _rebuilt(
    cls: Any, content: Any, arrays: Arrays, name: str, outer_lengths: Mapping[str, int]
) -> Any:
    prefix = f"{name}/" if name else ""
    lengths = dict(outer_lengths)
    declared = _declared(cls)
    if not isinstance(content, dict) or not set(content) <= set(declared):
        raise Unreadable(f"is damaged: {name or 'its record'} is not that of a {cls.__name__}")
    values = {}
    for field, hint, numbers in declared.values():
        if numbers is not None:
            value = _array(field, hint, numbers, content, arrays, prefix)
            values[field.name] = value
            if value is not None:
                _check_shape(prefix + field.name, value, numbers.shape, lengths)
    # Limits may be lengths that a later field has.
    for field, hint, numbers in declared.values():
        if numbers is None:
            absent = field.name not in content
            values[field.name] = (
                _default(field, prefix)
                if absent
                else _value(hint, content[field.name], arrays, prefix + field.name, lengths)
            )
        elif numbers.kind != "text" and values[field.name] is not None:
            _check_values(prefix + field.name, values[field.name], numbers, lengths)
    return cls(**values)


def _array(
    field: Field[Any], hint: Any, numbers: Numbers, content: Any, arrays: Arrays, prefix: str
) -> Any:
    """Return the array, sparse matrix or text of a field; None where the field allows it."""
    name = prefix + field.name
    plain = content.get(field.name)
    if numbers.kind == "text" and plain is not None:
        return _value(tuple[str, ...], plain, arrays, name, {})
    if name in arrays:
        return arrays.pop(name)
    if f"{name}/indptr" in arrays:
        parts = tuple(arrays.pop(f"{name}/{part}") for part in _SPARSE)
        shape = _value(tuple[int, int], plain, arrays, name, {})
        matrix = sparse.csr_array(parts, shape=shape)
        matrix.check_format(full_check=True)
        return matrix
    if field.name in content and plain is None and NoneType in get_args(hint):
        return None
    return _default(field, prefix)


def _default(field: Field[Any], prefix: str) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    if field.default is MISSING:
        raise Unreadable(f"is damaged: it lacks {prefix}{field.name}")
    return field.default


def _check_shape(name: str, value: Any, letters: str, lengths: dict[str, int]) -> None:
    """Compare a shape with the letters of its axes; a new letter is noted in `lengths`."""
    shape = (len(value),) if isinstance(value, tuple) else value.shape
    if len(shape) == len(letters) and all(
        n == (int(letter) if letter.isdigit() else lengths.setdefault(letter, n))
        for letter, n in zip(letters, shape, strict=True)
    ):
        return
    expected = [lengths.get(letter, letter) for letter in letters]
    raise Unreadable(f"is damaged: {name} has shape {shape}, not {expected}")


def _check_values(name: str, array: Any, numbers: Numbers, lengths: Mapping[str, int]) -> None:
    values = array.data if sparse.issparse(array) else array
    kind = values.dtype.kind.replace("u", "i")
    below = numbers.below
    if isinstance(below, str):
        letter, _, more = below.partition("+")
        below = lengths[letter] + int(more or 0)
    checks = {
        f"contains {values.dtype}": kind in numbers.kind,
        "contains NaN or infinity": not numbers.finite or kind != "f" or np.isfinite(values).all(),
        "is not an order": not numbers.order
        or np.array_equal(np.sort(values), np.arange(values.size)),
        f"contains values below {numbers.least}": numbers.least is None
        or not values.size
        or values.min() >= numbers.least,
        f"contains values of {below} or more": below is None
        or not values.size
        or values.max() < below,
    }
    wrong = [problem for problem, holds in checks.items() if not holds]
    if wrong:
        raise Unreadable(f"is damaged: {name} {wrong[0]}")


def _value(
    hint: Any, content: Any, arrays: Arrays, name: str, lengths: Mapping[str, int]
) -> Any:
    """Return a value that JSON holds, as its annotation says."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if content is None and NoneType in inner:
            return None
        hint = next(option for option in inner if option is not NoneType)
        return _value(hint, content, arrays, name, lengths)
    if is_dataclass(hint):
        return _rebuilt(hint, content, arrays, name, lengths)
    if origin is tuple and isinstance(content, list):
        hints = repeat(inner[0], len(content)) if inner[-1] is Ellipsis else inner
        pairs = enumerate(zip(hints, content, strict=True))
        return tuple(_value(of, item, arrays, f"{name}/{i}", lengths) for i, (of, item) in pairs)
    if origin is Mapping and isinstance(content, dict):
        return {
            key: _value(inner[1], item, arrays, f"{name}/{key}", lengths)
            for key, item in content.items()
        }
    if origin is Literal:
        fits = content in inner
    else:
        fits = hint is Any or type(content) in _PLAIN.get(hint, ())
    if not fits or (hint is float and not math.isfinite(content)):
        raise Unreadable(f"is damaged: {name[:80]} is {shown(content)}")
    return content


# ---------------------------------------------------------------------- as files


@dataclass(frozen=True)
class Form:
    """A kind of npz file that holds one record.

    Attributes
    ----------
    cls : the record's class.
    format : the name by which a file says what it is.
    what : what it holds, as in "does not hold a model".
    layout : number of the file's layout; files of another layout are refused.
    renew : how to make the file again.
    error : what is raised about a bad file.
    """

    cls: type[Any]
    format: str
    what: str
    layout: int
    renew: str
    error: type[FileError] = FileError

    def save(self, record: Any, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write a record, whole or not at all. It is checked first: what is written can be read."""
        content, arrays = flatten(record)
        try:
            rebuild(self.cls, json.loads(json.dumps(content)), arrays)
        except Unreadable as problem:
            raise self.error(path, f"cannot be written: its content {problem}") from None
        header = {"format": self.format, "version": self.layout, "content": content}
        with atomic_path(Path(path), overwrite) as temporary:
            write_arrays(temporary, header, arrays)

    def load(self, path: str | os.PathLike[str]) -> Any:
        """Read a record that `save` wrote; anything else is refused by name."""
        file = Path(path)
        if not exists(file):
            raise FileNotFoundError(f"{file}: no such file")
        with self.naming(file):
            header, arrays = read_arrays(file)
            if header.get("format") != self.format:
                raise Unreadable(f"does not contain {self.what} of icofactor")
            if header.get("version") != self.layout:
                raise Unreadable(
                    f"contains {self.what} in layout {shown(header.get('version'))}, from another "
                    f"version of icofactor; this version reads layout {self.layout}"
                )
            return rebuild(self.cls, header.get("content"), arrays)

    def naming(self, file: Path) -> AbstractContextManager[None]:
        """Turn whatever goes wrong inside into one error about the file."""
        advice = f"Copy the file again, or {self.renew}"
        return naming(file, f"file of {self.what}", self.error, advice)
