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

pytestmark = pytest.mark.slow

pytest.importorskip("distributed")
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
SRUN = """#!/bin/bash
trap 'kill $(jobs -p)' EXIT
shift
for task in 1 2; do "$@" & done
wait
"""


def test_the_job_of_the_page(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("### SLURM\n")[2]
    for language, name in (("python", "fit_cohort.py"), ("bash", "fit.sbatch")):
        code = section.partition(f"```{language}\n")[2].partition("\n```")[0]
        (tmp_path / name).write_text(code)
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    cohort = ico.simulate_cohort(20, 4, mesh="fsaverage3", random_state=1)
    stored = save_store(cohort, tmp_path / "cohort.zarr")
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path)}
    job = ["bash", "fit.sbatch"]
    run = subprocess.run(
        job, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    expected = CorticalFactorization(10).fit(stored)
    model = load_model(tmp_path / "model.zip")
    np.testing.assert_array_equal(model.components_, expected.components_)
    assert len(re.findall("Starting Worker|Start worker at", run.stderr)) >= 2
