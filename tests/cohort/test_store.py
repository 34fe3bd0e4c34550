"""Cohort stores: what is written is read back; appended, removed, and compared."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from helpers.stores import BOTH, SITES, check_same, cohort, contents
from icofactor.cli.main import main
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store import (
    StoredCohort,
    add_columns,
    append_store,
    create_store,
    is_store,
    open_store,
    remove_subjects,
    save_store,
)
from icofactor.errors import ArgumentError, CohortError, ExistsError
from icofactor.sphere.sites import Sites


def points() -> Sites:
    x = np.random.default_rng(0).standard_normal((300, 3))
    return Sites.from_sphere(x / np.linalg.norm(x, axis=1, keepdims=True))


@pytest.mark.parametrize("sites", [SITES, BOTH, Sites.named("fsaverage3", on="faces"), points()])
@pytest.mark.parametrize("mask", [True, False])
def test_what_is_stored_is_read_back(tmp_path: Path, sites: Sites, mask: bool) -> None:
    data = cohort(5, sites=sites) if mask else cohort(5, sites=sites, mask=None)
    check_same(save_store(data, tmp_path / "a"), data)
    stored = open_store(tmp_path / "a")
    check_same(stored, data)
    assert (len(stored), stored.truth, stored.simulated) == (5, None, False)
    assert stored.provenance["measure"] == "thickness"
    assert is_store(tmp_path / "a") and not is_store(tmp_path)


def test_appends_fill_the_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a"
    blocks = [cohort(7, 0, BOTH), cohort(14, 7, BOTH)]
    stored = create_store(path, iter(blocks), chunk_sites=100, chunk_subjects=4)
    for batch in ([cohort(3, 21, BOTH), cohort(2, 24, BOTH)], [cohort(1, 26, BOTH)]):
        blocks += batch
        check_same(append_store(path, iter(batch)), *blocks)
    check_same(stored, *blocks[:2])  # an open one is of its commit
    steps = open_store(path).commit["steps"]
    assert [step["n_subjects"] for step in steps] == [21, 5, 1]
    files = [name for step in steps for source in step["inputs"] for name in source["files"]]
    assert files == [f"{name}.mgh" for name in open_store(path).subjects]
    # 27 subjects in 7 columns of chunks, 1284 sites in 13 rows.
    assert len(list(path.glob("cohort-*/maps/c/*/*"))) == 7 * 13


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_zarr_alone_reads_a_store(tmp_path: Path, dtype: str) -> None:
    data = cohort(6, sites=BOTH)
    save_store(data[:4], tmp_path / "a", dtype=dtype)
    append_store(tmp_path / "a", data[4:])
    root = zarr.open_group(tmp_path / "a", mode="r")
    group = root[root.attrs["content"]]
    maps = np.empty((data.sites.n, len(data)), dtype)
    maps[group["sites/order"][:]] = group["maps"][:]
    np.testing.assert_array_equal(maps, data.X.T.astype(dtype))
    in_use = maps[group["sites/mask"][:]].astype(np.float64)
    median = np.median(in_use, axis=0)
    np.testing.assert_allclose(group["statistics"][:, 0], median)
    np.testing.assert_allclose(group["statistics"][:, 1], np.median(abs(in_use - median), axis=0))
    assert tuple(root.attrs["subjects"]) == data.subjects


@pytest.fixture(scope="module")
def lazy(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredCohort, np.ndarray]:
    path = tmp_path_factory.mktemp("lazy") / "a"
    create_store(path, [cohort(6)], chunk_sites=200, chunk_subjects=4)
    return append_store(path, cohort(3, 6)), np.concatenate([cohort(6).X, cohort(3, 6).X])


def test_blocks_follow_the_chunks(lazy: Any) -> None:
    stored, X = lazy
    blocks = stored.X.blocks()
    assert {stored.X.sites[block].min() % 200 for block in blocks} == {0}
    assert sorted(np.concatenate(blocks)) == list(range(X.shape[1]))
    for block in blocks:
        np.testing.assert_array_equal(stored.X.read_source(block), X.T[block])


def test_a_store_goes_to_another_process(tmp_path: Path) -> None:
    stored = save_store(cohort(), tmp_path / "a")
    check_same(pickle.loads(pickle.dumps(stored)), cohort())
    pickled = pickle.dumps(stored.X.values)
    assert len(pickled) < 2500
    append_store(tmp_path / "a", cohort(1, 5))
    maps = pickle.loads(pickled)[:, :]  # those of its commit
    np.testing.assert_array_equal(maps[stored.X.sites], cohort().X.T)
    save_store(cohort(3), tmp_path / "a", overwrite=True)
    with pytest.raises(CohortError):
        pickle.loads(pickled)[:, :]


def test_subjects_are_chosen_as_in_memory(lazy: Any) -> None:
    stored, X = lazy
    is_old = stored.participants["age"] > 30
    for subjects in ([3, 0], is_old, list(stored.subjects[2:4]), slice(1, 7, 2)):
        chosen = stored[subjects]
        rows = [stored.subjects.index(name) for name in chosen.subjects]
        np.testing.assert_array_equal(np.asarray(chosen.X), X[rows])
        np.testing.assert_array_equal(chosen.participants["age"], stored.participants["age"][rows])
        np.testing.assert_array_equal(chosen.X[-1, 5:9], X[rows][-1, 5:9])


COLUMNS: dict[str, Any] = {
    "whole": np.array([1, 2]),
    "single": np.array([0.1, np.nan], dtype=np.float32),
    "yes": [True, False],
    "text": ["a", None],
    "mixed": [3, None],
    "nothing": [None, None],
    "gaps": ["a", float("nan")],
}


def test_columns_of_participants_keep_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "a"
    table = save_store(cohort(2, participants=COLUMNS), path).participants
    assert table["whole"].dtype.kind == "i" and table["yes"].tolist() == [True, False]
    np.testing.assert_array_equal(table["single"], COLUMNS["single"])
    assert table["text"].tolist() == table["gaps"].tolist() == ["a", None]
    np.testing.assert_array_equal(table["mixed"], [3, np.nan])
    np.testing.assert_array_equal(table["nothing"], [np.nan, np.nan])
    new = {**COLUMNS, "whole": [1.5, 2], "nothing": ["x", "y"], "text": [None, None]}
    table = append_store(path, cohort(2, 2, participants=new)).participants
    np.testing.assert_array_equal(table["whole"], [1, 2, 1.5, 2])
    assert table["nothing"].tolist() == [None, None, "x", "y"]
    assert table["text"].tolist() == ["a", None, None, None]
    with pytest.raises(CohortError) as refusal:
        append_store(path, cohort(2, 4, participants={**new, "text": [1, 2]}))
    assert refusal.value.path == "participants"


def test_one_simulated_input_makes_a_store_simulated(tmp_path: Path) -> None:
    save_store(cohort(), tmp_path / "a")
    stored = append_store(tmp_path / "a", cohort(1, 5, provenance={"simulated": True}))
    assert stored.simulated and "measure" not in stored.provenance


def slightly_changed(maps: np.ndarray) -> np.ndarray:
    return maps * (1 + 1e-6 * np.random.default_rng(0).standard_normal(maps.shape))


UNLIKE: dict[str, dict[str, Any]] = {
    "units": {"units": "cm"},
    "measure": {"modality": "myelin"},
    "hemisphere": {"hemisphere": "right"},
    "mask": {"mask": None},
    "columns": {"participants": {"sex": list("fmfmf")}},
    "a name again": {"subjects": ["sub-0003", "b", "c", "d", "e"]},
    "sites in another order": {"sites": Sites.named("fsaverage3-B")},
    "µm": {"X": cohort(5, 5).X * 1000},
    "a third of the values": {"X": cohort(5, 5).X / 3.5},
    "negative values": {"X": -cohort(5, 5).X},
    "maps again": {"X": cohort().X[[0, 1, 4, 3, 2]]},
    "one map again": {"X": np.concatenate([cohort(4, 5).X, cohort().X[2:3]])},
    "maps again, 1e-6 apart": {"X": slightly_changed(cohort().X)},
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("change", UNLIKE)
def test_what_cannot_be_appended(tmp_path: Path, change: str, dtype: str) -> None:
    path = tmp_path / "a"
    # Seven columns: the new subjects begin in a file that has earlier ones.
    create_store(path, [cohort()], chunk_subjects=3, dtype=dtype)
    before = contents(path)
    unlike = replace(cohort(5, 5), **UNLIKE[change])
    # The fault may also come after subjects that are good.
    for batches in ([unlike], [cohort(20, 100), unlike]):
        if change in ("µm", "a third of the values", "negative values") and len(batches) > 1:
            continue
        with pytest.raises(CohortError) as refusal:
            append_store(path, iter(batches))
        assert refusal.value.path == str(path)
        assert contents(path) == before
    check_same(append_store(path, cohort(5, 5)), *as_stored(dtype, cohort(), cohort(5, 5)))


def as_stored(dtype: str, *cohorts: Cohort) -> list[Cohort]:
    return [replace(each, X=each.X.astype(dtype)) for each in cohorts]


def test_maps_around_zero_are_compared_by_their_spread(tmp_path: Path) -> None:
    centred = replace(cohort(20), X=cohort(20).X - 0.5)
    save_store(centred[:10], tmp_path / "a")
    append_store(tmp_path / "a", centred[10:])
    with pytest.raises(CohortError):
        append_store(tmp_path / "a", replace(cohort(5, 20), X=10 * cohort(5, 20).X - 5))


def test_several_cohorts_of_a_new_store_are_alike(tmp_path: Path) -> None:
    with pytest.raises(CohortError):
        create_store(tmp_path / "b", [cohort(), cohort(5, 5, units="cm")])
    with pytest.raises(CohortError):
        create_store(tmp_path / "b", [])
    for argument, value in (("chunk_sites", 0), ("chunk_subjects", 0), ("dtype", "int16")):
        with pytest.raises(ArgumentError) as refusal:
            create_store(tmp_path / "b", [cohort()], **{argument: value})
        assert refusal.value.argument == argument
    assert not (tmp_path / "b").exists()


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_store(cohort(), path)
    with pytest.raises(FileExistsError):
        save_store(cohort(2, 9), path)
    check_same(open_store(path), cohort())
    check_same(save_store(cohort(2, 9, BOTH), path, overwrite=True), cohort(2, 9, BOTH))
    assert sorted(place.name for place in path.iterdir()) == ["cohort-000002", "zarr.json"]
    for file in (tmp_path / "file", tmp_path / "folder" / "mine.txt"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    with pytest.raises(FileExistsError):
        save_store(cohort(), tmp_path / "file", overwrite=True)
    with pytest.raises(FileExistsError):
        save_store(cohort(), tmp_path / "folder", overwrite=True)
    (tmp_path / "empty").mkdir()
    check_same(save_store(cohort(), tmp_path / "empty"), cohort())


def test_a_store_may_be_written_over_itself(tmp_path: Path) -> None:
    create_store(tmp_path / "a", [cohort(9)], chunk_subjects=2)
    stored = open_store(tmp_path / "a")
    check_same(save_store(stored, tmp_path / "a", overwrite=True), cohort(9))
    with pytest.raises(CohortError):  # its files are gone
        np.asarray(stored.X)


# ---------------------------------------------------------------------- subjects and columns


def bytes_of_maps(path: Path, maps: np.ndarray) -> list[bool]:
    """Whether any file of a store has the values of each map at its first rows."""
    content = b"".join(contents(path).values())
    first_rows = np.argsort(open_store(path).X.sites)[:8]
    return [values[first_rows].tobytes() in content for values in maps]


def test_removed_subjects_are_gone_from_the_disk(tmp_path: Path) -> None:
    path, data = tmp_path / "a", cohort(9)
    create_store(path, [data], chunk_subjects=1)
    assert all(bytes_of_maps(path, data.X))
    stored = remove_subjects(path, ["sub-0002", "sub-0008"])
    remaining = [0, 1, 3, 4, 5, 6, 7]
    np.testing.assert_array_equal(np.asarray(stored.X), data.X[remaining])
    assert stored.subjects == data[remaining].subjects
    np.testing.assert_array_equal(stored.participants["age"], data[remaining].participants["age"])
    stored.verify()
    assert bytes_of_maps(path, data.X) == [row in remaining for row in range(9)]
    assert not any(b"sub-0002" in content for content in contents(path).values())
    assert len(append_store(path, cohort(2, 20))) == 9
    before = contents(path)
    for subjects in (["nobody"], ("sub-0000", "x"), [], open_store(path).subjects):
        with pytest.raises((ArgumentError, CohortError)):
            remove_subjects(path, subjects)
    assert contents(path) == before


def test_columns_are_added_by_participant_id(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_store(cohort(3), path)
    table = {"participant_id": ["sub-0002", "sub-0000", "other", "sub-0001"], "iq": [3, 1, 9, 2]}
    assert add_columns(path, table).participants["iq"].tolist() == [1, 2, 3]
    check_columns = ["participant_id", "age", "iq"]
    assert list(open_store(path).participants) == check_columns
    np.testing.assert_array_equal(np.asarray(open_store(path).X), cohort(3).X)
    for wrong, error in (
        (table, ExistsError),
        ({"participant_id": ["sub-0000"], "x": [1]}, CohortError),
        ({"participant_id": ["sub-0000"]}, ArgumentError),
    ):
        with pytest.raises(error):
            add_columns(path, wrong)
    table["iq"] = [30, 10, 90, 20]
    assert add_columns(path, table, overwrite=True).participants["iq"].tolist() == [10, 20, 30]


def test_commands_change_a_store(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    save_store(cohort(2), path)
    (tmp_path / "p.tsv").write_text("participant_id\tscore\nsub-0000\t7\nsub-0001\t8\n")
    assert main(["prepare", path, "--add-columns", str(tmp_path / "p.tsv")]) == 0
    assert main(["prepare", path, "--remove", "sub-0001"]) == 0
    for wrong in (["--remove", "nobody"], ["--remove", "sub-0000", "-o", path], []):
        assert main(["prepare", path, *wrong]) == 2
    stored = open_store(path)
    assert stored.subjects == ("sub-0000",) and stored.participants["score"].tolist() == [7]


# ---------------------------------------------------------------------- float16


def test_float16_keeps_three_digits_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    X = cohort(9).X.copy()
    X[0, 5:10:5], X[2] = np.nan, 7.25  # sites 5 and 10 are not in use
    data = replace(cohort(9), X=X)
    stored = create_store(tmp_path / "a", [data[:3], data[3:]], dtype="float16", chunk_subjects=4)
    np.testing.assert_array_equal(np.asarray(stored.X), X.astype(np.float16))
    again = save_store(stored, tmp_path / "b")
    assert again.X.values.dtype == np.float32 and again.provenance["stored_dtype"] == "float16"
    X[5, 6] = 70000
    with pytest.raises(CohortError) as refusal:
        save_store(replace(data, X=X), tmp_path / "c", dtype="float16")
    assert refusal.value.path == str(tmp_path / "c") and not (tmp_path / "c").exists()


def test_coarse_rounding_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="float16 is coarse"):
        save_store(replace(cohort(), X=cohort().X + 1000), tmp_path / "a", dtype="float16")


def test_prepare_writes_and_appends(tmp_path: Path) -> None:
    first, second, small = (str(tmp_path / name) for name in ("first", "second", "small"))
    save_store(cohort(3), first)
    save_store(cohort(2, 3), second)
    assert main(["prepare", first, "-o", small, "--dtype", "float16", "-q"]) == 0
    append = ["prepare", second, "-o", small, "--append", "-q"]
    assert main([*append, "--dry-run"]) == 0
    assert main(append) == 0
    before = contents(Path(small))
    for wrong in (append, [*append, "--overwrite"], [*append, "--dtype", "float16"],
                  ["prepare", small, "-o", small, "--overwrite"]):  # fmt: skip
        assert main(wrong) == 2
    assert contents(Path(small)) == before
    stored = open_store(small)
    assert stored.subjects == cohort().subjects and stored.X.values.dtype == np.float16


def test_other_preprocessing_is_refused_where_both_say_it(tmp_path: Path) -> None:
    def smoothed(width: float | None, first: int) -> Cohort:
        steps = [] if width is None else [{"step": "smooth", "fwhm_mm": width, "seconds": first}]
        return cohort(2, first, provenance={"preprocessing": steps})

    save_store(smoothed(10, 0), tmp_path / "a")
    append_store(tmp_path / "a", smoothed(10, 2))
    append_store(tmp_path / "a", cohort(2, 4))  # it does not say
    for width in (5, None):
        with pytest.raises(CohortError):
            append_store(tmp_path / "a", smoothed(width, 6))
    assert len(open_store(tmp_path / "a")) == 6
