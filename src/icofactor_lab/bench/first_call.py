"""Program: seconds to load the kernels, of their first call and of a second one; run in a fresh process."""

from __future__ import annotations

import time
from itertools import pairwise

from icofactor.factorization.engines import cpu
from icofactor.factorization.methods import method_named
from icofactor_lab.bench import updates


def main() -> None:
    p, state = updates.prepared(updates.statistics(8, level=2), "PNNMF", "paper", 8)
    method = method_named("PNNMF")
    marks = [time.perf_counter()]
    import icofactor.factorization.engines.kernels  # noqa: F401

    marks.append(time.perf_counter())
    for _ in range(2):
        cpu.iterate(p, method, state, 2)
        marks.append(time.perf_counter())
    print(*(after - before for before, after in pairwise(marks)))


if __name__ == "__main__":
    main()
