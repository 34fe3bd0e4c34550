"""Reading what others have written: limits, and parsers that hold to them, below everything that reads a file.

Files may be of any origin. Sizes are checked against the file before anything is allocated, nothing of a file is run,
and no other file is opened for it.
"""

from __future__ import annotations

from icofactor.reading.limits import Unreadable, check_regular, naming

__all__ = ["Unreadable", "check_regular", "naming"]
