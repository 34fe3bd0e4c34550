"""The scikit-learn estimator: its inputs, its work folder and its file."""

from __future__ import annotations

from icofactor.estimator.estimator import CorticalFactorization

__all__ = ["CorticalFactorization"]
