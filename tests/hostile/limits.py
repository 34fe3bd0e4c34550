"""Reads a file in a process of its own with little memory and little time, and says how that ended."""

from __future__ import annotations

import json
import os
import resource
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

from icofactor.errors import FileError

MEMORY = 600 * 10**6
SECONDS = 5
# By the clock; a blocked read takes no time of the processor.
_PATIENCE = 60


def outcome_of(read: Callable[[], object], folder: Path) -> tuple[str, str]:
    """Return "read" or "refused", or "crash", "hang", "memory", "foreign" or "unnamed"; the message.

    Parameters
    ----------
    folder : what the path of an error must lie in.
    """
    source, sink = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            os.write(sink, json.dumps(_limited(read, folder)).encode())
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        is_late = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
        return ("hang" if is_late else "crash"), f"signal {os.WTERMSIG(status)}"
    verdict, message = json.loads(answer or '["crash", "no answer"]')
    return verdict, message


def _limited(read: Callable[[], object], folder: Path) -> tuple[str, str]:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_PATIENCE)
    warnings.simplefilter("ignore")
    try:
        read()
    except BaseException as error:
        causes = [error, error.__cause__, error.__context__]
        message = f"{type(error).__name__}: {error}"[:1000]
        if any(isinstance(cause, MemoryError) for cause in causes):
            return "memory", message
        if not isinstance(error, FileError):
            return "foreign", message
        named = error.path.startswith(str(folder)) and message.isprintable()
        return ("refused" if named else "unnamed"), message
    return "read", ""
