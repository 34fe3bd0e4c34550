"""Fixtures shared by all tests: the real data, which live outside the project."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from icofactor.factorization.design import Design
from icofactor.factorization.sources import Pyramid
from icofactor.factorization.statistics import Statistics
from icofactor.sphere.operators import vertex_to_face
from icofactor.sphere.sites import Sites

VARIABLE = "ICOFACTOR_TEST_DATA"
N_LEFT = 10242


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use the real data are marked so."""
    for item in items:
        if "data_folder" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real_data)


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not walk through them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def default_interrupt() -> Iterator[None]:
    """Handle SIGINT as Python does by default, also in the background of a shell, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data; tests that ask for it are skipped where there is none."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: it should name the folder of real data")
    if not Path(folder).is_dir():
        pytest.skip(f"{VARIABLE}={folder} is not a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def thickness(data_folder: Path) -> np.ndarray:
    """Thickness in mm of 200 subjects × 20484 vertices (left, right), float32."""
    path = data_folder / "thickness_fsaverage5_n200.npz"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    with np.load(path) as archive:
        return np.asarray(archive["thickness"])


@pytest.fixture(scope="session")
def left_faces() -> Sites:
    """The 20,480 faces of one hemisphere of fsaverage5."""
    return Sites.named("fsaverage5", on="faces")


@pytest.fixture(scope="session")
def real_X(thickness: np.ndarray) -> np.ndarray:
    """Thickness of 100 subjects on the left faces, faces × subjects, in mm."""
    triangles = Sites.named("fsaverage5").triangles
    assert triangles is not None
    to_faces = vertex_to_face(triangles, N_LEFT)
    return np.ascontiguousarray(to_faces @ thickness[:100, :N_LEFT].T.astype(np.float64))


@pytest.fixture(scope="session")
def real_pyramid(real_X: np.ndarray, left_faces: Sites) -> Pyramid:
    """Sums of the real data over every face of the hierarchy."""
    return Pyramid.from_data(real_X, left_faces)


@pytest.fixture(scope="session")
def real_20(real_pyramid: Pyramid, left_faces: Sites) -> Statistics:
    """Statistics of the real data on the 20 root faces."""
    return real_pyramid.statistics(Design(left_faces))


@pytest.fixture(scope="session")
def real_320(real_pyramid: Pyramid, left_faces: Sites) -> Statistics:
    """Statistics of the real data on the 320 faces of level 2."""
    return real_pyramid.statistics(Design(left_faces, level=2))
