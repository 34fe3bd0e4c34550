"""Print how large every room of the house is, and fail if one has grown beyond its limit.

    python tools/room_sizes.py            # the rooms listed under [tool.room-sizes] in pyproject.toml
    python tools/room_sizes.py --lower    # lower the limits of rooms that have shrunk

Size is counted in tokens of code: names, operators, numbers and strings. Comments and docstrings do not count, so
explaining is free; a dense line counts as much as the same code on several lines.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
# From Python 3.12 on, an f-string is several tokens; it counts as one, as before.
F_STRING_START = getattr(tokenize, "FSTRING_START", -1)
F_STRING_END = getattr(tokenize, "FSTRING_END", -1)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that docstrings stand on."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, DOCUMENTED) or not node.body:
            continue
        first = node.body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
            and first.end_lineno is not None
        ):
            lines.update(range(first.lineno, first.end_lineno + 1))
    return lines


def code_tokens(source: str) -> int:
    """Count the tokens of code in a module."""
    documentation = docstring_lines(ast.parse(source))
    count = 0
    # How many f-strings the current token is inside of.
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        depth += token.type == F_STRING_START
        starts_f_string = token.type == F_STRING_START and depth == 1
        is_code = token.type in CODE and depth == 0
        if token.start[0] not in documentation:
            count += starts_f_string or is_code
        depth -= token.type == F_STRING_END
    return count


def room_size(room: Path) -> int:
    """Count the tokens of a folder with all folders below it, or of the modules that lie directly in `room/*`."""
    files = room.parent.glob("*.py") if room.name == "*" else room.rglob("*.py")
    return sum(code_tokens(file.read_text(encoding="utf8")) for file in files)


def limits(pyproject: str) -> dict[str, int]:
    """Return room → limit."""
    return dict(tomllib.loads(pyproject)["tool"]["room-sizes"])


def unlisted_rooms(rooms: Iterable[str]) -> list[str]:
    """Return the subpackages of the library that have no limit."""
    library = ROOT / "src" / "icofactor"
    packages = {f"src/icofactor/{file.parent.name}" for file in library.glob("*/*.py")}
    return sorted(packages - set(rooms))


def lowered(pyproject: str, sizes: dict[str, int]) -> str:
    """Return pyproject.toml with the limits of rooms that are smaller than their limit lowered to their size."""
    for room, limit in limits(pyproject).items():
        line = re.compile(rf'^"{re.escape(room)}" = {limit}\b', re.MULTILINE)
        pyproject = line.sub(f'"{room}" = {min(limit, sizes[room])}', pyproject)
    return pyproject


def main(options: list[str]) -> int:
    """Print the table; return 1 if a room is larger than its limit, or has none."""
    file = ROOT / "pyproject.toml"
    pyproject = file.read_text(encoding="utf8")
    sizes = {room: room_size(ROOT / room) for room in limits(pyproject)}
    if "--lower" in options:
        pyproject = lowered(pyproject, sizes)
        file.write_text(pyproject, encoding="utf8")
    too_large = []
    for room, limit in limits(pyproject).items():
        grown = sizes[room] > limit
        if grown:
            too_large.append(room)
        print(f"{sizes[room]:9,} of {limit:9,} tokens  {room}{'  too large' if grown else ''}")
    library = sum(size for room, size in sizes.items() if room.startswith("src/icofactor"))
    print(f"{library:9,} tokens in the library")
    if too_large:
        print(
            f"Larger than its limit in pyproject.toml: {', '.join(too_large)}. Make it smaller, or raise the limit and "
            "write the reason beside it."
        )
    unlisted = unlisted_rooms(sizes)
    if unlisted:
        print(f"Without a limit in pyproject.toml: {', '.join(unlisted)}.")
    return 1 if too_large or unlisted else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
