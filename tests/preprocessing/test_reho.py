"""ReHo against SciPy's Friedman statistic, a stored reference, and what Kendall's W must satisfy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.refusals import refused
from icofactor.preprocessing import reho
from icofactor.preprocessing.reho import ring_incidence
from icofactor.preprocessing.temporal import bandpass, concatenate_runs
from icofactor.sphere.sites import Sites

FACES3 = Sites.named("fsaverage3").triangles
N3 = 642
ALL = np.ones(N3, dtype=bool)
SERIES = np.random.default_rng(0).normal(size=(N3, 20))


def friedman_w(neighbours: np.ndarray) -> float:
    """Kendall's W of (m, n) series from SciPy's Friedman statistic."""
    m, n = neighbours.shape
    return float(stats.friedmanchisquare(*neighbours.T).statistic / (m * (n - 1)))


def uncorrected_w(neighbours: np.ndarray) -> float:
    """Kendall's W from its textbook formula without the correction for ties."""
    m, n = neighbours.shape
    sums = stats.rankdata(neighbours, axis=1).sum(axis=0)
    return float(12 * np.sum((sums - m * (n + 1) / 2) ** 2) / (m**2 * (n**3 - n)))


def rows_within(faces: np.ndarray, start: int, rings: int) -> list[int]:
    """Vertices within so many edges, by walking from face to face."""
    reached = {start}
    for _ in range(rings):
        reached |= {int(v) for face in faces if reached & set(face.tolist()) for v in face}
    return sorted(reached)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("rings", [1, 3])
def test_equals_friedman(ties: bool, rings: int) -> None:
    rng = np.random.default_rng(0)
    series = rng.normal(size=(N3, 40)) + rng.normal(size=40)
    if ties:
        series = np.round(series, 0)
    coherence = reho(series, FACES3, rings=rings)
    plain = reho(series, FACES3, rings=rings, tie_correction=False)
    for vertex in (0, 11, 12, 300, 641):
        neighbours = series[rows_within(FACES3, vertex, rings)]
        assert abs(coherence[vertex] - friedman_w(neighbours)) < 1e-10
        assert abs(plain[vertex] - uncorrected_w(neighbours)) < 1e-10
    if ties:
        assert np.all(coherence > plain)
    else:
        assert np.array_equal(coherence, plain)


def test_three_rings_are_37_vertices() -> None:
    mesh = Sites.named("fsaverage5")
    around = ring_incidence(mesh.triangles, mesh.n, 3)
    sizes = around.sum(axis=1)
    five = np.flatnonzero(ring_incidence(mesh.triangles, mesh.n, 1).sum(axis=1) == 6)
    assert len(five) == 12
    near_five = around[five].sum(axis=0) > 0
    assert np.all(sizes[~near_five] == 37)
    # a five-valent node has 5 + 10 + 15 neighbours; the five beside it miss three, the ten in its second ring one
    assert np.all(sizes[five] == 31)
    assert np.bincount(sizes[near_five])[[31, 34, 36]].tolist() == [12, 60, 120]


def test_stored_reference_one_ring(data_folder: Path) -> None:
    with np.load(data_folder / "rest_fsaverage5_left.npz") as archive:
        series = archive["lh"]
    with np.load(data_folder / "rest_reference_left.npz") as archive:
        reference = archive["reho_1ring_lh"]
    coherence = reho(series, Sites.named("fsaverage5").triangles, rings=1, tie_correction=False)
    assert np.abs(coherence - reference).max() < 1e-6
    assert np.array_equal(coherence == 0, reference == 0)


@pytest.mark.slow
def test_memory_of_whole_hemisphere() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    # VmHWM, not ru_maxrss, which a process takes over from the one that started it
    script = (
        "import numpy as np\n"
        "from icofactor.preprocessing import reho\n"
        "from icofactor.sphere import Sites\n"
        "series = np.random.default_rng(0).normal(size=(10242, 652)).astype(np.float32)\n"
        "reho(series, Sites.named('fsaverage5').triangles)\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert int(printed) * 1024 < 2 * 2**30


def test_identical_series_have_w_one_and_medial_wall_zero() -> None:
    series = np.tile(np.random.default_rng(1).normal(size=30), (N3, 1))
    wall = np.zeros(N3, dtype=bool)
    wall[rows_within(FACES3, 5, 3)] = True
    series[wall] = 0
    coherence = reho(series, FACES3)
    assert np.all(coherence[wall] == 0)
    assert np.abs(coherence[~wall] - 1).max() < 1e-12


def test_medial_wall_belongs_to_no_neighbourhood() -> None:
    series = np.random.default_rng(2).normal(size=(N3, 25))
    wall = np.zeros(N3, dtype=bool)
    wall[rows_within(FACES3, 100, 2)] = True
    expected = reho(series, FACES3, mask=~wall)
    for filling in (7.0, np.nan, 0.0):
        series[wall] = filling
        assert np.array_equal(reho(series, FACES3), expected)
    neighbour = int(np.setdiff1d(rows_within(FACES3, 100, 3), np.flatnonzero(wall))[0])
    inside = [v for v in rows_within(FACES3, neighbour, 3) if not wall[v]]
    assert abs(expected[neighbour] - friedman_w(series[inside])) < 1e-10
    alone = np.isin(np.arange(N3), [0, 1])  # two of the twelve corners, far apart
    assert np.all(reho(series, FACES3, rings=1, mask=alone) == 0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), levels=st.integers(2, 50), n=st.integers(3, 30))
def test_only_ranks_matter_and_w_lies_between_0_and_1(seed: int, levels: int, n: int) -> None:
    faces = Sites.icosphere(1).triangles
    rng = np.random.default_rng(seed)
    series = rng.integers(0, levels, size=(42, n)).astype(np.float64)
    series[:, 0] = levels  # so that no row is constant
    coherence = reho(series, faces, rings=1)
    assert coherence.min() >= 0
    assert coherence.max() <= 1
    order = rng.permutation(n)
    scale = rng.uniform(0.5, 2.0, size=(42, 1))
    assert np.array_equal(reho(np.exp(series[:, order] / 10) * scale, faces, rings=1), coherence)


def test_many_volumes_do_not_overflow() -> None:
    faces = Sites.icosphere(0).triangles
    series = np.tile(np.random.default_rng(0).normal(size=40_000), (12, 1))
    assert np.abs(reho(series, faces, rings=3) - 1).max() < 1e-12


def test_runs_are_brought_to_one_scale() -> None:
    rng = np.random.default_rng(4)
    runs = [rng.normal(size=(N3, 300)), 50 + 100 * rng.normal(size=(N3, 200))]
    together = concatenate_runs([bandpass(run, 0.72) for run in runs])
    assert together.shape == (N3, 500)
    for run in (together[:, :300], together[:, 300:]):
        assert np.abs(run.mean(axis=1)).max() < 1e-12
        assert np.abs(np.linalg.norm(run, axis=1) - 1).max() < 1e-12
    with refused("runs"):
        concatenate_runs([runs[0], runs[1][:600]])
    with refused("runs"):
        concatenate_runs([])


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("faces", {"series": SERIES[:641]}),
        ("rings", {"rings": 0}),
        ("faces", {"faces": FACES3.astype(float)}),
        ("series", {"series": np.ones((N3, 20))}),
        ("series", {"series": np.where(SERIES[17, 4] == SERIES, np.nan, SERIES)}),
        ("series", {"series": np.where(np.arange(N3)[:, None] == 17, 3.0, SERIES), "mask": ALL}),
    ],
)
def test_bad_arguments(argument: str, changes: dict) -> None:
    with refused(argument):
        reho(**{"series": SERIES, "faces": FACES3, **changes})
