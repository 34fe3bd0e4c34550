"""A changed bit in a store or a model is refused by the file's name, or changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.stores import cohort, contents
from icofactor.cli import main
from icofactor.cohort.store import append_store, open_store, save_store
from icofactor.errors import FileError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.estimator.saving import load_model
from icofactor.io.archive import read_arrays

State = str
"""As text, where NaN equals itself."""


def _fit(data: Any) -> CorticalFactorization:
    return CorticalFactorization(2, n_starts=2, level=1, random_state=0, method="LE-PNNMF").fit(
        data
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("integrity")
    save_store(cohort(12), folder / "store")
    append_store(folder / "store", cohort(3, 12))
    _fit(cohort(12)).save(folder / "model.zip")
    return folder


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _flat(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_flat(item) for item in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    if hasattr(value, "__dict__"):
        return _flat(vars(value))
    return np.asarray(value).tolist()


def read_store(folder: Path) -> State:
    """Everything that a store says."""
    stored = open_store(folder / "store")
    fields = {
        name: getattr(stored, name)
        for name in ("subjects", "hemisphere", "modality", "units", "provenance")
    }
    sites = {
        name: getattr(stored.sites, name)
        for name in ("coordinates", "triangles", "deepest", "name", "level")
    }
    arrays = {"X": np.asarray(stored.X), "mask": stored.mask}
    return json.dumps(
        _flat({**fields, **arrays, "sites": sites, "participants": dict(stored.participants)})
    )


def read_model(folder: Path) -> State:
    """Everything that a model holds."""
    model = load_model(folder / "model.zip")
    attributes = {
        name: value for name, value in vars(model).items() if name.endswith("_") or name == "method"
    }
    return json.dumps(_flat(attributes))


READ: dict[str, Callable[[Path], State]] = {"store": read_store, "model.zip": read_model}


def _files(place: Path) -> list[Path]:
    """Return what is read of a model or store; of arrays, metadata lie in the store's zarr.json."""
    if not place.is_dir():
        return [place]
    files = [file for file in place.rglob("*") if file.is_file()]
    return sorted(
        file
        for file in files
        if file.parent == place or ("statistics" not in file.parts and file.name != "zarr.json")
    )


def _flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def _check(folder: Path, kind: str, file: Path, bit: int, before: State) -> bool:
    """Whether a changed bit is refused; if not, it must not matter."""
    whole = file.read_bytes()
    _flip(file, bit)
    try:
        assert READ[kind](folder) == before, f"bit {bit} of {file} changes what is read"
        return False
    except FileError as refusal:
        assert Path(refusal.path) in (file, *file.parents), f"bit {bit} of {file}: {refusal}"
        assert Path(refusal.path) != folder
        assert len(str(refusal).splitlines()) == 1
        return True
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("kind", READ)
def test_hundreds_of_changed_bits(made: Path, kind: str) -> None:
    before, rng, files = READ[kind](made), np.random.default_rng(1), _files(made / kind)
    refused = [
        _check(made, kind, file, int(bit), before)
        for file in files
        for bit in rng.integers(8 * file.stat().st_size, size=-(-200 // len(files)))
    ]
    assert len(refused) >= 200 and np.mean(refused) > 0.8


def _timeless(folder: Path) -> dict[str, Any]:
    """Every file, without the times and the memory that a run records."""
    found: dict[str, Any] = dict(contents(folder))
    for name in found:
        if name == "zarr.json":
            record = json.loads(found[name])
            assert {step.pop("time")[:2] for step in record["attributes"]["steps"]} == {"20"}
            del record["attributes"]["checksum"]  # of the times too
            found[name] = record
        elif name == "diagnostics.npz":
            header, arrays = read_arrays(folder / name)
            del header["content"]["timing"], header["content"]["memory"]
            found[name] = header, {key: array.tobytes() for key, array in arrays.items()}
        elif name == ".icofactor-files.json":
            record = json.loads(found[name])
            # hashes of times
            record["files"] |= dict.fromkeys(("diagnostics.npz", "report.html"))
            found[name] = record
        elif name == "report.html":
            found[name] = re.sub(rb"<dt>(time|memory at most)</dt><dd>[^<]*</dd>", b"", found[name])
            assert len(found[name]) < (folder / name).stat().st_size
    return found


def test_equal_runs_write_equal_bytes(tmp_path: Path) -> None:
    """Maps are prepared and fitted, twice."""
    data = cohort(12)
    np.savez(tmp_path / "maps.npz", X=data.X, subjects=np.array(data.subjects))
    for name in ("one", "two"):
        place = tmp_path / name
        place.mkdir()
        prepare = f"prepare {tmp_path}/maps.npz -o {place}/store --hemisphere left -q"
        fit = f"fit {tmp_path}/one/store -o {place}/out --n-components 2 --no-figures -q"
        assert main(prepare.split()) == 0
        assert main(fit.split()) == 0
    for part in ("store", "out"):
        one, two = _timeless(tmp_path / "one" / part), _timeless(tmp_path / "two" / part)
        assert [name for name in one | two if one.get(name) != two.get(name)] == []
        assert one


def test_appended_stores_are_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_store(cohort(5), tmp_path / name)
        append_store(tmp_path / name, cohort(2, 5))
    assert _timeless(tmp_path / "one") == _timeless(tmp_path / "two")
