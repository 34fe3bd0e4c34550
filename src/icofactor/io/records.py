"""Records: a frozen dataclass as named arrays and one JSON text, such as models and diagnostics.

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
from dataclasses import (
    dataclass,
    fields,
    is_dataclass,
)
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from scipy import sparse

from icofactor.errors import FileError, shown
from icofactor.io.archive import (
    Arrays,
    read_arrays,
    write_arrays,
)
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import Unreadable, brief, exists, naming

Record = TypeVar("Record")
Class = TypeVar("Class", bound=type)
_SPARSE = ("data", "indices", "indptr")
# Annotation → types that JSON may have for it.
_PLAIN: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}


def plain_signature(cls: Class) -> Class:
    """Leave the types out of a record's signature: they declare more than readers need."""
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
def _hints(cls: Any) -> dict[str, Any]:
    """Return name of a field → its annotation."""
    return get_type_hints(cls, include_extras=True)


def flatten(record: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a record as JSON holds it, and the arrays that JSON does not hold, by name."""
    arrays: Arrays = {}
    return _flat(record, "", arrays), arrays


def _flat(value: Any, name: str, arrays: Arrays) -> Any:
    """Return what JSON holds of a value: of sparse matrices their shape, of arrays nothing."""
    if isinstance(value, sparse.csr_array):
        arrays.update({f"{name}/{member}": getattr(value, member) for member in _SPARSE})
        return list(map(int, value.shape))
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value):
        members = {field.name: getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, Mapping):
        members = {str(key): item for key, item in value.items()}
    elif isinstance(value, tuple | list):
        return [_flat(item, _inside(name, i), arrays) for i, item in enumerate(value)]
    else:
        return value
    content = {key: _flat(item, _inside(name, key), arrays) for key, item in members.items()}
    return {key: item for key, item in content.items() if _inside(name, key) not in arrays}


def _inside(name: str, member: object) -> str:
    return f"{name}/{member}" if name else str(member)


def rebuild(
    cls: type[Record],
    content: Any,
    arrays: Mapping[str, np.ndarray],
) -> Record:
    """Return the record that `flatten` took apart, checked by what its class declares."""
    remaining = dict(arrays)
    record: Record = _built(cls, content, "", remaining)
    if remaining:
        raise Unreadable(f"is damaged: it contains {shown(min(remaining))}, which is unknown")
    _check(record, {})
    return record


def _built(
    hint: Any,
    content: Any,
    name: str,
    arrays: Arrays,
) -> Any:
    """Return a value as its annotation says; Python refuses fields that are lacking."""
    if hasattr(hint, "__metadata__"):
        # Annotated[type, Numbers(...)]; the numbers are checked when the record is complete.
        if name in arrays:
            return arrays.pop(name)
        if f"{name}/{_SPARSE[0]}" in arrays:
            return _sparse(content, name, arrays)
        hint = get_args(hint)[0]
    origin = get_origin(hint) or hint
    inner = get_args(hint)
    if origin in (Union, UnionType):
        if content is None and NoneType in inner:
            return None
        return _built(inner[0], content, name, arrays)
    if is_dataclass(origin) and isinstance(content, dict):
        hints = _hints(hint)
        # Arrays have no entry in the JSON text.
        names = [field for field in hints if field in content or _inside(name, field) in arrays]
        if unknown := set(content) - set(hints):
            raise Unreadable(f"is damaged: it contains {shown(min(unknown))}, which is unknown")
        values = {
            field: _built(hints[field], content.get(field), _inside(name, field), arrays)
            for field in names
        }
        return hint(**values)
    if origin is tuple and isinstance(content, list):
        item_hints = inner[:1] * len(content) if inner[-1] is Ellipsis else inner
        return tuple(
            _built(item_hint, item, _inside(name, i), arrays)
            for i, (item_hint, item) in enumerate(zip(item_hints, content, strict=True))
        )
    if origin is Mapping and isinstance(content, dict):
        return {
            key: _built(inner[1], item, _inside(name, key), arrays) for key, item in content.items()
        }
    # bool is an int to isinstance, hence type().
    fits = content in inner if origin is Literal else type(content) in _PLAIN.get(hint, ())
    if not (fits or hint is Any) or (hint is float and not math.isfinite(content)):
        raise Unreadable(f"is damaged: {name[:80]} is {shown(content)}")
    return content


def _sparse(shape: Any, name: str, arrays: Arrays) -> sparse.csr_array:
    """Return a sparse matrix."""
    members = tuple(arrays.pop(f"{name}/{member}") for member in _SPARSE)
    # Indices out of range would crash SciPy's compiled code.
    matrix = sparse.csr_array(members, shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _check(
    record: Any,
    outer_lengths: Mapping[str, int],
) -> None:
    """Compare arrays with what their class declares; lengths hold for the records inside, too."""
    lengths = dict(outer_lengths)
    values = {name: getattr(record, name) for name in _hints(record.__class__)}
    declared = {
        name: hint.__metadata__[0]
        for name, hint in _hints(record.__class__).items()
        if hasattr(hint, "__metadata__") and values[name] is not None
    }
    for name, numbers in declared.items():
        _check_shape(name, values[name], numbers.shape, lengths)
    # Limits may be lengths that a later field has.
    for name, numbers in declared.items():
        if numbers.kind != "text":
            _check_values(name, values[name], numbers, lengths)
    for value in values.values():
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                _check(item, lengths)


def _check_shape(
    name: str,
    value: Any,
    letters: str,
    lengths: dict[str, int],
) -> None:
    """Compare a shape with the letters of its axes; a new letter is noted in `lengths`."""
    shape = (len(value),) if isinstance(value, tuple) else value.shape
    fits = len(shape) == len(letters)
    for letter, n in zip(letters, shape, strict=False):
        fits &= n == (int(letter) if letter.isdigit() else lengths.setdefault(letter, n))
    if not fits:
        expected = [lengths.get(letter, letter) for letter in letters]
        raise Unreadable(f"is damaged: {name} has shape {shape}, not {expected}")


def _check_values(
    name: str,
    array: Any,
    numbers: Numbers,
    lengths: Mapping[str, int],
) -> None:
    values = array.data if isinstance(array, sparse.csr_array) else array
    below = numbers.below
    if isinstance(below, str):
        letter, _, more = below.partition("+")
        below = lengths[letter] + int(more or 0)
    # Comparisons with NaN are False: only columns without limits may have it.
    fits = (
        values.dtype.kind.replace("u", "i") in numbers.kind
        and (not numbers.finite or np.isfinite(values).all())
        and (not numbers.order or np.array_equal(np.sort(values), np.arange(values.size)))
        and (numbers.least is None or (values >= numbers.least).all())
        and (below is None or (values < below).all())
    )
    if not fits:
        raise Unreadable(f"is damaged: {name} ({values.dtype}) is not {numbers}")


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

    def save(
        self,
        record: Any,
        path: str | os.PathLike[str],
        overwrite: bool = False,
    ) -> None:
        """Write a record, whole or not at all. It is checked first: what is written can be read."""
        content, arrays = flatten(record)
        # NaN or a wrong shape is an error now, not when the file is needed.
        try:
            rebuild(self.cls, json.loads(json.dumps(content)), arrays)
        except Exception as problem:
            raise self.error(path, f"cannot be written: {brief(problem)}") from problem
        header = {"format": self.format, "version": self.layout, "content": content}
        with atomic_path(Path(path), overwrite) as temporary:
            write_arrays(temporary, header, arrays)

    def load(
        self,
        path: str | os.PathLike[str],
    ) -> Any:
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

    def naming(
        self,
        file: Path,
    ) -> AbstractContextManager[None]:
        """Turn whatever goes wrong inside into one error about the file."""
        advice = f"Copy the file again, or {self.renew}"
        return naming(file, f"file of {self.what}", self.error, advice)
