"""Small blocks, each of several strips, and a cohort for them."""

from __future__ import annotations

import pytest

from helpers.sources import HEIGHT, N_SUBJECTS, simulated
from icofactor.cohort.cohort import Cohort
from icofactor.maps import blocks


@pytest.fixture(scope="module")
def small_blocks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", 4 * N_SUBJECTS * HEIGHT)
        patch.setattr(blocks, "STRIP_BYTES", 1)
        patch.setattr(blocks, "LEAST_STRIP_SITES", 17)
        yield


@pytest.fixture(scope="package")
def cohort() -> Cohort:
    return simulated()
