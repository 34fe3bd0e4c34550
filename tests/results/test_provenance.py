"""Provenance: what was done to what, with which versions."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from icofactor import Cohort, CorticalFactorization, __version__, simulate_cohort
from icofactor.cohort.store.create import append_store, save_store
from icofactor.io.tables import write_json
from icofactor.results.provenance import input_hashes, provenance_of, versions


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return simulate_cohort(8, 2, "thickness", "left", 0, mesh="fsaverage3")


def test_all_of_it_can_be_written(cohort: Cohort, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CorticalFactorization(2, n_iter=5, random_state=3).fit(cohort)
    path = write_json(tmp_path / "provenance.json", provenance_of(model, cohort, ["careful"]))
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["seed"] == 3
    assert found["warnings"] == ["careful"]
    assert found["model"]["method"] == "parts"
    assert found["cohort"]["n_subjects"] == 8
    assert found["cohort"]["n_sites_used"] == 642
    assert found["result"]["explained_between_subject_variance"] == model.explained_
    assert found["versions"]["icofactor"] == __version__
    assert found["covariates"] is None
    assert found["data"]["simulated"] is True


def test_versions_are_known() -> None:
    assert {"icofactor", "python", "numpy", "scipy", "scikit-learn", "nibabel", "nilearn"} <= set(
        versions()
    )
    assert all(versions().values())


def test_hashes_of_files_wherever_they_stand(cohort: Cohort, tmp_path: Path) -> None:
    one, two = (hashlib.sha256(name.encode()).hexdigest() for name in "ab")
    files = {
        "files": [{"path": "a.mgh", "sha256": one, "bytes": 3}],
        "participants": {"path": "p.tsv", "sha256": two},
    }
    measured = replace(cohort, provenance=files)
    assert input_hashes(measured) == {"a.mgh": one, "p.tsv": two}
    save_store(measured, tmp_path / "a.zarr")
    more = replace(
        cohort,
        X=np.roll(cohort.X, 1, axis=1),
        subjects=[f"new-{i}" for i in range(8)],
        provenance={"files": [{"path": "b.mgh", "sha256": two}]},
    )
    stored = append_store(tmp_path / "a.zarr", more)
    assert input_hashes(stored) == {"a.mgh": one, "p.tsv": two, "b.mgh": two}


def test_maps_in_memory_are_hashed_themselves(cohort: Cohort) -> None:
    (first,) = input_hashes(cohort).values()
    changed = np.array(cohort.X)
    changed[3, 5] += 1
    (second,) = input_hashes(replace(cohort, X=changed)).values()
    assert len(first) == 64
    assert first != second
