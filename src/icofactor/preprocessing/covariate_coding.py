"""What a table says of the subjects → columns of a regression, coded the same way whenever they are needed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.io.tables import cell_text, is_missing, is_number

CATEGORIES = ("sex", "gender", "site", "scanner", "center", "centre", "batch", "group", "study", "cohort")
"""Columns that are categories even where they are coded by numbers."""
_CATEGORY = ":category"


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
            name, levels = literal(repr(self.name)), some(self.levels, 10)
            raise _wrong(
                f"covariate {name} is {some(found, 10)} in {_people(unknown, subjects)}; the fit knew only {levels}: "
                "nothing is known about how to adjust them, leave them out"
            )
        return _dummies(cells, self.levels) - self.means

    def __str__(self) -> str:
        return self.name if self.levels is None else f"{self.name} ({', '.join(self.levels)})"


def code_terms(
    names: Sequence[str], participants: Mapping[str, Any], subjects: Sequence[str]
) -> tuple[tuple[Term, ...], np.ndarray]:
    """The terms of the fitted subjects and their centred columns; refuses what cannot be told apart."""
    plain = [name.removesuffix(_CATEGORY) for name in names]
    if not plain or len(set(plain)) < len(plain):
        raise ArgumentError("covariates", Phrase(", ".join(names) or "none"), "names of columns, no two alike")
    problems, terms, blocks = [], [], []
    for name, column in zip(names, plain, strict=True):
        try:
            values = table_column(column, participants, subjects)
            term = _term(column, values, subjects, name.endswith(_CATEGORY))
            terms.append(term)
            blocks.append(term.columns(values, subjects))
        except ArgumentError as problem:
            problems.append(problem)
    if problems:
        raise _all_of(problems)
    Z = np.hstack(blocks)
    if Z.shape[1] + 2 > len(Z):
        raise _wrong(f"{{covariates}} make {Z.shape[1]} columns; {len(Z)} subjects leave nothing over: use fewer")
    for i in range(1, len(terms) + 1):
        sofar = np.hstack(blocks[:i])
        if np.linalg.matrix_rank(sofar / np.linalg.norm(sofar, axis=0), tol=1e-8) < sofar.shape[1]:
            last, before = literal(repr(terms[i - 1].name)), ", ".join(repr(term.name) for term in terms[: i - 1])
            raise _wrong(
                f"covariate {last} cannot be told apart from {literal(before)} in these subjects: leave one out"
            )
    return tuple(terms), Z


def columns_of(terms: Sequence[Term], participants: Mapping[str, Any], subjects: Sequence[str]) -> np.ndarray:
    """Centred columns of subjects, new or not; whatever is wrong with any covariate is said at once."""
    problems, blocks = [], []
    for term in terms:
        try:
            blocks.append(term.columns(table_column(term.name, participants, subjects), subjects))
        except ArgumentError as problem:
            problems.append(problem)
    if problems:
        raise _all_of(problems)
    return np.hstack(blocks)


def _term(name: str, values: Sequence[Any], subjects: Sequence[str], category: bool) -> Term:
    cells = _cells(name, values, subjects)
    levels = None
    if category or name.lower() in CATEGORIES or not any(map(is_number, cells)):
        levels = tuple(sorted(set(cells)))
    columns = _dummies(cells, levels) if levels else _numbers(name, cells, subjects)[:, None]
    if np.ptp(columns, axis=0).max(initial=0) == 0:
        raise _wrong(f"covariate {literal(repr(name))} is {literal(cells[0])} in all subjects: leave it out")
    return Term(name, levels, tuple(columns.mean(axis=0).tolist()))


def table_column(name: str, participants: Mapping[str, Any], subjects: Sequence[str]) -> Sequence[Any]:
    """A column of the participants' table, one value per subject."""
    if name not in participants:
        known = ", ".join(repr(str(column)) for column in participants if column != "participant_id") or "none"
        if known == "none":
            raise _wrong(f"covariate {literal(repr(name))} needs {{participants}}, a table with that column")
        text = f"the participants' table has no column {name!r} for a covariate; its columns: {known}"
        raise _wrong(literal(text))
    values = participants[name]
    if len(values) != len(subjects):
        text = f"column {name!r} of the participants' table holds {len(values)} values for {len(subjects)} subjects"
        raise _wrong(literal(text))
    return values


def _cells(name: str, values: Sequence[Any], subjects: Sequence[str]) -> list[str]:
    """Values as text, numbers written one way; none missing."""
    cells = [cell_text(value) for value in values]
    missing = [i for i, cell in enumerate(cells) if is_missing(cell)]
    if missing:
        who = _people(missing, subjects)
        raise _wrong(f"covariate {literal(repr(name))} is missing in {who}: fill it in or leave them out")
    return cells


def _numbers(name: str, cells: Sequence[str], subjects: Sequence[str]) -> np.ndarray:
    wrong = [i for i, cell in enumerate(cells) if not is_number(cell)]
    if wrong:
        cell, who = literal(repr(cells[wrong[0]])), _people(wrong, subjects)
        raise _wrong(
            f"covariate {literal(repr(name))} holds numbers, but {cell} in {who}; if it is a category, write "
            f"{literal(name)}{_CATEGORY}"
        )
    return np.array([float(cell) for cell in cells])


def _dummies(cells: Sequence[str], levels: Sequence[str]) -> np.ndarray:
    """One 0/1 column per category but the first."""
    return np.array([[float(cell == level) for level in levels[1:]] for cell in cells]).reshape(len(cells), -1)


def _people(numbers: Sequence[int], subjects: Sequence[str]) -> str:
    return f"{'subject' if len(numbers) == 1 else 'subjects'} {some([subjects[i] for i in numbers], 10)}"


def _wrong(text: str) -> ArgumentError:
    """A covariate cannot be used; the text says which and why."""
    return ArgumentError("covariates", None, text[0].upper() + text[1:])


def _all_of(problems: Sequence[ArgumentError]) -> ArgumentError:
    """What is wrong with several covariates, as one error."""
    return ArgumentError("covariates", None, ". ".join(problem.expected for problem in problems))
