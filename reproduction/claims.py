"""The claims of the paper, in our own words: what was measured, and whether it holds.

A judge is a function that reads the table of its experiment and yields verdicts. `JUDGES` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from reproduction.settings import SETTING_NAMES
from reproduction.study import Frame, Study
from reproduction.timing import MILLION, PAPER_RANGE

HOLDS = "holds"
PARTLY = "holds in part"
FAILS = "does not hold"
# An extrapolation speeds up if it needs at most this part of the updates of the plain method.
FAST = 0.5
# Errors are as good as equal if they differ by less than this part of the descent from the plateau.
TIE = 1e-3
# Many starts pay if the best is lower than the median one by this part of the descent.
GAIN = 0.01
# Basis maps overlap weakly up to this mean cosine.
WEAK_OVERLAP = 0.3
# Columns cover the cortex if they reach this part of it.
COVERS = 0.99
# E may jump by this part in a division that is called a good approximation, and eq. 12 must correlate this well.
SMALL_JUMP = 0.05
GOOD_CORRELATION = 0.5


@dataclass(frozen=True)
class Verdict:
    """One claim under one setting.

    Attributes
    ----------
    claim : of the paper, in our words
    section : of the paper
    setting : under which it was measured
    measured : what came out
    verdict : "holds", "holds in part" or "does not hold"
    """

    claim: str
    section: str
    setting: str
    measured: str
    verdict: str


def judge(study: Study) -> list[dict]:
    """Judge all claims whose experiments have run."""
    rows = []
    for table_name, judges in JUDGES.items():
        table = study.read_table(table_name)
        if table is not None:
            rows += [asdict(verdict) for judge_claim in judges for verdict in judge_claim(table)]
    return rows


def verdict_of(n_good: int, n_cases: int) -> str:
    """Return what it means that a claim holds in some of the cases."""
    if n_good == n_cases:
        return HOLDS
    return PARTLY if n_good else FAILS


def settings_of(table: Frame) -> Iterator[tuple[str, Frame]]:
    """Yield the name of each setting and its rows."""
    for key, rows in table.groupby("setting", sort=False):
        yield SETTING_NAMES[key], rows


def extrapolated_pairs(rows: Frame) -> Frame:
    """Return the rows of E- and LE- of the non-negative schemes side by side, one row per scheme and dataset."""
    rows = rows[rows.scheme != "DL"]
    log = rows[rows.method.str.startswith("LE-")].set_index(["dataset", "scheme"])
    standard = rows[rows.method.str.startswith("E-")].set_index(["dataset", "scheme"])
    return standard.join(log, lsuffix="_E", rsuffix="_LE")


# Time


def judge_speed(table: Frame) -> Iterator[Verdict]:
    """Compare the speed-up with the range of the paper, for each way to program it."""
    claim = (
        "Twenty columns make an update 2.4 × 10³ to 6.25 × 10⁵ times faster than full resolution."
    )
    for setting, ratios in speed_ups(table).items():
        inside = ratios.between(PAPER_RANGE[0] / 2, PAPER_RANGE[1] * 2)
        measured = (
            f"{ratios.min():.2g} ({ratios.idxmin()}) to {ratios.max():.2g} ({ratios.idxmax()})"
        )
        measured += f"; {inside.sum()} of {len(ratios)} methods within twice the range"
        yield Verdict(
            claim, "3.2, figure 3", setting, measured, verdict_of(inside.sum(), len(ratios))
        )


def judge_projective_gain(table: Frame) -> Iterator[Verdict]:
    """Compare the speed-up of the projective schemes with that of the others."""
    claim = "The projective schemes gain most, because they cost most at full resolution."
    for setting, ratios in speed_ups(table).items():
        projective = ratios[ratios.index.str.endswith("PPNMF")]
        largest_other = ratios.drop(projective.index).max()
        good = (projective > largest_other).sum()
        measured = f"projective {projective.min():.2g} to {projective.max():.2g}, others up to {largest_other:.2g}"
        yield Verdict(claim, "3.2", setting, measured, verdict_of(good, len(projective)))


def speed_ups(table: Frame) -> dict[str, Frame]:
    """Return the speed-up of each method: as the formulas read, without M, and with compiled coarse updates."""
    seconds = table.pivot(index="method", columns="what", values="seconds")
    # Only the projective schemes have M; the others have one program.
    as_read = seconds["without M"]
    if "as read" in seconds:
        as_read = seconds["as read"].fillna(as_read)
    return {
        "as the formulas read, plain NumPy": MILLION * as_read / seconds["formula"],
        "M never formed, plain NumPy": MILLION * seconds["without M"] / seconds["formula"],
        "M never formed, coarse updates compiled": MILLION
        * seconds["without M"]
        / seconds["compiled"],
    }


# Convergence


def judge_coverage(table: Frame) -> Iterator[Verdict]:
    """Look at how much of the cortex the columns reach."""
    claim = "Twenty rotated bumps of σ = 0.015, τ = 3 are a coarse basis of the cortex (implied)."
    for setting, rows in settings_of(table):
        covered = rows.covered.min()
        measured = f"columns reach {covered:.0%} of the sites; E/‖X‖² cannot fall under {rows.floor.max():.2f}, "
        measured += f"lowest reached {rows.lowest_error.min():.3f}"
        yield Verdict(claim, "2.3", setting, measured, HOLDS if covered > COVERS else FAILS)


def judge_faster(table: Frame) -> Iterator[Verdict]:
    """Look at when the extrapolated methods reach the last error of the plain one."""
    claim = "Both extrapolations speed up convergence considerably."
    for setting, rows in settings_of(table):
        extrapolated = rows[rows.method != rows.scheme]
        reached = extrapolated.reaches_plain_at
        fast = (reached <= FAST * extrapolated.updates).sum()
        measured = f"{fast} of {len(extrapolated)} reach the last error of the plain method in half its updates "
        measured += f"(median update {reached.median():.0f}; {reached.isna().sum()} never do)"
        yield Verdict(
            claim, "3.2, figure 4", setting, measured, verdict_of(fast, len(extrapolated))
        )


def judge_lower(table: Frame) -> Iterator[Verdict]:
    """Compare the last errors of E- and LE-."""
    claim = "Log-extrapolation always ends slightly lower than standard extrapolation."
    for setting, rows in settings_of(table):
        pairs = extrapolated_pairs(rows)
        gaps = pairs.final_error_E - pairs.final_error_LE
        tied = gaps.abs() <= TIE * pairs.descent_E
        lower = ((gaps > 0) & ~tied).sum()
        measured = f"lower in {lower} of {len(pairs)} (scheme × dataset), as good as equal in {tied.sum()}; "
        measured += f"median difference {gaps.median():.1e} of ‖X‖²"
        yield Verdict(claim, "3.2, figure 4", setting, measured, verdict_of(lower, len(pairs)))


def judge_trapped(table: Frame) -> Iterator[Verdict]:
    """Compare how many starts of E- and LE- end far above the lowest."""
    claim = "Log-extrapolation is trapped less often, because it makes no zeros."
    for setting, rows in settings_of(table):
        pairs = extrapolated_pairs(rows)
        fewer = (pairs.trapped_LE < pairs.trapped_E).sum()
        more_often = (pairs.trapped_LE > pairs.trapped_E).sum()
        fewer_zeros = (pairs.zeros_in_B_LE < pairs.zeros_in_B_E).sum()
        measured = (
            f"trapped: E- {pairs.trapped_E.mean():.1%}, LE- {pairs.trapped_LE.mean():.1%} of starts "
            f"(fewer in {fewer}, more in {more_often} of {len(pairs)}); "
            f"zeros in B: E- {pairs.zeros_in_B_E.mean():.1%}, LE- {pairs.zeros_in_B_LE.mean():.1%}"
        )
        verdict = HOLDS if fewer and not more_often else PARTLY if fewer or fewer_zeros else FAILS
        yield Verdict(claim, "3.2", setting, measured, verdict)


def judge_starts(table: Frame) -> Iterator[Verdict]:
    """Look at how much lower the best of many starts is."""
    claim = "A large number of random starts gives a good initial pair (B, C)."
    for setting, rows in settings_of(table):
        gains = rows.gain_of_many[np.isfinite(rows.gain_of_many)]
        good = (gains > GAIN).sum()
        measured = (
            f"the best start ends lower than the median one by {gains.median():.2%} (median) to "
        )
        measured += (
            f"{gains.max():.2%} of the descent; by more than {GAIN:.0%} in {good} of {len(gains)}"
        )
        yield Verdict(claim, "3.2", setting, measured, verdict_of(good, len(gains)))


# Sparsity


def scheme_medians(rows: Frame) -> Frame:
    """Return the medians of each scheme, over its methods and all datasets."""
    schemes = rows.method.str.split("-").str[-1]
    return rows.groupby(schemes)[["l1_B", "l1_C", "hoyer_B", "ratio"]].median()


def judge_projective_sparsity(table: Frame) -> Iterator[Verdict]:
    """Compare the L1 norms of the projective schemes with those of the others."""
    claim = "Projective bases are very sparse, projective loadings are not (L1 norms)."
    for setting, rows in settings_of(table):
        projective = rows.method.str.endswith("PPNMF")
        inside = rows[projective].groupby("number")
        outside = rows[~projective].groupby("number")
        sparse_B = inside.l1_B.max() < outside.l1_B.min()
        dense_C = inside.l1_C.min() > outside.l1_C.max()
        good = (sparse_B & dense_C).sum()
        hoyer = rows.hoyer_B.groupby(rows.method.str.split("-").str[-1]).median()
        measured = f"smallest ‖B‖₁ and largest ‖C‖₁ in {good} of {len(sparse_B)} datasets; "
        measured += f"Hoyer's sparsity of B {hoyer['PPNMF']:.2f}, of PNNMF's {hoyer['PNNMF']:.2f}"
        yield Verdict(claim, "3.3, figure 5", setting, measured, verdict_of(good, len(sparse_B)))


def judge_balance(table: Frame) -> Iterator[Verdict]:
    """Look at the ratio of the L1 norms."""
    claim = "The other schemes balance the L1 norms of B and C."
    for setting, rows in settings_of(table.assign(ratio=table.l1_B / table.l1_C)):
        ratios = scheme_medians(rows).ratio.drop("PPNMF")
        good = ratios.between(0.1, 10).sum()
        measured = "‖B‖₁/‖C‖₁, median: " + ", ".join(
            f"{scheme} {ratio:.3g}" for scheme, ratio in ratios.items()
        )
        yield Verdict(claim, "3.3, figure 5", setting, measured, verdict_of(good, len(ratios)))


def judge_dictionary_sparsity(table: Frame) -> Iterator[Verdict]:
    """Compare the basis of dictionary learning with those of the NMF schemes, by two measures."""
    claim = "For these penalties, dictionary learning's basis is slightly sparser than that of the NMF schemes."
    for setting, rows in settings_of(table.assign(ratio=table.l1_B / table.l1_C)):
        medians = scheme_medians(rows).drop("PPNMF")
        by_l1 = medians.l1_B.idxmin() == "DL"
        by_hoyer = medians.hoyer_B.idxmax() == "DL"
        measured = "; ".join(
            f"{scheme}: ‖B‖₁ {row.l1_B:.3g}, Hoyer {row.hoyer_B:.2g}"
            for scheme, row in medians.iterrows()
        )
        yield Verdict(claim, "3.3, figure 5", setting, measured, verdict_of(by_l1 + by_hoyer, 2))


# Maps


def judge_focus(table: Frame) -> Iterator[Verdict]:
    """Compare where faces were divided with where the data vary."""
    claim = "The refinement focuses where the data vary most."
    for row in table.itertuples():
        measured = (
            f"ρ = {row.depth_and_deviation:.2f} (random refinement: {row.random_low:.2f} to {row.random_high:.2f}; "
            f"with the median map: {row.depth_and_median:.2f})"
        )
        beyond_chance = row.depth_and_deviation > row.random_high
        more_than_level = abs(row.depth_and_deviation) >= abs(row.depth_and_median)
        good = int(beyond_chance) + int(beyond_chance and more_than_level)
        yield Verdict(
            claim, "3.3, figure 6", SETTING_NAMES[row.setting], measured, verdict_of(good, 2)
        )


def judge_overlap(table: Frame) -> Iterator[Verdict]:
    """Look at how far the basis maps overlap."""
    claim = "The basis splits the variable cortex into weakly overlapping components (LE-PNNMF)."
    for row in table.itertuples():
        measured = f"mean cosine {row.overlap:.2f}; at {row.shared_sites:.0%} of the sites that maps reach, the second "
        measured += "largest is more than half of the largest"
        weak = row.overlap <= WEAK_OVERLAP and row.shared_sites <= 0.5
        verdict = HOLDS if weak else PARTLY if row.overlap <= 2 * WEAK_OVERLAP else FAILS
        yield Verdict(claim, "3.3, figure 6", SETTING_NAMES[row.setting], measured, verdict)


# Division


def judge_division(table: Frame) -> Iterator[Verdict]:
    """Look at what a division does to the error, and at what eq. 12 says of the residual."""
    claim = "Local errors and the divided rows of B are good approximations where columns overlap little."
    for row in table.itertuples():
        small_jump = abs(row.jump_quarter) <= SMALL_JUMP
        good_indicator = row.eq12_and_residual >= GOOD_CORRELATION
        measured = (
            f"E after a division {row.jump_quarter:+.1%} (B copied instead: {row.jump_copy:+.1%}); "
            f"eq. 12 against the residual: ρ = {row.eq12_and_residual:.2f}"
        )
        good = int(small_jump) + int(good_indicator)
        yield Verdict(claim, "2.2", row.columns, measured, verdict_of(good, 2))


JUDGES = {
    "timing": (judge_speed, judge_projective_gain),
    "convergence": (judge_coverage, judge_faster, judge_lower, judge_trapped, judge_starts),
    "sparsity": (judge_projective_sparsity, judge_balance, judge_dictionary_sparsity),
    "maps": (judge_overlap, judge_focus),
    "division": (judge_division,),
}
