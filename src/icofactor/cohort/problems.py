"""What is wrong with the files of a cohort, all reported at once; and what was done to them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from icofactor.errors import CohortError, FileError, counted, escaped, literal


@dataclass
class Problems:
    """Complaints about files, in the order they were found."""

    listed: dict[str, list[str]] = field(default_factory=dict)

    def add(self, where: str | Path, what: str) -> None:
        """Note that `what` is wrong with the file (or subject, or argument) `where`."""
        found = self.listed.setdefault(CohortError.place(where), [])
        if what not in found:
            found.append(what)

    def add_error(self, error: FileError) -> None:
        """Take up what an error says, of however many files."""
        for where, what in (
            error.problems if isinstance(error, CohortError) else [(error.path, error.problem)]
        ):
            self.add(where, what)

    def __bool__(self) -> bool:
        return bool(self.listed)

    def check(self) -> None:
        """Raise one CohortError that names every bad file, when there is any."""
        if self.listed:
            joined = {
                where: what[0] if len(what) == 1 else "; ".join(what)
                for where, what in self.listed.items()
            }
            raise CohortError.of(list(joined.items()))


@dataclass
class Journal:
    """Steps taken while reading: they end in the cohort's provenance, and on the screen when asked
    for.

    Attributes
    ----------
    left_out : why → who.
    """

    shown: bool = False
    steps: list[str] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Remember a step, and show it."""
        text = escaped(text)
        self.steps.append(text)
        if self.shown:
            print(text, file=sys.stderr)

    def leave_out(self, names: Sequence[str], why: str) -> None:
        """Note that subjects are left out, and why."""
        if names:
            self.left_out.setdefault(why, []).extend(names)
            self.note(f"left out {counted(len(names), 'subject')} {why}: {some(names)}")


def some(names: Iterable[str], most: int = 5) -> str:
    """'a, b, c, d, e and 7 more', as far as the names can be shown; safe inside the text of an
    error.
    """
    listed = list(names)
    shown = [escaped(name[:60]) for name in listed[:most]]
    return literal(", ".join(shown)) + (
        f" and {len(listed) - most} more" if len(listed) > most else ""
    )
