"""Bootstrap: standard errors that mean what they say, kept pieces, files."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import icofactor as ico
from icofactor.bootstrap import Bootstrap, bootstrap
from icofactor.cohort import Cohort
from icofactor.errors import CheckpointError


def fitted(n: int, seed: int = 0, **changes: object) -> tuple[ico.CorticalFactorization, Cohort]:
    cohort = ico.simulate_cohort(n, 3, mesh="fsaverage3", random_state=seed)
    given = {"n_starts": 3, "tol": 1e-3, "level": 1, **changes}
    return ico.CorticalFactorization(3, **given).fit(cohort), cohort  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def one() -> tuple[ico.CorticalFactorization, Cohort]:
    return fitted(40)


@pytest.fixture(scope="module")
def spread(one: tuple[ico.CorticalFactorization, Cohort]) -> Bootstrap:
    return bootstrap(*one, n_resamples=24)


def test_shapes_and_signs(spread: Bootstrap, one: tuple[ico.CorticalFactorization, Cohort]) -> None:
    model, _ = one
    assert spread.component_se.shape == model.components_.shape
    assert spread.loading_se.shape == model.loadings_.shape
    assert spread.similarity.shape == (24, 3)
    assert (spread.component_se >= 0).all() and (spread.loading_se > 0).all()
    assert np.all(spread.stability > 0.8) and np.all(spread.stability <= 1)


def test_standard_errors_are_those_of_other_cohorts(spread: Bootstrap) -> None:
    """Cohorts of other subjects with the same components scatter about as much as the bootstrap says.

    The simulator draws subjects one by one: rows of one long cohort are independent samples.
    """
    everyone = ico.simulate_cohort(400, 3, mesh="fsaverage3", random_state=0)
    reference = None
    maps = []
    for first in range(0, 400, 40):
        X = everyone.X[first : first + 40]
        model = ico.CorticalFactorization(3, n_starts=3, tol=1e-3, level=1, mesh="fsaverage3").fit(X)
        reference = model.components_ if reference is None else reference
        maps.append(model.components_[ico.match_components(reference, model.components_).b])
    true = np.linalg.norm(np.std(maps, axis=0, ddof=1))
    assert 0.5 * true < np.linalg.norm(spread.component_se) < 2 * true


def test_more_subjects_are_surer(spread: Bootstrap) -> None:
    model, cohort = fitted(160)
    more = bootstrap(model, cohort, n_resamples=10)
    assert np.linalg.norm(more.component_se) < 0.75 * np.linalg.norm(spread.component_se)


def test_same_seed_same_bits_and_pieces_are_kept(
    spread: Bootstrap, one: tuple[ico.CorticalFactorization, Cohort], tmp_path: Path
) -> None:
    kept = bootstrap(*one, n_resamples=24, work_dir=tmp_path / "work")
    np.testing.assert_array_equal(kept.component_se, spread.component_se)
    pieces = sorted((tmp_path / "work").glob("resamples*.npz"))
    assert len(pieces) == 3
    pieces[1].unlink()
    again = bootstrap(*one, n_resamples=24, work_dir=tmp_path / "work")
    np.testing.assert_array_equal(again.loading_se, spread.loading_se)
    with pytest.raises(CheckpointError, match="random_state was 0, is 1"):
        bootstrap(*one, n_resamples=24, random_state=1, work_dir=tmp_path / "work")


def test_masked_sites_have_no_error(tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3", random_state=1, hemisphere="both")
    mask = np.ones(cohort.sites.n, dtype=bool)
    mask[[0, 5, 700]] = False
    masked = Cohort(cohort.X, cohort.subjects, cohort.sites, mask=mask, hemisphere="both")
    model = ico.CorticalFactorization(3, n_starts=2, tol=1e-3, level=1).fit(masked)
    found = bootstrap(model, masked, n_resamples=4)
    assert not found.component_se[:, ~mask].any()
    files = found.save(tmp_path, model, masked.subjects)
    assert [file.name for file in files] == [
        "stability.tsv",
        "loadings_se.tsv",
        "hemi-L_desc-icofactor_componentsse.shape.gii",
        "hemi-R_desc-icofactor_componentsse.shape.gii",
    ]
    right = np.stack(nib.load(files[3]).agg_data())
    np.testing.assert_allclose(right, found.component_se[:, 642:], rtol=1e-6)
    rows = [line.split("\t") for line in files[0].read_text().splitlines()]
    assert [row[0] for row in rows] == ["component", "1", "2", "3"]
    assert float(rows[1][1]) == pytest.approx(found.stability[0])
    assert len(files[1].read_text().splitlines()) == 31
    with pytest.raises(FileExistsError):
        found.save(tmp_path, model, masked.subjects)


@pytest.mark.parametrize("method", ["LE-PPNMF", "E-DL", "LE-SPNNMF"])
def test_other_methods(method: str) -> None:
    model, cohort = fitted(30, method=method, tol=1e-2, n_iter=200)
    found = bootstrap(model, cohort, n_resamples=3)
    assert np.all(found.stability > 0.5)
    assert np.linalg.norm(found.component_se) < np.linalg.norm(model.components_)


def test_what_cannot_be_resampled(one: tuple[ico.CorticalFactorization, Cohort]) -> None:
    model, cohort = one
    with pytest.raises(ValueError, match="fitted to 40 subjects; the cohort holds 30"):
        bootstrap(model, ico.simulate_cohort(30, 3, mesh="fsaverage3", random_state=0))
    with pytest.raises(ValueError, match="not fitted yet"):
        bootstrap(ico.CorticalFactorization(3), cohort)
    with pytest.raises(ValueError, match="n_resamples must be a whole number ≥ 2; found 1"):
        bootstrap(model, cohort, n_resamples=1)
