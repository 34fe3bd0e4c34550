"""draw"""
from __future__ import annotations
from typing import Any
def draw_panels(*a: Any, **k: Any) -> None:
    pass
