"""Fits of parcels: the same answers as on vertices, scikit-learn's objective, and from folders of tables to pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from helpers.pages import Page
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
from icofactor.assessment.atlas import overlap
from icofactor.cli.main import main
from icofactor.cohort.store import append_store, open_store
from icofactor.errors import CohortError
from icofactor.io.cifti import read_pscalar, write_pscalar
from icofactor.io.gifti import read_gifti, write_maps
from icofactor.results.description import read_fit
from icofactor.results.report.page import draw_report
from icofactor.sphere.sites import Sites


@pytest.mark.filterwarnings("ignore:stopped after")
@pytest.mark.parametrize(
    ("method", "seed", "weights"),
    [
        ("parts", 0, None),
        ("parts", 1, None),
        ("CD-PNNMF", 0, None),
        ("parts", 2, "area"),
        ("CD-PNNMF", 1, "area"),
    ],
)
def test_same_answers_as_vertices_where_maps_are_constant_on_parcels(
    method: str, seed: int, weights: str | None
) -> None:
    labels = toy_labels(seed)
    sites, used = Sites.parcels((labels, "fsaverage3"), NAMES), labels > 0
    X = toy_values(30, seed)[:, : len(NAMES)]
    on_vertices = np.where(used, X[:, np.maximum(labels, 1) - 1], 0.0)
    course = {"method": method, "n_starts": 5, "n_iter": 100, "weights": weights, "hemi": "left"}
    parcels = ico.CorticalFactorization(3, mesh=sites, **course).fit(X)
    vertices = ico.CorticalFactorization(3, mesh="fsaverage3", mask=used, level=3, **course)
    vertices.fit(on_vertices)
    # what was found, in sums over vertices by hand: no weights but those of the vertices
    w = np.ones(642) if weights is None else vertices.weights_
    W, size = sites.on_surface(parcels.components_), w[used].sum() / len(NAMES)
    rest = on_vertices - (
        parcels.loadings_ @ W + (parcels.inverse_transform(0 * parcels.loadings_) @ _paint(sites))
    )
    error, total = (
        (w * rest**2)[:, used].sum(),
        (w * (on_vertices - on_vertices.mean(axis=0)) ** 2)[:, used].sum(),
    )
    assert parcels.error_ * size == pytest.approx(error, rel=1e-6)
    assert parcels.total_variance_ * size == pytest.approx(total)
    assert (
        parcels.explained_
        == pytest.approx(1 - error / total)
        == pytest.approx(vertices.explained_, abs=5e-3)
    )
    if method != "parts":  # several sets of non-negative maps fit alike
        return
    match = ico.match_components(W[:, used], vertices.components_[:, used])
    assert match.similarity.min() > 0.999
    alike = [
        abs(np.corrcoef(parcels.loadings_[:, a], vertices.loadings_[:, b])[0, 1])
        for a, b in zip(match.a, match.b, strict=True)
    ]
    assert min(alike) > 0.999


def _paint(sites: Sites) -> np.ndarray:
    """(regions, vertices) 1 where a vertex is of a region."""
    return sites.on_surface(np.eye(sites.n))


def test_weights_of_parcels(tmp_path: Path) -> None:
    labels, X = toy_labels(), toy_values(20)[:, : len(NAMES)]
    sites = Sites.parcels((labels, "fsaverage3"), NAMES)
    fit = lambda **more: ico.CorticalFactorization(2, mesh=sites, n_starts=3, **more).fit(X)
    model = fit()
    np.testing.assert_allclose(
        model.weights_ * np.bincount(labels)[1:].mean(), np.bincount(labels)[1:]
    )
    assert model.weighting_ == "its number of vertices" and fit(weights="none").weights_ is None
    areas = np.random.default_rng(0).uniform(1, 2, 642).astype(np.float32)
    write_maps(tmp_path / "lh.area.shape.gii", areas[None], "left", ["area"])
    by_file = fit(weights=tmp_path / "lh.area.shape.gii", hemi="left").weights_
    expected = np.bincount(labels, areas)[1:]
    np.testing.assert_allclose(by_file, expected / expected.mean(), rtol=1e-6)
    assert "midthickness" in fit(weights="area").weighting_
    for weights in (
        "area",
        tmp_path / "lh.area.shape.gii",
    ):  # nobody knows how large regions of unknown position are
        with refused("weights"):
            ico.CorticalFactorization(2, mesh=Sites.parcels(None, NAMES), weights=weights).fit(X)


def test_objective_of_scikit_learn(data_folder: Path) -> None:
    from sklearn.decomposition import NMF

    with np.load(data_folder / "nspn_discovery.npz") as archive:
        X, regions = archive["thickness"].astype(np.float64), archive["regions"]
    atlas = [data_folder / "labels" / f"{side}.500.aparc.annot" for side in ("lh", "rh")]
    sites = Sites.parcels(atlas, regions)
    assert sites.n == 308 and sites.regions.names == tuple(regions)
    best = NMF(6, init="nndsvda", max_iter=4000, tol=1e-5).fit(X).reconstruction_err_ ** 2
    model = ico.CorticalFactorization(6, method="CD-PNNMF", mesh=sites, weights="none").fit(X)
    assert model.error_ == pytest.approx(best, rel=0.01)
    assert ((X - model.loadings_ @ model.components_) ** 2).sum() == pytest.approx(model.error_)
    unknown = ico.CorticalFactorization(
        6, method="CD-PNNMF", mesh=Sites.parcels(None, regions)
    ).fit(X)
    assert unknown.error_ == pytest.approx(best, rel=0.01)


# ---------------------------------------------------------------------- from a folder to a page

QUICK = ["--n-components", "3", "--n-starts", "3", "-q"]


def content_of(page: Path) -> Page:
    return Page(page.read_text(encoding="utf-8"))


def columns_of(path: Path) -> dict[str, list[str]]:
    header, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


@pytest.mark.parametrize("make", [aparcstats2table, xcp_d])
def test_tables_to_page(make: Callable[..., list[Path]], tmp_path: Path) -> None:
    X, out = toy_values(24), tmp_path / "out"
    make(tmp_path / "in", X)
    atlas = write_toy_atlas(tmp_path)
    parcels = ["--parcels", *map(str, atlas)]
    command = ["fit", str(tmp_path / "in"), *parcels, "-o", str(out), *QUICK, "--no-figures"]
    assert main(command) == 0
    page = content_of(out / "report.html")
    assert page.data["on"] == "parcels"
    assert "the atlas toy on fsaverage3" in page.text["settings"]
    assert (
        "on the regions of the atlas toy on fsaverage3 [1], both hemispheres (16"
        in (out / "methods.md").read_text()
    )
    assert "lh_insula" in page.data["cortex"]["regions"]["names"]
    assert "regions" in page.text
    table = columns_of(out / "desc-icofactor_regions.tsv")
    assert table["region"][0] == "lh_bankssts" and len(table["component03"]) == N
    model = ico.load_model(out)
    np.testing.assert_allclose(
        [float(x) for x in table["component01"]], model.components_[0], rtol=1e-8
    )
    for half, file in enumerate(sorted(out.glob("hemi-?_*components.shape.gii"))):
        labels, maps = toy_labels(half), next(iter(read_gifti(file).parts.values()))
        own = model.components_[0][len(NAMES) * half : len(NAMES) * (half + 1)]
        expected = np.where(labels > 0, own[np.maximum(labels, 1) - 1], 0)
        np.testing.assert_allclose(maps[0], expected, rtol=1e-6)
    # new people by the same columns, without the atlas
    assert (
        main(["transform", str(out), str(tmp_path / "in"), "-o", str(tmp_path / "new.tsv"), "-q"])
        == 0
    )
    new = np.array(
        [columns_of(tmp_path / "new.tsv")[name] for name in ("component01", "component03")],
        dtype=float,
    )
    np.testing.assert_allclose(new.T, model.loadings_[:, [0, 2]], atol=1e-5)


def test_table_without_atlas_is_drawn_as_bars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (table,) = enigma(tmp_path / "in", toy_values(24))
    assert main(["fit", str(table), "-o", str(out), *QUICK, "--no-figures"]) == 0
    page = content_of(out / "report.html")
    assert page.data["cortex"] is None
    assert "figures/regions.svg" in draw_report(read_fit(out)).figures
    assert not list(out.glob("hemi-*"))
    assert (
        "regions" in (out / "methods.md").read_text()
        and "icosahedral" not in (out / "methods.md").read_text()
    )
    assert main(["transform", str(out), str(table), "-o", str(tmp_path / "new.tsv"), "-q"]) == 0
    found = ico.choose_n_components(
        ico.load_cohort(table), [2, 3], n_splits=2, n_nulls=5, n_starts=2
    )
    assert "exchanged at random between regions" in found.reasons[-1]


@pytest.mark.slow
def test_pscalar_to_page_and_back(tmp_path: Path) -> None:
    labels = np.zeros(64984, dtype=int)
    left, right = np.arange(32492) % 9, np.arange(32492) % 9
    labels[:32492], labels[32492:] = left, np.where(right > 0, right + len(NAMES), 0)
    sites = Sites.parcels(
        (labels, "fsLR32k"), [f"{side}_{name}" for side in "LR" for name in NAMES]
    )
    (tmp_path / "in").mkdir()
    for who, row in zip(people(), toy_values(), strict=True):
        write_pscalar(
            tmp_path / "in" / f"{who}.thickness.pscalar.nii",
            row[None],
            sites.regions,
            ["thickness"],
        )
    out = tmp_path / "out"
    assert main(["fit", str(tmp_path / "in"), "-o", str(out), *QUICK, "--no-figures"]) == 0
    (file,) = out.glob("*.pscalar.nii")
    found = read_pscalar(file)
    model = ico.load_model(out)
    np.testing.assert_allclose(found.parts[None], model.components_, rtol=1e-6)
    assert found.regions == sites.regions.names
    assert "32k" in content_of(out / "report.html").text["settings"]


@pytest.mark.slow
@pytest.mark.parametrize("atlas", [True, False])
def test_a_store_of_parcels_gives_the_fit_of_the_tables(atlas: bool, tmp_path: Path) -> None:
    aparcstats2table(tmp_path / "in", toy_values(24))
    parcels = ["--parcels", *map(str, write_toy_atlas(tmp_path))] if atlas else []
    store = tmp_path / "t.store"
    assert main(["prepare", str(tmp_path / "in"), *parcels, "-o", str(store), "-q"]) == 0
    stored = open_store(store)
    for name, source in (("a", [str(store)]), ("b", [str(tmp_path / "in"), *parcels])):
        assert main(["fit", *source, "-o", str(tmp_path / name), *QUICK, "--no-figures"]) == 0
    a, b = (ico.load_model(tmp_path / name) for name in "ab")
    np.testing.assert_allclose(a.components_, b.components_, rtol=1e-10)
    assert stored.sites.regions.names == b.sites_.regions.names and stored.sites.placed == atlas
    assert stored.sites.regions.atlas == ("toy" if atlas else "")
    twin = shutil.copytree(store, tmp_path / "twin.store")
    both = [
        f"thickness={store}",
        f"area={twin}",
        "--share",
        "loadings",
        "-o",
        str(tmp_path / "both"),
    ]
    assert main(["fit", *both, *QUICK, "--no-figures"]) == 0
    other = ico.Cohort.from_array(
        toy_values(3), mesh=Sites.parcels(None, [f"r{i}" for i in range(N)])
    )
    with pytest.raises(CohortError, match="the store has Sites"):
        append_store(store, other)


@pytest.mark.slow
def test_commands_after_a_fit_of_parcels(tmp_path: Path) -> None:
    X, out = toy_values(24), tmp_path / "out"
    aparcstats2table(tmp_path / "in", X)
    parcels = ["--parcels", *map(str, write_toy_atlas(tmp_path))]
    who = write_rows(
        tmp_path / "participants.tsv",
        ["participant_id", "age"],
        [[name, 20 + i] for i, name in enumerate(people(24))],
    )
    tables, table = str(tmp_path / "in"), ["--participants", str(who)]
    assert main(["fit", tables, *parcels, *table, "-o", str(out), *QUICK, "--no-figures"]) == 0
    few = ["--splits", "2", "--nulls", "5", "--n-starts", "2", "-q"]
    assert main(["select", tables, *parcels, "-o", str(out), "--ranks", "2-4", *few]) == 0
    record = json.loads((out / "selection.json").read_text())
    assert record
    assert (
        main(
            [
                "select",
                tables,
                "--model",
                str(out),
                "-o",
                str(out),
                "--bootstrap",
                "4",
                "-q",
                "--overwrite",
            ]
        )
        == 0
    )
    assert len(columns_of(out / "components_se.tsv")["region"]) == N
    assert main(["associate", str(out), "--formula", "age", "-q", "--permutations", "100"]) == 0
    assert len(columns_of(out / "effects_by_region.tsv")["region"]) == N
    assert main(["report", str(out), "--overwrite", "--no-figures", "-q"]) == 0
    assert "stability" in content_of(out / "report.html").columns("trust")
    (tmp_path / "again").mkdir()
    second = write_toy_atlas(tmp_path / "again")  # names by the vertices of each parcel
    command = [
        "select",
        "-o",
        str(out),
        "--model",
        str(out),
        "--atlas",
        *map(str, second),
        "--spins",
        "20",
        "-q",
    ]
    assert main(command) == 0
    held = columns_of(out / "atlas_overlap.tsv")
    assert set(held["region"]) == {f"{side} {name}" for side in ("left", "right") for name in NAMES}
    maps, sizes = np.abs(ico.load_model(out).components_[0]), Sites.parcels(second).regions.sizes
    share = (maps * sizes)[NAMES.index("insula")] / (maps * sizes).sum()
    assert float(held["share"][held["region"].index("left insula")]) == pytest.approx(share)
    with refused("atlas", "fit with their atlas"):
        overlap(
            ico.CorticalFactorization(2, mesh=Sites.parcels(None, list("abcdef"))).fit(X[:, :6]),
            second,
        )
    other = tmp_path / "other"
    assert (
        main(
            [
                "fit",
                tables,
                *parcels,
                "-o",
                str(other),
                *QUICK,
                "--random-seed",
                "1",
                "--no-figures",
            ]
        )
        == 0
    )
    assert (
        main(["compare", str(out), str(other), "-o", str(tmp_path / "both"), "--spins", "20", "-q"])
        == 0
    )
