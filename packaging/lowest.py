"""The lowest versions that `pyproject.toml` declares, which `make test-lowest` installs and tests.

`python packaging/lowest.py` prints them as constraints for pip.
`python packaging/lowest.py --check` prints what is installed, and fails unless it is exactly that.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
EXTRAS = ("jax", "dask", "remote")
# Libraries of the extra `test` that results are compared with. Its tools, such as pytest, need not be old.
COMPARED = ("statsmodels",)


def lowest_versions() -> dict[str, str]:
    """Return the lowest declared version of each dependency, with those of the extras."""
    extras = PROJECT["optional-dependencies"]
    requirements = list(PROJECT["dependencies"])
    for extra in EXTRAS:
        requirements += extras[extra]
    requirements += [
        requirement for requirement in extras["test"] if requirement.startswith(COMPARED)
    ]
    return dict(name_and_version(requirement) for requirement in requirements)


def name_and_version(requirement: str) -> tuple[str, str]:
    """Split a requirement such as `dask[array]>=2025.4`."""
    parts = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", requirement)
    if parts is None:
        raise SystemExit(f"{requirement!r} of pyproject.toml is not of the form name>=version")
    return parts[1], parts[2]


def same_version(installed: str, declared: str) -> bool:
    """Compare two versions, where 2.1 and 2.1.0 are the same."""
    return re.fullmatch(re.escape(declared) + r"(\.0)*", installed) is not None


def check() -> int:
    """Print the versions of Python and of the dependencies; return 1 if one is not the lowest declared."""
    declared = {"python": PROJECT["requires-python"].removeprefix(">="), **lowest_versions()}
    status = 0
    for name, lowest in declared.items():
        installed = "{}.{}".format(*sys.version_info) if name == "python" else version(name)
        if same_version(installed, lowest):
            print(name, installed)
        else:
            print(f"{name} {installed}, but pyproject.toml declares {lowest}")
            status = 1
    return status


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        return check()
    for name, lowest in lowest_versions().items():
        print(f"{name}=={lowest}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
