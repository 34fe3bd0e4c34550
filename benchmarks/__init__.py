"""Comparisons of icofactor with the machine, with other tools and with itself: `make bench`, or `python -m benchmarks`.

A benchmark is one module with a function `run(quick)` that returns the rows of its table; `stores` is a program of its own,
because it needs a folder and gigabytes.
"""
