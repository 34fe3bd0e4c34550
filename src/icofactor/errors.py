"""The errors icofactor raises. All are ValueErrors, so scikit-learn's habits keep working.

An error holds what went wrong as fields; its message is made from them. Texts written in the code
may refer to arguments in braces, ``{hemi}`` or ``{hemi='both'}``. Python shows them as they stand,
the command line shows the
option that sets the argument: no code has to take a message apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

Naming = Callable[[str, str | None], str]
"""(argument, value as Python writes it or None) → how the reader would write it."""


def in_python(argument: str, value: str | None = None) -> str:
    """An argument as a Python user writes it: ``hemi`` or ``hemi='both'``."""
    return argument if value is None else f"{argument}={value}"


def as_reference(argument: str, value: str | None = None) -> str:
    """An argument as a text refers to it: ``{hemi}`` or ``{hemi='both'}``."""
    return f"{{{in_python(argument, value)}}}"


def literal(text: object) -> str:
    """Text from outside (a name, a value), safe inside a text that may refer to arguments."""
    return str(text).replace("{", "{{").replace("}", "}}")


# what acts on a terminal or a page instead of being shown: controls, line separators, directions of
# writing, halves of characters (bytes of a file's name that are not UTF-8), marks and tags that
# cannot be seen
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e007f]"
)
_LONGEST_NAME = 300


def escaped(text: object, keep: str = "") -> str:
    r"""Text from outside with what cannot be shown as escapes (\x1b, \u202e); a byte that is not
    UTF-8 is \xe9.
    """

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        if match[0] in keep:
            return match[0]
        if 0xDC80 <= code <= 0xDCFF:
            code -= 0xDC00
        return (
            f"\\x{code:02x}"
            if code < 256
            else f"\\u{code:04x}"
            if code < 65536
            else f"\\U{code:08x}"
        )

    return UNSAFE.sub(escape, str(text))


def named(path: object) -> str:
    """The name of a file for a message: escaped, and its middle left out where it is very long."""
    text = escaped(path)
    return text if len(text) <= _LONGEST_NAME else f"{text[:120]}...{text[-160:]}"


def render(text: str, naming: Naming = in_python) -> str:
    """A text with its references to arguments written the reader's way; doubled braces are single
    ones.

    Braces that hold no argument stand for themselves: part of the text may come from a file.
    """
    found, place = [], 0
    while place < len(text):
        if text[place : place + 2] in ("{{", "}}"):
            found.append(text[place])
            place += 2
            continue
        end = text.find("}", place) if text[place] == "{" else -1
        argument, equals, value = text[place + 1 : end].partition("=") if end > 0 else ("", "", "")
        if argument.isidentifier():
            found.append(naming(argument, value if equals else None))
            place = end + 1
        else:
            found.append(text[place])
            place += 1
    return "".join(found)


def counted(n: int, what: str) -> str:
    """A number of things as text: 1 subject, 2 subjects."""
    return f"{n} {what}{'s' * (n != 1)}"


class Phrase(str):
    """A description of what was found, shown as it stands: ``Phrase("an array of shape (3,)")``."""

    __slots__ = ()


class Problem(str):
    """What is wrong with one of several files, and the cause that they share: many are shown as one
    line.
    """

    __slots__ = ("cause",)
    cause: str

    def __new__(cls, text: str, cause: str) -> Problem:
        made = super().__new__(cls, text)
        made.cause = cause
        return made


class ArgumentError(ValueError):
    """An argument has a wrong value.

    Parameters
    ----------
    argument : str
        Name of the argument, as in Python. The command line shows the option in its place.
    message : str
        What was found and what to do, as in "must be a whole number ≥ 1; found 0". Shown as it is,
        after the argument. A remedy names the option and the argument:
        "pass --overwrite (overwrite=True)".
    """

    def __init__(self, argument: str, message: object, expected: str | None = None) -> None:
        # With `expected`, the older form (argument, found, expected): rooms that still use it are
        # being rewritten, and then this parameter and `describe` go.
        self.argument, self.message, self.expected = argument, message, expected
        super().__init__(argument, message, expected)

    def describe(self, naming: Naming = in_python) -> str:
        """The message, with the argument named the reader's way."""
        if self.expected is None:
            return f"{naming(self.argument, None)}: {escaped(self.message)}"
        expected = render(self.expected, naming)
        sentence = self.expected[:1] == "{" or self.expected[:1].isupper()
        text = expected if sentence else f"{naming(self.argument, None)} must be {expected}"
        return text if self.message is None else f"{text}; found {shown(self.message)}"

    def __str__(self) -> str:
        return self.describe()


class ExistsError(FileExistsError):
    """A file or folder exists already, and replacing it was not requested.

    Parameters
    ----------
    path : str or path
        The file or folder.
    problem : str
        What this means and what to do, as in "PATH PROBLEM"; may refer to arguments in braces.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        problem: str = "exists; pass {overwrite=True} to replace it",
    ) -> None:
        self.path, self.problem = str(path), problem
        super().__init__(self.describe())

    def describe(self, naming: Naming = in_python) -> str:
        """The message, with arguments named the reader's way."""
        return f"{named(self.path)} {escaped(render(self.problem, naming))}"


class DivergenceError(ValueError):
    """The updates diverged; the message says what to change."""


class FileError(ValueError):
    """A file is damaged, or is not what it should be.

    Parameters
    ----------
    path : str or path
        File, folder, subject or argument with the problem.
    problem : str
        What is wrong and what to do; may refer to arguments in braces.
    """

    def __init__(self, path: str | PathLike[str], problem: str) -> None:
        self.path, self.problem = str(path), problem
        super().__init__(self.path, problem)

    def describe(self, naming: Naming = in_python) -> str:
        """The message, with arguments named the reader's way."""
        return f"{named(self.path)}: {escaped(render(self.problem, naming))}"

    def __str__(self) -> str:
        return self.describe()


class ModelFileError(FileError):
    """A file is not a model of icofactor, or is damaged."""


class ClusterError(ValueError):
    """A dask cluster failed.

    Parameters
    ----------
    step : str
        What was being computed, as in "a pass over the maps".
    problem : str
        What happened and what to do; may refer to arguments in braces.
    """

    def __init__(self, step: str, problem: str) -> None:
        self.step, self.problem = step, problem
        super().__init__(step, problem)

    def describe(self, naming: Naming = in_python) -> str:
        """The message, with arguments named the reader's way."""
        return f"{self.step}: {render(self.problem, naming)}"

    def __str__(self) -> str:
        return self.describe()


class CohortError(FileError):
    """Files do not make a cohort. The message lists the causes, and `problems` every bad file.

    Attributes
    ----------
    problems : tuple of (str, str)
        Where and what, for each problem; `path` and `problem` are those of the first.
    """

    MOST_LISTED = 50
    """Causes that are listed."""
    ARGUMENTS = (
        *(
            "paths",
            "participants",
            "exclude",
            "mask",
            "mesh",
            "subjects",
            "smoothing",
            "target",
            "entities",
        ),
        *("sessions", "hemisphere", "spheres"),
    )
    """What a problem may be about, besides files and subjects."""

    def __init__(self, path: str | PathLike[str], problem: str) -> None:
        super().__init__(self.place(path), problem)
        self.problems: Sequence[tuple[str, str]] = ((self.path, problem),)

    @classmethod
    def place(cls, path: str | PathLike[str]) -> str:
        """A path as text that is not taken for an argument: ./subjects."""
        return (
            f"./{path}" if isinstance(path, PathLike) and str(path) in cls.ARGUMENTS else str(path)
        )

    @classmethod
    def of(cls, problems: Sequence[tuple[str, str]]) -> CohortError:
        """One error about several files, at least one."""
        error = cls(*problems[0])
        error.problems = tuple(problems)
        return error

    def lines(self, naming: Naming = in_python) -> list[str]:
        """One line per cause, with two examples where it has more, and one that counts all problems
        if several.
        """
        causes: dict[str, list[tuple[str, str]]] = {}
        for where, what in self.problems:
            causes.setdefault(getattr(what, "cause", what), []).append((where, what))
        lines = []
        for cause, found in causes.items():
            places = [
                naming(where, None) if where in self.ARGUMENTS else named(where)
                for where, _ in found
            ]
            if len(found) <= 2:
                lines += [
                    f"{place}: {escaped(render(what, naming))}"
                    for place, (_, what) in zip(places, found, strict=True)
                ]
            else:
                lines.append(
                    f"{places[0]}, {places[1]} and {len(found) - 2} more: {escaped(render(cause, naming))}"
                )
        if len(self.problems) == 1:
            return lines
        more = (
            [f"... and {len(lines) - self.MOST_LISTED} more causes"]
            if len(lines) > self.MOST_LISTED
            else []
        )
        return [f"{len(self.problems)} problems:", *lines[: self.MOST_LISTED], *more]

    def describe(self, naming: Naming = in_python) -> str:
        return "\n  ".join(self.lines(naming))


class RemoteError(CohortError):
    """A store behind a URL cannot be read; `path` is the URL of the file."""


def shown(found: Any) -> str:
    """What was found, short enough for a message."""
    text = escaped(found if isinstance(found, Phrase) else repr(found))
    return text if len(text) <= 200 else f"{text[:197]}..."
