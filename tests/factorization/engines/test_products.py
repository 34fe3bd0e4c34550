"""Compiled products of tiles against NumPy's in float64, with the vectors of this processor and of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

looking = pytest.importorskip("icofactor.factorization.engines.looking")

SHAPES = [(130, 512, 20), (67, 61, 7), (5, 3, 1), (64, 130, 4)]


def check_products(n: int, m: int, k: int, stored: type, kind: type) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(2.5, 0.3, (n + 2, m + 3)).astype(stored)
    rows, first, centre = rng.permutation(n + 2)[:n], 3, rng.normal(2.5, 0.1, n).astype(kind)
    C, W = rng.normal(size=(k, m + 5)).astype(kind), np.abs(rng.normal(size=(n, k))).astype(kind)
    W[: n // 2, ::2] = 0
    deviations = x[rows, first:].astype(np.float64) - centre[:, None].astype(np.float64)
    products, turned = np.ones((n, k)), np.ones((k + 1, m + 4))
    looking.add_products(looking.bits(x), rows, first, centre, C, 2, m, products)
    looking.add_turned_products(looking.bits(x), rows, first, centre, W, turned[1:], 2, m)
    close = {"rtol": 0, "atol": 12 * np.finfo(kind).eps * np.sqrt(n + m)}
    np.testing.assert_allclose(products, 1 + deviations @ C.T[2 : m + 2].astype(np.float64), **close)
    np.testing.assert_allclose(turned[1:, 2 : m + 2], 1 + W.T.astype(np.float64) @ deviations, **close)
    assert (turned[0] == 1).all()
    assert (turned[:, :2] == 1).all()
    assert (turned[:, m + 2 :] == 1).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("stored", "kind"), [(np.float16, np.float32), (np.float32, np.float64)])
def test_products_of_tiles(shape: tuple[int, int, int], stored: type, kind: type) -> None:
    check_products(*shape, stored, kind)


@pytest.mark.slow
@pytest.mark.parametrize("features", [{"sse2": True, "avx2": True}, {}])
def test_products_with_the_vectors_of_other_processors(features: dict[str, bool], tmp_path: Path) -> None:
    program = (
        "import numpy as np, llvmlite.binding as llvm\n"
        "found = llvm.get_host_cpu_features\n"
        f"llvm.get_host_cpu_features = lambda: {features}\n"
        "import icofactor.factorization.engines.products\n"
        "llvm.get_host_cpu_features = found\n"
        "import test_products as tests\n"
        "assert not tests.looking.CONVERTS\n"
        "for shape in tests.SHAPES:\n"
        "    tests.check_products(*shape, np.float16, np.float32)\n"
        "    tests.check_products(*shape, np.float32, np.float64)\n"
    )
    env = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("convert", ["by_bits", *["by_processor"] * looking.CONVERTS])
def test_every_float16_is_converted(convert: str) -> None:
    from numba import njit

    one = njit(getattr(looking, convert))
    bits = np.arange(2**16, dtype=np.uint16)
    expected = bits.view(np.float16).astype(np.float32)
    found = np.array([one(value) for value in bits], np.float32)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[finite], expected[finite])
    assert not (np.abs(found[~finite]) < 2**16).any()
