"""Cohorts to be stored, and what a store must hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store import StoredCohort
from icofactor.cohort.store.layout import checksum_of
from icofactor.sphere.sites import Sites

SITES = Sites.named("fsaverage3")
BOTH = Sites.named("fsaverage3", hemi="both")


def cohort(n: int = 5, first: int = 0, sites: Sites = SITES, **changes: Any) -> Cohort:
    """Subjects numbered from `first` on, each with maps of its own."""
    rng = np.random.default_rng([7, first])
    names = [f"sub-{first + i:04d}" for i in range(n)]
    given = {
        "X": rng.random((n, sites.n), dtype=np.float32),
        "subjects": names,
        "sites": sites,
        "mask": np.arange(sites.n) % 5 > 0,
        "hemisphere": "both" if sites.n_roots == 40 else "left",
        "modality": "thickness",
        "units": "mm",
        "participants": {"participant_id": np.array(names), "age": rng.random(n) * 60},
        "provenance": {"files": [f"{name}.mgh" for name in names], "measure": "thickness"},
    }
    return Cohort(**{**given, **changes})


def check_same(stored: StoredCohort, *cohorts: Cohort) -> None:
    """A store against the cohorts it was made of."""
    expected = cohorts[0]
    X = np.concatenate([cohort.X for cohort in cohorts])
    np.testing.assert_array_equal(np.asarray(stored.X), X)
    assert stored.subjects == tuple(name for cohort in cohorts for name in cohort.subjects)
    sites = ("coordinates", "hemisphere", "triangles", "position", "deepest", "frames")
    for name in (*sites, "on", "level", "name", "n_mesh"):
        np.testing.assert_array_equal(getattr(stored.sites, name), getattr(expected.sites, name))
    for name in ("mask", "hemisphere", "modality", "units"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(expected, name))
    assert list(stored.participants) == list(expected.participants)
    for name, column in stored.participants.items():
        values = np.concatenate([np.asarray(cohort.participants[name]) for cohort in cohorts])
        assert column.dtype == values.dtype
        np.testing.assert_array_equal(column, values)
    stored.verify()


def edit(path: Path, change: Callable[[Any, Any], Any], seal: bool = True) -> None:
    """Change attributes and metadata in zarr.json, with or without the right checksum."""
    mark = json.loads((path / "zarr.json").read_text())
    checksum = mark["attributes"].pop("checksum")
    change(mark["attributes"], mark["consolidated_metadata"]["metadata"])
    mark["attributes"]["checksum"] = checksum_of(mark) if seal else checksum
    (path / "zarr.json").write_text(json.dumps(mark))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
