"""What is wrong with the files of a cohort, all reported at once; and what was done to them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from icofactor.errors import CohortError

# A whole folder of wrong files is understood from its first fifty.
_LISTED = 50


@dataclass
class Problems:
    """Complaints about files, in the order they were found."""

    listed: dict[str, list[str]] = field(default_factory=dict)

    def add(self, where: str | Path, what: str) -> None:
        """Note that `what` is wrong with the file (or subject, or argument) `where`."""
        found = self.listed.setdefault(str(where), [])
        if what not in found:
            found.append(what)

    def add_error(self, where: str | Path, error: CohortError) -> None:
        """Take up an error whose message may begin with the file it is about."""
        place, _, what = str(error).partition(": ")
        if what and (place == str(where) or Path(place).is_file()):
            self.add(place, what)
        else:
            self.add(where, str(error))

    def __bool__(self) -> bool:
        return bool(self.listed)

    def check(self) -> None:
        """Raise one CohortError that names every bad file, when there is any."""
        if not self.listed:
            return
        lines = [f"{where}: {'; '.join(what)}" for where, what in self.listed.items()]
        if len(lines) == 1:
            raise CohortError(lines[0])
        more = [f"... and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        raise CohortError(f"{len(lines)} problems:\n  " + "\n  ".join(lines[:_LISTED] + more))


@dataclass
class Journal:
    """Steps taken while reading: they end in the cohort's provenance, and on the screen when asked for."""

    shown: bool = False
    steps: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Remember a step, and say it aloud."""
        self.steps.append(text)
        if self.shown:
            print(text, file=sys.stderr)


def some(things: list[str], n: int = 5) -> str:
    """'a, b, c, d, e and 7 more'."""
    more = f" and {len(things) - n} more" if len(things) > n else ""
    return ", ".join(things[:n]) + more
