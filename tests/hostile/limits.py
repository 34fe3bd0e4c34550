"""Reads files in a process of its own with little memory and little time; says how that ended."""

from __future__ import annotations

import json
import os
import resource
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from icofactor.errors import FileError

# Beyond what the process has when it begins.
MEMORY = 600 * 10**6
SECONDS = 5
# By the clock; a blocked read takes no time of the processor.
_PATIENCE = 60
Outcome = tuple[str, str]


def outcome_of(read: Callable[[], object], folder: Path) -> Outcome:
    """Return "read", "refused", "crash", "hang", "memory", "foreign" or "unnamed", and the message.

    Parameters
    ----------
    folder : what the path of an error must lie in.
    """
    return next(outcomes_of([read], folder))


def outcomes_of(reads: Iterable[Callable[[], object]], folder: Path) -> Iterator[Outcome]:
    """Read one after the other in one child; after a crash the next child goes on."""
    remaining = iter(reads)
    for first in remaining:
        batch = [first, *islice(remaining, 99)]
        while batch:
            outcomes = _in_child(batch, folder)
            yield from outcomes
            batch = batch[len(outcomes) :]


def _in_child(reads: list[Callable[[], object]], folder: Path) -> list[Outcome]:
    """Return an outcome of each read, until one ends the child."""
    source, sink = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            _limit()
            for read in reads:
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                signal.alarm(_PATIENCE)
                os.write(sink, json.dumps(_outcome(read, folder)).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        outcomes = [tuple(json.loads(line)) for line in stream]
    _, status = os.waitpid(child, 0)
    if len(outcomes) < len(reads):
        is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
        outcomes.append(("hang" if is_late else "crash", f"status {status}"))
    return outcomes


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    warnings.simplefilter("ignore")


def _outcome(read: Callable[[], object], folder: Path) -> Outcome:
    try:
        read()
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"[:1000]
        if MemoryError in map(type, (error, error.__cause__, error.__context__)):
            return "memory", message
        if not isinstance(error, FileError):
            return "foreign", message
        named = error.path.startswith(str(folder)) and message.isprintable()
        return ("refused" if named else "unnamed"), message
    return "read", ""
