"""The paper's experiments, repeated: time, convergence, sparsity, maps, and the ablation that the paper lacks."""

from __future__ import annotations

from icofactor.experiments.runner import EXPERIMENTS, reproduce
from icofactor.experiments.settings import FULL, QUICK, Sizes

__all__ = ["EXPERIMENTS", "FULL", "QUICK", "Sizes", "reproduce"]
