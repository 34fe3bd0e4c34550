"""The live Workbench as an oracle: small GIFTI files in, arrays out."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nibabel
import numpy as np
import pytest

SIDES = {"left": "CortexLeft", "right": "CortexRight"}


def wb_command(*words: object) -> None:
    """Run the tool; the test is skipped where it is not installed."""
    program = shutil.which("wb_command")
    if program is None:
        pytest.skip("wb_command is not installed: no live Connectome Workbench to compare with")
    patient = os.environ | {
        "OMP_WAIT_POLICY": "passive"
    }  # its threads would spin while others hold the processors
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, env=patient)
    assert done.returncode == 0, done.stderr


def write_metric(path: Path, values: np.ndarray, side: str = "left") -> Path:
    """One or several maps as a .shape.gii file."""
    arrays = [
        nibabel.gifti.GiftiDataArray(np.asarray(row, dtype=np.float32), intent="NIFTI_INTENT_SHAPE")
        for row in np.atleast_2d(values)
    ]
    meta = nibabel.gifti.GiftiMetaData({"AnatomicalStructurePrimary": SIDES[side]})
    nibabel.save(nibabel.gifti.GiftiImage(darrays=arrays, meta=meta), path)
    return path


def write_surface(
    path: Path, coordinates: np.ndarray, faces: np.ndarray, side: str | None = "left"
) -> Path:
    """A mesh as a .surf.gii file."""
    meta = nibabel.gifti.GiftiMetaData(
        {} if side is None else {"AnatomicalStructurePrimary": SIDES[side]}
    )
    points = nibabel.gifti.GiftiDataArray(
        np.asarray(coordinates, np.float32), "NIFTI_INTENT_POINTSET", meta=meta
    )
    triangles = nibabel.gifti.GiftiDataArray(np.asarray(faces, np.int32), "NIFTI_INTENT_TRIANGLE")
    nibabel.save(nibabel.gifti.GiftiImage(darrays=[points, triangles]), path)
    return path


def read_metric(path: Path) -> np.ndarray:
    """Maps of a .shape.gii file, (maps, vertices)."""
    return np.stack([array.data for array in nibabel.load(path).darrays])
