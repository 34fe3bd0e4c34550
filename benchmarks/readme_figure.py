"""Draw the figure of README.md: the first four components of the demo's cohort.

Usage: python benchmarks/readme_figure.py
"""

from __future__ import annotations

from pathlib import Path

import icofactor as ico


def main() -> None:
    target = Path(__file__).parent.parent / "docs" / "images" / "demo_components.png"
    cohort = ico.simulate_cohort(hemisphere="both", random_state=0)
    model = ico.CorticalFactorization(10, random_state=0).fit(cohort)
    figure = ico.plot_components(model, components=range(4), units=cohort.units, dpi=90)
    figure.savefig(target)
    print(f"written: {target}")


if __name__ == "__main__":
    main()
