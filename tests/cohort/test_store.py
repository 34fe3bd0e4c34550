from __future__ import annotations

import errno
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.stores import BOTH, SITES, check_same, cohort, contents
from icofactor.cohort.simulate import simulate_cohort
from icofactor.cohort.store import arrays
from icofactor.cohort.store import read as store_read
from icofactor.cohort.store.create import append_store, compact_store, create_store, save_store
from icofactor.cohort.store.layout import is_store, locked
from icofactor.cohort.store.read import StoredCohort, open_store
from icofactor.errors import CohortError
from icofactor.sphere.sites import Sites


@pytest.mark.parametrize("sites", [SITES, BOTH, Sites.named("fsaverage3", on="faces")])
@pytest.mark.parametrize("mask", [True, False])
def test_what_is_stored_is_read_back(tmp_path: Path, sites: Sites, mask: bool) -> None:
    data = cohort(5, sites=sites) if mask else cohort(5, sites=sites, mask=None)
    stored = save_store(data, tmp_path / "a.zarr")
    check_same(stored, data)
    check_same(open_store(tmp_path / "a.zarr"), data)
    assert len(stored) == 5
    assert stored.truth is None
    assert stored.provenance["measure"] == "thickness"
    kind = repr(data).rpartition("; ")[2].rstrip(")")  # thickness in mm, left hemisphere
    assert "5 subjects" in repr(stored) and f"; {kind}; {stored.path})" in repr(stored)
    assert is_store(tmp_path / "a.zarr")
    assert not is_store(tmp_path)


def test_points_without_a_mesh(tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((300, 3))
    sites = Sites.from_sphere(points / np.linalg.norm(points, axis=1, keepdims=True))
    data = cohort(3, sites=sites)
    stored = save_store(data, tmp_path / "a.zarr")
    assert stored.sites.triangles is None
    np.testing.assert_array_equal(np.asarray(stored.X), data.X)


@pytest.mark.slow
def test_several_chunks_appends_and_compaction(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    blocks = [cohort(7, 0, BOTH), cohort(1, 7, BOTH), cohort(13, 8, BOTH)]
    stored = create_store(path, iter(blocks), chunk_sites=100, chunk_subjects=4)
    assert stored.chunk_sites == 100
    check_same(stored, *blocks)
    more = [cohort(3, 21, BOTH), cohort(2, 24, BOTH)]
    appended = append_store(path, iter(more))
    check_same(appended, *blocks, *more)
    check_same(stored, *blocks)  # an open one is of its commit
    again = append_store(path, cohort(1, 26, BOTH))
    assert again.generation == 3
    compact = compact_store(path)
    check_same(compact, *blocks, *more, cohort(1, 26, BOTH))
    assert len([place for place in path.iterdir() if place.name.startswith("part-")]) == 1
    assert [step["step"] for step in compact.provenance["steps"]] == [
        "create",
        "append",
        "append",
        "compact",
    ]
    assert [step["n_subjects"] for step in compact.provenance["steps"]] == [21, 5, 1, 27]
    files = [
        name
        for step in compact.provenance["steps"]
        for one in step["inputs"]
        for name in one["files"]
    ]
    assert files == [f"{name}.mgh" for name in compact.subjects]
    assert compact_store(path).generation == compact.generation  # nothing to do


@pytest.fixture(scope="module")
def lazy(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredCohort, np.ndarray]:
    path = tmp_path_factory.mktemp("lazy") / "a.zarr"
    blocks = [cohort(6, 0), cohort(3, 6)]
    create_store(path, blocks[:1], chunk_sites=200, chunk_subjects=4)
    return append_store(path, blocks[1]), np.concatenate([each.X for each in blocks])


def keys(n: int) -> st.SearchStrategy[Any]:
    number = st.integers(-n, n - 1)
    return st.one_of(
        number,
        st.slices(n),
        st.lists(number, max_size=5).map(lambda chosen: np.array(chosen, dtype=int)),
        st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=keys(9), columns=keys(642))
def test_maps_are_indexed_like_an_array(
    lazy: tuple[StoredCohort, np.ndarray], rows: Any, columns: Any
) -> None:
    stored, X = lazy
    np.testing.assert_array_equal(stored.X[rows, columns], X[rows][..., columns])
    np.testing.assert_array_equal(stored.X[rows], X[rows])


def test_maps_and_their_limits(lazy: tuple[StoredCohort, np.ndarray]) -> None:
    stored, X = lazy
    assert (stored.X.shape, stored.X.dtype, len(stored.X), stored.X.ndim) == (
        (9, 642),
        np.float32,
        9,
        2,
    )
    np.testing.assert_array_equal(np.asarray(stored.X, dtype=np.float64), X.astype(np.float64))
    np.testing.assert_array_equal(stored.read_sites(slice(150, 450)), X.T[stored.order[150:450]])
    assert stored.read_sites(slice(9, 3)).shape == (0, 9)
    for key in (9, -10, ([0, 9], 0), (0, 642), ("a", 0), (np.ones(3, dtype=bool), 0)):
        with pytest.raises(IndexError):
            stored.X[key]
    with pytest.raises(ValueError, match="consecutive"):
        stored.read_sites(slice(0, 9, 2))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(stored.X, copy=False)


def test_bytes_are_counted_in_whole_chunks(tmp_path: Path) -> None:
    stored = create_store(tmp_path / "a.zarr", [cohort(8)], chunk_sites=100, chunk_subjects=4)
    assert stored.bytes_read == 0
    stored.read_sites(slice(0, 100))
    assert stored.bytes_read == 2 * (100 * 4 * 4 + 4)
    stored.X[0, stored.order[:3]]
    assert stored.bytes_read == 3 * (100 * 4 * 4 + 4)
    for where in stored.site_blocks():
        stored.read_sites(where)
    assert stored.bytes_read == (3 + 14) * (100 * 4 * 4 + 4)


@pytest.mark.parametrize("most", [1, 3])
def test_few_files_may_be_open(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading ahead takes as many as there may be."""
    whole, opened, kept = simulate_cohort(9, 3, mesh="fsaverage3"), arrays._opened, list[Any]()
    stored = create_store(tmp_path / "a", [whole], chunk_sites=100, chunk_subjects=2)

    def few(file: Any) -> Any:
        kept[:] = [one for one in kept if not one.closed]
        if len(kept) == most:
            raise OSError(errno.EMFILE, "Too many open files")
        kept.append(opened(file))
        return kept[-1]

    monkeypatch.setattr(arrays, "_opened", few)
    np.testing.assert_array_equal(np.asarray(stored.X), whole.X)
    assert all(one.closed for one in kept)
    most = 0
    with pytest.raises(CohortError, match="Too many open files"):
        np.asarray(stored.X)


def test_a_store_goes_to_another_process(tmp_path: Path) -> None:
    stored = save_store(cohort(), tmp_path / "a.zarr")
    kept = pickle.dumps(stored)
    check_same(pickle.loads(kept), cohort())
    append_store(tmp_path / "a.zarr", cohort(1, 5))
    with pytest.raises(CohortError, match="changed in the meantime"):
        pickle.loads(kept)


def test_columns_of_participants_keep_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    columns = {
        "whole": np.array([1, 2]),
        "single": np.array([0.1, np.nan], dtype=np.float32),
        "yes": [True, False],
        "text": ["a", None],
        "mixed": [3, None],
        "nothing": [None, None],
        "gaps": ["a", float("nan")],
    }
    stored = save_store(cohort(2, participants=columns), path)
    np.testing.assert_array_equal(stored.participants["whole"], [1, 2])
    assert stored.participants["whole"].dtype.kind == "i"
    np.testing.assert_array_equal(stored.participants["single"], columns["single"])
    assert stored.participants["yes"].tolist() == [True, False]
    assert stored.participants["text"].tolist() == ["a", None]
    assert stored.participants["gaps"].tolist() == ["a", None]
    np.testing.assert_array_equal(stored.participants["mixed"], [3, np.nan])
    np.testing.assert_array_equal(stored.participants["nothing"], [np.nan, np.nan])
    new = {**columns, "whole": [1.5, 2], "nothing": ["x", "y"], "text": [None, None]}
    both = append_store(path, cohort(2, 2, participants=new)).participants
    np.testing.assert_array_equal(both["whole"], [1, 2, 1.5, 2])
    assert both["nothing"].tolist() == [None, None, "x", "y"]
    assert both["text"].tolist() == ["a", None, None, None]
    with pytest.raises(
        CohortError, match=r"^participants: column 'text' contains text .* and numbers"
    ):
        append_store(path, cohort(2, 4, participants={**new, "text": [1, 2]}))
    with pytest.raises(
        ValueError, match="finite or missing in every column; found inf in 'single'"
    ):
        save_store(cohort(2, participants={"single": [1, np.inf]}), tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()


def test_simulated_subjects_make_a_simulated_store(tmp_path: Path) -> None:
    made = simulate_cohort(4, 2, hemisphere="left", mesh="fsaverage3")
    assert save_store(made, tmp_path / "a.zarr").simulated
    assert not save_store(cohort(), tmp_path / "b.zarr").simulated
    both = append_store(tmp_path / "b.zarr", cohort(1, 5, provenance={"simulated": True}))
    assert both.simulated
    assert "measure" not in both.provenance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": "cm"}, "units of the store is 'mm', here 'cm'"),
        ({"modality": "myelin"}, "modality of the store is 'thickness', here 'myelin'"),
        ({"hemisphere": "right"}, "hemisphere of the store is 'left', here 'right'"),
        ({"mask": None}, "its mask differs at 129 sites"),
        (
            {"participants": {"sex": list("fmfmf")}},
            r"participants lack the columns \['age', 'participant_id'\]; the",
        ),
        ({"subjects": ["sub-0003", "b", "c", "d", "e"]}, "it already has these subjects: sub-0003"),
        ({"sites": Sites.named("fsaverage3-B")}, "or the same sites in another order"),
    ],
)
def test_what_cannot_be_appended(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "a.zarr"
    save_store(cohort(), path)
    before = contents(path)
    with pytest.raises(CohortError, match=message):
        append_store(path, replace(cohort(5, 5), **changes))
    # also when the fault comes after subjects that are good
    with pytest.raises(CohortError, match=message):
        append_store(path, iter([cohort(300, 100), replace(cohort(5, 5), **changes)]))
    assert contents(path) == before
    with pytest.raises(CohortError, match=message):
        create_store(tmp_path / "b.zarr", [cohort(), replace(cohort(5, 5), **changes)])
    assert not (tmp_path / "b.zarr").exists()


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    save_store(cohort(), path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save_store(cohort(2, 9), path)
    check_same(open_store(path), cohort())
    check_same(save_store(cohort(2, 9, BOTH), path, overwrite=True), cohort(2, 9, BOTH))
    assert sorted(place.name[:5] for place in path.iterdir()) == [
        "commi",
        "mesh-",
        "part-",
        "zarr.",
    ]
    for place in (tmp_path / "file", tmp_path / "folder" / "mine.txt"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("mine")
    with pytest.raises(NotADirectoryError, match="is a file"):
        save_store(cohort(), tmp_path / "file", overwrite=True)
    with pytest.raises(FileExistsError, match="not a cohort store"):
        save_store(cohort(), tmp_path / "folder", overwrite=True)
    (tmp_path / "empty").mkdir()
    check_same(save_store(cohort(), tmp_path / "empty"), cohort())
    with pytest.raises(CohortError, match="no subject"):
        create_store(tmp_path / "none", [])
    with pytest.raises(ValueError, match="at least 1"):
        create_store(tmp_path / "none", [cohort()], chunk_sites=0)
    assert not (tmp_path / "none").exists()


def test_a_store_may_be_written_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    create_store(path, [cohort(9)], chunk_subjects=2)
    check_same(save_store(open_store(path), path, overwrite=True), cohort(9))


@pytest.mark.skipif(os.name == "nt", reason="folders are locked on POSIX only")
def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    save_store(cohort(), path)
    with locked(path), pytest.raises(CohortError, match="another process is writing"):
        append_store(path, cohort(1, 5))
    append_store(path, cohort(1, 5))


def test_a_cohort_replaced_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zarr"
    save_store(cohort(), path)
    mesh_arrays, opened = store_read.read_mesh, []

    def replaced(folder: Path, commit: Any) -> dict[str, Any]:
        opened.append(folder)
        if len(opened) == 1:
            monkeypatch.setattr(store_read, "read_mesh", mesh_arrays)
            save_store(cohort(3, 50), path, overwrite=True)
        return mesh_arrays(folder, commit)

    monkeypatch.setattr(store_read, "read_mesh", replaced)
    check_same(open_store(path), cohort(3, 50))
    assert len(opened) == 1
