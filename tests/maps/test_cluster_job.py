"""The job of docs/scale.md: scheduler and workers as processes of their own that find each other by a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from icofactor import CorticalFactorization, load_model
from icofactor.cohort.store.create import save_store
from icofactor.cohort.store.read import open_store

pytestmark = pytest.mark.slow

pytest.importorskip("distributed")
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
SRUN = """#!/bin/bash
trap 'kill $(jobs -p)' EXIT
shift
for task in 1 2; do "$@" & done
wait
"""


@pytest.mark.skipif(not PAGE.is_file(), reason="docs/scale.md is not here")
def test_the_job_of_the_page(tmp_path: Path) -> None:
    part = PAGE.read_text(encoding="utf-8").partition("### SLURM\n")[2]
    for language, name in (("python", "fit_cohort.py"), ("bash", "fit.sbatch")):
        found = re.search(rf"^```{language}\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
        assert found is not None
        (tmp_path / name).write_text(found[1])
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    save_store(
        ico.simulate_cohort(20, 4, mesh="fsaverage3", random_state=1), tmp_path / "cohort.zarr"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "fit.sbatch"],
        cwd=tmp_path,
        env={**os.environ, "PATH": paths, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = CorticalFactorization(10).fit(open_store(tmp_path / "cohort.zarr"))
    np.testing.assert_array_equal(
        load_model(tmp_path / "model.zip").components_, expected.components_
    )
    assert len(re.findall("Starting Worker|Start worker at", done.stderr)) >= 2
