"""Who is in a cohort: the subjects that files tell of, those that participants selects, and those left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from icofactor.cohort.assemble import Files
from icofactor.cohort.names import subject_of
from icofactor.cohort.participants import Participants, bare
from icofactor.cohort.pieces import Piece
from icofactor.cohort.problems import Journal, Problems, some
from icofactor.cohort.trees import Found, Source, Wanted
from icofactor.errors import CohortError

Twice = list[tuple[Path, str]]
"""Files of a subject beyond those it needs, and what is wrong with each."""


@dataclass
class Task:
    """What the steps of one call share."""

    problems: Problems
    journal: Journal
    table: Participants | None
    exclude: tuple[str, ...]
    skip: bool
    subjects: tuple[str, ...] | None
    n_threads: int | None

    def select(
        self, there: Sequence[str], missing: Mapping[str, list[str]], twice: Mapping[str, Twice] | None = None
    ) -> list[tuple[str, str]]:
        """Name in the cohort and name in the files, of the subjects to read, in order.

        Parameters
        ----------
        there : subjects that have files.
        missing : subject → files of it that are missing.
        twice : subject → files of it beyond one for each hemisphere.
        """
        known = list(dict.fromkeys([*there, *missing]))
        out = set(map(bare, self.exclude))
        listed = {bare(name) for name in (*known, *(() if self.table is None else self.table.ids))}
        strangers = [name for name in self.exclude if bare(name) not in listed]
        if strangers:
            self.problems.add("exclude", f"names {some(strangers)}, of whom there are no files")
        if self.table is None:
            chosen = [(name, name) for name in known]
        else:
            match = self.table.match(known)
            chosen = list(match.items())
            absent = [name for name in self.table.ids if name not in match and bare(name) not in out]
            others = sorted(set(known) - set(match.values()))
            if others:
                self.journal.note(f"left out {len(others)} subjects that participants does not select: {some(others)}")
            self._absent(absent, known)
        if out:
            self.journal.note(f"left out {len(out)} subjects by exclude: {some(sorted(self.exclude))}")
        chosen = [(name, found) for name, found in chosen if bare(found) not in out]
        self._lacking({name: [f"missing: {f}" for f in missing[found]] for name, found in chosen if found in missing})
        for _, found in chosen:  # of others it does not matter
            for path, text in (twice or {}).get(found, []):
                self.problems.add(path, text)
        # a subject that lacks a file is an error already; what is wrong with its other files is told as well
        return [(name, found) for name, found in chosen if found not in missing or (found in there and not self.skip)]

    def _absent(self, absent: Sequence[str], known: Sequence[str]) -> None:
        """Subjects of participants without any file: left out, or reported."""
        if absent and self.skip:
            self.journal.note(f"left out {len(absent)} subjects of participants without files: {some(list(absent))}")
        elif absent:
            there = f"; there are files of {some(list(known))}" if known else ""
            self.problems.add(
                "participants",
                f"no file was found of {some(list(absent), 50)}{there}; missing='skip' leaves out those without files",
            )

    def _lacking(self, lacking: Mapping[str, list[str]]) -> None:
        """Subjects without all their files: left out, or reported."""
        if lacking and self.skip:
            self.journal.note(f"left out {len(lacking)} subjects without all their files: {some(list(lacking))}")
        for name, what in {} if self.skip else lacking.items():
            for text in what:
                self.problems.add(f"subject {name}", text)


def grouped(found: Found, wanted: Wanted) -> tuple[dict[str, Files], dict[str, Twice]]:
    """Subject → its files, and what is there twice; a missing hemisphere goes to `found.missing`."""
    groups: dict[str, Files] = {}
    twice: dict[str, Twice] = {}
    for source in found.sources:
        files = groups.setdefault(source.subject, {})
        clash = next((s for s in files if s == source.side or None in (s, source.side)), "")
        if clash == "":
            files[source.side] = source.path
        else:
            twice.setdefault(source.subject, []).append((source.path, _also(source, files[clash])))
    told = {side for files in groups.values() for side in files if side is not None}
    sides = wanted.sides if wanted.hemisphere is not None else sorted(told)
    for subject, files in groups.items():
        if None not in files and subject not in found.missing:
            for side in sides:
                if side not in files:
                    only = next(iter(files.values()))
                    found.missing.setdefault(subject, []).append(f"the {side} hemisphere (there is only {only})")
    ordered = {name: dict(sorted(files.items(), key=lambda item: str(item[0]))) for name, files in groups.items()}
    return ordered, twice


def report_twice(twice: Mapping[str, Twice], problems: Problems) -> None:
    """Where files are no single subjects, all that is there twice."""
    for path, text in (one for several in twice.values() for one in several):
        problems.add(path, text)


def _also(source: Source, other: Path) -> str:
    side = f", {source.side} hemisphere" if source.side else ""
    choose = ", or choose with entities= (ses, task, run, ...)" if source.path.name.startswith("sub-") else ""
    return f"subject {source.subject}{side} is also in {other}; give one file for each{choose}"


def renamed(groups: dict[str, Files], task: Task) -> dict[str, Files]:
    """The subjects under the names the caller gives."""
    if task.subjects is None:
        return groups
    if len(task.subjects) != len(groups):
        text = f"has {len(task.subjects)} names; the files are of {len(groups)} subjects ({some(list(groups))})"
        raise CohortError(f"subjects: {text}")
    if len(set(task.subjects)) < len(groups):
        raise CohortError("subjects: holds a name twice")
    return dict(zip(task.subjects, groups.values(), strict=True))


def map_names(pieces: Sequence[Piece], task: Task, alone: bool) -> list[str]:
    """Subjects of the maps of a file: as given, as the maps are named, as participants lists them, or numbers."""
    n = pieces[0].n_maps
    if alone and task.subjects is not None:
        if len(task.subjects) != n:
            raise CohortError(f"subjects: has {len(task.subjects)} names; {pieces[0].seen.path} holds {n} maps")
        return list(task.subjects)
    for piece in pieces:
        names = [subject_of(Path(name)) or name for name in piece.maps.names]
        if len(set(names)) == n:
            return names
    return numbered(n, str(pieces[0].seen.path), task, alone)


def numbered(n: int, where: str, task: Task, alone: bool = True) -> list[str]:
    """Subjects of maps without names: those that participants lists, if it lists as many, or numbers."""
    if task.table is None or not alone:
        return [f"map{number + 1:04d}" for number in range(n)]
    # a table of all maps, some of which it leaves out; or of the maps that were left when the file was made
    for names in (task.table.listed, task.table.ids):
        if len(names) == n:
            task.journal.note(f"the {n} maps of {where} are the {n} subjects of participants, in that order")
            return list(names)
    left = len(task.table.listed) - len(task.table.ids)
    raise CohortError(
        f"{where}: holds {n} maps without names of subjects; participants lists {len(task.table.listed)}"
        f"{f' and leaves out {left} of them' if left else ''}: list all {n} there in the order of the maps (1 in a "
        "column exclude leaves one out), or pass subjects=, their names"
    )
