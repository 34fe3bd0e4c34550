"""Do several measures of the same people agree better together? The tables of docs/measured.md.

    python -m icofactor_lab.docs_tables.measures nspn [--splits 20]      (real: needs ICOFACTOR_TEST_DATA)
    python -m icofactor_lab.docs_tables.measures simulated [--seeds 3]   (known parts)
    python -m icofactor_lab.docs_tables.measures memory FOLDER           (1000 people x 4 measures x 40,962 vertices)

Each line is a measure alone, or all of them together: agreement of the maps of two halves of the people (adjusted Rand
index of the winner-takes-all maps, mean correlation of matched maps) and of the loadings of third people, beside that
in cohorts of rotated maps; all by `icofactor select`, where rows of a person stay together.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import icofactor as ico
from icofactor.cohort import create_store
from icofactor_lab.common.data import VARIABLE
from icofactor_lab.common.timing import peak_bytes
from icofactor_lab.docs_tables import number, run_task
from icofactor_lab.docs_tables.recovery import correlation

HEAD = "| fitted | {} | ARI of halves (rotated) | correlation of maps (rotated) | loadings of third people (rotated) |"
NSPN = {"thickness": "thickness", "area": "area", "mt30": "MT at 30 %", "mt70": "MT at 70 %"}
KINDS = ("thickness", "myelin", "reho", "alff")
WHAT = {
    "one": "one measure",
    "maps": "four, shared maps",
    "people": "one of four times the people",
    "loadings": "four, shared loadings",
    "vertices": "one of four times the vertices",
}
_N = 1000


def together(measures: Mapping[str, Any]) -> dict[str, Any]:
    """Every measure alone, and all of them with shared maps and with shared loadings."""
    join = lambda share: ico.join_measures(measures, share, "variance")
    return {**measures, **{f"together, shared {share}": join(share) for share in ("maps", "loadings")}}


def agreement(cohort: Any, ranks: list[int], splits: int, nulls: int = 10, **more: Any) -> dict[int, str]:
    """Rank → the columns of the table."""
    table = ico.choose_n_components(cohort, ranks, n_splits=splits, n_nulls=nulls, **more).table
    cell = lambda i, name: f"{table[name][i]:.2f} ({table[f'null_{name}'][i]:.2f})"
    names = ("ari", "correlation", "loadings")
    return {rank: " | ".join(cell(i, name) for name in names) for i, rank in enumerate(table["rank"].tolist())}


def nspn(options: argparse.Namespace) -> None:
    """Thickness, area and two depths of MT of 100 people in 308 regions."""
    folder = Path(os.environ[VARIABLE])
    with np.load(folder / "nspn_discovery.npz") as archive:
        values = {name: archive[name] for name in (*NSPN, "regions")}
    atlas = [folder / "labels" / f"{side}.500.aparc.annot" for side in ("lh", "rh")]
    sites, names = ico.Sites.parcels(atlas, values["regions"]), tuple(f"sub-{i:03d}" for i in range(100))
    cohorts = {name: ico.Cohort(values[name], names, sites, hemisphere="both") for name in NSPN}
    print(HEAD.format("components") + "\n|---|---|---|---|---|")
    for name, cohort in together(cohorts).items():
        for rank, cells in agreement(cohort, [6, 10], options.splits, options.nulls).items():
            print(f"| {NSPN.get(name, name)} | {rank} | {cells} |", flush=True)


def simulated(options: argparse.Namespace) -> None:
    """Four measures of the same people, regions and loadings, with four fifths of noise in each."""
    print(HEAD.format("maps, loadings against the truth") + "\n|---|---|---|---|---|")
    found: dict[str, list[list[float]]] = {}
    cells: dict[str, str] = {}
    for seed in range(options.seeds):
        make = lambda i, kind, seed=seed: ico.simulate_cohort(
            60, 6, kind, random_state=seed, noise=0.8, mesh="fsaverage4", measure=i
        )
        cohorts = {kind: make(i, kind) for i, kind in enumerate(KINDS)}
        for name, cohort in together(cohorts).items():
            model = ico.CorticalFactorization(6).fit(cohort)
            found.setdefault(name, []).append(_against_truth(model, cohorts, name))
            if seed == 0:
                cells[name] = agreement(cohort, [6], options.splits, options.nulls)[6]
    for name, rows in found.items():
        maps, loadings = np.mean(rows, axis=0)
        print(f"| {name} | {maps:.3f}, {loadings:.3f} | {cells[name]} |", flush=True)


def _against_truth(model: Any, cohorts: Mapping[str, Any], name: str) -> list[float]:
    """Correlation of maps and of loadings with the truth, means over components and measures."""
    measures, rows = model.measures_, []
    for kind, cohort in cohorts.items() if measures is not None else [(name, cohorts[name])]:
        maps = model.components_ if measures is None else measures.maps(model.components_)[kind]
        split = measures is not None and measures.share == "maps"
        loadings = measures.split(model.loadings_)[kind] if split else model.loadings_
        match = ico.match_components(maps, cohort.truth.components)
        rows.append([match.mean, correlation(loadings[:, match.a], cohort.truth.loadings[:, match.b])])
    return [float(x) for x in np.mean(rows, axis=0)]


def memory(options: argparse.Namespace) -> None:
    """Peak memory, passes and seconds of fits from stores, each in a process of its own."""
    folder = Path(options.folder)
    for name in (*KINDS, "people", "vertices"):
        if not (folder / f"{name}.store").exists():
            _store(folder / f"{name}.store", name)
    print("| fitted | rows | sites | peak memory | passes | seconds |\n|---|---|---|---|---|---|")
    for what in WHAT:
        command = [sys.executable, "-m", "icofactor_lab.docs_tables.measures", "one", str(folder), what]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip(), flush=True)


def one(options: argparse.Namespace) -> None:
    """One fit of `memory`."""
    opened = lambda name: ico.load_cohort(Path(options.folder) / f"{name}.store")
    if options.what in ("maps", "loadings"):
        data: Any = ico.join_measures({name: opened(name) for name in KINDS}, options.what, "variance")
    else:
        data = opened("thickness" if options.what == "one" else options.what)
    begin = time.perf_counter()
    model = ico.CorticalFactorization(10).fit(data)
    seconds, peak = time.perf_counter() - begin, peak_bytes() / 2**30
    rows, sites = data.X.shape
    print(f"| {WHAT[options.what]} | {rows} | {sites} | {peak:.2f} GiB | {model.passes_:.0f} | {seconds:.0f} |")


def _store(path: Path, name: str) -> None:
    """Noise with a few smooth parts, in pieces of fifty people."""
    sites, n = (
        ico.Sites.named("fsaverage7" if name == "vertices" else "fsaverage6"),
        _N * (4 if name == "people" else 1),
    )
    rng = np.random.default_rng([*name.encode()])
    parts = np.maximum(rng.standard_normal((10, 3)) @ sites.coordinates.T, 0).astype(np.float32)

    def pieces() -> Any:
        for first in range(0, n, 50):
            X = 2.5 + 0.2 * rng.standard_normal((50, 10), dtype=np.float32) @ parts
            X += 0.03 * rng.standard_normal((50, sites.n), dtype=np.float32)
            names = tuple(f"sub-{first + i:05d}" for i in range(50))
            yield ico.Cohort(X.astype(np.float32), names, sites, modality=name if name in KINDS else "thickness")

    create_store(path, pieces())


def main() -> None:
    common = {"--splits": number(20), "--nulls": number(10)}
    folder: dict[str, Any] = {"folder": {"help": "for the stores, some GB"}}
    run_task(
        __doc__,
        {
            nspn: common,
            simulated: {**common, "--seeds": number(3)},
            memory: folder,
            one: {**folder, "what": {"choices": list(WHAT)}},
        },
    )


if __name__ == "__main__":
    main()
