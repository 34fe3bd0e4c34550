"""Larger than memory, clusters and resuming: the commands behind docs/scale.md.

python -m icofactor_lab.docs_tables.scale make STORE --subjects 5000  # 327,680 faces × 5,000 subjects, 6.6 GB
python -m icofactor_lab.docs_tables.scale fit STORE [--cold]  # time, memory and passes, against reading it once
python -m icofactor_lab.docs_tables.scale subset STORE  # streamed against held in memory, 200 subjects
python -m icofactor_lab.docs_tables.scale cluster STORE  # one and two workers; workers killed in every stage
python -m icofactor_lab.docs_tables.scale kill --runs 30  # processes killed at random moments, and resumed
python -m icofactor_lab.docs_tables.scale plan  # bytes, memory and time of a larger cohort
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

N_COMPONENTS, N_STARTS = 10, 2
SETTINGS: dict[str, Any] = {"n_components": N_COMPONENTS, "n_starts": N_STARTS, "random_state": 0}
WHAT = ("components_", "loadings_", "mean_", "error_", "total_variance_")


# ---------------------------------------------------------------------- data


def simulated(n_subjects: int, level: int, seed: int = 0, block: int = 128) -> Iterator[Any]:
    """Cohorts of a few subjects each: ten soft regions on the faces of an icosphere, mixed, with noise; positive."""
    from icofactor import Cohort, Sites

    sites, rng = Sites.icosphere(level, on="faces"), np.random.default_rng(seed)
    centres = rng.standard_normal((N_COMPONENTS, 3))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    maps = np.exp(6 * (centres @ sites.coordinates.T - 1)).astype(np.float32)
    for first in range(0, n_subjects, block):
        n = min(block, n_subjects - first)
        loadings = rng.gamma(4.0, 0.25, (n, N_COMPONENTS)).astype(np.float32)
        X = rng.standard_normal((n, sites.n), dtype=np.float32)
        X *= np.float32(0.15)
        X += loadings @ maps
        X += np.float32(1.5)
        np.maximum(X, np.float32(0.01), out=X)
        yield Cohort(X, [f"s{first + i:05d}" for i in range(n)], sites, provenance={"simulated": True})


def make(options: argparse.Namespace) -> None:
    from icofactor.cohort.store.create import create_store

    begin = time.perf_counter()
    stored = create_store(options.store, simulated(options.subjects, options.level), chunk_sites=options.chunk_sites)
    n_bytes = sum(file.stat().st_size for file in Path(options.store).rglob("*") if file.is_file())
    print(f"{stored!r}: {n_bytes / 1e9:.2f} GB in {time.perf_counter() - begin:.0f} s")


def files_of(store: Path) -> list[Path]:
    return [file for file in store.rglob("*") if file.is_file()]


def evict(store: Path) -> None:
    """Take the store out of the page cache."""
    for file in files_of(store):
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def touch(store: Path) -> None:
    """Bring the store into the page cache."""
    for file in files_of(store):
        with open(file, "rb", buffering=0) as stream:
            while stream.read(2**24):
                pass


# ---------------------------------------------------------------------- one machine


def child(task: str, *args: Any) -> dict[str, Any]:
    """A task of this script in a process of its own; what it found."""
    argv = [sys.executable, __file__, "child", task, *map(str, args)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak_bytes() -> int:
    """The most memory this process ever had (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def child_read(store: str) -> dict[str, Any]:
    """Every chunk of the store through zarr once, in whole rows of chunks, by all processors."""
    import zarr

    from icofactor.cohort.store.read import open_store

    stored = open_store(store)
    part = next(Path(store).glob("part-*"))
    array = zarr.open_array(part, mode="r")
    step = array.chunks[0]
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        slabs = pool.map(lambda first: array[first : first + step].nbytes, range(0, array.shape[0], step))
        n_bytes = sum(slabs)
    return {"seconds": time.perf_counter() - begin, "bytes": n_bytes, "subjects": len(stored)}


def child_fit(store: str, work: str = "") -> dict[str, Any]:
    """A fit, with the time of its stages and the peak memory of this process."""
    import icofactor as ico
    from icofactor import progress
    from icofactor.cohort.store.read import open_store

    marks: dict[str, float] = {}
    stage = progress.Stages.stage

    def timed(self: Any, name: str) -> Any:
        marks[name] = time.perf_counter()
        return stage(self, name)

    progress.Stages.stage = timed  # type: ignore[method-assign]
    stored = open_store(store)
    baseline = peak_bytes()
    begin = time.perf_counter()
    model = ico.CorticalFactorization(**SETTINGS).fit(stored, work_dir=work or None)
    marks["end"] = time.perf_counter()
    names = list(marks)
    stages = {a: round(marks[b] - marks[a], 2) for a, b in pairwise(names)}
    return {
        "seconds": marks["end"] - begin,
        "stages": stages,
        "peak": peak_bytes(),
        "baseline": baseline,
        "passes": model.passes_,
        "bytes_read": model.bytes_read_,
        "updates": model.starts_.start_n_iter.tolist(),
        "spread": np.ptp(model.starts_.final_objectives) / model.starts_.final_objectives.min(),
        "deepest": int(model.design_.faces[:, 0].max()),
        "explained": model.explained_,
    }


def fit(options: argparse.Namespace) -> None:
    state = "cold (evicted before)" if options.cold else "warm (read just before)"
    prepare = evict if options.cold else touch
    prepare(options.store)
    read = child("read", options.store)
    prepare(options.store)
    found = child("fit", options.store)
    print(f"page cache: {state}")
    print(f"reading once through zarr: {read['seconds']:.1f} s ({read['bytes'] / read['seconds'] / 1e9:.2f} GB/s)")
    print(f"fit: {found['seconds']:.1f} s, {found['seconds'] / read['seconds']:.1f} × reading; {found['stages']}")
    print(f"passes: {found['passes']:g}; bytes read: {found['bytes_read'] / 1e9:.2f} GB")
    print(f"peak memory: {found['peak'] / 1e9:.2f} GB ({found['baseline'] / 1e9:.2f} GB before the fit)")
    print(
        f"starts: {N_STARTS}, updates {found['updates']}, spread of objectives {found['spread']:.1e}; "
        f"deepest level {found['deepest']}; explained {found['explained']:.4f}"
    )


def subset(options: argparse.Namespace) -> None:
    import icofactor as ico
    from icofactor.cohort.store.create import create_store
    from icofactor.cohort.store.read import open_store

    whole = open_store(options.store)
    with tempfile.TemporaryDirectory() as folder:
        X = whole.X[: options.subjects]
        few = ico.Cohort(X, whole.subjects[: options.subjects], whole.sites)
        stored = create_store(Path(folder) / "few", [few])
        streamed = ico.CorticalFactorization(**SETTINGS).fit(stored)
    held = ico.CorticalFactorization(**SETTINGS).fit(few)
    for name in WHAT:
        a, b = np.asarray(getattr(streamed, name)), np.asarray(getattr(held, name))
        print(f"{name}: largest difference {np.abs(a - b).max() / np.abs(b).max():.1e} of the largest value")
    print(f"passes {streamed.passes_:g}; deepest level {streamed.design_.faces[:, 0].max()}")


# ---------------------------------------------------------------------- a cluster


def cluster(options: argparse.Namespace) -> None:
    from distributed import Client

    import icofactor as ico
    from icofactor.cohort.store.read import open_store

    stored = open_store(options.store)
    if options.kill:
        whole = ico.CorticalFactorization(**SETTINGS).fit(stored)
        for stage in ("statistics", "starts", "lift"):
            same = _same(_fit_with_a_kill(stored, stage), whole)
            print(f"a worker killed during {stage}: the bits of a fit without a cluster: {same}", flush=True)
        return
    answers, seconds = [], {}
    for n_workers in (1, 2):
        with _workers(n_workers) as made, Client(made) as to:
            to.run(_warm)
            touch(options.store)
            begin = time.perf_counter()
            answers.append(ico.CorticalFactorization(**SETTINGS).fit(stored, client=to))
            seconds[n_workers] = time.perf_counter() - begin
            memory = max(to.run(peak_bytes).values())
            print(
                f"{n_workers} worker(s): fit {seconds[n_workers]:.1f} s, most memory of a worker {memory / 1e9:.2f} GB"
            )
    print(f"client's memory {peak_bytes() / 1e9:.2f} GB; same bits: {_same(*answers)}")
    print(f"speed-up from one to two workers: {seconds[1] / seconds[2]:.2f}")


def _workers(n: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(n_workers=n, threads_per_worker=1, processes=True, dashboard_address=None)


def _warm() -> None:
    """Load on a worker what a fit needs, the kernels among it."""
    import icofactor as ico

    ico.CorticalFactorization(2, n_starts=1, engine="cpu").fit(ico.simulate_cohort(8, 2, mesh="fsaverage3"))


def _same(a: Any, b: Any) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in WHAT)


def _fit_with_a_kill(stored: Any, stage: str) -> Any:
    from distributed import Client

    import icofactor as ico
    from icofactor.streaming.runners import Cluster

    submit, killed = Cluster._submit, []
    with _workers(2) as made, Client(made) as to:

        def deadly(self: Cluster, *args: Any) -> Any:
            future = submit(self, *args)
            if not killed and args[3].startswith(stage) and not args[3].endswith("-00000"):
                time.sleep(0.3)
                busy = [worker for worker, tasks in to.processing().items() if tasks]
                killed.extend(to.run(os.getpid, workers=busy[:1] or None).values())
                os.kill(killed[0], signal.SIGKILL)
            return future

        Cluster._submit = deadly  # type: ignore[method-assign]
        try:
            with tempfile.TemporaryDirectory() as folder:
                model = ico.CorticalFactorization(**SETTINGS).fit(stored, client=to, work_dir=Path(folder) / "work")
        finally:
            Cluster._submit = submit  # type: ignore[method-assign]
    assert killed, "no worker was killed"
    return model


# ---------------------------------------------------------------------- killed and resumed


def child_resume(store: str, work: str, out: str) -> dict[str, Any]:
    import icofactor as ico
    from icofactor.cohort.store.read import open_store
    from icofactor.streaming import source as sources

    sources.PART_BYTES = 2**20  # many pieces of little data
    stored = open_store(store)
    _warm()  # so that the kills fall into the work, not into loading
    print("ready", flush=True)
    begin = time.perf_counter()
    model = ico.CorticalFactorization(**{**SETTINGS, "n_starts": 20, "engine": "cpu"}).fit(stored, work_dir=work)
    seconds = time.perf_counter() - begin
    np.savez(out, **{name: np.asarray(getattr(model, name)) for name in WHAT})
    return {"seconds": seconds}


def kill(options: argparse.Namespace) -> None:
    from icofactor.cohort.store.create import create_store

    drawn, failed = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, out = folder / "store", folder / "found.npz"
        create_store(store, simulated(options.subjects, 5), chunk_sites=512)
        seconds = child("resume", store, folder / "whole", folder / "whole.npz")["seconds"]
        print(f"uninterrupted: {seconds:.1f} s, {len(list((folder / 'whole').glob('*.npz')))} pieces", flush=True)
        for run in range(options.runs):
            work, moment = folder / f"work-{run}", drawn.uniform(0, seconds)
            while not _killed_at(moment, store, work, out):  # it was sooner ready than usual
                shutil.rmtree(work)
                moment = drawn.uniform(0, seconds)
            kept = len(list(work.glob("*.npz")))
            child("resume", store, work, out)
            with np.load(out) as found, np.load(folder / "whole.npz") as whole:
                same = all(np.array_equal(found[what], whole[what]) for what in WHAT)
            failed += not same
            told = f"killed after {moment:.2f} s with {kept} pieces kept"
            print(f"run {run + 1:2d}: {told}; {'same bits' if same else 'DIFFERENT'}", flush=True)
            shutil.rmtree(work)
    print(f"{options.runs} runs killed and resumed, {failed} different")
    raise SystemExit(1 if failed else 0)


def _killed_at(moment: float, store: Path, work: Path, out: Path) -> bool:
    """Start the work and kill it after so many seconds; whether it was killed before its end."""
    argv = [sys.executable, __file__, "child", "resume", str(store), str(work), str(out)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        process.wait(moment)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return process.returncode == -signal.SIGKILL


# ---------------------------------------------------------------------- on paper


def plan(options: argparse.Namespace) -> None:
    from icofactor.streaming.source import MOST_PARTS, PART_BYTES

    n_s, n_sites, n_d, workers = options.subjects, 2 * options.sites, options.components, options.workers
    n_roots, level = 40, 2
    chunk_sites = options.chunk_sites
    part_sites = max(chunk_sites, PART_BYTES // (4 * n_s) // chunk_sites * chunk_sites, -(-n_sites // MOST_PARTS))
    n_bytes = 4 * n_s * n_sites
    rows = {
        "maps": n_bytes,
        "both passes": 2 * n_bytes,
        "one part in float32": 4 * n_s * part_sites,
        "pyramid of level 3, on the client": 4 / 3 * n_roots * 4 ** (level + 1) * n_s * 8,
        "L on 640 faces": n_roots * 4**level * n_s * 8,
        "factors of one start, ten arrays each": 10 * 8 * n_d * (n_s + n_roots * 4**level),
        "basis, three arrays": 3 * 8 * n_sites * n_d,
        "loadings": 8 * n_s * n_d,
    }
    for name, size in rows.items():
        print(f"{name:40s} {size / 1e9:10.2f} GB")
    print(f"parts: {-(-n_sites // part_sites)} of {part_sites} sites")
    passes = 2 * n_bytes / (1e9 * options.rate) / workers
    larger = n_s / 50000 * n_roots / 20 * n_d / 10  # than 50,000 subjects × 320 faces × 10 components
    print(f"two passes at {options.rate:g} GB/s a worker, {workers} workers: {passes:.0f} s")
    print(f"  for which the disks must give {workers * options.rate:.1f} GB/s; at 1 GB/s {2 * n_bytes / 1e9:.0f} s")
    print(f"starts, one per worker at a time: {options.start_seconds * larger:.0f} s")
    print(f"refinement, on the client: {options.refinement_seconds * larger:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for task in (make, fit, subset, cluster):
        command = commands.add_parser(task.__name__)
        command.set_defaults(run=task)
        command.add_argument("store", type=Path)
        if task is make:
            command.add_argument("--subjects", type=int, default=5000)
            command.add_argument("--level", type=int, default=7)
            command.add_argument("--chunk-sites", type=int, default=4096)
        if task is fit:
            command.add_argument("--cold", action="store_true", help="evict the store from the page cache before")
        if task is cluster:
            command.add_argument("--kill", action="store_true", help="kill workers instead of timing them")
        if task is subset:
            command.add_argument("--subjects", type=int, default=200)
    command = commands.add_parser("kill")
    command.set_defaults(run=kill)
    command.add_argument("--runs", type=int, default=30)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--subjects", type=int, default=100)
    command = commands.add_parser("plan")
    command.set_defaults(run=plan)
    for name, default in (("subjects", 50000), ("sites", 163842), ("components", 10), ("workers", 16)):
        command.add_argument(f"--{name}", type=int, default=default)
    command.add_argument("--chunk-sites", type=int, default=1024)
    command.add_argument(
        "--rate", type=float, default=0.27, help="GB of maps that one worker reads and uses per second"
    )
    command.add_argument(
        "--start-seconds", type=float, default=35.6, help="of 50,000 subjects, 320 faces, 10 components"
    )
    command.add_argument("--refinement-seconds", type=float, default=16.1, help="of the same")
    command = commands.add_parser("child")
    command.set_defaults(run=lambda o: print(json.dumps(globals()[f"child_{o.task}"](*o.args))))
    command.add_argument("task")
    command.add_argument("args", nargs="*")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
