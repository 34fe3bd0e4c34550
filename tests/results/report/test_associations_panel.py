"""What `icofactor associate` found, on the page and in the figures of the fit that it is about."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hostile_fit import CLOSING, IMAGE, SCRIPT
from icofactor.cli.main import main
from icofactor.errors import FileError
from icofactor.io.tables import read_table
from icofactor.results.description import read_fit
from icofactor.results.report.association_files import (
    read_association_files,
    read_latent_files,
    read_norm_files,
)
from icofactor.results.report.page import write_page
from icofactor.results.report.panels import PANELS, drawings_of, figure_bytes

N, K = 30, 2


@pytest.fixture(scope="module")
def page(associated: Path) -> str:
    out = associated.parent / "page"
    assert main(["report", str(associated), "-o", str(out), "--no-figures", "-q"]) == 0
    return (out / "report.html").read_text(encoding="utf-8")


def content_of(page: str) -> Any:
    return json.loads(
        re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.S)[1]
    )  # type: ignore[index]


def test_the_page_holds_the_tables(associated: Path, page: str) -> None:
    content = content_of(page)
    found, table = content["associations"], read_table(associated / "associations.tsv")[0]
    tests = found["tests"]
    assert tests["term"] == table["term"] and tests["component"] == [0, 1] * 3
    for name in ("estimate", "ci_low", "ci_high", "p_corrected"):
        expected = [None if cell == "n/a" else float(cell) for cell in table[name]]
        assert tests[name] == [
            None if value is None else pytest.approx(value, rel=1e-4) for value in expected
        ]
    assert tests["p"] == tests["p_corrected"] and tests["estimate"][2:4] == [
        None,
        None,
    ]  # three levels: F
    columns = {one["column"]: one for one in found["columns"]}
    assert [found["columns"][i]["column"] for i in tests["column"]] == [
        "age",
        "age",
        IMAGE,
        IMAGE,
        "age",
        "age",
    ]
    block = zlib.decompress(base64.b64decode(content["block"]))
    points = lambda ticket: np.frombuffer(block, "<f4", ticket["n"], ticket["at"])
    adjusted = read_table(associated / "associations_adjusted.tsv")[0]
    for i, name in enumerate(("age", IMAGE)):
        rows = slice(i * N, (i + 1) * N)
        expected = np.array([adjusted[f"component0{j}"][rows] for j in (1, 2)], dtype=float).T
        np.testing.assert_allclose(points(columns[name]["adjusted"]), expected.ravel(), rtol=1e-5)
    assert (
        set(columns[IMAGE]["labels"]) == {SCRIPT, CLOSING, "$x^$"}
        and columns["age"]["labels"] is None
    )
    own = [columns[IMAGE]["labels"][int(code)] for code in points(columns[IMAGE]["values"])]
    assert own == adjusted["value"][N:] and found["people"] == adjusted["participant_id"][:N]
    assert np.shape(columns["age"]["expected"]) == (3, 50, K)
    said = content["methods"]
    assert (
        f"with the terms of the formula age + `{IMAGE}` were estimated by ordinary least squares"
        in said
    )
    assert (
        "99 permutations" in said and "corrected over components by the largest statistic" in said
    )


def test_the_page_holds_latent_variables_and_scores(associated: Path, page: str) -> None:
    content = content_of(page)
    found, table = content["latent"], read_table(associated / "pls_variables.tsv")[0]
    assert (
        found["variables"]["variable"]
        == table["variable"]
        == ["component01", "component02"] * 2 + [IMAGE, "$x^$"] * 2
    )
    np.testing.assert_allclose(
        found["variables"]["correlation"], np.array(table["correlation"], float), rtol=1e-4
    )
    np.testing.assert_allclose(
        found["latent"]["p"], np.array(read_table(associated / "pls.tsv")[0]["p"], float), rtol=1e-4
    )
    norm, table = content["norm"], read_table(associated / "normative.tsv")[0]
    block = zlib.decompress(base64.b64decode(content["block"]))
    scores = np.frombuffer(block, "<f4", norm["scores"]["n"], norm["scores"]["at"]).reshape(N, K)
    np.testing.assert_allclose(
        scores, np.array([table["component01"], table["component02"]], float).T, rtol=1e-5
    )
    assert norm["people"] == table["participant_id"] and sum(norm["reference"]) == 25
    assert (
        "patterns of 2 measures of behaviour" in content["methods"]
        and "W-scores of loadings" in content["methods"]
    )


def test_latent_variables_and_scores_of_another_fit_are_refused(
    associated: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(associated, tmp_path / "copy")
    assert read_latent_files(copy, K) is not None and read_norm_files(copy, K) is not None
    with pytest.raises(FileError, match="contains 2 components, the fit in this folder 1"):
        read_latent_files(copy, 1)
    with pytest.raises(FileError, match="contains 2 components, the fit in this folder 3"):
        read_norm_files(copy, 3)
    lines = (copy / "pls_variables.tsv").read_text().splitlines()
    (copy / "pls_variables.tsv").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(FileError, match=r"pls_variables.*is damaged"):
        read_latent_files(copy, K)
    for name, read in (("pls", read_latent_files), ("normative", read_norm_files)):
        record = json.loads((copy / f"{name}.json").read_text())
        (copy / f"{name}.json").write_text(json.dumps({**record, "notes": None}))
        with pytest.raises(FileError, match="is damaged: notes"):
            read(copy, K)
        (copy / f"{name}.json").write_text(
            json.dumps({**record, "loadings": {"path": "model.zip", "sha256": "0"}})
        )
        with pytest.raises(FileError, match="is from another fit"):
            read(copy, K)
        (copy / f"{name}.json").unlink()
        assert read(copy, K) is None


def test_words_of_terms_stay_words(associated: Path, page: str) -> None:
    assert not any(word in page for word in (SCRIPT, IMAGE, CLOSING))
    fit = read_fit(associated)
    listed = dict(drawings_of(replace(fit, cortex=replace(fit.cortex, hemispheres=()))))
    assert all(any(name.startswith(word) for word in PANELS) for name in listed)
    found = {
        name: draw()
        for name, draw in listed.items()
        if name.startswith(("associations", "behaviour", "norm"))
    }
    assert (
        sorted(found)[0] == "associations" and len(found) == 3 + 2 + 1
    )  # effects, age, the category; 2 latent ones
    assert any(name.endswith("_age") for name in found)
    for figure in found.values():
        assert figure_bytes(figure, "png", dpi=50).startswith(b"\x89PNG")


def test_tests_of_another_fit_are_refused_and_of_other_people_not_shown(
    associated: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(associated, tmp_path / "copy")
    record = json.loads((copy / "associations.json").read_text())
    write = lambda **more: (copy / "associations.json").write_text(json.dumps({**record, **more}))
    write(loadings={"path": "fit/model.zip", "sha256": "0" * 64})
    with pytest.raises(FileError, match="is from another fit") as raised:
        read_association_files(copy, K)
    assert raised.value.path == str(copy / "associations.json")
    write(loadings={"path": "new/loadings.tsv", "sha256": "0" * 64})
    assert read_association_files(copy, K) is None
    write(levels=None)
    with pytest.raises(FileError, match="is damaged: levels"):
        read_association_files(copy, K)
    write()
    assert read_association_files(copy, K) is not None
    with pytest.raises(FileError, match="contains 2 components, the fit in this folder 3"):
        read_association_files(copy, K + 1)
    for name in ("expected", "adjusted"):
        kept = (copy / f"associations_{name}.tsv").read_text()
        lines = kept.splitlines()
        (copy / f"associations_{name}.tsv").write_text("\n".join(lines[:-1]) + "\n")
        with pytest.raises(FileError, match=f"associations_{name}.*is damaged"):
            read_association_files(copy, K)
        (copy / f"associations_{name}.tsv").write_text(kept)
    (copy / "associations.json").unlink()
    assert read_association_files(copy, K) is None


def test_a_report_brings_the_methods_up_to_date_unless_they_were_edited(
    associated: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "fit"
    shutil.copytree(associated, copy)
    before = (copy / "methods.md").read_text()
    write_page(copy, tmp_path / "page", figures=False)
    assert (copy / "methods.md").read_text() == before
    for _ in range(2):
        write_page(copy, figures=False, overwrite=True)
        assert (copy / "methods.md").read_text().count(
            "Associations of the loadings of 30 subjects"
        ) == 1
    (copy / "methods.md").write_text(before)
    write_page(copy, figures=False, overwrite=True)
    assert (copy / "methods.md").read_text() == before
