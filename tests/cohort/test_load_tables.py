"""Tables of regions: as the tools of the field write them, and each wrong version of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import icofactor as ico
from helpers.refusals import refused
from helpers.region_tables import (
    NAMES,
    N,
    aparcstats2table,
    enigma,
    people,
    toy_labels,
    toy_values,
    write_rows,
    write_toy_atlas,
    xcp_d,
)
from icofactor import load_cohort
from icofactor.errors import CohortError
from icofactor.io.cifti import write_pscalar
from icofactor.io.freesurfer import write_annot
from icofactor.results.colours import distinct_colours
from icofactor.sphere.sites import Sites

X = toy_values()


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_toy_atlas(tmp_path_factory.mktemp("atlas"))


def notes(cohort: ico.Cohort) -> str:
    return "\n".join(cohort.provenance["steps"])


@pytest.mark.parametrize("make", [aparcstats2table, enigma, xcp_d])
def test_layouts(make: Callable[..., list[Path]], atlas: tuple[Path, Path], tmp_path: Path) -> None:
    make(tmp_path / "in", X)
    cohort = load_cohort(tmp_path / "in", parcels=atlas)
    assert_allclose(cohort.X, X, rtol=1e-6)
    assert cohort.subjects == tuple(people()) and cohort.hemisphere == "both"
    assert cohort.sites.regions.names == tuple(
        f"{side}_{name}" for side in ("lh", "rh") for name in NAMES
    )
    assert cohort.modality == ("reho" if make is xcp_d else "thickness")
    assert all(one["sha256"] for one in cohort.provenance["inputs"])
    if make is not xcp_d:
        assert ("eTIV" if make is aparcstats2table else "ICV") in notes(cohort)
    left = load_cohort(tmp_path / "in", parcels=atlas, hemisphere="left")
    assert_allclose(left.X, X[:, : len(NAMES)], rtol=1e-6)
    free = load_cohort(tmp_path / "in", **({"entities": {"atlas": "Toy"}} if make is xcp_d else {}))
    assert_allclose(free.X, X, rtol=1e-6)
    assert not free.sites.placed and "positions unknown" in notes(free)


def test_pscalar_brings_its_atlas(tmp_path: Path) -> None:
    labels = np.zeros(64984, dtype=int)
    labels[:300], labels[32492:32800] = 1 + np.arange(300) // 100, 4 + np.arange(308) // 154
    names = ["L_a", "L_b", "L_c", "R_a", "R_b"]
    sites = Sites.parcels((labels, "fsLR32k"), names)
    values = toy_values()[:, :5]
    for who, row in zip(people(), values, strict=True):
        write_pscalar(
            tmp_path / f"{who}.thickness.pscalar.nii", row[None], sites.regions, ["thickness"]
        )
    cohort = load_cohort(tmp_path)
    assert_allclose(cohort.X, values, rtol=1e-6)
    assert cohort.subjects == tuple(people())
    assert cohort.sites.regions.names == tuple(names) and cohort.sites.regions.mesh == "fsLR32k"
    assert_array_equal(cohort.sites.regions.labels, sites.regions.labels)
    (tmp_path / "many").mkdir()
    write_pscalar(tmp_path / "many" / "all.pscalar.nii", values, sites.regions, people())
    many = load_cohort(tmp_path / "many" / "all.pscalar.nii")
    assert_allclose(many.X, values, rtol=1e-6)
    assert many.subjects == tuple(people())


def test_arrays_and_data_frames(atlas: tuple[Path, Path], tmp_path: Path) -> None:
    names = [f"{side}_{name}_thickavg" for name in NAMES for side in "LR"]  # left and right in turn
    frame = pd.DataFrame(X, columns=names, index=people())
    cohort = load_cohort(frame, parcels=atlas)
    assert cohort.subjects == tuple(people())
    assert_allclose(cohort.X, np.hstack([X[:, ::2], X[:, 1::2]]), rtol=1e-6)
    np.savez(tmp_path / "a.npz", thickness=X, regions=names, subjects=people())
    held = load_cohort(tmp_path / "a.npz", parcels=atlas)
    assert_array_equal(held.X, cohort.X)
    np.save(tmp_path / "plain.npy", X)
    plain = load_cohort(tmp_path / "plain.npy", parcels=atlas)
    assert_allclose(plain.X, X, rtol=1e-6)
    assert "in that order" in notes(plain)


def test_scans_participants_and_people_in_one_table_only(
    atlas: tuple[Path, Path], tmp_path: Path
) -> None:
    header = ["participant_id", "session_id", "age", *(f"lh_{name}" for name in NAMES)]
    rows = [[f"sub-{i // 2}", 1 + i % 2, 30 + i, *X[i, : len(NAMES)]] for i in range(12)]
    write_rows(tmp_path / "scans.csv", header, rows, ",")
    write_rows(tmp_path / "who.tsv", ["participant_id", "group"], [["sub-1", "b"], ["sub-0", "a"]])
    cohort = load_cohort(
        tmp_path / "scans.csv", parcels=atlas[0], participants=tmp_path / "who.tsv"
    )
    assert cohort.subjects == ("sub-1_ses-1", "sub-1_ses-2", "sub-0_ses-1", "sub-0_ses-2")
    assert cohort.participants["group"].tolist() == ["b", "b", "a", "a"] and "age" in notes(cohort)
    left, right = aparcstats2table(tmp_path / "in", X)
    right.write_text("\n".join(right.read_text().splitlines()[:-2]) + "\n")
    with refused("lh.aparc.thickness.tsv"):
        load_cohort(left.parent, parcels=atlas)
    cohort = load_cohort(left.parent, parcels=atlas, missing="skip")
    assert len(cohort) == 10
    assert_allclose(cohort.X, X[2:], rtol=1e-6)


# Each wrong version of a table: from its header and rows to others.
WRONG: dict[
    str, Callable[[list[str], list[list[object]]], tuple[list[str], list[list[object]]]]
] = {
    "no ids": lambda header, rows: (header[1:], [row[1:] for row in rows]),
    "a subject twice": lambda header, rows: (header, [*rows, rows[0]]),
    "unknown region": lambda header, rows: (
        [*header[:2], "lh_cunneus_thickness", *header[3:]],
        rows,
    ),
    "no region at all": lambda header, rows: ([header[0], *(f"v{i}" for i in range(N // 2))], rows),
    "text in a cell": lambda header, rows: (header, [*rows[:-1], [*rows[-1][:-1], "2,5mm"]]),
    "two measures": lambda header, rows: ([*header, "lh_insula_area"], [[*r, 1.0] for r in rows]),
    "a region missing in one": lambda header, rows: (header, [*rows[:-1], [*rows[-1][:-1], "NA"]]),
    "only a header": lambda header, rows: (header, []),
    "a column twice": lambda header, rows: ([*header[:2], header[1], *header[3:]], rows),
    "turned round": lambda header, rows: (
        ["region", *(str(row[0]) for row in rows)],
        [
            [name, *cells]
            for name, *cells in zip(header[1:], *(row[1:] for row in rows), strict=True)
        ],
    ),
}


def left_table() -> tuple[list[str], list[list[object]]]:
    """Header and rows of a table of the left hemisphere."""
    header = ["participant_id", *(f"lh_{name}_thickness" for name in NAMES)]
    rows = X[:, : len(NAMES)].tolist()
    return header, [[name, *row] for name, row in zip(people(), rows, strict=True)]


@pytest.mark.parametrize("change", WRONG)
def test_wrong_tables(change: str, atlas: tuple[Path, Path], tmp_path: Path) -> None:
    path = write_rows(tmp_path / "table.tsv", *WRONG[change](*left_table()))
    with pytest.raises(CohortError) as caught:
        load_cohort(path, parcels=atlas)
    assert "table.tsv" in caught.value.path and len(str(caught.value).splitlines()) == 1


def test_the_hemisphere_of_names_that_do_not_say_it(
    atlas: tuple[Path, Path], tmp_path: Path
) -> None:
    header, rows = left_table()
    plain = [header[0], *(name.split("_")[1] for name in header[1:])]
    cohort = load_cohort(
        write_rows(tmp_path / "t.tsv", plain, rows), parcels=atlas, hemisphere="right"
    )
    assert cohort.hemisphere == "right" and cohort.sites.regions.names == tuple(
        f"rh_{name}" for name in NAMES
    )
    (tmp_path / "lh.aparc.stats").write_text("# Title Segmentation Statistics\n")
    with refused("lh.aparc.stats"):
        load_cohort(tmp_path / "lh.aparc.stats", parcels=atlas)


def test_atlas_of_one_hemisphere(atlas: tuple[Path, Path], tmp_path: Path) -> None:
    both = write_rows(
        tmp_path / "t.tsv",
        ["id", *(f"{h}_{name}" for h in ("L", "R") for name in NAMES)],
        [[f"sub-{i:02d}", *row] for i, row in enumerate(toy_values(5))],
    )
    with refused("t.tsv"):
        load_cohort(both, parcels=atlas[0])
    with refused("t.tsv"):
        load_cohort(both, parcels=atlas[0], hemisphere="right")
    cohort = load_cohort(both, parcels=atlas[0], hemisphere="left")
    assert cohort.hemisphere == "left" and cohort.sites.n == len(NAMES)
    with refused("mesh"):
        load_cohort(both, mesh="fsaverage5")


def test_column_that_nobody_has_is_left_out_by_name(
    atlas: tuple[Path, Path], tmp_path: Path
) -> None:
    header, rows = left_table()
    rows = [[*row[:3], "NaN", *row[4:]] for row in rows]
    cohort = load_cohort(write_rows(tmp_path / "table.csv", header, rows, ","), parcels=atlas)
    assert cohort.mask.tolist() == [i != 2 for i in range(len(NAMES))] and "(lh_fusiform)" in notes(
        cohort
    )


def test_regions_of_the_atlas_off_the_surface_are_left_out(tmp_path: Path) -> None:
    names = (*NAMES, "hippocampus")  # in the table of the atlas, on no vertex
    write_annot(tmp_path / "lh.x.annot", toy_labels(), names, distinct_colours(len(names)))
    header, rows = left_table()
    rows = [[*row, 4.0] for row in rows]
    path = write_rows(tmp_path / "t.tsv", [*header, "Left-Hippocampus"], rows)
    cohort = load_cohort(path, parcels=tmp_path / "lh.x.annot")
    assert cohort.sites.n == len(NAMES) and "not on the surface: Left-Hippocampus" in notes(cohort)


def test_atlas_of_another_parcellation_or_mesh(atlas: tuple[Path, Path], tmp_path: Path) -> None:
    aparcstats2table(tmp_path / "in", X)
    with pytest.raises(FileNotFoundError, match="atlas"):
        load_cohort(tmp_path / "in", parcels=tmp_path / "lh.nowhere.annot")
    with refused("parcels"):
        load_cohort(tmp_path / "in", parcels=Sites.named("fsaverage3"))


def test_tables_of_two_measures(atlas: tuple[Path, Path], tmp_path: Path) -> None:
    for path in aparcstats2table(tmp_path, X):
        (tmp_path / path.name.replace("thickness", "area")).write_text(
            path.read_text().replace("_thickness", "_area")
        )
    with refused("lh.aparc.thickness.tsv"):
        load_cohort(tmp_path, parcels=atlas)
    assert load_cohort(tmp_path, parcels=atlas, measure="area").modality == "area"


def test_vertices_and_regions_do_not_mix(atlas: tuple[Path, Path], tmp_path: Path) -> None:
    (table,) = enigma(tmp_path, X)
    np.save(tmp_path / "lh.a.npy", np.ones((2, 642)))
    with refused("lh.a.npy"):
        load_cohort([table, tmp_path / "lh.a.npy"])
    cohort = load_cohort(table, parcels=atlas)
    stored = ico.cohort.save_store(cohort, tmp_path / "store")
    assert_array_equal(stored.X[:], cohort.X.astype(np.float32))
    assert cohort.sites.n == stored.sites.n == N
