"""Sites that count by their weight. The oracle: a site of weight 3 is the same site three times, without weights."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nibabel.freesurfer import write_geometry

import icofactor as ico
from helpers.refusals import refused
from icofactor.assessment.bootstrap import bootstrap, relative_error
from icofactor.cli.main import main
from icofactor.estimator.site_weights import weighted_sites
from icofactor.factorization.scaling import map_signs
from icofactor.io.gifti import write_maps
from icofactor.preprocessing import vertex_areas
from icofactor.results.diagnostics import diagnose
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
        unrepeated = np.zeros((len(maps), 642))
        unrepeated[:, self.again] = maps
        return unrepeated

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
        weighted = ico.CorticalFactorization(
            K, weights=self.times, **settings, **penalty(self.share)
        )
        repeated = ico.CorticalFactorization(K, **settings, **penalty(1.0))
        return weighted.fit(self.cohort), repeated.fit(self.repeated[:N_SUBJECTS])


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
    weighted, repeated = twice.models(method, **settings)
    size = (
        np.sqrt(twice.share) if method == "LE-PPNMF" else 1.0
    )  # its loadings WᵀΩX are reported as they come
    alike(weighted.components_ * size, twice.once(repeated.components_))
    alike(weighted.loadings_ / size, repeated.loadings_)
    alike(weighted.error_ / twice.share, repeated.error_)
    for name in ("explained_", "explained_variance_ratio_"):
        alike(getattr(weighted, name), getattr(repeated, name))
    new = twice.repeated[N_SUBJECTS:]
    alike(weighted.score(twice.new), repeated.score(new))
    alike(weighted.transform(twice.new) / size, repeated.transform(new))


def test_selection(twice: Twice) -> None:
    """Halves, nulls, held-out errors and what is recommended."""
    settings: dict[str, Any] = {"n_splits": 2, "n_starts": 2, "n_nulls": 5, "level": 0}
    weighted = ico.choose_n_components(twice.cohort, [2], weights=twice.times, **settings)
    repeated = ico.choose_n_components(twice.repeated[:N_SUBJECTS], [2], **settings)
    for name in (
        *("error", "heldout", "bicv", "half_error", "inner_product", "correlation"),
        *("stability_coefficient", "null_correlation", "loadings", "null_loadings", "cophenetic"),
    ):
        alike(weighted.table[name], repeated.table[name])
    # It counts pairs of sites: more sites, another index.
    alike(weighted.table["ari"], repeated.table["ari"], 5e-3)
    assert weighted.recommended == repeated.recommended and "weights" in weighted.settings


def test_bootstrap_and_diagnostics(twice: Twice, pair: tuple[Any, Any]) -> None:
    weighted, repeated = pair
    cohorts = (twice.cohort, twice.repeated[:N_SUBJECTS])
    spreads = [bootstrap(model, cohort, 2) for model, cohort in zip(pair, cohorts, strict=True)]
    alike(spreads[0].similarity, spreads[1].similarity)
    alike(spreads[0].component_se, twice.once(spreads[1].component_se))
    errors = [relative_error(spreads[0].component_se, weighted)]
    errors += [relative_error(spreads[1].component_se, repeated)]
    alike(*errors)
    measures = [diagnose(model, cohort) for model, cohort in zip(pair, cohorts, strict=True)]
    for name in (
        *("explained", "explained_X", "linear", "unique", "alone", "extent", "overlap"),
        *("similarity", "residual"),
    ):
        alike(getattr(measures[0], name), getattr(measures[1], name))


def test_signs_go_by_the_weights() -> None:
    """Of maps that are mostly negative, and positive where a site weighs."""
    maps = np.array([[1.0, -2.0, 1.5], [1.0, -1.0, -1.5]]).T
    weights = np.array([6, 1, 2])
    signs = map_signs(maps, weights)
    np.testing.assert_array_equal(signs, map_signs(np.repeat(maps, weights, axis=0)))
    assert (signs != map_signs(maps)).any()


def test_people_who_lack_sites(twice: Twice, pair: tuple[Any, Any]) -> None:
    sites = np.arange(642)
    cohorts = (twice.new, twice.repeated[N_SUBJECTS:])
    loadings = []
    for model, cohort, numbers in zip(pair, cohorts, (sites, twice.again), strict=True):
        X = np.where(np.isin(numbers, range(100, 120)), np.nan, cohort.X)
        loadings.append(loadings_of(model, replace(cohort, X=X, checked=True)))
    alike(loadings[0].loadings, loadings[1].loadings)
    alike(loadings[0].quality["residual"], loadings[1].quality["residual"])


def test_saved_and_matched(twice: Twice, pair: tuple[Any, Any], tmp_path: Path) -> None:
    model = pair[0]
    model.save(tmp_path / "m.zip")
    again = ico.load_model(tmp_path / "m.zip")
    np.testing.assert_array_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.transform(twice.new), model.transform(twice.new))
    assert again.weighting_ == model.weighting_ and (again.weights == model.weights_).all()
    record = provenance_of(again, twice.cohort)["result"]
    assert record["site_weights"]["by"] == again.weighting_
    plain = ico.CorticalFactorization(K, n_starts=2, level=1).fit(twice.cohort)
    assert plain.weights_ is None
    by_hand = ico.match_components(model.components_, plain.components_, model.weights_)
    np.testing.assert_array_equal(ico.match_components(model, plain).similarity, by_hand.similarity)


def test_areas(tmp_path: Path) -> None:
    from nilearn.datasets import load_fsaverage

    sites = ico.Sites.icosphere(3)
    areas = vertex_areas(sites.coordinates, sites.triangles)
    alike(weighted_sites(sites, None, "area")[0].weights, areas / areas.mean(), 1e-12)
    # Without triangles, the part of the sphere that is nearest to each point.
    points, _ = weighted_sites(ico.Sites.from_sphere(sites.coordinates), None, "area")
    assert np.corrcoef(points.weights, areas)[0, 1] > 0.9
    for name in ("fsaverage3", "fsaverage5", "fsaverage6"):
        weighted, _ = weighted_sites(ico.Sites.named(name), None, "area", "left")
        assert 0.2 < weighted.weights.std() < 0.5
    meshes = load_fsaverage("fsaverage5")
    surfaces = [meshes[name].parts["left"] for name in ("pial", "white_matter")]
    middle = np.mean([surface.coordinates for surface in surfaces], axis=0)
    areas_5 = vertex_areas(middle, surfaces[0].faces)
    weighted, _ = weighted_sites(ico.Sites.named("fsaverage5"), None, "area", "left")
    alike(weighted.weights, areas_5 / areas_5.mean(), 1e-6)
    write_maps(tmp_path / "va.shape.gii", areas[None].astype(np.float32), "left", ["area"])
    write_geometry(tmp_path / "lh.midthickness", sites.coordinates * 70, sites.triangles)
    for name in ("va.shape.gii", "lh.midthickness"):
        weighted, origin = weighted_sites(sites, None, str(tmp_path / name), "left")
        alike(weighted.weights, areas / areas.mean(), 1e-6)
        assert name in str(origin)
    with refused("weights"):
        weighted_sites(sites, None, [tmp_path / "va.shape.gii"] * 2, "left")
    with refused("lh.midthickness"):
        weighted_sites(ico.Sites.icosphere(2), None, tmp_path / "lh.midthickness")
    with refused("weights"):
        weighted_sites(sites.subset(np.arange(600)), None, "area")


@pytest.mark.parametrize(
    "weights", ["areas", object(), np.ones(3), np.r_[0.0, np.ones(641)], np.full(642, np.nan)]
)
def test_wrong_weights(twice: Twice, weights: Any) -> None:
    with refused("weights"):
        ico.CorticalFactorization(K, weights=weights).fit(twice.cohort.X, None)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "areas.mgh")
    settings = {"mesh": "fsaverage3", "hemi": "left", "weights": tmp_path / "areas.mgh"}
    with refused("areas.mgh"):
        ico.CorticalFactorization(2, **settings).fit(np.ones((4, 642)))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cohort = ico.simulate_cohort(12, 2, mesh="fsaverage3", random_state=0)
    np.save(tmp_path / "x.npy", cohort.X)
    options = "--mesh fsaverage3 --hemi left --n-components 2 --no-figures -q --site-weights"
    fit = ["fit", str(tmp_path / "x.npy"), *options.split()]
    assert main([*fit, "area", "-o", str(tmp_path / "out")]) == 0
    assert ico.load_model(tmp_path / "out").weights_ is not None
    assert main([*fit, "lost.gii", "-o", str(tmp_path / "no")]) == 2
    assert "--site-weights" in capsys.readouterr().err
