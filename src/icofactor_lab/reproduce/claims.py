"""The paper's claims, in our own words, each with what was measured here and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.factorization.methods import PAPER_METHODS
from icofactor_lab.common.outcome import Outcome, Row
from icofactor_lab.reproduce.settings import SETTINGS
from icofactor_lab.reproduce.timing import PAPER_RANGE

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"
NON_NEGATIVE = ("PNNMF", "SPNNMF", "PPNMF")
WEAK_OVERLAP = 0.3
"""Mean cosine up to which basis maps are called weakly overlapping."""
SPEEDY = 0.5
"""An extrapolation speeds up when it needs at most this part of the plain method's updates."""

TIE = 1e-3
"""Errors are as good as equal within this part of the way down from the plateau."""
GAIN = 0.01
"""Many starts pay when the best is lower than the median one by this part of the way down from the plateau."""

Facts = Mapping[str, Any]
_LABEL = {s.key: s.name for s in SETTINGS}


@dataclass(frozen=True)
class Verdict:
    """One claim under one setting.

    Attributes
    ----------
    claim : the paper's, in our words.
    where : which of its sections or figures says so.
    setting : under which it was measured.
    measured : what came out.
    verdict : "holds", "holds in part" or "does not hold".
    why : what makes it so.
    """

    claim: str
    where: str
    setting: str
    measured: str
    verdict: str
    why: str


def judge(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """All claims that the experiments at hand can judge."""
    found = {outcome.name: outcome.facts for outcome in outcomes}
    return [
        verdict for name, judges in _JUDGES.items() if name in found for one in judges for verdict in one(found[name])
    ]


def _verdict(good: int, of: int) -> str:
    return HOLDS if good == of else FAILS if good == 0 else PARTLY


# Time


def _speed(facts: Facts) -> Iterator[Verdict]:
    claim = "Twenty columns make an update 2.4 × 10³ to 6.25 × 10⁵ times faster than full resolution."
    for key, setting, why in (
        (
            "as_read",
            "as the formulas read, plain NumPy both",
            "The upper end needs M = LᵀL and products taken left to right; the lower end depends on what a call of a "
            "small product costs, which is most of a coarse update's time.",
        ),
        (
            "never",
            "M never formed, plain NumPy both",
            "Without M a full update costs a few narrow products; what remains is the smaller problem alone.",
        ),
        (
            "compiled",
            "M never formed, coarse updates by compiled kernels",
            "Many starts at once keep the processor busy, which one small problem cannot.",
        ),
    ):
        ratios = facts["compiled"] if key == "compiled" else facts["ratio"][key]
        values = np.array(list(ratios.values()))
        inside = int(((values >= PAPER_RANGE[0] / 2) & (values <= PAPER_RANGE[1] * 2)).sum())
        measured = f"{_times(values.min())} ({_name(ratios, min)}) to {_times(values.max())} ({_name(ratios, max)})"
        low, high = _orders(values.min()), _orders(values.max())
        measured += f"; {low} to {high} orders of magnitude; {inside} of {len(values)} methods within twice the range"
        yield Verdict(claim, "3.2, figure 3", setting, measured, _verdict(inside, len(values)), why)


def _projective_slowest(facts: Facts) -> Iterator[Verdict]:
    claim = "The projective schemes gain most, because they cost most at full resolution."
    for key, setting in (("as_read", "as the formulas read"), ("never", "M never formed")):
        ratio = facts["ratio"][key]
        inside = [v for m, v in ratio.items() if m.endswith("PPNMF")]
        others = [v for m, v in ratio.items() if not m.endswith("PPNMF")]
        if not np.isfinite(inside).all():
            continue
        good = int(np.sum(np.array(inside) > max(others)))
        share = np.median(
            [facts["ratio"]["as_read"][m] / facts["ratio"]["never"][m] for m in ratio if m.endswith("PPNMF")]
        )
        why = (
            f"It is the price of forming M and of products from left to right: a factor of {_times(float(share))} of "
            "the projective speed-up is due to it."
            if key == "as_read"
            else "With M B = Lᵀ(L B) a projective update costs about what the others cost."
        )
        measured = f"projective {_times(min(inside))} to {_times(max(inside))}, others up to {_times(max(others))}"
        yield Verdict(claim, "3.2", setting, measured, _verdict(good, len(inside)), why)


def _times(value: float) -> str:
    """3.1 × 10⁴, or 240."""
    if not np.isfinite(value):
        return "not run"
    if value < 1000:
        return f"{value:.3g}"
    power = int(np.floor(np.log10(value)))
    return f"{value / 10**power:.2g} × 10{str(power).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _orders(value: float) -> str:
    return f"{np.log10(value):.1f}" if np.isfinite(value) and value > 0 else "n/a"


def _name(ratios: Mapping[str, float], pick: Callable[..., str]) -> str:
    return pick(ratios, key=lambda m: ratios[m])


# Convergence


def _by_setting(facts: Facts) -> dict[str, list[Row]]:
    """Rows of each setting that was run, all datasets."""
    rows = {s.key: [row for row in facts["rows"] if row["setting"] == s.key] for s in SETTINGS}
    return {key: some for key, some in rows.items() if some}


def _coverage(facts: Facts) -> Iterator[Verdict]:
    claim = "Twenty rotated bumps of σ = 0.015, τ = 3 are a coarse basis of the cortex (implied)."
    for key, rows in _by_setting(facts).items():
        covered, floor = rows[0]["covered"], max(row["floor"] for row in rows)
        best = min(row["lowest E/‖X‖² of all starts"] for row in rows)
        measured = (
            f"columns reach {covered:.0%} of the sites; E/‖X‖² cannot fall under {floor:.2f}, lowest reached {best:.3f}"
        )
        why = (
            "The bumps are narrow: most of the cortex is in no column, so that most of X cannot be explained whatever "
            "the method does."
            if covered < 0.99
            else "Every site is in a column."
        )
        yield Verdict(claim, "2.3", _LABEL[key], measured, HOLDS if covered > 0.99 else FAILS, why)


def _faster(facts: Facts) -> Iterator[Verdict]:
    claim = "Both extrapolations speed up convergence considerably."
    name = "update at which it is at the plain method's end"
    for key, rows in _by_setting(facts).items():
        last = facts["updates"]
        rows = [row for row in rows if row["method"] != row["scheme"]]
        good = [row for row in rows if row[name] is not None and row[name] <= SPEEDY * last]
        above = sorted({row["method"] for row in rows if row[name] is None})
        late = sorted({row["method"] for row in rows if row not in good} - set(above))
        reached = [row[name] for row in rows if row[name] is not None]
        middle = f"median of those that do: {np.median(reached):.0f} of {last}" if reached else "none does"
        measured = f"{len(good)} of {len(rows)} reach the plain method's last error in half its updates ({middle})"
        why = "Momentum crosses the plateau of random starts sooner."
        if above:
            why += f" Ahead of the plain method at first, but ending above it: {', '.join(above)}."
        if late:
            why += f" Later than half: {', '.join(late)}."
        yield Verdict(claim, "3.2, figure 4", _LABEL[key], measured, _verdict(len(good), len(rows)), why)


def _pairs(rows: list[Row]) -> list[tuple[Row, Row]]:
    """(E-, LE-) of each non-negative scheme and dataset."""
    by = {(row["dataset"], row["method"]): row for row in rows}
    datasets = dict.fromkeys(row["dataset"] for row in rows)
    return [(by[d, f"E-{s}"], by[d, f"LE-{s}"]) for d in datasets for s in NON_NEGATIVE]


def _lower(facts: Facts) -> Iterator[Verdict]:
    claim = "Log-extrapolation always ends slightly lower than standard extrapolation."
    for key, rows in _by_setting(facts).items():
        pairs = _pairs(rows)
        name = "median final E/‖X‖²"
        gaps = np.array([e[name] - le[name] for e, le in pairs])
        near = np.array([abs(gap) <= TIE * le["way"] for gap, (_, le) in zip(gaps, pairs, strict=True)])
        good = int(((gaps > 0) & ~near).sum())
        lost = [le["method"] for (e, le), gap, tie in zip(pairs, gaps, near, strict=True) if gap < 0 and not tie]
        measured = (
            f"lower in {good} of {len(pairs)} (scheme × dataset), as good as equal in {int(near.sum())}; "
            f"median difference {np.median(gaps):.1e} of ‖X‖²"
        )
        why = "Without the zeros that E- locks, more of B stays free." if good else "Neither ends lower than the other."
        if lost:
            why = f"E- ended lower than {', '.join(sorted(set(lost)))}: minima differ more than the two do."
        verdict = HOLDS if good == len(pairs) else FAILS if good == 0 else PARTLY
        yield Verdict(claim, "3.2, figure 4", _LABEL[key], measured, verdict, why)


def _trapped(facts: Facts) -> Iterator[Verdict]:
    claim = "Log-extrapolation is trapped less often, because it makes no zeros."
    for key, rows in _by_setting(facts).items():
        pairs = _pairs(rows)
        share, zeros = "share of starts trapped", "share of zeros in B"
        fewer = sum(le[share] < e[share] for e, le in pairs)
        more = sum(le[share] > e[share] for e, le in pairs)
        locked = sum(le[zeros] < e[zeros] for e, le in pairs)
        mean = lambda which, name, pairs=pairs: float(np.mean([pair[which][name] for pair in pairs]))
        measured = (
            f"trapped: E- {mean(0, share):.1%}, LE- {mean(1, share):.1%} of starts (fewer in {fewer}, more in {more} "
            f"of {len(pairs)}); zeros in B: E- {mean(0, zeros):.1%}, LE- {mean(1, zeros):.1%}"
        )
        verdict = HOLDS if more == 0 and fewer else PARTLY if fewer or locked else FAILS
        why = (
            f"LE- has fewer zeros in {locked} of {len(pairs)} cases. Zeros do not always cost: with ten components of "
            "twenty columns other entries take over, and starts differ for other reasons too."
        )
        yield Verdict(claim, "3.2", _LABEL[key], measured, verdict, why)


def _starts(facts: Facts) -> Iterator[Verdict]:
    claim = "A large number of random starts gives a good initial pair (B, C)."
    for key, rows in _by_setting(facts).items():
        gain = np.array([row["best start over the median one (part of the way from the plateau)"] for row in rows])
        gain = gain[np.isfinite(gain)]
        good = int((gain > GAIN).sum())
        measured = (
            f"the best start ends lower than the median one by {np.median(gain):.2%} (median) to {gain.max():.2%} of "
            "the way down from the plateau"
        )
        why = (
            f"In {good} of {len(gain)} cases that is more than {GAIN:.0%}; in the others one start is as good as many."
        )
        yield Verdict(claim, "3.2", _LABEL[key], measured, _verdict(good, len(gain)), why)


# Sparsity


def _measure(values: np.ndarray, measure: int, scheme: str) -> np.ndarray:
    """(datasets, methods of the scheme) of one measure."""
    columns = [i for i, m in enumerate(PAPER_METHODS) if m.split("-")[-1] == scheme]
    return values[:, columns, measure]


def _projective_sparse(facts: Facts) -> Iterator[Verdict]:
    claim = "Projective bases are very sparse, projective loadings are not (L1 norms)."
    for key, values in facts["values"].items():
        B, C = _measure(values, 0, "PPNMF"), _measure(values, 1, "PPNMF")
        others = [i for i, m in enumerate(PAPER_METHODS) if not m.endswith("PPNMF")]
        least, most = np.nanmin(values[:, others, 0], axis=1), np.nanmax(values[:, others, 1], axis=1)
        good = int(((np.nanmax(B, axis=1) < least) & (np.nanmin(C, axis=1) > most)).sum())
        hoyer = [float(np.nanmedian(_measure(values, 2, s))) for s in ("PPNMF", "PNNMF")]
        middle = [_times(float(np.nanmedian(x))) for x in (B, C)]
        measured = (
            f"smallest ‖B‖₁ and largest ‖C‖₁ of all in {good} of {len(values)} datasets (medians {middle[0]} "
            f"and {middle[1]}); Hoyer sparsity of B {hoyer[0]:.2f}, of PNNMF's {hoyer[1]:.2f}"
        )
        why = (
            "‖B‖₁ says little by itself: BᵀDᵀDB is near the identity, so B is small and C = BᵀDᵀX large for any data. "
            + (
                "By Hoyer's scale-free measure the basis is sparser too."
                if hoyer[0] > hoyer[1] + 0.02
                else "By Hoyer's scale-free measure the basis is not sparser."
            )
        )
        yield Verdict(claim, "3.3, figure 5", _LABEL[key], measured, _verdict(good, len(values)), why)


def _balanced(facts: Facts) -> Iterator[Verdict]:
    claim = "The other schemes balance the L1 norms of B and C."
    for key, values in facts["values"].items():
        ratio = {
            s: np.nanmedian(_measure(values, 0, s) / np.maximum(_measure(values, 1, s), 1e-300))
            for s in ("DL", "PNNMF", "SPNNMF")
        }
        good = sum(0.1 <= r <= 10 for r in ratio.values())
        measured = "‖B‖₁/‖C‖₁, median: " + ", ".join(f"{s} {_times(float(r))}" for s, r in ratio.items())
        why = (
            "Rows of B are weighed by the sites of their face and balanced against C after each update."
            if key == "default"
            else "Nothing in the updates balances them but a small penalty: the ratio is about what the start gave it."
        )
        yield Verdict(claim, "3.3, figure 5", _LABEL[key], measured, _verdict(good, len(ratio)), why)


def _dictionary_sparser(facts: Facts) -> Iterator[Verdict]:
    claim = "For these penalties, dictionary learning's basis is slightly sparser than that of the NMF schemes."
    for key, values in facts["values"].items():
        with np.errstate(invalid="ignore"):
            l1 = {s: float(np.nanmedian(_measure(values, 0, s))) for s in ("DL", "PNNMF", "SPNNMF")}
            hoyer = {s: float(np.nanmedian(_measure(values, 2, s))) for s in l1}
        by_l1 = all(l1["DL"] < l1[s] for s in ("PNNMF", "SPNNMF"))
        by_hoyer = all(hoyer["DL"] > hoyer[s] for s in ("PNNMF", "SPNNMF"))
        listed = lambda found: ", ".join(f"{s} {_times(v)}" for s, v in found.items())
        measured = f"‖B‖₁: {listed(l1)}; Hoyer: {listed(hoyer)}"
        why = (
            "λ = 5 and λ = ½ are not scale-free: what they do depends on the units of the data and the size of L. "
            f"{'L1 norm and Hoyer agree.' if by_l1 == by_hoyer else 'L1 norm and Hoyer disagree.'}"
        )
        yield Verdict(claim, "3.3, figure 5", _LABEL[key], measured, _verdict(by_l1 + by_hoyer, 2), why)


# Maps


def _focused(facts: Facts) -> Iterator[Verdict]:
    claim = "The refinement focuses where the data vary most."
    for row in facts["rows"]:
        rho, low, high = (
            row[k]
            for k in ("depth and standard deviation (ρ)", "random refinement: ρ, 2.5 %", "random refinement: ρ, 97.5 %")
        )
        other = row["depth and median map (ρ)"]
        measured = f"ρ = {rho:.2f} (random refinement: {low:.2f} to {high:.2f}; with the median map: {other:.2f})"
        verdict = FAILS if not rho > high else HOLDS if abs(rho) >= abs(other) else PARTLY
        why = (
            "Depth follows the standard deviation no more than chance."
            if verdict == FAILS
            else "Depth follows the standard deviation beyond chance"
            + (
                ", and more than it follows the median map."
                if verdict == HOLDS
                else ", but it follows the median map more."
            )
        )
        if row["setting"] == "literal":
            why += " Eq. 12 sees only what the columns resolve, and they resolve little."
        yield Verdict(claim, "3.3, figure 6", _LABEL[row["setting"]], measured, verdict, why)


def _weakly_overlapping(facts: Facts) -> Iterator[Verdict]:
    claim = "The basis splits the variable cortex into weakly overlapping components (LE-PNNMF)."
    for row in facts["rows"]:
        cosine, shared = row["overlap (mean cosine)"], row["sites where two maps are near (second > half of first)"]
        measured = f"mean cosine {cosine:.2f}; two maps near each other at {shared:.0%} of the sites they reach"
        verdict = HOLDS if cosine <= WEAK_OVERLAP and shared <= 0.5 else PARTLY if cosine <= 2 * WEAK_OVERLAP else FAILS
        why = (
            f"Taken as a mean cosine up to {WEAK_OVERLAP}. Where subjects differ little, many mixtures of components "
            "fit alike and NMF need not find parts; LE-PPNMF's maps overlap far less (figure of experiment 3)."
        )
        yield Verdict(claim, "3.3, figure 6", _LABEL[row["setting"]], measured, verdict, why)


# Division


def _division(facts: Facts) -> Iterator[Verdict]:
    claim = "Local errors and the divided rows of B are good approximations where columns overlap little."
    rows = facts["division"]
    names = ("partition", "exponential, σ = 0.015", "exponential, covering", "smooth")
    for name, (_, quarter, copied, rho) in zip(names, rows, strict=True):
        good = int(abs(quarter) <= 0.05) + int(rho >= 0.5)
        jumps = f"{quarter:+.1%} (B copied instead: {copied:+.1%})"
        measured = f"E after a division {jumps}; eq. 12 against the true residual: ρ = {rho:.2f}"
        why = (
            "The jump is small because the columns explain little to begin with."
            if "0.015" in name
            else "A child's column is as high as its parent's, so that B should be copied, not divided by four."
        )
        if rho < 0.5:
            why += " Eq. 12 says little about where the residual is."
        yield Verdict(claim, "2.2", name, measured, _verdict(good, 2), why)


_JUDGES: dict[str, tuple[Callable[[Facts], Iterator[Verdict]], ...]] = {
    "timing": (_speed, _projective_slowest),
    "convergence": (_coverage, _faster, _lower, _trapped, _starts),
    "sparsity": (_projective_sparse, _balanced, _dictionary_sparser),
    "maps": (_weakly_overlapping, _focused),
    "ablation": (_division,),
}
