"""Read thousands of damaged and hostile files: icofactor must refuse each with its own error, or read it.

Run it in a checkout: the files are made by tests/hostile.

    python -m icofactor_lab.docs_tables.fuzz                   # more than 5,000 files over all readers, some minutes
    python -m icofactor_lab.docs_tables.fuzz --per-kind 500    # more of them
    python -m icofactor_lab.docs_tables.fuzz --messages        # also what the refusals say, numbers left out

Every file is read in a process of its own, which may take 1 GB more than it has and 5 s. What must not be is counted
and listed: crashes, hangs, allocations beyond that, errors that are not icofactor's own, messages that do not name
the file. The damage is drawn by hypothesis; the same seed draws the same files.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from icofactor_lab.docs_tables import from_tests

_VERDICTS = ("read", "refused", "crash", "hang", "memory", "foreign", "unnamed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-kind", type=int, default=100, metavar="N", help="damaged files of each kind (100)")
    parser.add_argument("--only", default="", metavar="WORD", help="only the kinds whose name has this word")
    parser.add_argument(
        "--part", default="1/1", metavar="I/N", help="only every N-th kind from the I-th on, to share work"
    )
    parser.add_argument("--random-seed", type=int, default=0, metavar="N")
    parser.add_argument("--small", action="store_true", help="without the hostile files of 30 to 130 MB")
    parser.add_argument("--messages", action="store_true", help="list what the refusals say")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files that did what must not be")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    kinds: list[str] = []

    def wanted(kind: str) -> bool:
        kinds.append(kind)
        return options.only in kind and (len(kinds) - part) % parts == 0

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = from_tests("hostile.campaign").run_campaign(
            Path(folder) / "files",
            options.per_kind,
            wanted,
            large=not options.small,
            random_seed=options.random_seed,
            keep=options.keep,
        )
    print(_table(result))
    print(
        f"\n{result.total} files in {time.perf_counter() - begin:.0f} s; slowest {result.slowest[0]:.2f} s "
        f"({result.slowest[1]}), largest process {result.largest[0]:.0f} MB ({result.largest[1]})"
    )
    if options.messages:
        print(_messages(result))
    for kind, how, outcome in result.bad:
        print(f"BAD {outcome.verdict}: {kind}, {how}: {outcome.error} {outcome.message[:300]!r}")
    return 1 if result.bad else 0


def _table(result: Any) -> str:
    rows = [("kind", *_VERDICTS), *((k, *(str(c[v]) for v in _VERDICTS)) for k, c in result.counts.items())]
    rows.append(("all", *(str(sum(c[v] for c in result.counts.values())) for v in _VERDICTS)))
    return "\n".join(f"{row[0]:28s}" + "".join(f"{cell:>9s}" for cell in row[1:]) for row in rows)


def _messages(result: Any) -> str:
    lines = []
    for kind, messages in result.messages.items():
        plain = {re.sub(r"\d[\d.]*", "N", re.sub(r"/\S*/", "", text)) for text in messages}
        lines += [f"\n{kind}", *(f"  {text}" for text in sorted(plain))]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
