"""save and load_model: everything comes back, nothing is half written, and loading runs no code."""

from __future__ import annotations

import copy
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.marking import slow_but
from helpers.refusals import refused
from icofactor import CorticalFactorization, Refinement, Sites, load_model
from icofactor.errors import ModelFileError
from icofactor.io.archive import read_arrays, write_arrays

ATTRIBUTES = [
    *(
        "components_",
        "loadings_",
        "scale_",
        "mean_",
        "depth_",
        "explained_variance_",
        "explained_variance_ratio_",
    ),
    *(
        "error_",
        "total_variance_",
        "explained_",
        "reconstruction_err_",
        "n_features_in_",
        "n_iter_",
        "hemi_",
        "mask_",
    ),
]
MASK = Sites.named("fsaverage3").coordinates[:, 0] < 0.8


def _points() -> Sites:
    """Sites without a mesh."""
    points = np.random.default_rng(0).standard_normal((642, 3))
    return Sites.from_sphere(points / np.linalg.norm(points, axis=1, keepdims=True))


POINTS = _points()

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask": {"mask": MASK},
    "named mesh": {"mesh": "fsaverage3", "hemi": "left"},
    "mesh as Sites": {"mesh": Sites.named("fsaverage3")},
    "refinement": {"refinement": Refinement(steps=2, faces=3), "level": 0, "lift": False},
    "smooth columns": {"columns": "smooth", "sigma": 0.2, "refinement": Refinement(steps=1)},
    "dictionary": {"method": "E-DL", "penalty": 1.0},
    "projective": {"method": "LE-PPNMF"},
    "z-scores": {"method": "parts", "center": "zscore"},
    "points": {"mesh": POINTS, "level": 1},
    "both hemispheres": {"mask": np.tile(MASK, 2), "refinement": Refinement(steps=1)},
    "NumPy's scalars": {
        "random_state": np.int64(3),
        "tol": np.float64(1e-3),
        "refinement": Refinement(np.int64(1)),  # type: ignore[arg-type]
    },
}


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return ico.simulate_cohort(15, 3, mesh="fsaverage3", random_state=0).X


@pytest.fixture(scope="module")
def model(X: np.ndarray) -> CorticalFactorization:
    return CorticalFactorization(3, n_starts=2, tol=1e-3).fit(X)


@pytest.fixture
def saved(model: CorticalFactorization, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


def assert_same(loaded: CorticalFactorization, expected: CorticalFactorization) -> None:
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(loaded.design_.faces, expected.design_.faces)
    np.testing.assert_array_equal(
        loaded.design_.matrix.toarray(), expected.design_.matrix.toarray()
    )
    assert repr(loaded.design_) == repr(expected.design_)
    for attribute in ("solution_", "starts_"):
        for name, value in vars(getattr(expected, attribute)).items():
            np.testing.assert_array_equal(
                getattr(getattr(loaded, attribute), name), value, err_msg=f"{attribute}.{name}"
            )
    assert repr(loaded.sites_) == repr(expected.sites_)
    np.testing.assert_array_equal(loaded.sites_.coordinates, expected.sites_.coordinates)
    np.testing.assert_array_equal(loaded.refined_.stats.L, expected.refined_.stats.L)
    np.testing.assert_array_equal(
        loaded.refined_.stats.K.toarray(), expected.refined_.stats.K.toarray()
    )
    assert loaded.refined_.divisions == expected.refined_.divisions
    assert loaded.refined_.n_columns == expected.refined_.n_columns


QUICK = ("plain", "mask", "dictionary", "projective", "NumPy's scalars", "z-scores")


@pytest.mark.parametrize("case", slow_but(CASES, *QUICK))
def test_everything_comes_back(case: str, X: np.ndarray, tmp_path: Path) -> None:
    if case == "both hemispheres":
        X = np.hstack([X, X[:, ::-1]])
    settings = {"n_components": 3, "n_starts": 2, "tol": 1e-3, **CASES[case]}
    model = CorticalFactorization(**settings).fit(X)
    model.save(tmp_path / "model.zip")
    back = load_model(tmp_path / "model.zip")
    assert_same(back, model)
    # NumPy's scalars come back as Python's.
    if case != "NumPy's scalars":
        assert repr(back) == repr(model)
    for name, value in model.get_params().items():
        if name != "mesh" or not isinstance(value, Sites):
            np.testing.assert_array_equal(back.get_params()[name], value, err_msg=name)
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    maps = model.inverse_transform(model.loadings_)
    np.testing.assert_array_equal(back.inverse_transform(back.loadings_), maps)
    assert back.score(X) == model.score(X)
    np.testing.assert_array_equal(back.fit(X).components_, model.components_)


def test_parameters_changed_after_the_fit_are_not_saved(X: np.ndarray, tmp_path: Path) -> None:
    model = CorticalFactorization(3, n_starts=2, tol=1e-3).fit(X)
    loadings = model.transform(X)
    model.set_params(n_components=7, center="zscore", method="PNNMF")
    np.testing.assert_array_equal(model.transform(X), loadings)
    model.save(tmp_path / "model.zip")
    back = load_model(tmp_path / "model.zip")
    np.testing.assert_array_equal(back.transform(X), loadings)
    assert (back.n_components, back.method, back.center_) == (3, "parts", "mean")


def test_equal_models_make_equal_files_without_pickles(
    X: np.ndarray, model: CorticalFactorization, saved: Path
) -> None:
    again = saved.with_name("again.zip")
    CorticalFactorization(3, n_starts=2, tol=1e-3).fit(X).save(again)
    assert again.read_bytes() == saved.read_bytes()
    with np.load(saved, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["components"], model.components_)
        assert all(array.dtype != object for array in arrays.values())


# ---------------------------------------------------------------------- writing


def test_a_file_is_replaced_only_when_asked_for(
    model: CorticalFactorization, saved: Path, X: np.ndarray
) -> None:
    before = saved.read_bytes()
    with pytest.raises(FileExistsError):
        model.save(saved)
    assert saved.read_bytes() == before
    other = CorticalFactorization(2, n_starts=1, tol=1e-3).fit(X)
    other.save(str(saved), overwrite=True)
    assert load_model(str(saved)).n_components == 2
    assert os.listdir(saved.parent) == ["model.zip"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_write_that_fails_leaves_what_was_there(
    exists: bool, model: CorticalFactorization, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zip"
    if exists:
        model.save(path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    open_member = zipfile.ZipFile.open
    n_calls = iter(range(100))

    def full_disk(*arguments: Any, **options: Any) -> Any:
        if next(n_calls) == 5:
            raise OSError(28, "No space left on device")
        return open_member(*arguments, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save(path, overwrite=True)
    assert next(n_calls) == 6
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_could_not_be_read_is_not_written(
    model: CorticalFactorization, tmp_path: Path
) -> None:
    broken = copy.copy(model)
    broken.error_ = float("nan")
    with pytest.raises(ModelFileError):
        broken.save(tmp_path / "model.zip")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_exist(model: CorticalFactorization, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        model.save(tmp_path / "nowhere" / "model.zip")
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path, overwrite=True)


# ---------------------------------------------------------------------- files that are no models


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nothing.zip")
    with refused(tmp_path.name):
        load_model(tmp_path)


def test_the_folder_of_a_fit_and_models_by_path(model: CorticalFactorization, saved: Path) -> None:
    """What the command line takes, Python takes."""
    np.testing.assert_array_equal(load_model(saved.parent).components_, model.components_)
    for first, second in ((saved.parent, str(saved)), (model, saved.parent)):
        np.testing.assert_allclose(ico.match_components(first, second).similarity, 1.0)


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"PK\x03\x04garbage", b"\x00" * 5000], ids=len
)
def test_garbage(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(content)
    with refused("bad.zip"):
        load_model(tmp_path / "bad.zip")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short(share: float, saved: Path) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with refused("model.zip"):
        load_model(saved)


def test_a_file_with_a_damaged_array(saved: Path) -> None:
    with zipfile.ZipFile(saved) as zipped:
        entry = max(zipped.infolist(), key=lambda info: info.file_size)
    content = bytearray(saved.read_bytes())
    middle = entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2
    content[middle] ^= 0xFF
    saved.write_bytes(bytes(content))
    with refused("model.zip"):
        load_model(saved)


def rewritten(source: Path, without: str, **added: bytes) -> Path:
    """Copy a zip without the members whose name begins so, and with others."""
    target = source.with_name("changed.zip")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        members = {name: old.read(name) for name in old.namelist() if not name.startswith(without)}
        for name, content in {**members, **added}.items():
            new.writestr(name, content)
    return target


def test_a_zip_that_lacks_members(saved: Path) -> None:
    with zipfile.ZipFile(saved) as zipped:
        names = zipped.namelist()
    assert len(names) > 10
    # The last leaves none.
    for name in (*names[::7], ""):
        with refused("changed.zip"):
            load_model(rewritten(saved, name))


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_file_with_pickles_runs_nothing(saved: Path) -> None:
    """The components as an array of objects."""
    marker = saved.with_name("marker")
    objects = np.array([Touch(marker)], dtype=object)
    npy = io.BytesIO()
    np.save(npy, objects, allow_pickle=True)
    members = {"components.npy": npy.getvalue()}
    with refused("changed.zip"):
        load_model(rewritten(saved, "components", **members))
    assert not marker.exists()


# ---------------------------------------------------------------- forged: the file is whole, the content is wrong


def forged(source: Path, change: Any) -> Path:
    """Copy the model with header and arrays changed by `change`."""
    header, arrays = read_arrays(source)
    change(header, arrays)
    target = source.with_name("forged.zip")
    write_arrays(target, header, arrays)
    return target


def changed_array(name: str, change: Any) -> Any:
    return lambda header, arrays: arrays.update({name: change(arrays[name])})


def lacking(name: str) -> Any:
    return lambda header, arrays: arrays.pop(name)


def changed_content(**changes: Any) -> Any:
    return lambda header, arrays: header["content"].update(changes)


def changed_parameters(**changes: Any) -> Any:
    return lambda header, arrays: header["content"]["parameters"].update(changes)


FORGERIES: dict[str, Any] = {
    "another kind of file": lambda header, arrays: header.update(format="icofactor cohort"),
    "another version": lambda header, arrays: header.update(version=99),
    "no scale": lacking("scale"),
    "no deepest faces": lacking("sites/deepest"),
    "K without values": lacking("statistics/K/data"),
    "a mean of fewer sites": changed_array("centering/mean", lambda mean: mean[:, 1:]),
    "components of another type": changed_array("components", lambda maps: maps.view(np.int64)),
    "a mean of NaN": changed_array("centering/mean", lambda mean: mean * np.nan),
    "infinite loadings": changed_array("solution/C", lambda C: C * np.inf),
    "an error of NaN": changed_content(error=float("nan")),
    "an error below 0": changed_content(error=-1.0),
    "an unknown hemisphere": changed_content(hemi="top"),
    "an unknown field": changed_content(surprise=1),
    "an unknown array": lambda header, arrays: arrays.update(surprise=np.ones(2)),
    "an unknown parameter": changed_parameters(surprise=1),
    "no starts": changed_parameters(n_starts=0),
    "more components": changed_parameters(n_components=4),
    "a best start that is none": lambda header, arrays: header["content"]["starts"].update(
        best_start=2
    ),
    "a sphere of radius 2": changed_array("sites/coordinates", lambda points: points * 2),
    "frames that do not rotate": changed_array("sites/frames", lambda frames: frames * 2),
    "faces that are too deep": changed_array("sites/deepest", lambda faces: faces + 10**6),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_model_is_refused(forgery: str, saved: Path) -> None:
    with refused("forged.zip"):
        load_model(forged(saved, FORGERIES[forgery]))
