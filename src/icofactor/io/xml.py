"""XML with limits on its elements, attributes and texts; what declares entities or attributes of
its own is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.parsers import expat

from icofactor.io.guard import Unreadable

MAX_ELEMENTS = 500_000
"""A long time series has some thousand arrays with a dozen elements each; each costs time and
memory.
"""
MAX_ATTRIBUTES = 2**16
"""Characters of all attributes of one element."""
MAX_WORDS = 2**22
"""Characters in one element that is not data, such as a name or a value."""
_MAX_KEPT = 2**26


class XmlReader:
    """Hears the events of a document; a format says in `begin` and `finish` what it keeps."""

    def __init__(self) -> None:
        self.root = ""
        self._text: list[str] = []
        self._length, self._room = 0, MAX_WORDS
        self._elements, self._kept = 0, 0

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def finish(self, tag: str, text: str) -> None:
        """An element ends; `text` is what followed the last tag."""

    def room(self, tag: str) -> int | None:
        """Characters that the data in an element may have; None for an element that holds words."""
        return None

    def parse(self, pieces: Iterable[bytes]) -> None:
        """Read a document in pieces: after a refusal expat goes on to the end of a piece. Damage is
        an ExpatError.
        """
        parser = expat.ParserCreate()
        parser.buffer_text, parser.buffer_size = True, 2**20
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._take
        # before the declarations are read: expat would give their default attributes to every
        # element
        parser.StartDoctypeDeclHandler = _check_doctype
        for piece in pieces:
            parser.Parse(piece, False)
        parser.Parse(b"", True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.root = self.root or tag
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise Unreadable(f"has more than {MAX_ELEMENTS} XML elements; check its origin")
        if sum(len(name) + len(value) for name, value in attributes.items()) > MAX_ATTRIBUTES:
            raise Unreadable(
                f"has an XML element with more than {MAX_ATTRIBUTES} characters of attributes; check its origin"
            )
        self.begin(tag, attributes)
        room = self.room(tag)
        self._text, self._length, self._room = [], 0, MAX_WORDS if room is None else room

    def _take(self, text: str) -> None:
        self._length += len(text)
        if self._length > self._room:
            raise Unreadable(
                f"has an XML element with more than {self._room} characters of text; check its origin"
            )
        self._text.append(text)

    def _end(self, tag: str) -> None:
        text = "".join(self._text)
        if self._room == MAX_WORDS:
            self._kept += len(text)
            if self._kept > _MAX_KEPT:
                raise Unreadable(
                    f"has more than {_MAX_KEPT} characters of names and values; check its origin"
                )
        self._text, self._length, self._room = [], 0, MAX_WORDS
        self.finish(tag, text)


def _check_doctype(name: str, system: str | None, public: str | None, has_subset: Any) -> None:
    """The name of a DTD elsewhere, which is not opened, is common; declarations within the file
    mean harm.
    """
    if has_subset:
        raise Unreadable(
            "declares XML entities or attributes (an internal DTD), which map files do not need; check its origin"
        )
