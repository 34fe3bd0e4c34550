"""What a table says of the subjects → columns of a regression, coded the same way whenever they are needed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CATEGORIES = ("sex", "gender", "site", "scanner", "center", "centre", "batch", "group", "study", "cohort")
"""Columns that are categories even where they are coded by numbers."""
_CATEGORY = ":category"
_MISSING = ("", "n/a", "na", "nan", "none", "null")


@dataclass(frozen=True)
class Term:
    """One covariate and how it becomes columns.

    Attributes
    ----------
    name : column of the participants' table.
    levels : the categories, the first being the one the others are compared with; None for a number.
    means : z̄, one per column.
    """

    name: str
    levels: tuple[str, ...] | None
    means: tuple[float, ...]

    def columns(self, values: Sequence[Any], subjects: Sequence[str]) -> np.ndarray:
        """z − z̄ of subjects, one row each."""
        cells = _cells(self.name, values, subjects)
        if self.levels is None:
            return _numbers(self.name, cells, subjects)[:, None] - self.means
        unknown = [i for i, cell in enumerate(cells) if cell not in self.levels]
        if unknown:
            found = sorted({cells[i] for i in unknown})
            raise ValueError(
                f"covariate {self.name!r} is {_some(found)} in {_people(unknown, subjects)}; the fit knew only "
                f"{_some(self.levels)}, so nothing is known about how to adjust them: leave them out"
            )
        return _dummies(cells, self.levels) - self.means

    def __str__(self) -> str:
        return self.name if self.levels is None else f"{self.name} ({', '.join(self.levels)})"


def code_terms(
    names: Sequence[str], participants: Mapping[str, Sequence[Any]], subjects: Sequence[str]
) -> tuple[tuple[Term, ...], np.ndarray]:
    """The terms of the fitted subjects and their centred columns; refuses what cannot be told apart."""
    plain = [name.removesuffix(_CATEGORY) for name in names]
    if not plain or len(set(plain)) < len(plain):
        raise ValueError(f"covariates must be names of columns, no two alike; found {', '.join(names) or 'none'}")
    problems, terms, blocks = [], [], []
    for name, column in zip(names, plain, strict=True):
        try:
            values = table_column(column, participants, subjects)
            term = _term(column, values, subjects, name.endswith(_CATEGORY))
            terms.append(term)
            blocks.append(term.columns(values, subjects))
        except ValueError as problem:
            problems.append(str(problem))
    if problems:
        raise ValueError("; ".join(problems))
    Z = np.hstack(blocks)
    if Z.shape[1] + 2 > len(Z):
        raise ValueError(f"covariates make {Z.shape[1]} columns; {len(Z)} subjects leave nothing over: use fewer")
    for i in range(1, len(terms) + 1):
        sofar = np.hstack(blocks[:i])
        if np.linalg.matrix_rank(sofar / np.linalg.norm(sofar, axis=0), tol=1e-8) < sofar.shape[1]:
            before = ", ".join(repr(term.name) for term in terms[: i - 1])
            raise ValueError(
                f"covariate {terms[i - 1].name!r} cannot be told apart from {before} in these subjects: leave one out"
            )
    return tuple(terms), Z


def columns_of(terms: Sequence[Term], participants: Mapping[str, Sequence[Any]], subjects: Sequence[str]) -> np.ndarray:
    """Centred columns of subjects, new or not; whatever is wrong with any covariate is told at once."""
    problems, blocks = [], []
    for term in terms:
        try:
            blocks.append(term.columns(table_column(term.name, participants, subjects), subjects))
        except ValueError as problem:
            problems.append(str(problem))
    if problems:
        raise ValueError("; ".join(problems))
    return np.hstack(blocks)


def _term(name: str, values: Sequence[Any], subjects: Sequence[str], category: bool) -> Term:
    cells = _cells(name, values, subjects)
    levels = None
    if category or name.lower() in CATEGORIES or not any(map(_is_number, cells)):
        levels = tuple(sorted(set(cells)))
    columns = _dummies(cells, levels) if levels else _numbers(name, cells, subjects)[:, None]
    if np.ptp(columns, axis=0).max(initial=0) == 0:
        raise ValueError(f"covariate {name!r} is {cells[0]} in all subjects: leave it out")
    return Term(name, levels, tuple(columns.mean(axis=0).tolist()))


def table_column(name: str, participants: Mapping[str, Sequence[Any]], subjects: Sequence[str]) -> Sequence[Any]:
    """A column of the participants' table, one value per subject."""
    if name not in participants:
        known = ", ".join(repr(str(column)) for column in participants if column != "participant_id") or "none"
        if known == "none":
            raise ValueError(f"covariate {name!r} needs participants=, a table with that column")
        raise ValueError(f"the participants' table has no column {name!r} for a covariate; its columns: {known}")
    values = participants[name]
    if len(values) != len(subjects):
        raise ValueError(f"participants[{name!r}] holds {len(values)} values for {len(subjects)} subjects")
    return values


def _cells(name: str, values: Sequence[Any], subjects: Sequence[str]) -> list[str]:
    """Values as text, numbers written one way; none missing."""
    cells = [_text(value) for value in values]
    missing = [i for i, cell in enumerate(cells) if cell.lower() in _MISSING]
    if missing:
        raise ValueError(f"covariate {name!r} is missing in {_people(missing, subjects)}: fill it in or leave them out")
    return cells


def _text(value: Any) -> str:
    """A cell; 2, 2.0 and "2" are one category, however the table was read."""
    if value is None:
        return ""
    text = str(value).strip()
    if _is_number(text) and float(text).is_integer():
        return str(int(float(text)))
    return text


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _numbers(name: str, cells: Sequence[str], subjects: Sequence[str]) -> np.ndarray:
    wrong = [i for i, cell in enumerate(cells) if not _is_number(cell)]
    if wrong:
        raise ValueError(
            f"covariate {name!r} holds numbers, but {cells[wrong[0]]!r} in {_people(wrong, subjects)}; "
            f"if it is a category, write {name}{_CATEGORY}"
        )
    return np.array([float(cell) for cell in cells])


def _dummies(cells: Sequence[str], levels: Sequence[str]) -> np.ndarray:
    """One 0/1 column per category but the first."""
    return np.array([[float(cell == level) for level in levels[1:]] for cell in cells]).reshape(len(cells), -1)


def _people(numbers: Sequence[int], subjects: Sequence[str]) -> str:
    return f"{'subject' if len(numbers) == 1 else 'subjects'} {_some([subjects[i] for i in numbers])}"


def _some(words: Sequence[str], most: int = 10) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
