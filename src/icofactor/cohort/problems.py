"""What is wrong with the files of a cohort, reported at once; and a journal of what was done."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from icofactor.errors import CohortError, FileError, escaped, plural


@dataclass
class ReadProblems:
    """Everything that is wrong with files, in order, so that one error can name all of them.

    Attributes
    ----------
    listed : file, subject or argument → its problems.
    """

    listed: dict[str, list[str]] = field(default_factory=dict)

    def add(
        self,
        path: str | Path,
        problem: str,
    ) -> None:
        """Add a problem with a file, a subject or an argument."""
        problems = self.listed.setdefault(CohortError.place(path), [])
        # Both halves of a file may have the same problem.
        if problem not in problems:
            problems.append(problem)

    def add_error(self, error: FileError) -> None:
        """Add the problems of an error, of one file or several."""
        listed = error.problems if isinstance(error, CohortError) else [(error.path, error.problem)]
        for path, problem in listed:
            self.add(path, problem)

    def __bool__(self) -> bool:
        return bool(self.listed)

    def check(self) -> None:
        """Raise one CohortError that names every bad file, if there is any."""
        if self.listed:
            # A single problem stays as it is: it may know the cause it shares with other files.
            texts = {
                path: problems[0] if len(problems) == 1 else "; ".join(problems)
                for path, problems in self.listed.items()
            }
            raise CohortError.of(list(texts.items()))


@dataclass
class Journal:
    """Steps taken while reading, for the provenance and, if wanted, the screen.

    Attributes
    ----------
    left_out : reason → subjects.
    """

    verbose: bool = False
    steps: list[str] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Add a step, and print it if the journal is verbose."""
        text = escaped(text)
        # Notes of many files are often the same.
        if text in self.steps:
            return
        self.steps.append(text)
        if self.verbose:
            print(text, file=sys.stderr)

    def leave_out(
        self,
        names: Sequence[str],
        reason: str,
    ) -> None:
        """Add subjects that are left out, and the reason."""
        if names:
            self.left_out.setdefault(reason, []).extend(names)
            self.note(f"left out {plural(len(names), 'subject')} {reason}: {some(names)}")


def some(
    names: Iterable[str],
    limit: int = 5,
) -> str:
    """Return names for a message: 'a, b, c, d, e and 7 more'."""
    names = list(names)
    text = ", ".join(escaped(name[:60]) for name in names[:limit])
    n_more = len(names) - limit
    return f"{text} and {n_more} more" if n_more > 0 else text
