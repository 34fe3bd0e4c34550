"""Experiment (r): its measures, its null, and that a quick run shows every method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from icofactor.errors import ArgumentError
from icofactor_lab.bench import reproducibility as lab
from icofactor_lab.bench import run_bench
from icofactor_lab.bench.reproducibility import AGREEMENTS, Material, Model
from icofactor_lab.bench.settings import QUICK, Bench
from icofactor_lab.common.outcome import Outcome

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def data() -> Material:
    mesh = ico.Sites.named("fsaverage3", hemi="both")
    used = np.ones(mesh.n, dtype=bool)
    used[::9] = False
    X = 2.5 + 0.2 * np.random.default_rng(1).standard_normal((20, int(used.sum())))
    return Material("noise", X.astype(np.float32), mesh, used)


def test_columns_are_paired_by_correlation() -> None:
    a = RNG.standard_normal((50, 3))
    assert lab.paired(a, 2 * a[:, [2, 0, 1]] + 1) == pytest.approx(1.0)
    flipped = a[:, [2, 0, 1]] * [1, -1, 1]
    assert lab.paired(a, flipped, signed=True) == pytest.approx(1.0)
    assert lab.paired(a, flipped) < 0.8
    assert lab.paired(a, np.ones((50, 3))) == 0.0  # a column that is constant matches nothing


def test_the_global_mean_is_taken_out() -> None:
    X = RNG.random((30, 40))
    own = RNG.standard_normal((30, 2))
    loadings = own + 5 * X.mean(axis=1)[:, None]
    left = lab.without_global(loadings, X)
    np.testing.assert_allclose(left.T @ X.mean(axis=1), 0, atol=1e-10)
    np.testing.assert_allclose(left, lab.without_global(own, X), atol=1e-10)


def test_a_null_cohort_keeps_means_and_moves_the_rest(data: Material) -> None:
    null = data.turned(0)
    np.testing.assert_array_equal(null.X, data.turned(0).X)
    assert null.X.shape == data.X.shape and (null.X >= 0).all()
    z = lambda X: (X - data.X.mean(axis=0)) / data.X.std(axis=0)
    for one, before in zip(z(null.X)[:3], z(data.X)[:3], strict=True):
        assert np.abs(one[:, None] - before[None]).min(axis=1).max() < 1e-3  # every value is one of that person's
        assert abs(np.corrcoef(one, before)[0, 1]) < 0.3
    assert len(data.edges) and data.edges.max() < data.X.shape[1]


def test_a_model_agrees_with_itself(data: Material) -> None:
    W = RNG.random((4, data.X.shape[1]))
    model = Model(W, lambda new: new @ W.T, lambda new: new)
    assert lab.agreements(model, model, data.X) == pytest.approx(dict.fromkeys(AGREEMENTS, 1.0))
    assert lab.left_over(model, data.X, data.X.mean(axis=0))[0] == 0


def test_parcels_are_columns() -> None:
    X = RNG.standard_normal((12, 30))
    stats = lab.one_column_each(X)
    solution = ico.solve(stats, "parts", 3, n_iter=20, random_state=0)
    W = solution.B
    assert solution.error == pytest.approx(np.square(X - X @ W @ W.T).sum())


def test_groups_are_disjoint_and_the_same_each_time() -> None:
    splits = list(lab.splits_of(20, (8, 8, 4), 3))
    for groups in splits:
        assert [len(g) for g in groups] == [8, 8, 4]
        assert len(np.unique(np.concatenate(groups))) == 20
    again = list(lab.splits_of(20, (8, 8, 4), 3))
    assert all((a == b).all() for one, two in zip(splits, again, strict=True) for a, b in zip(one, two, strict=True))


@pytest.mark.slow
def test_a_quick_run_shows_every_method() -> None:
    outcome = lab.run(Bench(QUICK, 1, 1, 60.0, lambda line: None))
    medians, every, parcels = outcome.tables
    assert len(medians.rows) == len(lab.ON_THE_SPHERE) * len(QUICK.ranks)
    assert {row["method"] for row in medians.rows} == set(lab.ON_THE_SPHERE)
    for row in medians.rows:
        assert all(-1 <= row[c] <= 1 for what in AGREEMENTS for c in (what, f"{what}, null"))
        assert 0 < row["unexplained"] < 1.5 and 0 < row["border ratio"] < 2 and row["seconds"] > 0
        assert ("updates" in row) == (row["method"] == "opNMF")
    assert len(every.rows) == len(medians.rows) * QUICK.splits
    assert {row["method"] for row in parcels.rows} == set(lab.ON_PARCELS)
    assert len(outcome.plates[0].draw().axes) == len(AGREEMENTS)
    assert not outcome.targets  # simulated data have none


def test_targets_are_those_of_parts() -> None:
    good = {"loadings": 0.99, "maps": 0.9, "unexplained": 0.3, "global mean out": 0.8, "border ratio": 1.0}
    rows = [{"method": name, "components": k, **good} for name in ("parts", "PCA") for k in (6, 10, 16)]
    assert len(lab.targets_of(rows)) == 11 and all(target.met for target in lab.targets_of(rows))
    rows[0]["loadings"], rows[1]["border ratio"] = 0.94, 1.3
    assert sum(target.met is False for target in lab.targets_of(rows)) == 2


def test_how_often_people_are_split_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(lab, "run", lambda bench: seen.append(bench.sizes.splits) or Outcome("r", "Reproducibility"))
    run_bench(tmp_path / "a", ["r"], quick=True, tell=lambda line: None)
    run_bench(tmp_path / "b", ["r"], quick=True, splits=7, tell=lambda line: None)
    assert seen == [1, 7]
    with pytest.raises(ArgumentError) as refusal:
        run_bench(tmp_path / "c", ["r"], splits=0)
    assert refusal.value.argument == "splits" and not (tmp_path / "c").exists()
