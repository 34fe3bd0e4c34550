"""Figures and pages of fitted models; computes nothing."""

from __future__ import annotations

from icofactor.results.report.figures import plot_components
from icofactor.results.report.page import render_page, write_page
from icofactor.results.report.panels import draw_panels

__all__ = ["draw_panels", "plot_components", "render_page", "write_page"]
