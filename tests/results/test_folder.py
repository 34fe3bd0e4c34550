from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.hostile_fit import small_fit
from helpers.pages import Page
from helpers.sidecars import undescribed
from helpers.stores import contents
from icofactor.assessment.atlas import Overlap
from icofactor.errors import ArgumentError, ExistsError
from icofactor.io.guard import hash_file
from icofactor.io.json import read_json
from icofactor.io.publish import LIST, Publication, list_of
from icofactor.io.tables import read_table, write_json, write_table, write_tsv
from icofactor.results.description import FitDescription, read_fit
from icofactor.results.diagnostics.diagnose import winner_takes_all
from icofactor.results.folder import (
    FitFolder,
    map_columns,
    overlap_place,
    write_fit,
    write_names,
)
from icofactor.results.report.figures import plot_components
from icofactor.results.report.page import render_page
from icofactor.results.report.surfaces import Cortex
from icofactor.sphere.meshes import fs_lr_sites
from icofactor.sphere.names import map_file, table_file
from icofactor.sphere.sites import Sites

STEM = "space-fsaverage_den-642_desc-icofactor"
ALWAYS = {
    *(
        f"desc-icofactor_{name}.{end}"
        for name in ("dseg", "loadings", "components")
        for end in ("tsv", "json")
    ),
    *("provenance.json", "dataset_description.json"),
    *("model.zip", "diagnostics.npz", "components.png", "report.html"),
    *(
        f"tables/{name}.tsv"
        for name in ("summary", "subjects", "correlations", "similarity", "convergence")
    ),
    "tables/columns.json",
}
MORE = {"desc-icofactor_participants.tsv", "desc-icofactor_participants.json", "methods.md"}


def test_cells_of_tables(tmp_path: Path) -> None:
    """Whole numbers stay whole beside unknown ones; computed numbers have ten digits, given ones all they need."""
    columns = {
        "age": [13.0, np.nan, 35.0],
        "half": [0.5, np.nan, 2.0],
        "third": [1 / 3, 2.0, 1e-20],
    }
    rows = write_tsv(tmp_path / "a.tsv", columns).read_text().splitlines()[1:]
    assert rows == ["13\t0.5\t0.3333333333", "n/a\tn/a\t2", "35\t2\t1e-20"]
    rows = write_tsv(tmp_path / "b.tsv", columns, digits=None).read_text().splitlines()[1:]
    assert rows == ["13\t0.5\t0.3333333333333333", "n/a\tn/a\t2.0", "35\t2.0\t1e-20"]


def test_every_column_of_a_table_is_described(tmp_path: Path) -> None:
    columns = {"participant_id": ["a"], "x": [1.0]}
    with pytest.raises(KeyError, match="x"):
        write_table(tmp_path / "a.tsv", columns, {})
    with pytest.raises(ArgumentError) as raised:
        write_table(tmp_path / "a.tsv", columns, {"x": "Its size"}, {"x": 1})
    assert raised.value.argument == "more"
    assert not any(tmp_path.iterdir())
    write_table(
        tmp_path / "a.tsv", columns, {"x": {"Description": "Its size", "Units": "mm"}}, {"seed": 1}
    )
    found = json.loads((tmp_path / "a.json").read_text())
    assert found == {
        "participant_id": {"Description": "Person"},
        "x": {"Description": "Its size", "Units": "mm"},
        "seed": 1,
    }


@settings(deadline=None)  # the first example imports pandas
@given(st.lists(st.floats(allow_infinity=False, width=32), min_size=1, max_size=20))
def test_tsv_loses_no_digit(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("t") / "a.tsv"
    write_tsv(path, {"x": np.array(values, dtype=np.float32)})
    header, *rows = path.read_text().splitlines()
    assert header == "x"
    read = np.array([np.nan if row == "n/a" else float(row) for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(read, np.array(values, dtype=np.float32))


def test_tsv_refuses_what_would_break_it(tmp_path: Path) -> None:
    write_tsv(tmp_path / "a.tsv", {"id": ["a", None], "n": [1, 2]})
    assert (tmp_path / "a.tsv").read_text() == "id\tn\na\t1\nn/a\t2\n"
    for columns in ({"a": [1], "b": [1, 2]}, {"a": ["x\ty"]}, {}):
        with pytest.raises(ArgumentError) as error:
            write_tsv(tmp_path / "b.tsv", columns)
        assert error.value.argument == "columns"


def test_json_takes_numpy_and_has_no_nan(tmp_path: Path) -> None:
    path = write_json(
        tmp_path / "a.json", {"n": np.int64(3), "x": np.array([1.0, np.nan]), "p": Path("é")}
    )
    assert json.loads(path.read_text(encoding="utf-8")) == {"n": 3, "x": [1.0, None], "p": "é"}
    with pytest.raises(ValueError, match="cannot contain a object"):
        write_json(tmp_path / "b.json", object())


@functools.cache
def described(hemi: str = "both") -> FitDescription:
    """A small fit with a mask, participants and a methods paragraph."""
    sites = Sites.named("fsaverage3", hemi=hemi)
    mask = np.arange(sites.n) % 3 > 0
    model, diagnostics = small_fit(sites, hemi, mask=mask, n_starts=1, n_iter=20, tol=0.0)
    ages = np.arange(len(model.loadings_)) + 20.5
    ages[1] = np.nan
    people = {"participant_id": diagnostics.subjects, "age": ages}
    methods = "# Methods\n\nWe did λ.\n"
    return FitDescription.of(
        model, diagnostics, provenance={"seed": 1}, methods=methods, participants=people
    )


def write(out: Path, *names: str, overwrite: bool = False) -> list[Path]:
    """A folder that holds these files, as a fit would leave them."""
    place = FitFolder(out, overwrite)
    with place.filled() as new:
        for name in names:
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(f"new {name}")
    return place.files


@pytest.mark.slow
def test_a_fit_of_both_hemispheres(tmp_path: Path) -> None:
    fit = described()
    model, out = fit.model, tmp_path / "out"
    files = write_fit(fit, FitFolder(out, figures=False))
    kinds = ("components.shape.gii", "mask.shape.gii", "dseg.label.gii", "dseg.annot")
    maps = {f"hemi-{side}_{STEM}_{kind}" for side in "LR" for kind in kinds}
    names = {file.relative_to(out).as_posix() for file in files}
    assert names == maps | ALWAYS | MORE | {"tables/groups.tsv"}
    assert read_json(out / "dataset_description.json")["DatasetType"] == "derivative"
    assert {*files, out / LIST} == {path for path in out.rglob("*") if path.is_file()}
    assert list_of(out) == {file.relative_to(out).as_posix(): hash_file(file) for file in files}
    assert not undescribed(out)
    right = nib.load(out / f"hemi-R_{STEM}_components.shape.gii")
    assert right.meta["AnatomicalStructurePrimary"] == "CortexRight"
    assert right.darrays[2].meta["Name"] == "component03"
    np.testing.assert_array_equal(
        right.darrays[2].data, model.components_[2, 642:].astype(np.float32)
    )
    table = (out / "desc-icofactor_loadings.tsv").read_text().splitlines()
    assert table[0] == "participant_id\tcomponent01\tcomponent02\tcomponent03"
    assert [float(x) for x in table[2].split("\t")[1:]] == pytest.approx(
        model.loadings_[1].tolist(), rel=1e-9
    )
    people = (out / "desc-icofactor_participants.tsv").read_text().splitlines()
    assert people[0] == "participant_id\tage"
    assert [line.split("\t")[1] for line in people[1:3]] == ["20.5", "n/a"]
    assert json.loads((out / "provenance.json").read_text()) == {"seed": 1}
    assert (out / "methods.md").read_text(encoding="utf-8") == "# Methods\n\nWe did λ.\n"


def test_a_fit_takes_along_what_was_written_about_the_earlier_one(tmp_path: Path) -> None:
    def add(*names: str, **more: object) -> None:
        with Publication(tmp_path, **more).filled() as new:
            for name in names:
                (new / name).write_text("about")

    add("selection.json")
    write(tmp_path, "model.zip")  # a selection before the fit is not about it
    add("stability.tsv", "atlas_overlap.tsv", "components.tsv")
    (tmp_path / "mine.txt").write_text("mine")
    place = FitFolder(tmp_path, overwrite=True)
    with place.filled() as new:
        (new / "components.tsv").write_text("new")
    gone = {"selection.json", "stability.tsv", "atlas_overlap.tsv", "model.zip"}
    assert {file.name for file in place.removed} == gone
    assert set(contents(tmp_path)) == {
        "mine.txt",
        "components.tsv",
        "dataset_description.json",
        LIST,
    }


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["note.txt", "methods.md", "figures/maps.png"])
def test_a_fit_goes_into_no_folder_of_the_user_s(
    tmp_path: Path, name: str, overwrite: bool
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ExistsError):
        FitFolder(tmp_path, overwrite)
    assert contents(tmp_path) == {name: b"mine"}


def test_hidden_files_of_others_are_in_no_fit_s_way(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").write_text("theirs")
    write(tmp_path, "m.gii")
    write(tmp_path, "m.gii", overwrite=True)
    assert (tmp_path / ".DS_Store").read_text() == "theirs"


def test_an_earlier_fit_is_refused_before_the_work(tmp_path: Path) -> None:
    write(tmp_path, "hemi-L.gii")
    with pytest.raises(ExistsError):
        FitFolder(tmp_path)
    FitFolder(tmp_path, overwrite=True)


def test_a_failed_fit_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot contain a object"):
        write_fit(replace(described(), provenance={"x": object()}), FitFolder(tmp_path / "out"))
    assert not any(tmp_path.iterdir())


def test_figures_come_and_go_with_the_fit(tmp_path: Path) -> None:
    names = ("m.gii", "figures/a.png", "figures/b.png")
    written = write(tmp_path, *names)
    assert {path.relative_to(tmp_path).as_posix() for path in written} >= set(names)
    (tmp_path / "figures" / "mine.png").write_text("mine")
    with Publication(tmp_path, overwrite=True).filled() as new:  # as `icofactor report` does
        (new / "figures").mkdir()
        (new / "figures" / "maps.png").write_text("drawn by icofactor report")
    with pytest.raises(FileExistsError):
        write(tmp_path, *names)
    write(tmp_path, "m.gii", "figures/a.png", "figures/c.png", overwrite=True)
    found = {path.name: path.read_text() for path in (tmp_path / "figures").iterdir()}
    assert found == {"a.png": "new figures/a.png", "c.png": "new figures/c.png", "mine.png": "mine"}
    (tmp_path / "figures" / "mine.png").unlink()
    write(tmp_path, "m.gii", overwrite=True)
    assert not (tmp_path / "figures").exists()
    assert not list(tmp_path.glob(".tmp-*"))


@pytest.mark.parametrize(
    ("n_sites", "hemi", "mesh"),
    [(1284, "left", "fsaverage3"), (1280, "left", "fsaverage3"), (7, "both", "other")],
)
def test_maps_that_a_file_per_hemisphere_cannot_hold(n_sites: int, hemi: str, mesh: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        map_columns(n_sites, hemi, mesh)
    assert raised.value.argument == "cohort"


@pytest.mark.parametrize("hemi", [None, "top"])
def test_hemispheres_that_files_cannot_name(hemi: str | None) -> None:
    with pytest.raises(ArgumentError) as raised:
        map_columns(642, hemi, "fsaverage3")
    assert raised.value.argument == "hemi"


def test_parts_that_do_not_belong_together() -> None:
    fit, other = described(), described("left")
    with pytest.raises(ArgumentError) as raised:
        replace(fit, diagnostics=other.diagnostics)
    assert raised.value.argument == "diagnostics"
    with pytest.raises(ArgumentError) as raised:
        replace(fit, participants={"age": [1]})
    assert raised.value.argument == "participants['age']"


def test_names_of_files_are_made_of_entities() -> None:
    assert map_file("my-mesh 2", "a.gii", "left") == "hemi-L_space-mymesh2_desc-icofactor_a.gii"
    assert map_file("civet41k", "a.gii") == "space-civet_den-41k_desc-icofactor_a.gii"
    assert (
        map_file("fsaverage5", "a.gii", desc="T1w/T2w")
        == "space-fsaverage_den-10k_desc-T1wT2w_a.gii"
    )
    assert table_file("a.tsv", "thickness") == "desc-thickness_a.tsv"


@pytest.mark.parametrize("mesh_name", ["fsLR32k", "fs_LR-32k", "sphere64984"])
def test_fs_lr_has_one_name_in_files(mesh_name: str) -> None:
    assert (
        map_file(mesh_name, "components.dscalar.nii")
        == "space-fsLR_den-32k_desc-icofactor_components.dscalar.nii"
    )


@pytest.mark.slow
def test_a_fit_on_fs_lr_is_also_cifti(tmp_path: Path) -> None:
    sites = Sites.both(fs_lr_sites("left"), fs_lr_sites("right"))
    mask = np.random.default_rng(3).random(64984) < 0.9
    fit = FitDescription.of(*small_fit(sites, "both", mask=mask, n_starts=1, n_iter=20, tol=0.0))
    files = {file.name for file in write_fit(fit, FitFolder(tmp_path, figures=False))}
    stem = "space-fsLR_den-32k_desc-icofactor"
    assert {
        f"{stem}_components.dscalar.nii",
        f"{stem}_dseg.dlabel.nii",
        f"hemi-R_{stem}_dseg.annot",
    } < files
    parcels = nib.load(tmp_path / f"{stem}_dseg.dlabel.nii")
    np.testing.assert_array_equal(parcels.get_fdata()[0], fit.diagnostics.parcellation[mask])
    table = nib.load(tmp_path / f"hemi-R_{stem}_dseg.label.gii").labeltable
    names = {label.key: (label.label, label.rgba) for label in table.labels}
    assert parcels.header.get_axis(0).label[0] == {
        key: (name, pytest.approx(rgba)) for key, (name, rgba) in names.items()
    }
    values = nib.load(tmp_path / f"{stem}_components.dscalar.nii").get_fdata(dtype=np.float32)
    np.testing.assert_array_equal(values, fit.model.components_[:, mask].astype(np.float32))


def test_an_atlas_names_components_wherever_files_have_them(tmp_path: Path) -> None:
    model, diagnostics = described().model, described().diagnostics
    write_fit(FitDescription(model, diagnostics, Cortex(())), FitFolder(tmp_path, figures=False))
    mine = tmp_path / f"hemi-R_{STEM}_dseg.annot"
    mine.write_bytes(mine.read_bytes()[:-1] + b"!")
    regions, numbers = ["left insula", "right insula", "left cuneus"], [1, 1, 2, 2, 3]
    table = {
        "component": np.array(numbers),
        "region": np.array([*regions[:2], *regions[:2], regions[2]]),
        "share": np.array([0.2, 0.25, 0.5, 0.1, 0.03]),
        **{name: np.full(5, 0.5) for name in ("area", "enrichment", "null_enrichment", "p", "q")},
    }
    found = Overlap(table, ("bilateral insula", "left insula", "left cuneus?"))
    write_names(found, overlap_place(tmp_path, tmp_path), model)  # nothing needs to be overwritten
    names = [
        "component01 bilateral insula (45.0 %)",
        "component02 left insula (50.0 %)",
        "component03",
    ]
    left = f"hemi-L_{STEM}"
    assert [
        label.label for label in nib.load(tmp_path / f"{left}_dseg.label.gii").labeltable.labels
    ] == ["???", *names]
    labels = nib.freesurfer.read_annot(tmp_path / f"{left}_dseg.annot")[2]
    assert labels[1:] == [
        b"component01_bilateral_insula_(45.0%)",
        b"component02_left_insula_(50.0%)",
        b"component03",
    ]
    maps = nib.load(tmp_path / f"{left}_components.shape.gii").darrays
    assert [one.meta["Name"] for one in maps] == names
    np.testing.assert_array_equal(maps[1].data, model.components_[1, :642].astype(np.float32))
    assert read_table(tmp_path / "desc-icofactor_dseg.tsv")[0]["name"] == names
    columns = read_table(tmp_path / "desc-icofactor_components.tsv")[0]
    assert columns["name"] == ["bilateral insula (45.0 %)", "left insula (50.0 %)", "n/a"]
    about = json.loads((tmp_path / "desc-icofactor_loadings.json").read_text())
    titles = [
        "Component 1: bilateral insula (45.0 %)",
        "Component 2: left insula (50.0 %)",
        "Component 3",
    ]
    assert [about[f"component0{j}"]["LongName"] for j in (1, 2, 3)] == titles
    assert not undescribed(tmp_path)
    assert mine.read_bytes().endswith(b"!")  # what the user changed stays
    fit = read_fit(tmp_path)
    page = Page(render_page(fit))
    assert [layer["name"] for layer in page.layers("component")] == titles == page.data["titles"]
    figure = plot_components(model, shares=diagnostics.unique, names=fit.atlas_names)
    of_maps = [text.get_text().replace("\xa0", " ") for text in figure.texts]
    assert [text.rpartition("\n")[0] for text in of_maps[1:3]] == [
        "Component 1\nbilateral insula\n(45.0 %)",
        "Component 2\nleft insula\n(50.0 %)",
    ]
    # elsewhere the fit is not touched
    write_names(found, overlap_place(tmp_path / "else", tmp_path), model)
    assert {file.name for file in (tmp_path / "else").iterdir()} == {
        "atlas_overlap.tsv",
        "atlas_overlap.json",
        LIST,
    }


@pytest.mark.slow
def test_maps_without_a_mesh_to_draw_on_are_written_without_pictures_of_them(
    tmp_path: Path,
) -> None:
    sites = Sites.from_sphere(Sites.named("fsaverage3").coordinates)
    fit = FitDescription.of(*small_fit(sites, "left", n_starts=1, n_iter=20, tol=0.0))
    names = {file.name for file in write_fit(fit, FitFolder(tmp_path))}
    assert {
        "hemi-L_space-sphere_den-642_desc-icofactor_components.shape.gii",
        "report.html",
        "loadings.svg",
    } < names
    assert not {"components.png", "maps.svg"} & names


@pytest.mark.slow
def test_the_parcels_of_a_fit_are_the_same_in_all_files(tmp_path: Path) -> None:
    fit = described()
    model = fit.model
    write_fit(fit, FitFolder(tmp_path, figures=False))
    labels = winner_takes_all(model.components_, model.loadings_, model.mask_)
    header, *rows = (
        line.split("\t") for line in (tmp_path / "desc-icofactor_dseg.tsv").read_text().splitlines()
    )
    assert header == ["index", "name", "color", "n_vertices"]
    assert [row[1] for row in rows] == ["component01", "component02", "component03"]
    assert [int(row[3]) for row in rows] == [int((labels == i).sum()) for i in (1, 2, 3)]
    for side, part in (("L", labels[:642]), ("R", labels[642:])):
        stem = tmp_path / f"hemi-{side}_{STEM}_dseg"
        np.testing.assert_array_equal(nib.load(f"{stem}.label.gii").darrays[0].data, part)
        found, table, _ = nib.freesurfer.read_annot(f"{stem}.annot")
        np.testing.assert_array_equal(found, part)
        assert ["#{:02x}{:02x}{:02x}".format(*colour[:3]) for colour in table[1:]] == [
            row[2] for row in rows
        ]
