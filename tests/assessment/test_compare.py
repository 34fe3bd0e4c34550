"""Two fits beside each other: pairs, rotated maps, other meshes, and the files."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.refusals import refused
from helpers.sidecars import undescribed
from icofactor.sphere.standard import fs_lr_sphere


def fitted(mesh: str, k: int = 3, seed: int = 0, rows: Any = slice(None)) -> Any:
    cohort = ico.simulate_cohort(40, 3, hemisphere="left", mesh=mesh, random_state=seed)
    return ico.CorticalFactorization(k, n_starts=4, level=1).fit(cohort[rows])


@pytest.fixture(scope="module")
def first() -> Any:
    return fitted("fsaverage3", rows=slice(20))


def test_a_fit_and_itself_in_another_order(first: Any) -> None:
    """Pairs are found again, and no rotation is as similar; of a model turned far round, some are."""
    twin = copy(first)
    twin.components_ = first.components_[[2, 0, 1]]
    comparison = ico.compare(first, twin, n_spins=39)
    assert comparison.table["component_b"].tolist() == [2, 3, 1]
    np.testing.assert_allclose(comparison.table["similarity"], 1)
    assert (
        comparison.p == pytest.approx(1 / 40)
        and (comparison.table["p"] <= comparison.table["p_corrected"]).all()
    )
    assert comparison.null_mean < 0.9
    again = ico.compare(first, twin, n_spins=39)
    np.testing.assert_array_equal(again.table["null_mean"], comparison.table["null_mean"])
    match = ico.match_components(first, twin)
    np.testing.assert_allclose(comparison.table["similarity"], match.similarity)


def test_rotated_maps_are_not_found_again(first: Any) -> None:
    """p of maps that were rotated themselves are those of chance: over some rotations neither small nor large."""
    from icofactor.sphere.rotations import SiteSpinner

    twin = copy(first)
    p = []
    for seed in range(12):
        sources = SiteSpinner(first.sites_).draw(np.random.default_rng(seed))
        twin.components_ = first.components_[:, sources]
        p.append(ico.compare(first, twin, n_spins=39, random_state=seed).p)
    assert 0.25 < np.mean(p) < 0.75 and min(p) < 0.4


def test_other_numbers_of_components_and_meshes(first: Any) -> None:
    finer = fitted("fsaverage4", k=2, rows=slice(20, 40))
    for a, b in ((first, finer), (finer, first)):
        comparison = ico.compare(a, b, n_spins=9)
        assert len(comparison.table["p"]) == 2 and np.isfinite(comparison.table["null_mean"]).all()
        assert comparison.maps_b.shape[1] == a.sites_.n and "nearest vertex" in comparison.how


def test_fsaverage_against_fs_lr(data_folder: Path) -> None:
    """The same maps on both meshes are the same components, through registered spheres in either direction."""
    from icofactor.preprocessing import Resampler
    from icofactor.preprocessing.templates import find_meshes

    spheres = data_folder / "resample"
    model = fitted("fsaverage4")
    old, new = find_meshes(spheres, "left", ("fsaverage4", "fsLR32k"), areas=False)
    on_fs_lr = copy(model)
    on_fs_lr.sites_ = ico.Sites.from_sphere(*fs_lr_sphere("left"))
    on_fs_lr.components_ = Resampler(old.sphere, new.sphere, "barycentric")(model.components_)[
        [1, 2, 0]
    ]
    with refused("spheres"):
        ico.compare(model, on_fs_lr, n_spins=1)
    for a, b, order in ((model, on_fs_lr, [3, 1, 2]), (on_fs_lr, model, [2, 3, 1])):
        comparison = ico.compare(a, b, n_spins=9, spheres=spheres)
        assert comparison.table["component_b"].tolist() == order
        assert comparison.table["similarity"].min() > 0.98 and "resampled" in comparison.how


def test_what_cannot_be_compared(first: Any) -> None:
    with refused("a"):
        ico.compare(first.components_, first)
    with refused("n_spins"):
        ico.compare(first, first, n_spins=0)
    right = copy(first)
    right.hemi_ = "right"
    with refused("b"):
        ico.compare(first, right, n_spins=1)


def test_files(first: Any, tmp_path: Path) -> None:
    """Table, record and pictures appear together; nothing else in the folder is touched."""
    first.save(tmp_path / "a.zip")
    out = tmp_path / "out"
    words = f"compare {tmp_path}/a.zip {tmp_path}/a.zip -o {out} --spins 9 -q"
    assert run_cli(words) == 0
    names = ["comparison.json", "comparison.pdf", "comparison.png", "comparison.tsv"]
    assert sorted(path.name for path in out.iterdir() if path.name[0] != ".") == names
    header, *rows = (out / "comparison.tsv").read_text().splitlines()
    record = json.loads((out / "comparison.json").read_text())
    assert len(rows) == 3 and set(header.split("\t")) < set(record) and record["n_spins"] == 9
    assert not undescribed(out)
    assert run_cli(words) == 2
    # What the manifest lists is replaced, even if it was changed; other files stay.
    (out / "comparison.tsv").write_text("changed")
    (out / "notes.txt").write_text("mine")
    assert run_cli(words, "--overwrite") == 0
    assert (out / "comparison.tsv").read_text().splitlines() == [header, *rows]
    assert (out / "notes.txt").read_text() == "mine"
    file = tmp_path / "foreign" / "comparison.tsv"
    file.parent.mkdir()
    file.write_text("mine")
    assert run_cli(words.replace(str(out), str(file.parent)), "--overwrite") == 2
    assert file.read_text() == "mine"
