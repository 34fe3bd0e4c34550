"""Damaged and hostile files of every kind: refused by name with an error of icofactor's, or read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostile.campaign import run_campaign

pytestmark = [
    pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs the limits of Linux"),
    pytest.mark.hostile,
]

PER_KIND = 7
BOMBS = ("MGZ", "model.zip", "store record", "mask lh.x.annot", "participants.tsv")


def test_damaged_files_of_every_kind(tmp_path: Path) -> None:
    result = run_campaign(tmp_path / "files", PER_KIND, with_bombs=False)
    assert len(result.counts) >= 37
    assert result.total >= 300
    assert not result.bad, result.bad[:5]
    # most damage must be noticed, or the campaign tests nothing
    assert sum(counter["refused"] for counter in result.counts.values()) > result.total / 2


def test_files_made_to_do_harm(tmp_path: Path) -> None:
    result = run_campaign(tmp_path / "files", 0, kinds=lambda kind: kind in BOMBS)
    assert set(result.counts) == set(BOMBS)
    assert not result.bad, result.bad[:5]
    assert result.total > 60
