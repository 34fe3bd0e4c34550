"""Faces of the hierarchy → columns of D (method.md §5)."""

from __future__ import annotations

from icofactor.design.design import Design

__all__ = ["Design"]
