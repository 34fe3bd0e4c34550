"""Passes on the device that JAX finds give what the host gives (here the device is the processor itself)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor.factorization import engines
from icofactor.sphere.sites import Sites
from icofactor.streaming.blocks import as_block
from icofactor.streaming.passes import Stream, each_block, pass_over
from icofactor.streaming.source import Adjusted, Adjustment, ArraySource, Subset

jax = pytest.importorskip("jax")

from icofactor.factorization.engines import device  # noqa: E402

SITES = Sites.named("fsaverage3", on="faces")


def maps(dtype: Any = np.float32, n: int = 23) -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.gamma(2.0, size=(n, 3)) @ np.exp(3 * rng.normal(size=(3, 3)) @ SITES.coordinates.T) ** 0.3
    return np.asarray(found + 0.1 * rng.random(found.shape), dtype=dtype)


def mask() -> np.ndarray:
    return np.random.default_rng(1).random(SITES.n) > 0.2


@pytest.fixture(params=["streamed", "kept", "whole"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How much memory the device has: none for maps, for parts, for all of them at once."""
    limit = {"streamed": None, "kept": 2**20, "whole": 2**33}[request.param]
    monkeypatch.setattr(device, "memory_limit", lambda: limit)
    if request.param == "kept":
        monkeypatch.setattr(device, "_WHOLE", np.inf)
    return str(request.param)


@pytest.mark.parametrize(
    "method", ["CD-PNNMF", *(pytest.param(name, marks=pytest.mark.slow) for name in ("parts", "PPNMF", "E-DL"))]
)
def test_a_fit_with_its_maps_on_the_device(method: str, room: str) -> None:
    if room != "streamed" and method != "CD-PNNMF":
        pytest.skip("how much memory there is does not depend on the method")
    given: dict[str, Any] = {"mesh": SITES, "mask": mask(), "method": method, "level": 1, "n_starts": 1, "n_iter": 20}
    given |= {"tol": 0.0, "random_state": 0, "polish": 1, "refinement": ico.Refinement(1, 2, 5)}
    expected = ico.CorticalFactorization(3, engine="numpy", **given).fit(maps())
    found = ico.CorticalFactorization(3, engine="jax", **given).fit(maps())
    np.testing.assert_array_equal(found.design_.faces, expected.design_.faces)
    scale = np.abs(expected.components_).max()
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-6, atol=1e-7 * scale)
    np.testing.assert_allclose(found.reconstruction_err_, expected.reconstruction_err_, rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ">f4", np.int64])
def test_statistics_of_any_type(dtype: Any, room: str) -> None:
    """Also with columns that overlap, sites of unequal weight, and maps adjusted on the way."""
    X = (100 * maps(np.float64)).astype(dtype)
    rng = np.random.default_rng(2)
    step = Adjustment(
        rng.normal(size=(len(X), 2)), rng.normal(size=(2, SITES.n)), X.mean(0, np.float64), rng.random(SITES.n) + 1
    )
    for kind, adjusted in (("partition", None), ("smooth", step)):
        design = ico.Design(SITES, kind=kind, level=1)
        sources = (ArraySource(X), device.OnDevice(ArraySource(X)))
        streams = [Stream(one if adjusted is None else Adjusted(one, adjusted)) for one in sources]
        expected, found = (ico.Statistics.from_data(stream, design) for stream in streams)
        for name in ("L", "root_L", "energy", "sq_norm"):
            want = getattr(expected, name)
            np.testing.assert_allclose(getattr(found, name), want, rtol=1e-10, atol=1e-9 * np.abs(want).max())


def test_what_the_host_reads_is_the_same(room: str) -> None:
    base = Subset(ArraySource(maps()), mask())
    found = Stream(device.OnDevice(base))
    sites = np.array([3, 1, 700])
    np.testing.assert_array_equal(found.read(sites), as_block(base.read(sites)))
    few = [4, 0, 4]
    seen = np.concatenate(
        [x["site.x"] for _, x in pass_over(found.subset(np.array(few)), each_block(lambda x, _: {"site.x": x}))]
    )
    np.testing.assert_array_equal(seen, as_block(base.read(slice(0, base.shape[0])))[:, few])
    part = found.source.reader(slice(5, 50))(None)
    np.testing.assert_array_equal(np.concatenate([x for _, x in part.in_steps(7)]), as_block(base.read(slice(5, 50))))


def test_values_that_are_not_finite_are_refused_by_name(room: str) -> None:
    X = maps()
    X[4, -1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite values in subject 4"):
        ico.CorticalFactorization(2, mesh=SITES, engine="jax", n_starts=1, n_iter=5).fit(X)


def test_a_second_pass_reads_only_what_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", maps())
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    for limit, passes in ((None, 2), (2**30, 1)):
        monkeypatch.setattr(device, "memory_limit", lambda limit=limit: limit)
        stream = Stream(device.OnDevice(ArraySource(X)))
        for _ in range(2):
            ico.Statistics.from_data(stream, ico.Design(SITES, level=1))
        assert stream.passes == passes


def test_large_maps_go_to_a_gpu_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    X = Stream(ArraySource(maps()))
    assert engines.passes_on_device(X, "auto") is X
    monkeypatch.setattr(engines, "WORTH_SENDING", 1)
    for there in (False, True):
        monkeypatch.setattr(engines, "has_gpu", lambda there=there: there)
        assert isinstance(engines.passes_on_device(X, "auto").source, device.OnDevice) is there
    assert engines.passes_on_device(X, "cpu") is X
