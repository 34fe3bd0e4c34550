"""Write the figures that golden tests expect.

    PYTHONPATH=tests python -m golden.make            # all cases
    PYTHONPATH=tests python -m golden.make NAME ...   # some of them

A figure may change only for a reason: list figure, reason and commit in CHANGED.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

from golden.cases import CASES, figures_of

EXPECTED = Path(__file__).with_name("expected.json")


def main(names: list[str]) -> None:
    """Run the cases of these names, or all, and replace their figures in the file."""
    expected = json.loads(EXPECTED.read_text(encoding="utf8")) if names else {}
    for name in names or CASES:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            figures = figures_of(name, Path(folder))
        expected[name] = {label: figure.stored() for label, figure in figures.items()}
        print(f"{time.perf_counter() - start:6.2f} s  {name}: {len(figures)} figures", flush=True)
    lines = [
        f"{json.dumps(name)}: {json.dumps(expected[name])}" for name in CASES if name in expected
    ]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf8")


if __name__ == "__main__":
    main(sys.argv[1:])
