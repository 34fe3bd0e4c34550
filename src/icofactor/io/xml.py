"""nibabel's XML parsers: of GIFTI with limits, against files that would fill the memory or read
other files; of CIFTI with a faster way for vertices.

Imports nibabel, so functions import this module when they need it.
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
from nibabel.cifti2.parse_cifti2 import Cifti2Parser
from nibabel.gifti import GiftiDataArray
from nibabel.gifti.parse_gifti_fast import GiftiImageParser
from nibabel.gifti.util import gifti_encoding_codes
from nibabel.nifti1 import data_type_codes

from icofactor.io.guard import (
    FREE_SIZE,
    Unreadable,
    check_growth,
    check_regular,
    check_vertices,
    volume,
)

# Elements of one document; a long time series has some thousand arrays with a dozen elements each.
MAX_ELEMENTS = 200_000
# Characters that a number in text may take, with the space around it.
_LONGEST_NUMBER = 64
# zlib compresses zeros to a thousandth at best; base64 has four characters for three bytes.
_LARGEST_GROWTH = 1032 * 3 // 4
_WHOLE_NUMBERS = frozenset("0123456789 \t\r\n")


class GiftiParser(GiftiImageParser):
    """nibabel's GIFTI parser, which decodes no more data than the dimensions say.

    Parameters
    ----------
    path : the file.
    """

    _char_blocks: list[str] | None
    HANDLER_NAMES = (*GiftiImageParser.HANDLER_NAMES, "StartDoctypeDeclHandler")

    def __init__(
        self,
        path: Path,
    ) -> None:
        # nibabel's buffer has 35 MB, whatever the file has.
        super().__init__(buffer_size=2**20)
        self.path = path
        self.stored = path.stat().st_size
        self.n_bytes = 0
        self.n_bytes_beside = 0
        self.n_elements = 0

    def StartDoctypeDeclHandler(
        self, name: str, system: str | None, public: str | None, has_declarations: bool
    ) -> None:
        """Refuse entities and default attributes; the name of a DTD elsewhere is not followed."""
        if has_declarations:
            raise Unreadable("declares XML entities or attributes (an internal DTD)")

    def StartElementHandler(
        self,
        name: str,
        attributes: dict[str, str],
    ) -> None:
        """Leave out the number of arrays: nibabel warns of a wrong one, which harms nobody."""
        self.n_elements += 1
        if self.n_elements > MAX_ELEMENTS:
            raise Unreadable(f"has more than {MAX_ELEMENTS} XML elements; check its origin")
        if name == "GIFTI":
            attributes.pop("NumberOfDataArrays", None)
        # nibabel counts up to this number, whatever it is.
        if name == "DataArray" and attributes.get("Dimensionality", "1") not in ("1", "2"):
            raise Unreadable("has an array of more than two dimensions")
        super().StartElementHandler(name, attributes)

    def flush_chardata(self) -> None:
        """Check the characters of an element before nibabel decodes them."""
        text = "".join(self._char_blocks or ())
        if self._char_blocks is not None:
            self._char_blocks = [text]
        if self.write_to == "Data":
            self.check_data(self.da, text)
        super().flush_chardata()

    def check_data(
        self,
        array: GiftiDataArray,
        text: str,
    ) -> None:
        """Refuse data that are not those of the dimensions, before they take memory."""
        dtype = data_type_codes.dtype[array.datatype]
        if dtype.kind not in "iuf" or not 1 <= len(array.dims) <= 2 or min(array.dims) < 1:
            raise Unreadable(f"has an array of {dtype} of shape {tuple(array.dims)}")
        check_vertices(array.dims[0])
        size = volume(array.dims) * dtype.itemsize
        encoding = gifti_encoding_codes.label[array.encoding]
        if encoding == "External":
            self.check_beside(array, size)
            return
        if encoding == "ASCII":
            if not 2 * volume(array.dims) - 1 <= len(text) <= _LONGEST_NUMBER * (size + 64):
                raise Unreadable(f"has {len(text)} characters of data for {array.dims} numbers")
        elif encoding == "B64GZ" and len(text) * _LARGEST_GROWTH > FREE_SIZE:
            check_growth(size, len(text))
            n_bytes = len(zlib.decompressobj().decompress(base64.b64decode(text), size + 1))
            if n_bytes != size:
                raise Unreadable(f"has {n_bytes} bytes or more in an array of {size}")
        # Each array may be small, and all of them together large.
        self.n_bytes += size
        check_growth(self.n_bytes, self.stored)

    def check_beside(
        self,
        array: GiftiDataArray,
        size: int,
    ) -> None:
        """Refuse data outside NAME.dat, where SPM and CAT12 keep them; no other file is read."""
        name = self.path.with_suffix(".dat").name
        if array.ext_fname not in (name, f"./{name}"):
            raise Unreadable(f"keeps its data in another file than {name}, in the same folder")
        data_file = self.path.with_name(name)
        if not data_file.exists():
            raise Unreadable(f"keeps its data in {name}, which is not in the same folder")
        check_regular(data_file)
        data_size = data_file.stat().st_size
        # All arrays together, too: each may be the same bytes again.
        self.n_bytes_beside += size
        if not 0 <= array.ext_offset <= data_size - size or self.n_bytes_beside > data_size:
            raise Unreadable(
                f"is truncated: it needs more data than the {data_size} bytes of {name}"
            )


class CiftiParser(Cifti2Parser):
    """nibabel's CIFTI parser, which leaves the vertices of brain models as arrays in `array`."""

    _char_blocks: list[str] | None

    def flush_chardata(self) -> None:
        """Parse vertices as one array: nibabel's lists of them take ten times as long."""
        if self.write_to == "VertexIndices" and self._char_blocks is not None:
            text = "".join(self._char_blocks)
            self._char_blocks = None
            # NumPy would stop at anything else, and warn.
            if not set(text) <= _WHOLE_NUMBERS:
                raise Unreadable("lists vertices that are not whole numbers")
            self.struct_state[-1].array = np.fromstring(text, dtype=np.int64, sep=" ")
        super().flush_chardata()
