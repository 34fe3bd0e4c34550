"""Measuring icofactor: benchmarks, the paper's experiments, and the tables of the documentation."""
