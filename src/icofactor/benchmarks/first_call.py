"""Program: seconds to load the kernels, of their first call and of a second one; run in a fresh process."""

from __future__ import annotations

import time
from itertools import pairwise

from icofactor.benchmarks import updates
from icofactor.engines import cpu
from icofactor.methods import method_named


def main() -> None:
    p, state = updates.prepared(updates.statistics(8, level=2), "PNNMF", "paper", 8)
    method = method_named("PNNMF")
    marks = [time.perf_counter()]
    import icofactor.engines.kernels  # noqa: F401

    marks.append(time.perf_counter())
    for _ in range(2):
        cpu.iterate(p, method, state, 2)
        marks.append(time.perf_counter())
    print(*(after - before for before, after in pairwise(marks)))


if __name__ == "__main__":
    main()
