"""Files that `select` and `associate` leave beside a fit: those of another fit are refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.hostile_fit import Fitted
from icofactor.assessment.bootstrap import Bootstrap
from icofactor.errors import FileError
from icofactor.results.report.association_files import (
    read_association_files,
    read_latent_files,
    read_norm_files,
)
from icofactor.results.report.page import write_page
from icofactor.results.report.selection_files import read_selection_files

K = 2
READERS: dict[str, Callable[..., Any]] = {
    "associations": read_association_files,
    "pls": read_latent_files,
    "normative": read_norm_files,
}


@pytest.fixture
def copy(associated: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(associated, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stability.tsv", "component\tstability\n1\t0.5\n"),
        (
            "stability.tsv",
            "component\tstability\tstability_5th_percentile\trelative_standard_error\n1\t0.5\t0.4\t0.1\n",
        ),
        ("loadings_se.tsv", "participant_id\tcomponent01\nsub-1\t0.5\n"),
        ("atlas_overlap.tsv", "component\tregion\n1\n"),
        ("atlas_overlap.tsv", "component\tregion\n1\ta\n"),
        ("selection.json", "[]"),
        ("selection.json", '{"table": {}, "recommended": 1, "reasons": []}'),
        ("selection.json", '{"table": {"rank": [2, "x"]}, "recommended": 1, "reasons": []}'),
        ("selection.json", '{"table": {"rank": [2], "y": []}, "recommended": 1, "reasons": []}'),
        ("selection.json", '{"table": {"rank": [2]}, "recommended": "x", "reasons": []}'),
    ],
)
def test_selections_of_another_fit_are_refused(
    fitted: Fitted, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError) as raised:
        read_selection_files(tmp_path, fitted.model, fitted.diagnostics.subjects)
    assert raised.value.path == str(tmp_path / name)


def test_errors_of_another_fit_with_as_many_components_are_refused(
    fitted: Fitted, tmp_path: Path
) -> None:
    model = fitted.model
    subjects = fitted.diagnostics.subjects
    spread = Bootstrap(model.components_ / 9, np.abs(model.loadings_) / 9, np.full((4, 3), 0.9))
    other = SimpleNamespace(components_=1.01 * model.components_, hemi_="both", sites_=model.sites_)
    spread.save(tmp_path, other, subjects)
    with pytest.raises(FileError) as raised:
        read_selection_files(tmp_path, model, subjects)
    assert raised.value.path == str(tmp_path / "stability.tsv")
    spread.save(tmp_path, model, subjects, overwrite=True)
    assert read_selection_files(tmp_path, model, subjects).stability is not None


@pytest.mark.parametrize("name", READERS)
def test_tests_of_another_fit_are_refused_and_of_other_people_not_read(
    copy: Path, name: str
) -> None:
    read = READERS[name]
    path = copy / f"{name}.json"
    record = json.loads(path.read_text())
    assert read(copy, K) is not None
    with pytest.raises(FileError):
        read(copy, 1)
    for changed in ({"loadings": {"path": "model.zip", "sha256": "0" * 64}}, {"notes": None}):
        path.write_text(json.dumps({**record, **changed}))
        with pytest.raises(FileError) as raised:
            read(copy, K)
        assert raised.value.path == str(path)
    other_people = {"path": "new/loadings.tsv", "sha256": "0" * 64}
    path.write_text(json.dumps({**record, "loadings": other_people}))
    assert read(copy, K) is None
    path.unlink()
    assert read(copy, K) is None


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("pls_variables", "pls"),
        ("associations_expected", "associations"),
        ("associations_adjusted", "associations"),
    ],
)
def test_a_table_without_its_last_row_is_refused(copy: Path, table: str, name: str) -> None:
    path = copy / f"{table}.tsv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(FileError) as raised:
        READERS[name](copy, K)
    assert raised.value.path == str(path)


def test_a_report_brings_the_methods_up_to_date_unless_they_were_edited(
    copy: Path, tmp_path: Path
) -> None:
    methods = copy / "methods.md"
    before = methods.read_text()
    write_page(copy, tmp_path / "page", figures=False)
    assert methods.read_text() == before
    for _ in range(2):
        write_page(copy, figures=False, overwrite=True)
        assert methods.read_text().count("Associations of the loadings of 30 subjects") == 1
    methods.write_text(before)
    write_page(copy, figures=False, overwrite=True)
    assert methods.read_text() == before
