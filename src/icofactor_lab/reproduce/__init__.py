"""The paper's experiments, repeated: time, convergence, sparsity, maps, and the ablation that the paper lacks."""

from __future__ import annotations

from icofactor_lab.reproduce.runner import EXPERIMENTS, reproduce
from icofactor_lab.reproduce.settings import FULL, QUICK, Sizes

__all__ = ["EXPERIMENTS", "FULL", "QUICK", "Sizes", "reproduce"]
