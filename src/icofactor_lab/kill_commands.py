"""The commands that `icofactor_lab.kill` disturbs, what they begin with, and what lies in their folders."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

MINE = {"mine.txt": "mine\n", "participants.tsv": "participant_id\texclude\nsub-01\t1\n"}
_VARYING = rb'"(seconds|timing|time|created|date|path|memory)": ?(\{[^}]*\}|[^,\n}]*)|/run\d+/|/warm/'
"""What equal runs write differently into text: times, memory, where they ran."""
_FIT = ["--n-components", "2", "--n-starts", "1", "--level", "0", "-q", "--overwrite"]
_SELECT = ["--ranks", "2,3", "--splits", "2", "--starts", "1", "--nulls", "5", "--level", "0", "-q", "--overwrite"]
_READ = ["--mesh", "fsaverage3"]
State = dict[str, str]


@dataclass(frozen=True)
class Command:
    """One command on one folder.

    Attributes
    ----------
    run : folder → does it, in a child.
    state : folder → what is there, as far as equal runs write equal bits; empty where nothing is.
    earlier : folder → makes what is there before; None: nothing.
    again : whether running it once more after it has succeeded gives the same.
    """

    name: str
    run: Callable[[Path], object]
    state: Callable[[Path], State]
    earlier: Callable[[Path], object] | None
    again: bool = True


def run_cli(*words: Any) -> None:
    from icofactor.cli.main import main

    status = main([str(word) for word in words])
    if status:
        raise SystemExit(status)


def commands(data: Path) -> list[Command]:
    """All that are killed; `data` holds maps of left and both hemispheres, and a fit with its store."""
    left, both = [data / "left.npy", *_READ, "--hemisphere", "left"], [data / "both.npy", *_READ]
    wide = lambda out: run_cli("fit", *both, "-o", out, *_FIT)
    work = lambda out: run_cli("fit", *left, "-o", out, "--work-dir", out.with_name("work"), *_FIT)
    chosen = lambda out: run_cli("select", *left, "-o", out, *_SELECT)
    other = lambda out: run_cli("select", *left, "-o", out, *_SELECT, "--random-seed", "1")
    fitted = lambda out: shutil.copytree(data / "fitted", out)
    stored = lambda out: shutil.copytree(data / "store", out)
    report = lambda out: run_cli("report", out, "--overwrite", "-q")
    table = lambda out: _transform(data, "both.npy", out)
    earlier_table = lambda out: _transform(data, "few.npy", out)
    return [
        Command("fit", lambda out: run_cli("fit", *left, "-o", out, *_FIT), results, wide),
        Command("fit, new folder", lambda out: run_cli("fit", *left, "-o", out, *_FIT), results, None),
        Command("fit --work-dir", work, results, wide),
        Command("select", chosen, results, other),
        Command("select --bootstrap", lambda out: _bootstrap(data, out), results, fitted),
        Command("select --atlas", lambda out: _name(data, out), results, fitted),
        Command("report", report, results, fitted),
        Command("transform", table, results, earlier_table),
        Command("associate", lambda out: _associate(data, out), results, fitted),
        Command("compare", lambda out: _compare(data, out), results, lambda out: _compare(data, out, "1")),
        Command("prepare", lambda out: run_cli("prepare", *left, "-o", out, "--overwrite", "-q"), store_state, stored),
        Command("append", lambda out: _append(data, out), store_state, stored, again=False),
        Command("compact", _compact, store_state, lambda out: _append(data, stored(out))),
    ]


def _transform(data: Path, maps: str, out: Path) -> None:
    out.mkdir(exist_ok=True)
    run_cli("transform", data / "fitted", data / maps, "-o", out / "new.tsv", "--overwrite", "-q")


def _bootstrap(data: Path, out: Path) -> None:
    model = ["--model", out, "--bootstrap", "2"]
    run_cli("select", data / "both.npy", "-o", out, *model, "--overwrite", "-q")


def _name(data: Path, out: Path) -> None:
    atlas = ["--atlas", data / "lh.some.annot", data / "rh.some.annot", "--spins", "20"]
    run_cli("select", "--model", out, "-o", out, *atlas, "--overwrite", "-q")


def _associate(data: Path, out: Path) -> None:
    tested = ["--formula", "age", "--permutations", "50", "--participants", data / "people.tsv"]
    run_cli("associate", out, *tested, "--overwrite", "-q")


def _compare(data: Path, out: Path, seed: str = "0") -> None:
    models = [data / "fitted", data / "other"]
    run_cli("compare", *models, "-o", out, "--spins", "20", "--random-seed", seed, "--overwrite", "-q")


def _append(data: Path, out: Path) -> None:
    from icofactor.cohort.store.create import append_store
    from icofactor.cohort.store.read import open_store

    append_store(out, open_store(data / "extra"))


def _compact(out: Path) -> None:
    from icofactor.cohort.store.create import compact_store

    compact_store(out)


def make_data(folder: Path) -> None:
    """Maps of a few simulated people, a fit and stores of them."""
    import numpy as np

    from icofactor import simulate_cohort
    from icofactor.cohort.store.create import save_store
    from icofactor.io.freesurfer import write_annot
    from icofactor.results.colours import distinct_colours

    cohort = simulate_cohort(14, 2, hemisphere="both", random_state=0, mesh="fsaverage3")
    X, half = np.asarray(cohort.X, dtype=np.float32), cohort.sites.n // 2
    np.save(folder / "both.npy", X)
    np.save(folder / "left.npy", X[:, :half])
    np.save(folder / "few.npy", X[:5])
    for side in "lr":
        labels = np.arange(half) * 4 // half + 1
        write_annot(folder / f"{side}h.some.annot", labels, [f"some{i}" for i in range(4)], distinct_colours(4))
    people = "".join(f"map{i + 1:04d}\t{i % 5}\n" for i in range(len(X)))
    (folder / "people.tsv").write_text(f"participant_id\tage\n{people}")
    for name, n in (("store", 6), ("extra", 3)):
        some = simulate_cohort(n, 2, hemisphere="left", random_state=n, mesh="fsaverage3")
        names = tuple(f"sub-{name}{i}" for i in range(n))
        save_store(replace(some, subjects=names, participants={}, provenance={}), folder / name)
    for name, seed in (("fitted", "0"), ("other", "1")):
        run_cli("fit", folder / "both.npy", *_READ, "-o", folder / name, *_FIT, "--random-seed", seed)


# ---------------------------------------------------------------------- what lies in a folder


def results(folder: Path) -> State:
    """Results in an output folder; raises where the list and the files do not agree."""
    from icofactor.io.guard import hash_file
    from icofactor.io.publish import LIST, list_of

    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    hidden = {name for name in there if name.split("/")[0].startswith(".tmp-")}
    listed = list_of(folder)
    wrong = [name for name, known in listed.items() if name not in there or hash_file(there[name]) != known]
    if wrong:
        raise AssertionError(f"the list names {wrong[0]}, which is not there or another file")
    names = set(there) - hidden - {LIST, *MINE}
    if listed and names - set(listed) - {"new.tsv", "new.json", "new.html"}:
        raise AssertionError(f"{sorted(names - set(listed))[0]} is not in the list")
    return {name: _content(there[name]) for name in sorted(names)}


def _content(path: Path) -> str:
    import numpy as np

    if path.name == "resources.tsv":
        return "there"
    if path.suffix == ".npz":  # its header has times
        with np.load(path) as found:
            arrays = [name.encode() + found[name].tobytes() for name in sorted(found) if name != "header"]
        return hashlib.sha256(b"".join(arrays)).hexdigest()
    data = path.read_bytes()
    if path.suffix in (".json", ".html"):
        data = re.sub(_VARYING, b"", data)
    return hashlib.sha256(data).hexdigest()


def store_state(folder: Path) -> State:
    """What a store holds; empty where none is committed."""
    import numpy as np

    from icofactor.cohort.store.layout import read_commit
    from icofactor.cohort.store.read import open_store

    if not (folder / "commit.json").exists():
        return {}
    stored = open_store(folder)
    maps = hashlib.sha256(np.ascontiguousarray(stored.X[:]).tobytes()).hexdigest()
    n_parts = len(read_commit(folder).parts)
    return {"maps": maps, "subjects": ",".join(stored.subjects), "parts": str(n_parts)}


def leftovers(folder: Path) -> list[str]:
    """What only a killed or careless process can have left: private files, and folders that a store does not name."""
    commit = (folder / "commit.json").read_text() if (folder / "commit.json").exists() else ""
    unnamed = [path for path in (*folder.glob("part-*"), *folder.glob("mesh-*")) if path.name not in commit]
    return [path.name for path in (*folder.parent.glob("**/.tmp-*"), *unnamed)]
