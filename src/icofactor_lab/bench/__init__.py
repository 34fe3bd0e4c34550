"""Benchmarks against the machine and against other libraries: objective, datasets, solvers; one JSON, one table.

`icofactor bench -o OUT` runs them; docs/benchmarks.md says what each table means.
"""

from icofactor_lab.bench.runner import EXPERIMENTS, run_bench

__all__ = ["EXPERIMENTS", "run_bench"]
