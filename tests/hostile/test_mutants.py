"""Damaged files of every kind: read, or refused with the file's name, in little memory and time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.limits import outcomes_of
from hostile.mutants import mutants
from hostile.specimens import KINDS, STORE, make_specimen

pytestmark = [
    pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs the limits of Linux"),
    pytest.mark.hostile,
]
# A larger number was run once for each kind: 2000.
N_MUTANTS = int(os.environ.get("ICOFACTOR_MUTANTS", "50"))


@pytest.mark.parametrize("kind", [*KINDS, *STORE])
def test_damaged_files_are_read_or_refused_by_name(kind: str, tmp_path: Path) -> None:
    specimen = make_specimen(kind, tmp_path)
    # What is imported now is not imported by every child.
    specimen.read()
    outcomes = Counter()

    def damage(content: bytes) -> Callable[[], object]:
        def read() -> object:
            specimen.file.write_bytes(content)
            return specimen.read()

        return read

    contents = mutants(specimen.file.read_bytes(), N_MUTANTS)
    for verdict, message in outcomes_of(map(damage, contents), tmp_path):
        outcomes[verdict] += 1
        assert verdict in ("read", "refused"), (outcomes.total(), verdict, message)
    # Most damage must be noticed, or this tests nothing.
    assert outcomes["refused"] > N_MUTANTS / 10
