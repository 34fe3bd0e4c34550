"""Band-pass and ALFF: against nilearn's filter, a stored reference, and sines whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.refusals import refused
from icofactor.preprocessing import alff
from icofactor.preprocessing.temporal import bandpass, unit_series

TR = 0.72
TIMES = TR * np.arange(1000)


def sine(frequency: float, amplitude: float = 1.0) -> np.ndarray:
    return amplitude * np.sin(2 * np.pi * frequency * TIMES + 0.3)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_butterworth_is_that_of_xcpd(order: int) -> None:
    """XCP-D calls nilearn's filter with constant padding as long as the series allows."""
    from nilearn.signal import butterworth

    series = np.random.default_rng(0).normal(size=(5, 400)).cumsum(axis=1)
    expected = butterworth(
        series.T.copy(),
        1 / TR,
        low_pass=0.1,
        high_pass=0.05,
        order=order,
        padtype="constant",
        padlen=399,
        copy=True,
    ).T
    assert np.abs(bandpass(series, TR, order=order) - expected).max() < 1e-12 * np.abs(series).max()


@pytest.mark.parametrize("method", ["butterworth", "fft"])
def test_what_passes(method: str) -> None:
    inside, below, above = sine(0.07), sine(0.01, 3.0), sine(0.4, 2.0)
    filtered = bandpass(np.stack([inside + below + above + 100]), TR, method=method)[0]
    middle = slice(200, -200)
    # neither is a wall: the Butterworth has skirts, and a sine between two Fourier frequencies leaks
    assert np.abs(filtered[middle] - inside[middle]).max() < 0.06
    outside = bandpass(np.stack([below, above]), TR, method=method)[:, middle]
    assert np.abs(outside).max() < 0.03


def test_fft_keeps_exactly_the_bins_of_the_band() -> None:
    series = np.random.default_rng(1).normal(size=(3, 500)) + 5
    spectrum = np.abs(np.fft.rfft(bandpass(series, 1.0, method="fft"), axis=1))
    frequencies = np.arange(251) / 500
    inside = (frequencies >= 0.05) & (frequencies <= 0.1)  # 25/500 and 50/500 lie on the edges
    assert inside.sum() == 26
    assert spectrum[:, ~inside].max() < 1e-10
    assert np.abs(spectrum - np.abs(np.fft.rfft(series, axis=1)))[:, inside].max() < 1e-10


def test_float32_and_medial_wall() -> None:
    series = np.random.default_rng(2).normal(size=(600, 200)).astype(np.float32)
    series[[3, 550]] = 0
    series[4] = np.nan
    filtered = bandpass(series, TR)
    assert filtered.dtype == np.float32
    assert np.all(filtered[[3, 4, 550]] == 0)
    exact = bandpass(series[[0, 599]].astype(np.float64), TR)
    assert np.abs(filtered[[0, 599]] - exact).max() < 1e-6
    norms = np.linalg.norm(unit_series(series), axis=1)
    assert np.array_equal(norms == 0, np.isin(np.arange(600), [3, 4, 550]))


def test_alff_equals_stored_reference(data_folder: Path) -> None:
    with np.load(data_folder / "rest_fsaverage5_left.npz") as archive:
        series = archive["lh"]
    with np.load(data_folder / "rest_reference_left.npz") as archive:
        reference = archive["alff_lh"]
    amplitude = alff(series, 1.4, low=0.01, high=0.08)
    inside = reference != 0
    assert (np.abs(amplitude - reference)[inside] / reference[inside]).max() < 1e-5
    assert np.all(amplitude[~inside] == 0)


def test_alff_of_sines_is_their_mean_amplitude() -> None:
    n = 1000
    time = np.arange(n)
    bins = np.arange(50, 101)  # 0.05 to 0.1 Hz at one volume per second
    amplitudes = np.random.default_rng(4).uniform(1, 5, size=len(bins))
    series = 40 + (amplitudes[:, None] * np.sin(2 * np.pi * bins[:, None] * time / n)).sum(axis=0)
    series = (
        series + 30 * np.cos(2 * np.pi * 49 * time / n) + 30 * np.cos(2 * np.pi * 101 * time / n)
    )
    assert abs(alff(series[None], 1.0)[0] - amplitudes.mean()) < 1e-10


def test_alff_detrend_and_normalize() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(20, 300)) * rng.uniform(1, 3, size=(20, 1))
    noise[7] = 0
    plain = alff(noise, TR)
    line = 0.5 * np.arange(300) * (noise[:, :1] != 0)
    assert (
        np.abs(alff(noise + line, TR, detrend=True) - alff(noise, TR, detrend=True)).max() < 1e-10
    )
    assert np.abs(alff(noise + line, TR) - plain).max() > 0.1
    scaled = alff(noise, TR, normalize="mean")
    used = np.arange(20) != 7
    assert abs(scaled[used].mean() - 1) < 1e-12
    assert scaled[7] == plain[7] == 0
    assert np.abs(scaled[used] / plain[used] - scaled[0] / plain[0]).max() < 1e-12


SHORT = np.random.default_rng(0).normal(size=(4, 20))
BROKEN = np.where(np.arange(800).reshape(4, 200) == 205, np.inf, 1.0)


@pytest.mark.parametrize("step", [bandpass, alff])
@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"tr": None}, "tr"),
        ({"tr": 720.0}, "tr"),
        ({"tr": 0.00072}, "tr"),
        ({"tr": np.nan}, "tr"),
        ({"tr": 6.0}, "high"),
        ({"low": 0.1, "high": 0.05}, "low"),
        ({"series": SHORT}, "series"),
        ({"series": np.zeros((4, 200))}, "series"),
        ({"series": np.zeros(200)}, "series"),
        ({"series": np.array([["a"] * 9])}, "series"),
        ({"series": np.zeros((4, 2))}, "series"),
        ({"series": BROKEN}, "series"),
        ({"mask": np.ones(3, dtype=bool)}, "mask"),
        ({"mask": np.zeros(4, dtype=bool)}, "mask"),
    ],
)
def test_bad_series(step, change: dict, argument: str) -> None:
    arguments = {"series": np.random.default_rng(0).normal(size=(4, 200)), "tr": TR, **change}
    with refused(argument):
        step(**arguments)


def test_number_of_volumes_asked_for_is_enough() -> None:
    series = np.random.default_rng(0).normal(size=(1, 400))
    with refused("series"):
        alff(series[:, :27], TR)
    assert np.all(alff(series[:, :28], TR) > 0)


@pytest.mark.parametrize(
    ("step", "changes"),
    [(bandpass, {"method": "boxcar"}), (bandpass, {"order": 0}), (alff, {"normalize": "z"})],
)
def test_bad_choices(step, changes: dict) -> None:
    with refused(*changes):
        step(np.random.default_rng(0).normal(size=(4, 200)), TR, **changes)
