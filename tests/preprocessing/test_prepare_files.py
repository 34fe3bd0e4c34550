"""`prepare` on any maps: outliers, smoothing and resampling of a cohort, into a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import run_cli
from helpers.refusals import refused
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.simulate import simulate_cohort
from icofactor.cohort.store.read import open_store
from icofactor.preprocessing.outliers import limit_outliers
from icofactor.preprocessing.prepare_maps import Changes, prepare_cohort
from icofactor.preprocessing.resampling import Resampler
from icofactor.preprocessing.smoothing import SurfaceSmoother
from icofactor.sphere.sites import Sites


def cohort_of(hemisphere: str = "left", mask: np.ndarray | None = None) -> Cohort:
    simulated = simulate_cohort(n_subjects=4, hemisphere=hemisphere, random_state=1)  # type: ignore[arg-type]
    X = simulated.X.copy()
    X[:, 3] = 100
    if mask is not None:
        X[:, ~mask] = np.nan
    return replace(simulated, X=X, mask=mask, truth=None)


def test_outliers_only(tmp_path: Path) -> None:
    cohort = cohort_of()
    store = prepare_cohort(cohort, tmp_path / "store", Changes(limit=4.4478))
    assert np.array_equal(np.asarray(store.X), limit_outliers(cohort.X))
    assert store.subjects == cohort.subjects
    assert store.participants["age"].tolist() == list(cohort.participants["age"])
    assert [step["step"] for step in store.provenance["preprocessing"]] == ["limit_outliers"]
    assert store.provenance["simulated"]
    again = prepare_cohort(store, tmp_path / "again", Changes(limit=3.0))
    assert [step["n_deviations"] for step in again.provenance["preprocessing"]] == [4.4478, 3.0]


def test_smooth_and_resample_both_hemispheres_within_the_mask(
    data_folder: Path, tmp_path: Path
) -> None:
    spheres = data_folder / "resample"
    with np.load(data_folder / "labels" / "labels_fsaverage5.npz") as archive:
        mask = np.concatenate([archive["cortex_lh"], archive["cortex_rh"]]).astype(bool)
    cohort = cohort_of("both", mask)
    changes = Changes(limit=4.4478, fwhm=6.0, resample_to="fsaverage4", spheres=spheres)
    store = prepare_cohort(cohort, tmp_path / "store", changes)
    assert (store.sites.name, store.sites.n, store.hemisphere) == ("fsaverage4", 2 * 2562, "both")
    limited = limit_outliers(cohort.X, mask=mask)
    from nilearn.datasets import load_fsaverage

    meshes = load_fsaverage("fsaverage5")
    for number, (side, letter) in enumerate((("left", "L"), ("right", "R"))):
        source_sites = slice(number * 10242, (number + 1) * 10242)
        parts = [meshes[kind].parts[side] for kind in ("white_matter", "pial")]
        middle = np.mean([surface.coordinates for surface in parts], axis=0)
        smoothed = SurfaceSmoother((middle, parts[0].faces), fwhm=6.0, roi=mask[source_sites])(
            limited[:, source_sites]
        )
        resampler = Resampler(
            spheres / f"fsaverage5_std_sphere.{letter}.10k_fsavg_{letter}.surf.gii",
            spheres / f"fsaverage4_std_sphere.{letter}.3k_fsavg_{letter}.surf.gii",
            source_areas=spheres
            / f"fsaverage5.{letter}.midthickness_va_avg.10k_fsavg_{letter}.shape.gii",
            target_areas=spheres
            / f"fsaverage4.{letter}.midthickness_va_avg.3k_fsavg_{letter}.shape.gii",
            roi=mask[source_sites],
        )
        target_sites = slice(number * 2562, (number + 1) * 2562)
        assert np.array_equal(store.mask[target_sites], resampler.coverage >= 0.5)
        expected = np.where(store.mask[target_sites], resampler(smoothed), 0)
        assert np.abs(np.asarray(store.X)[:, target_sites] - expected).max() < 1e-5
    steps = [step["step"] for step in store.provenance["preprocessing"]]
    assert steps == ["limit_outliers", "smooth", "resample"]
    assert store.provenance["preprocessing"][-1]["from"] == "fsaverage5"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).uniform(2, 3, size=(3, 642)).astype(np.float32)
    X[0, 0] = 50
    np.save(tmp_path / "maps.npy", X)
    words = (
        f"prepare {tmp_path}/maps.npy -o {tmp_path}/store --mesh fsaverage3 --hemisphere left -q"
    )
    assert run_cli(words, "--limit-outliers --n-deviations 5") == 0
    assert np.array_equal(np.asarray(open_store(tmp_path / "store").X), limit_outliers(X, 5.0))
    assert run_cli(words) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "maps.npy", 1 + np.random.default_rng(0).random((4, 642)))
    words = f"prepare {tmp_path}/maps.npy --hemisphere left --dry-run -o"
    assert run_cli(words, f"{tmp_path}/store") == 0
    assert "of 4 subjects" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["maps.npy"]
    assert run_cli(words, f"{tmp_path}/maps.npy") == 2


def test_what_cannot_be_done(tmp_path: Path) -> None:
    cohort = simulate_cohort(n_subjects=2, mesh="fsaverage3", random_state=0)
    on_faces = Sites.named("fsaverage3", on="faces")
    faces = Cohort(X=np.ones((1, 1280)), subjects=("a",), sites=on_faces)
    points = Cohort(X=np.ones((1, 42)), subjects=("a",), sites=Sites.icosphere(1))
    cases = [
        (cohort, {"resample_to": "fsaverage4"}, "spheres"),
        (cohort, {"fwhm": 5.0}, "surfaces"),
        (cohort, {"fwhm": 5.0, "surfaces": ("a", "b")}, "surfaces"),
        (faces, {"fwhm": 5.0}, "cohort"),
        (points, {"resample_to": "fsaverage4", "spheres": tmp_path}, "resample_to"),
    ]
    for data, changes, argument in cases:
        with refused(argument):
            prepare_cohort(data, tmp_path / "store", Changes(**changes))  # type: ignore[arg-type]
    assert not (tmp_path / "store").exists()
