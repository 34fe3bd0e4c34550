"""What stands on a report page, as a test reads it."""

from __future__ import annotations

import base64
import json
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np


class Page(HTMLParser):
    """Elements with their attributes, text of scripts, cells of tables, and text of sections."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.text: dict[str, str] = {}
        self._tag = ""
        self._section = ""
        self.feed(text)
        self.data: dict[str, Any] = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        self.elements.append((tag, known))
        self._tag = tag
        if tag == "script":
            self.scripts.append("")
        elif tag == "section":
            self._section = str(known["id"]).removeprefix("panel-")
            self.rows[self._section] = []
        elif tag == "tr":
            self.rows[self._section].append([])
        elif tag in ("td", "th"):
            self.rows[self._section][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag == "script":
            self.scripts[-1] += data
            return
        self.text[self._section] = self.text.get(self._section, "") + data
        rows = self.rows.get(self._section)
        if rows and rows[-1]:
            rows[-1][-1] += data

    def columns(self, panel: str) -> dict[str, list[str]]:
        """The table of a panel: head → cells."""
        heads, *rows = self.rows[panel]
        return {head: [row[i] for row in rows] for i, head in enumerate(heads)}

    def array(self, ticket: dict[str, Any]) -> np.ndarray:
        """An array of the page's data."""
        block = zlib.decompress(base64.b64decode(self.data["block"]))
        return np.frombuffer(block, ticket["type"], ticket["n"], ticket["at"])

    def layers(self, key: str) -> list[dict[str, Any]]:
        """Layers of the viewer."""
        return [layer for layer in self.data["cortex"]["layers"] if layer["key"] == key]

    def values(self, layer: dict[str, Any]) -> np.ndarray:
        """Values of a layer, NaN where there are none."""
        codes = self.array(layer["values"]).astype(float)
        shown = layer["from"] + (layer["to"] - layer["from"]) * (codes - 1) / 65534
        return np.where(codes == 0, np.nan, shown)

    def charts(self) -> list[bytes]:
        """The SVG files on the page."""
        start = "data:image/svg+xml;base64,"
        sources = [str(a["src"]) for tag, a in self.elements if tag == "img"]
        return [base64.b64decode(s.removeprefix(start)) for s in sources if s.startswith(start)]


def as_number(text: str) -> float:
    """A number as the page writes it."""
    return float("nan") if text == "n/a" else float(text.replace("−", "-").removesuffix(" %"))
