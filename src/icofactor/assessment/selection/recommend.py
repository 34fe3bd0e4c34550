"""From curves to a recommendation, and why.

Agreement of halves is the mean of two numbers: the correlation of matched maps and the adjusted
Rand index of winner-takes-all maps.

Is there structure? Only if at some rank halves of the data are explained better than the halves of
every null cohort, or agree more than these, by at least `STANDS_OUT` standard deviations of the
null, and by more than any null cohort ever stands out from the others: the last pays for having
looked at many ranks.

Which rank? The one with the largest reproducible part of what is there:

    score = (1 − error on left-out blocks) × (agreement − null's agreement) / (1 − null's agreement)

among the ranks at which halves agree more than those of every null cohort. With too few components
little is
explained, and halves disagree on which to merge; with too many nothing more is explained, and
halves disagree on what to split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STANDS_OUT = 4.0
GOOD = 1 / 3
"""Other ranks are named when their score is at least this part of the best."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the recommendation rests on, per rank (rows) and repetition (columns).

    Attributes
    ----------
    ranks : (n_ranks,)
    split, null : (n_ranks, n_splits or n_nulls, measures) `agreement.MEASURES` of the data and of
    the null cohorts bicv, heldout : (n_ranks, n_folds) held-out errors
    error, cophenetic, dispersion : (n_ranks,)
    third, null_third : (n_ranks, divisions, 2) `agreement.THIRD_MEASURES`, likewise
    """

    ranks: np.ndarray
    split: np.ndarray
    null: np.ndarray
    bicv: np.ndarray
    heldout: np.ndarray
    error: np.ndarray
    cophenetic: np.ndarray
    dispersion: np.ndarray
    third: np.ndarray
    null_third: np.ndarray

    @property
    def agreement(self) -> np.ndarray:
        """(n_ranks, n_splits) of the data."""
        return np.asarray(self.split[:, :, 1:3].mean(axis=2))

    @property
    def null_agreement(self) -> np.ndarray:
        """(n_ranks, n_nulls) of the null cohorts."""
        return np.asarray(self.null[:, :, 1:3].mean(axis=2))

    @property
    def excess(self) -> np.ndarray:
        """Agreement above the null's mean."""
        return np.asarray(self.agreement.mean(axis=1) - self.null_agreement.mean(axis=1))

    @property
    def scores(self) -> np.ndarray:
        """(n_ranks, n_splits) share of left-out variance that is explained, times agreement beyond
        the null's.
        """
        null = self.null_agreement.mean(axis=1, keepdims=True)
        explained = np.maximum(1 - self.bicv.mean(axis=1, keepdims=True), 0.0)
        return np.asarray(explained * (self.agreement - null) / np.maximum(1 - null, 1e-12))

    @property
    def reproducible(self) -> np.ndarray:
        """(n_ranks,) whether halves agree more than those of every null cohort, on what predicts
        left-out data.
        """
        return np.asarray(
            (self.agreement.mean(axis=1) > self.null_agreement.max(axis=1))
            & (self.scores.mean(axis=1) > 0)
        )

    @property
    def standing(self) -> tuple[np.ndarray, np.ndarray]:
        """Per rank, how far halves of the data stand out from the null's: in what is explained, and
        in agreement.
        """
        explained = _standing(1 - self.split[:, :, 3], 1 - self.null[:, :, 3])
        return explained, _standing(self.agreement, self.null_agreement)


def _standing(data: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Distance of the data's mean from the null's in the null's standard deviations; −∞ where
    nothing stands out.
    """
    value = data.mean(axis=1)
    distance = (value - null.mean(axis=1)) / spread_of(null)
    out = (value > null.max(axis=1)) & (distance >= max(STANDS_OUT, farthest_null(null)))
    return np.where(out, distance, -np.inf)


def spread_of(null: np.ndarray) -> np.ndarray:
    """Standard deviation over null cohorts (columns), pooled over neighbouring ranks: one rank has
    too few.
    """
    variance = np.pad(null.var(axis=1, ddof=1), 1, mode="edge")
    return np.asarray(
        np.sqrt(np.maximum((variance[:-2] + variance[1:-1] + variance[2:]) / 3, 1e-12))
    )


def farthest_null(null: np.ndarray) -> float:
    """The largest distance at which one null cohort stands from the others, over all ranks."""
    farthest = -np.inf
    for q in range(null.shape[1]):
        others = np.delete(null, q, axis=1)
        farthest = max(
            farthest, float(((null[:, q] - others.mean(axis=1)) / spread_of(others)).max())
        )
    return farthest


def recommend(found: Evidence) -> tuple[int | None, tuple[str, ...]]:
    """The recommended rank, None without structure, and the reasons as text."""
    explained, agreed = found.standing
    if not np.isfinite([explained, agreed]).any():
        return None, _no_structure(found)
    score = found.scores.mean(axis=1)
    reproducible = found.reproducible
    if not reproducible.any():
        return None, _nothing_agreed(found)
    best = int(np.argmax(np.where(reproducible, score, -np.inf)))
    reasons = (
        _agreement_reason(found, best),
        _neighbours_reason(found, best),
        _shared_reason(found),
        _block_reason(found, best),
        _start_reason(found, best),
        _third_reason(found, best),
        _others_reason(found, best),
    )
    return int(found.ranks[best]), tuple(reason for reason in reasons if reason)


def other_good(found: Evidence, recommended: int | None) -> tuple[int, ...]:
    """Other ranks where the score has a local optimum: larger than at the ranks tried before and
    after, and than at one of these by more than a standard error, by paired splits; and at least
    `GOOD` times the best.
    """
    if recommended is None:
        return ()
    score, good = found.scores, []
    mean = score.mean(axis=1)
    best = mean[list(found.ranks).index(recommended)]
    for i in range(1, len(mean) - 1):
        lost = score[i] - score[[i - 1, i + 1]]
        error = lost.std(axis=1, ddof=1) / np.sqrt(lost.shape[1])
        peak = (lost.mean(axis=1) > 0).all() and (lost.mean(axis=1) > error).any()
        if (
            peak
            and found.reproducible[i]
            and mean[i] >= GOOD * best
            and found.ranks[i] != recommended
        ):
            good.append(int(found.ranks[i]))
    return tuple(good)


def _others_reason(found: Evidence, i: int) -> str:
    others = other_good(found, int(found.ranks[i]))
    if others:
        return f"Other good numbers, where the score has a local optimum: {_listed(list(others))}."
    return "No other number is a local optimum of the score." if len(found.ranks) > 2 else ""


def _third_reason(found: Evidence, i: int) -> str:
    """Whether loadings of new people would be the same from another group."""
    plain, adjusted = found.third[i].mean(axis=0)
    null, null_adjusted = found.null_third[i].mean(axis=0)
    if not np.isfinite([plain, adjusted, null, null_adjusted]).all():
        return ""
    return (
        f"Loadings that two groups give to other people correlate {plain:.2f} (rotated maps: {null:.2f}), and "
        f"{adjusted:.2f} ({null_adjusted:.2f}) without each person's global mean."
    )


def _nearest(found: Evidence) -> str:
    """Where agreement comes nearest to standing out."""
    i = int(np.argmax(found.excess / spread_of(found.null_agreement)))
    return (
        f"The difference is smallest at {found.ranks[i]}: agreement {found.agreement[i].mean():.2f}, and "
        f"{found.null_agreement[i].mean():.2f} on average over {found.null.shape[1]} rotated cohorts, at most "
        f"{found.null_agreement[i].max():.2f}."
    )


def _no_structure(found: Evidence) -> tuple[str, ...]:
    first, last = found.ranks[0], found.ranks[-1]
    tried = (
        f"{first} components, the only number tried"
        if first == last
        else f"{first} to {last} components"
    )
    return (
        f"No reproducible structure was found with {tried}: random halves of the subjects are fitted no better, and "
        "agree no more, than halves of null cohorts in which each map was rotated at random.",
        _nearest(found),
        "Components fitted to these maps would show the mean map, the smoothness of the data and chance. More "
        "subjects, or maps in which subjects differ more, may change that.",
    )


def _nothing_agreed(found: Evidence) -> tuple[str, ...]:
    return (
        "Subjects share variation, but random halves of the subjects agree on components no more than halves of null "
        "cohorts in which each map was rotated at random, whatever the number of components. Do not interpret single "
        "components.",
        _nearest(found),
        _shared_reason(found),
    )


def _shared_reason(found: Evidence) -> str:
    """Whether subjects vary in the same places."""
    explained, _ = found.standing
    if not np.isfinite(explained).any():
        return "Components explain halves of the subjects no better than halves of cohorts with rotated maps."
    i = int(np.argmax(explained))
    return (
        f"The variation is structured: in halves of the subjects {found.ranks[i]} components explain "
        f"{_share(1 - found.split[i, :, 3].mean())} of it, but only {_share(1 - found.null[i, :, 3].mean())} in maps "
        "rotated at random."
    )


def _agreement_reason(found: Evidence, i: int) -> str:
    r, ari = found.split[i].mean(axis=0)[1:3]
    null_r, null_ari = found.null[i].mean(axis=0)[1:3]
    first = f"{found.ranks[i]} components explain most of what halves of the subjects agree on"
    if len(found.ranks) == 1:
        first = (
            f"Halves of the subjects agree on {found.ranks[i]} components, the only number tried"
        )
    return (
        f"{first}: over {found.split.shape[1]} splits matched maps correlate {r:.2f} and winner-takes-all maps have "
        f"an adjusted Rand index of {ari:.2f}; in {found.null.shape[1]} cohorts of rotated maps these are "
        f"{null_r:.2f} and {null_ari:.2f}."
    )


def _neighbours_reason(found: Evidence, i: int) -> str:
    """Ranks whose score is within one standard error of the best, by paired splits; and the edges
    of the range.
    """
    ranks, n = found.ranks, found.split.shape[1]
    lost = found.scores[i] - found.scores
    error = lost.std(axis=1, ddof=1) / np.sqrt(n)
    near = [int(r) for j, r in enumerate(ranks) if j != i and lost[j].mean() <= error[j]]
    text = ""
    if near:
        text = f"{_listed(near)} components do as well within one standard error."
    elif len(ranks) > 1:
        text = f"No other number of components scores within one standard error of {ranks[i]}."
    if len(ranks) == 1:
        text = "Whether another number would be better is not known: try a range."
    elif i == len(ranks) - 1:
        text += f" {ranks[i]} is the largest number tried: try more."
    elif i == 0 and ranks[0] > 2:
        text += f" {ranks[i]} is the smallest number tried: try fewer."
    return text.strip()


def _block_reason(found: Evidence, i: int) -> str:
    """What the held-out blocks say."""
    mean, ranks = found.bicv.mean(axis=1), found.ranks
    least = int(np.argmin(mean))
    more = found.bicv - found.bicv[least]
    error = more.std(axis=1, ddof=1) / np.sqrt(found.bicv.shape[1])
    enough = int(np.argmax(more.mean(axis=1) <= error + 1e-15))
    text = (
        f"In left-out blocks of faces × subjects {ranks[i]} components predict {_share(1 - mean[i])} of the "
        "between-subject variance"
    )
    if least == i:
        return f"{text}." if len(ranks) == 1 else f"{text}, and no other number predicts more."
    text += f", {ranks[least]} (the best) {_share(1 - mean[least])}"
    text += (
        "." if enough == least else f", and {ranks[enough]} come within one standard error of that."
    )
    if ranks[enough] > ranks[i] + 1:
        text += (
            " Subjects share more variation than these components carry, but halves of them do not agree on how to "
            "divide it into further components."
        )
    elif ranks[i] > ranks[least] + 1:
        text += (
            " The last components hardly help to predict; look at their maps before you use them."
        )
    return text


def _start_reason(found: Evidence, i: int) -> str:
    value = float(found.cophenetic[i])
    if not np.isfinite(value):
        return ""  # one start has nothing to agree with
    verdict = "the same" if value > 0.98 else "similar" if value > 0.9 else "different"
    return f"Random starts on all subjects lead to {verdict} parcellations (cophenetic correlation {value:.3f})."


def _share(part: float) -> str:
    return f"{100 * part:.1f} %"


def _listed(numbers: list[int]) -> str:
    texts = list(map(str, numbers))
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
