"""Rotations: uniform, to the nearest site, mirrored in the right hemisphere, never from where there are no data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icofactor.factorization.design import Design
from icofactor.sphere.rotations import FaceSpinner, SiteSpinner, random_rotation, turned
from icofactor.sphere.sites import Sites


@given(st.integers(0, 2**32 - 1))
def test_rotations_are_rotations(seed: int) -> None:
    R = random_rotation(np.random.default_rng(seed))
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(R) == pytest.approx(1)


def test_rotations_are_uniform() -> None:
    """The images of a point cover the sphere evenly, and so do the angles: E[tr R] = 0, E[(tr R)²] = 1."""
    rng = np.random.default_rng(0)
    R = np.stack([random_rotation(rng) for _ in range(4000)])
    assert np.abs(R.mean(axis=0)).max() < 0.04
    trace = np.trace(R, axis1=1, axis2=2)
    assert np.mean(trace**2) == pytest.approx(1, abs=0.08)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_each_site_takes_the_nearest_one(seed: int) -> None:
    sites = Sites.named("fsaverage3")
    sources = SiteSpinner(sites).draw(np.random.default_rng(seed))
    rotated = turned(sites.coordinates, 0, random_rotation(np.random.default_rng(seed)))
    best = (rotated @ sites.coordinates.T).max(axis=1)
    np.testing.assert_allclose(
        np.sum(rotated * sites.coordinates[sources], axis=1), best, atol=1e-9
    )


def test_hemispheres_turn_as_mirror_images() -> None:
    """A map that is its own mirror image stays so."""
    sites = Sites.named("fsaverage4", hemi="both")
    sources = SiteSpinner(sites).draw(np.random.default_rng(3))
    left_points, right_points = np.split(sites.coordinates, 2)
    np.testing.assert_array_equal(sources[len(left_points) :] >= len(left_points), True)
    wave = lambda points: (
        np.sin(3 * points[:, 1]) + points[:, 2] * np.abs(points[:, 0]) + points[:, 0] ** 3
    )
    mirror = right_points * [-1, 1, 1]
    values = np.concatenate([wave(left_points), wave(mirror)])
    turned_left, turned_right = np.split(values[sources], 2)
    partner = np.argmax(mirror @ left_points.T, axis=1)
    assert np.corrcoef(turned_left[partner], turned_right)[0, 1] > 0.995
    assert np.corrcoef(turned_left, values[: len(left_points)])[0, 1] < 0.9


@pytest.mark.parametrize("hemi", ["left", "both"])
def test_faces_without_data_are_no_sources(hemi: str) -> None:
    sites = Sites.named("fsaverage4", hemi=hemi)  # type: ignore[arg-type]
    used = sites.subset(sites.coordinates[:, 0] < 0.6)
    design = Design(used, level=2)
    spinner = FaceSpinner(used, 2, design.faces[:, 1])
    rng, same = (np.random.default_rng(0) for _ in range(2))
    half = used.face_hemisphere(design.faces[:, 0], design.faces[:, 1])
    centres = used.face_centres(design.faces[:, 0], design.faces[:, 1])
    for _ in range(5):
        sources = spinner.draw(rng)
        R = random_rotation(same)
        assert sources.min() >= 0 and sources.max() < design.n_columns
        np.testing.assert_array_equal(half[sources], half)
        for side in np.unique(half):
            mine = np.flatnonzero(half == side)
            rotated = turned(centres[mine], int(side), R)
            nearest = (rotated @ centres[mine].T).max(axis=1)
            cosines = np.sum(rotated * centres[sources[mine]], axis=1)
            # near its edges, the face that holds a point is not the one whose centre is nearest; off the data, the
            # face nearest to the one that holds the point is taken: wrong by a face (0.25 across) at most
            wrong = np.arccos(np.clip(cosines, -1, 1)) - np.arccos(np.clip(nearest, -1, 1))
            assert wrong.max() < 0.25 and np.median(wrong) < 0.02
