"""Figures and pages of fitted models; computes nothing."""

from __future__ import annotations

from icofactor.results.report.figures import plot_components
from icofactor.results.report.page import render_page, write_page

__all__ = ["plot_components", "render_page", "write_page"]
