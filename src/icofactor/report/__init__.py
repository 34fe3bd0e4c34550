"""Figures and pages of fitted models; computes nothing."""

from __future__ import annotations

from icofactor.report.figures import plot_components

__all__ = ["plot_components"]
