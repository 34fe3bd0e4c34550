"""save and load_model: everything comes back, nothing is half written, and loading runs no code."""

from __future__ import annotations

import copy
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import icofactor as ico
from helpers.marking import slow_but
from icofactor import CorticalFactorization, Refinement, Sites, load_model
from icofactor.errors import ModelFileError
from icofactor.estimator import saving
from icofactor.io import records
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

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask": {"mask": MASK},
    "named mesh": {"mesh": "fsaverage3", "hemi": "left"},
    "mesh as Sites": {"mesh": Sites.named("fsaverage3")},
    "refinement": {"refinement": Refinement(steps=2, faces=3), "level": 0, "lift": False},
    "smooth columns": {"columns": "smooth", "sigma": 0.2, "refinement": Refinement(steps=1)},
    "dictionary": {"method": "E-DL", "penalty": 1.0},
    "projective": {"method": "LE-PPNMF"},
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


def assert_same(found: CorticalFactorization, expected: CorticalFactorization) -> None:
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(found.design_.faces, expected.design_.faces)
    np.testing.assert_array_equal(found.design_.matrix.toarray(), expected.design_.matrix.toarray())
    assert repr(found.design_) == repr(expected.design_)
    for part in ("solution_", "starts_"):
        for name, value in vars(getattr(expected, part)).items():
            np.testing.assert_array_equal(
                getattr(getattr(found, part), name), value, err_msg=f"{part}.{name}"
            )
    assert repr(found.sites_) == repr(expected.sites_)
    np.testing.assert_array_equal(found.sites_.coordinates, expected.sites_.coordinates)
    np.testing.assert_array_equal(found.refined_.stats.L, expected.refined_.stats.L)
    np.testing.assert_array_equal(
        found.refined_.stats.K.toarray(), expected.refined_.stats.K.toarray()
    )
    assert found.refined_.divisions == expected.refined_.divisions
    assert found.refined_.n_columns == expected.refined_.n_columns


@pytest.mark.parametrize(
    "case", slow_but(CASES, "plain", "mask", "dictionary", "projective", "NumPy's scalars")
)
def test_everything_comes_back(case: str, X: np.ndarray, tmp_path: Path) -> None:
    model = CorticalFactorization(
        **{"n_components": 3, "n_starts": 2, "tol": 1e-3, **CASES[case]}
    ).fit(X)
    model.save(tmp_path / "model.zip")
    back = load_model(tmp_path / "model.zip")
    assert_same(back, model)
    if case != "NumPy's scalars":  # they come back as Python's
        assert repr(back) == repr(model)
    for name, value in model.get_params().items():
        if name != "mesh" or not isinstance(value, Sites):
            np.testing.assert_array_equal(back.get_params()[name], value, err_msg=name)
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    assert back.score(X) == model.score(X)
    np.testing.assert_array_equal(back.fit(X).components_, model.components_)


def test_two_hemispheres_come_back(tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(15, 3, mesh="fsaverage3", hemisphere="both", random_state=0)
    mask = np.concatenate([MASK, MASK])
    model = CorticalFactorization(
        3, n_starts=2, tol=1e-3, mask=mask, refinement=Refinement(steps=1)
    ).fit(cohort)
    model.save(tmp_path / "model.zip")
    back = load_model(tmp_path / "model.zip")
    assert_same(back, model)
    np.testing.assert_array_equal(back.transform(cohort), model.transform(cohort))


def test_a_mesh_that_is_not_icosahedral_comes_back(X: np.ndarray, tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((642, 3))
    sites = Sites.from_sphere(points / np.linalg.norm(points, axis=1, keepdims=True))
    model = CorticalFactorization(3, n_starts=2, tol=1e-3, level=1, mesh=sites).fit(X)
    model.save(tmp_path / "model.zip")
    assert_same(load_model(tmp_path / "model.zip"), model)


def test_numpy_reads_the_file_without_pickles(model: CorticalFactorization, saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["components"], model.components_)
        np.testing.assert_array_equal(arrays["sites/hemisphere"], model.sites_.hemisphere)
        content = json.loads(arrays["header"].tobytes())["content"]
        assert content["error"] == model.error_
        assert all(array.dtype != object for array in arrays.values())


def test_equal_models_make_equal_files(
    X: np.ndarray, model: CorticalFactorization, saved: Path
) -> None:
    again = saved.with_name("again.zip")
    CorticalFactorization(3, n_starts=2, tol=1e-3).fit(X).save(again)
    assert again.read_bytes() == saved.read_bytes()


# ---------------------------------------------------------------------- writing


def test_a_file_is_replaced_only_when_asked_for(
    model: CorticalFactorization, saved: Path, X: np.ndarray
) -> None:
    before = saved.read_bytes()
    with pytest.raises(FileExistsError, match=r"model\.zip exists; pass overwrite=True"):
        model.save(saved)
    assert saved.read_bytes() == before
    other = CorticalFactorization(2, n_starts=1, tol=1e-3).fit(X)
    other.save(str(saved), overwrite=True)
    assert load_model(str(saved)).n_components == 2
    assert os.listdir(saved.parent) == ["model.zip"]


@pytest.mark.parametrize("old", [True, False])
def test_a_write_that_fails_leaves_what_was_there(
    old: bool, model: CorticalFactorization, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zip"
    if old:
        model.save(path)
    before = path.read_bytes() if old else None

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save(path, overwrite=True)
    assert os.listdir(tmp_path) == (["model.zip"] if old else [])
    if old:
        assert path.read_bytes() == before


def test_a_folder_that_is_not_there(model: CorticalFactorization, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"create .*nowhere first"):
        model.save(tmp_path / "nowhere" / "model.zip")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.save(tmp_path, overwrite=True)


# ---------------------------------------------------------------------- files that are no models


def rewritten(source: Path, change: Any) -> Path:
    """The zip with entries as `change(name, content)` returns them; None leaves one out."""
    target = source.with_name("changed.zip")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


def with_header(source: Path, **changes: Any) -> Path:
    header, arrays = read_arrays(source)
    target = source.with_name("changed.zip")
    write_arrays(target, {**header, **changes}, arrays)
    return target


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.zip: no such file"):
        load_model(tmp_path / "nothing.zip")


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"PK\x03\x04garbage", b"\x00" * 5000], ids=len
)
def test_garbage(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="fit again") as refusal:
        load_model(path)
    assert refusal.value.path == str(path)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(
        ModelFileError, match=r"contains no model\.zip; give the folder that icofactor fit wrote"
    ) as caught:
        load_model(tmp_path)
    assert caught.value.path == str(tmp_path)


def test_the_folder_of_a_fit_and_models_by_path(tmp_path: Path) -> None:
    """What the command line takes, Python takes."""
    X = ico.simulate_cohort(12, 3, mesh="fsaverage3", random_state=0).X
    model = CorticalFactorization(2, n_starts=1, level=1).fit(X)
    model.save(tmp_path / "model.zip")
    np.testing.assert_array_equal(load_model(tmp_path).components_, model.components_)
    for one, other in ((tmp_path, str(tmp_path / "model.zip")), (model, tmp_path)):
        np.testing.assert_allclose(ico.match_components(one, other).similarity, 1.0)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short(part: float, saved: Path) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(part * len(content))])
    with pytest.raises(ModelFileError, match="fit again") as refusal:
        load_model(saved)
    assert refusal.value.path == str(saved)


def test_a_file_with_a_damaged_array(saved: Path) -> None:
    with zipfile.ZipFile(saved) as zipped:
        entry = max(zipped.infolist(), key=lambda info: info.file_size)
    content = bytearray(saved.read_bytes())
    middle = entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2
    content[middle] ^= 0xFF
    saved.write_bytes(bytes(content))
    with pytest.raises(ModelFileError) as refusal:
        load_model(saved)
    assert refusal.value.path == str(saved)


def test_a_zip_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("cat.txt", "miaow")
    with pytest.raises(ModelFileError, match=r"photos\.zip"):
        load_model(path)
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(ModelFileError, match=r"empty\.zip"):
        load_model(tmp_path / "empty.zip")


def test_another_kind_or_version(saved: Path) -> None:
    with pytest.raises(ModelFileError, match="does not contain a model"):
        load_model(with_header(saved, format="icofactor cohort"))
    with pytest.raises(ModelFileError, match="layout 99, from another version"):
        load_model(with_header(saved, version=99))


@pytest.mark.parametrize(
    "lost",
    ["header", "components", "scale", "sites/deepest", "statistics/faces", "statistics/K/data"],
)
def test_a_model_that_lacks_a_part(lost: str, saved: Path) -> None:
    path = rewritten(saved, lambda name, content: None if name == f"{lost}.npy" else content)
    with pytest.raises(ModelFileError) as refusal:
        load_model(path)
    assert refusal.value.path == str(path)


# ---------------------------------------------------------------- forged: each part alone is right


def forged(source: Path, change: Any) -> Path:
    """The model with its content and arrays changed by `change`."""
    header, arrays = read_arrays(source)
    change(header["content"], arrays)
    target = source.with_name("forged.zip")
    write_arrays(target, header, arrays)
    return target


FORGERIES: dict[str, Any] = {
    "lacks scale": lambda content, arrays: arrays.pop("scale"),
    "lacks sites/deepest": lambda content, arrays: arrays.pop("sites/deepest"),
    "statistics/K is not a sparse matrix": lambda content, arrays: arrays.pop("statistics/K/data"),
    "mean has shape": lambda c, a: a.update({"centering/mean": a["centering/mean"][:, 1:]}),
    "components contains int64": lambda content, arrays: arrays.update(
        components=arrays["components"].view(np.int64)
    ),
    "mean contains values that are not finite": lambda c, a: a.update(
        {"centering/mean": a["centering/mean"] * np.nan}
    ),
    "solution contains values that are not finite": lambda c, a: a.update(
        {"solution/C": a["solution/C"] * np.inf}
    ),
    "error is 'nan'": lambda content, arrays: content.update(error=float("nan")),
    "its error or its variance": lambda content, arrays: content.update(error=-1.0),
    "hemi is 'top'": lambda content, arrays: content.update(hemi="top"),
    "which this version does not know": lambda content, arrays: content.update(surprise=1),
    "contains 'surprise'": lambda content, arrays: arrays.update(surprise=np.ones(2)),
    "surprise": lambda content, arrays: content["parameters"].update(surprise=1),
    "n_starts": lambda content, arrays: content["parameters"].update(n_starts=0),
    "is not one of its starts": lambda content, arrays: content["starts"].update(best_start=2),
    "sphere of radius 1": lambda c, a: a.update({"sites/coordinates": a["sites/coordinates"] * 2}),
    "not rotations": lambda c, a: a.update({"sites/frames": a["sites/frames"] * 2}),
    "deepest of its sites": lambda c, a: a.update({"sites/deepest": a["sites/deepest"] + 10**6}),
    "4 components": lambda content, arrays: content["parameters"].update(n_components=4),
}


@pytest.mark.parametrize("problem", FORGERIES)
def test_a_forged_model_is_refused(problem: str, saved: Path) -> None:
    with pytest.raises(ModelFileError) as refusal:
        load_model(forged(saved, FORGERIES[problem]))
    assert refusal.value.path.endswith("forged.zip")


def test_a_field_that_a_later_version_adds(saved: Path) -> None:
    """Fields with a default may be absent from a file."""
    from dataclasses import make_dataclass, replace

    later = make_dataclass(
        "Later",
        [
            ("spread", Annotated[np.ndarray | None, records.Numbers("k")], None),
            ("parcels", str, "none"),
        ],
        bases=(saving.ModelRecord,),
        frozen=True,
        eq=False,
        kw_only=True,
    )
    found = replace(saving.MODEL_FILE, cls=later).load(saved)
    assert (
        found.spread is None and found.parcels == "none" and found.error == load_model(saved).error_
    )


def test_what_could_not_be_read_is_not_written(
    model: CorticalFactorization, tmp_path: Path
) -> None:
    broken = copy.copy(model)
    broken.error_ = float("nan")
    with pytest.raises(ModelFileError, match="cannot be written"):
        broken.save(tmp_path / "model.zip")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- loading runs no code


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_file_that_asks_for_pickles_runs_nothing(saved: Path) -> None:
    marker = saved.with_name("marker")
    stream = io.BytesIO()
    np.save(stream, np.array([Touch(marker)], dtype=object), allow_pickle=True)
    path = rewritten(
        saved,
        lambda name, content: stream.getvalue() if name == "components.npy" else content,
    )
    with pytest.raises(ModelFileError) as refusal:
        load_model(path)
    assert refusal.value.path == str(path)
    assert not marker.exists()
