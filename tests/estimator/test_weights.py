"""Sites that count by their weight. The oracle: a site of weight 3 is the same site three times, without weights."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nibabel.freesurfer import write_geometry
from sklearn.base import clone

import icofactor as ico
from helpers.refusals import refused
from icofactor.assessment.bootstrap import bootstrap, relative_error
from icofactor.assessment.selection.data import Fitter, gather
from icofactor.assessment.selection.heldout import heldout_full
from icofactor.cli.main import main
from icofactor.errors import FileError
from icofactor.estimator.inputs import read_input
from icofactor.estimator.site_weights import weighted_sites
from icofactor.factorization.methods import method_named
from icofactor.factorization.scaling import map_signs
from icofactor.io.gifti import write_maps
from icofactor.preprocessing import vertex_areas
from icofactor.results.diagnostics import diagnose
from icofactor.results.methods_text import methods_text
from icofactor.results.provenance import provenance_of
from icofactor.results.transform import loadings_of

N_SUBJECTS, N_NEW, K = 24, 6, 3
METHODS = {
    "parts": "mean",
    "LE-PPNMF": "none",
    "CD-PNNMF": "none",
    "LE-SPNNMF": "none",
    "E-DL": "none",
}


class Twice:
    """A cohort and times that each site stands in it, and the cohort in which it really does."""

    def __init__(self) -> None:
        whole = ico.simulate_cohort(N_SUBJECTS + N_NEW, K, mesh="fsaverage3", random_state=1)
        mask = np.ones(642, dtype=bool)
        mask[:40] = False
        X = whole.X.astype(np.float64)
        self.times = np.random.default_rng(0).integers(1, 4, 642)
        again = np.repeat(np.arange(642), self.times)
        self.again = again[mask[again]]  # of the sites in use
        self.whole = replace(whole, X=X, mask=mask, truth=None)
        self.cohort, self.new = self.whole[:N_SUBJECTS], self.whole[N_SUBJECTS:]
        sites = whole.sites.subset(self.again)
        self.repeated = replace(self.whole, X=X[:, self.again], sites=sites, mask=None)
        self.share = mask.sum() / len(
            self.again
        )  # mean weight 1 / a weight of 1 for every repetition

    def once(self, maps: np.ndarray) -> np.ndarray:
        """Maps of repeated sites, 0 where masked."""
        found = np.zeros((len(maps), 642))
        found[:, self.again] = maps
        return found

    def models(self, method: str, **settings: Any) -> tuple[Any, Any]:
        """Fitted with weights, and with repeated sites: the same objective, up to a factor."""
        free = method in ("parts", "LE-PPNMF")
        penalty = lambda scale: {} if free else {"penalty": 0.5 * scale}
        settings = {
            "method": method,
            "n_starts": 3,
            "level": 1,
            "tol": 1e-9,
            "n_iter": 200,
            **settings,
        }
        one = ico.CorticalFactorization(K, weights=self.times, **settings, **penalty(self.share))
        other = ico.CorticalFactorization(K, **settings, **penalty(1.0))
        return one.fit(self.cohort), other.fit(self.repeated[:N_SUBJECTS])


@pytest.fixture(scope="module")
def twice() -> Twice:
    return Twice()


def alike(a: Any, b: Any, rtol: float = 1e-6) -> None:
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(
        a, b, rtol=rtol, atol=rtol * np.abs(b).max(initial=0.0, where=np.isfinite(b))
    )


@pytest.fixture(scope="module")
def pair(twice: Twice) -> tuple[Any, Any]:
    return twice.models("parts")


@pytest.mark.filterwarnings("ignore:.*(converge|did not settle|updates|explain)")
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        *((method, {}) for method in METHODS),
        ("parts", {"center": "zscore", "polish": 2}),
        (
            "CD-PNNMF",
            {
                "columns": "smooth",
                "polish": 1,
                "refinement": ico.Refinement(steps=2, faces=3, n_iter=5),
            },
        ),
        ("CD-PNNMF", {"refinement": ico.Refinement(steps=2, faces=3, n_iter=5), "lift": False}),
    ],
    ids=str,
)
def test_a_weight_is_a_number_of_sites(twice: Twice, method: str, settings: dict[str, Any]) -> None:
    one, other = twice.models(method, **settings)
    size = (
        np.sqrt(twice.share) if method == "LE-PPNMF" else 1.0
    )  # its loadings WᵀΩX are reported as they come
    alike(one.components_ * size, twice.once(other.components_))
    alike(one.loadings_ / size, other.loadings_)
    alike(one.error_ / twice.share, other.error_)
    for name in ("explained_", "explained_variance_ratio_"):
        alike(getattr(one, name), getattr(other, name))
    new = twice.repeated[N_SUBJECTS:]
    alike(one.score(twice.new), other.score(new))
    alike(one.transform(twice.new) / size, other.transform(new))


@pytest.mark.slow
def test_jax_weighs_alike(pair: tuple[Any, Any], twice: Twice) -> None:
    pytest.importorskip("jax")
    model = clone(pair[0]).set_params(engine="jax").fit(twice.cohort)
    alike(model.components_, pair[0].components_)
    alike(model.loadings_, pair[0].loadings_)


def test_assessment(twice: Twice, pair: tuple[Any, Any]) -> None:
    """Selection, held-out errors, bootstrap, diagnostics and loadings of people who lack sites."""
    settings: dict[str, Any] = {"n_splits": 2, "n_starts": 2, "n_nulls": 5, "level": 0}
    chosen = ico.choose_n_components(twice.cohort, [2], weights=twice.times, **settings)
    expected = ico.choose_n_components(twice.repeated[:N_SUBJECTS], [2], **settings)
    for name in (
        "error",
        "heldout",
        "bicv",
        "half_error",
        "inner_product",
        "correlation",
        "stability_coefficient",
    ):
        alike(chosen.table[name], expected.table[name])
    for name in ("null_correlation", "loadings", "null_loadings", "cophenetic"):
        alike(chosen.table[name], expected.table[name])
    alike(
        chosen.table["ari"], expected.table["ari"], 5e-3
    )  # it counts pairs of sites: more sites, another index
    assert chosen.reasons == expected.reasons and "weights" in chosen.settings
    fold = np.arange(N_SUBJECTS) % 3
    cohorts = ((twice.cohort, twice.times), (twice.repeated[:N_SUBJECTS], None))
    fitter, method = Fitter("parts", 3, 0), method_named("parts")

    def heldout(cohort: Any, weights: Any) -> np.ndarray:
        maps, place = read_input(cohort)
        placed = maps, replace(place, sites=weighted_sites(place.sites, place.mask, weights)[0])
        return heldout_full(gather(cohort, 1, method, None, "mean", None, placed), fitter, K, fold)

    left, out = (heldout(*each) for each in cohorts)
    alike(left, out)
    one, other = pair
    spread, theirs = (
        bootstrap(m, c, 2) for m, c in ((one, twice.cohort), (other, twice.repeated[:N_SUBJECTS]))
    )
    alike(spread.similarity, theirs.similarity)
    alike(spread.component_se, twice.once(theirs.component_se))
    alike(relative_error(spread.component_se, one), relative_error(theirs.component_se, other))
    signs = np.array(
        [[1.0, -2.0, 1.5], [1.0, -1.0, -1.5]]
    ).T  # mostly negative; positive where it weighs
    assert (
        map_signs(signs, np.array([6.0, 1.0, 2.0]))
        == map_signs(np.repeat(signs, [6, 1, 2], axis=0))
    ).all()
    assert map_signs(signs, np.array([6.0, 1.0, 2.0])).tolist() != map_signs(signs).tolist()
    found, known = (
        diagnose(m, c) for m, c in ((one, twice.cohort), (other, twice.repeated[:N_SUBJECTS]))
    )
    for name in (
        "explained",
        "explained_X",
        "linear",
        "unique",
        "alone",
        "extent",
        "overlap",
        "similarity",
        "residual",
    ):
        alike(getattr(found, name), getattr(known, name))
    lacking = [
        replace(cohort, X=np.where(np.isin(where, range(100, 120)), np.nan, cohort.X), checked=True)
        for cohort, where in (
            (twice.new, np.arange(642)),
            (twice.repeated[N_SUBJECTS:], twice.again),
        )
    ]
    a, b = (loadings_of(m, c) for m, c in zip(pair, lacking, strict=True))
    alike(a.loadings, b.loadings)
    alike(a.quality["residual"], b.quality["residual"])


def test_equal_weights_change_nothing(twice: Twice) -> None:
    for method in METHODS:
        plain = ico.CorticalFactorization(
            K, method=method, n_starts=2, level=1, n_iter=50, tol=0.0
        ).fit(twice.cohort)
        equal = clone(plain).set_params(weights=np.full(642, 0.3)).fit(twice.cohort)
        alike(equal.components_, plain.components_, 1e-12)
        alike(equal.explained_, plain.explained_, 1e-12)


def test_saved_described_and_matched(twice: Twice, pair: tuple[Any, Any], tmp_path: Path) -> None:
    model = pair[0]
    model.save(tmp_path / "m.zip")
    again = ico.load_model(tmp_path / "m.zip")
    np.testing.assert_array_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.transform(twice.new), model.transform(twice.new))
    assert again.weighting_ == "a weight of its own" and (again.weights == model.weights_).all()
    assert "weighted by a weight of its own" in methods_text(again, twice.cohort)
    assert provenance_of(again, twice.cohort)["result"]["site_weights"]["by"] == again.weighting_
    plain = ico.CorticalFactorization(K, n_starts=2, level=1).fit(twice.cohort)
    by_hand = ico.match_components(model.components_, plain.components_, model.weights_)
    np.testing.assert_array_equal(ico.match_components(model, plain).similarity, by_hand.similarity)
    alike(ico.compare(model, plain, n_spins=2).table["similarity"], by_hand.similarity, 1e-10)
    assert (
        "site_weights" not in provenance_of(plain, twice.cohort)["result"]
        and plain.weights_ is None
    )


def test_areas(tmp_path: Path) -> None:
    sites = ico.Sites.icosphere(3)
    flat = vertex_areas(sites.coordinates, sites.triangles)
    found, by = weighted_sites(sites, None, "area")
    alike(found.weights, flat / flat.mean(), 1e-12)
    assert by == "its area on the sphere"
    points = weighted_sites(ico.Sites.from_sphere(sites.coordinates), None, "area")[0].weights
    assert (
        points is not None and np.corrcoef(points, flat)[0, 1] > 0.9
    )  # the part of the sphere nearest to each
    for name in ("fsaverage3", "fsaverage5", "fsaverage6"):
        one, by = weighted_sites(ico.Sites.named(name), None, "area", "left")
        assert (
            "midthickness" in str(by) and one.weights is not None and 0.2 < one.weights.std() < 0.5
        )
    write_maps(tmp_path / "va.shape.gii", flat[None].astype(np.float32), "left", ["area"])
    write_geometry(tmp_path / "lh.midthickness", sites.coordinates * 70, sites.triangles)
    for name in ("va.shape.gii", "lh.midthickness"):
        one, by = weighted_sites(sites, None, str(tmp_path / name), "left")
        alike(one.weights, flat / flat.mean(), 1e-6)
        assert by == f"its area ({name})"
    with refused("weights", "one file per hemisphere"):
        weighted_sites(sites, None, [tmp_path / "va.shape.gii"] * 2, "left")
    with refused("lh.midthickness", "642 vertices"):
        weighted_sites(ico.Sites.icosphere(2), None, tmp_path / "lh.midthickness")
    with refused("weights", "the whole mesh"):
        weighted_sites(sites.subset(np.arange(600)), None, "area")


@pytest.mark.parametrize(
    "weights", ["areas", object(), np.ones(3), np.r_[0.0, np.ones(641)], np.full(642, np.nan)]
)
def test_refused(twice: Twice, weights: Any) -> None:
    with refused("weights", "."):
        ico.CorticalFactorization(K, weights=weights).fit(twice.cohort.X, None)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "areas.mgh")
    with pytest.raises(FileError, match="pipe"):
        ico.CorticalFactorization(
            2, mesh="fsaverage3", hemi="left", weights=tmp_path / "areas.mgh"
        ).fit(np.ones((4, 642)))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cohort = ico.simulate_cohort(12, 2, mesh="fsaverage3", random_state=0)
    np.save(tmp_path / "x.npy", cohort.X)
    fit = [
        "fit",
        str(tmp_path / "x.npy"),
        "--mesh",
        "fsaverage3",
        "--hemi",
        "left",
        "--n-components",
        "2",
        "--no-figures",
        "-q",
    ]
    assert main([*fit, "-o", str(tmp_path / "out"), "--site-weights", "area"]) == 0
    assert "midthickness" in str(ico.load_model(tmp_path / "out").weighting_)
    assert "weighted by its area" in (tmp_path / "out" / "methods.md").read_text()
    assert main([*fit, "-o", str(tmp_path / "no"), "--site-weights", "lost.gii"]) == 2
    expected = (
        "--site-weights must be 'area', 'none', or files of a surface or of areas; found lost.gii"
    )
    assert expected in capsys.readouterr().err
