"""Reads damaged files, each in a process of its own with little memory and little time, and says how that ended.

Run as a program it makes the specimens in the folder it is given, then answers one line per request on its standard
input (the number of a specimen) with one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY, SECONDS = 10**9, 5
# A blocked read takes no time of the processor; on a busy machine a sound one may take long by the clock.
_PATIENCE = 60


@dataclass(frozen=True)
class Outcome:
    """How reading ended.

    Attributes
    ----------
    verdict : "read", "refused", or what must not be: "crash", "hang", "memory", "foreign", "unnamed".
    message : of the error.
    error : its class.
    seconds, megabytes : what it took.
    """

    verdict: str
    message: str = ""
    error: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0

    @property
    def good(self) -> bool:
        return self.verdict in ("read", "refused")


class Worker:
    """The process that makes the specimens once and forks for every file."""

    def __init__(self, folder: Path) -> None:
        tests = Path(__file__).resolve().parents[1]
        found = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ,
            "PYTHONPATH": found,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        # every thread would reserve address space of its own, which the limit counts
        environment["MALLOC_ARENA_MAX"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "hostile.worker", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        self.specimens: list[dict[str, str]] = json.loads(self._process.stdout.readline())

    def ask(self, number: int) -> Outcome:
        """Read specimen `number` as it now is on disk."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=_PATIENCE)
        self._process.stdout.close()


def judge(problem: BaseException, named: str) -> tuple[str, str]:
    """Whether an error is one that a user can act on."""
    from icofactor.errors import FileError

    chain, link = [], problem
    while link is not None and len(chain) < 20:
        chain.append(link)
        link = link.__cause__ or link.__context__  # type: ignore[assignment]
    text = str(problem)
    if any(isinstance(one, MemoryError) for one in chain):
        return "memory", text
    # an OSError of the system's has a number, those of icofactor's own words have none
    own = isinstance(problem, OSError) and problem.errno is None
    if not own and not isinstance(problem, FileError) and type(problem) is not ValueError:
        return "foreign", text
    lines = text.splitlines()
    if named not in text or not all(line.isprintable() and len(line) < 600 for line in lines):
        return "unnamed", text
    return "refused", text


def _read(specimen: Any) -> dict[str, Any]:
    """In the child: read, and judge what came of it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(_PATIENCE)
    begin = time.process_time()
    verdict, text, error = "read", "", ""
    try:
        specimen.read()
    except BaseException as problem:
        error = type(problem).__name__
        try:
            verdict, text = judge(problem, specimen.named)
        except MemoryError:
            verdict = "memory"
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {
        "verdict": verdict,
        "message": text[:2000],
        "error": error,
        "seconds": time.process_time() - begin,
    }


def _forked(specimen: Any) -> dict[str, Any]:
    """Read in a child; a child that says nothing was killed."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        try:
            os.write(sink, json.dumps(_read(specimen)).encode())
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        said = stream.read()
    _, status, used = os.wait4(child, 0)
    found: dict[str, Any] = {"verdict": "crash", "message": f"status {status}"}
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM):
        found = {"verdict": "hang", "message": f"more than {SECONDS} s"}
    elif said:
        found = json.loads(said)
    return {**found, "megabytes": used.ru_maxrss / 1024}


def serve(folder: Path) -> None:
    from hostile.specimens import make_specimens

    answers = os.dup(1)  # whatever is printed elsewhere must not be taken for an answer
    os.dup2(2, 1)
    with os.fdopen(answers, "w") as out:
        specimens = make_specimens(folder)
        for one in specimens:
            one.read()  # what is imported now is not imported by every child
        listed = [
            {"kind": one.kind, "file": str(one.file), "named": one.named, "form": one.form}
            for one in specimens
        ]
        print(json.dumps(listed), file=out, flush=True)
        for line in sys.stdin:
            print(json.dumps(_forked(specimens[int(line)])), file=out, flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
