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
little is explained, and halves disagree on which to merge; with too many nothing more is explained,
and halves disagree on what to split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Standard deviations of the null by which data must stand out.
STANDS_OUT = 4.0

# Other ranks are named when their score is at least this part of the best.
GOOD = 1 / 3


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the recommendation rests on, per rank (rows) and repetition (columns).

    Attributes
    ----------
    ranks : (n_ranks,)
    split, null : (n_ranks, n_splits or n_nulls, measures) `agreement.MEASURES` of the data and of
        the null cohorts
    bicv, heldout : (n_ranks, n_folds) held-out errors
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
        return self.split[:, :, 1:3].mean(axis=2)

    @property
    def null_agreement(self) -> np.ndarray:
        """(n_ranks, n_nulls) of the null cohorts."""
        return self.null[:, :, 1:3].mean(axis=2)

    @property
    def explained(self) -> np.ndarray:
        """(n_ranks, n_splits) share of the variance that components explain in halves."""
        return 1 - self.split[:, :, 3]

    @property
    def null_explained(self) -> np.ndarray:
        """(n_ranks, n_nulls) share of the variance that they explain in halves of null cohorts."""
        return 1 - self.null[:, :, 3]

    @property
    def excess(self) -> np.ndarray:
        """Agreement above the null's mean."""
        return self.agreement.mean(axis=1) - self.null_agreement.mean(axis=1)

    @property
    def scores(self) -> np.ndarray:
        """(n_ranks, n_splits) share of left-out variance explained × agreement beyond the null's."""
        # A null that agrees wholly leaves nothing to explain.
        null = self.null_agreement.mean(axis=1, keepdims=True)
        explained = np.maximum(1 - self.bicv.mean(axis=1, keepdims=True), 0.0)
        return explained * (self.agreement - null) / np.maximum(1 - null, 1e-12)

    @property
    def reproducible(self) -> np.ndarray:
        """(n_ranks,) whether halves agree more than those of every null cohort.

        What they agree on must predict left-out data.
        """
        beyond_null = self.agreement.mean(axis=1) > self.null_agreement.max(axis=1)
        return beyond_null & (self.scores.mean(axis=1) > 0)

    @property
    def standing(self) -> tuple[np.ndarray, np.ndarray]:
        """Per rank, how far halves stand out in what is explained, and in agreement."""
        explained = _standing(self.explained, self.null_explained)
        return explained, _standing(self.agreement, self.null_agreement)


def _standing(
    data: np.ndarray,
    null: np.ndarray,
) -> np.ndarray:
    """Return the distance of the data's mean from the null's, in its standard deviations.

    It is −∞ where nothing stands out.
    """
    mean = data.mean(axis=1)
    distance = (mean - null.mean(axis=1)) / spread_of(null)
    stands_out = (mean > null.max(axis=1)) & (distance >= max(STANDS_OUT, farthest_null(null)))
    return np.where(stands_out, distance, -np.inf)


def spread_of(null: np.ndarray) -> np.ndarray:
    """Return the standard deviation over null cohorts (columns).

    It is pooled over neighbouring ranks: one rank has too few cohorts.
    """
    # The first and the last rank count twice, as they have one neighbour.
    variance = np.pad(null.var(axis=1, ddof=1), 1, mode="edge")
    pooled = (variance[:-2] + variance[1:-1] + variance[2:]) / 3
    return np.sqrt(np.maximum(pooled, 1e-12))


def farthest_null(null: np.ndarray) -> float:
    """Return the largest distance of one null cohort from the others, over all ranks."""
    distances = []
    for cohort in range(null.shape[1]):
        others = np.delete(null, cohort, axis=1)
        distances.append((null[:, cohort] - others.mean(axis=1)) / spread_of(others))
    return float(np.max(distances))


def recommend(evidence: Evidence) -> tuple[int | None, tuple[str, ...]]:
    """Return the recommended rank, None without structure, and the reasons as text."""
    if not np.isfinite(evidence.standing).any():
        return None, _no_structure(evidence)
    if not evidence.reproducible.any():
        return None, _no_agreement(evidence)
    # Ranks at which halves agree on nothing are no candidates, whatever they explain.
    score = np.where(evidence.reproducible, evidence.scores.mean(axis=1), -np.inf)
    best = int(np.argmax(score))
    reasons = (
        _agreement_reason(evidence, best),
        _neighbours_reason(evidence, best),
        _variation_reason(evidence),
        _block_reason(evidence, best),
        _start_reason(evidence, best),
        _third_reason(evidence, best),
        _others_reason(evidence, best),
    )
    return int(evidence.ranks[best]), tuple(reason for reason in reasons if reason)


def other_good(
    evidence: Evidence,
    recommended: int | None,
) -> tuple[int, ...]:
    """Return other ranks at which the score has a local optimum.

    It is larger than at the ranks tried before and after, and than at one of these by more than a
    standard error, by paired splits; and at least `GOOD` times the best.
    """
    if recommended is None:
        return ()
    score = evidence.scores
    mean = score.mean(axis=1)
    best = mean[list(evidence.ranks).index(recommended)]
    optima = []
    for i in range(1, len(mean) - 1):
        gain = score[i] - score[[i - 1, i + 1]]
        mean_gain = gain.mean(axis=1)
        is_peak = (mean_gain > 0).all() and (mean_gain > _standard_error(gain)).any()
        if is_peak and evidence.reproducible[i] and mean[i] >= GOOD * best:
            optima.append(int(evidence.ranks[i]))
    return tuple(rank for rank in optima if rank != recommended)


def _standard_error(values: np.ndarray) -> np.ndarray:
    return values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])


# ---------------------------------------------------------------------- reasons


def _no_structure(evidence: Evidence) -> tuple[str, ...]:
    first = evidence.ranks[0]
    last = evidence.ranks[-1]
    tried = f"{first} to {last} components"
    if first == last:
        tried = f"{first} components, the only number tried"
    return (
        f"No reproducible structure was found with {tried}: random halves of the subjects are "
        "fitted no better, and agree no more, than halves of null cohorts in which each map was "
        "rotated at random.",
        _nearest(evidence),
        "Components fitted to these maps would show the mean map, the smoothness of the data and "
        "chance. More subjects, or maps in which subjects differ more, may change that.",
    )


def _no_agreement(evidence: Evidence) -> tuple[str, ...]:
    return (
        "Subjects share variation, but random halves of the subjects agree on components no more "
        "than halves of null cohorts in which each map was rotated at random, whatever the number "
        "of components. Do not interpret single components.",
        _nearest(evidence),
        _variation_reason(evidence),
    )


def _nearest(evidence: Evidence) -> str:
    """Say at which rank agreement is nearest to standing out."""
    # In standard deviations of the null, as `_standing` counts.
    i = int(np.argmax(evidence.excess / spread_of(evidence.null_agreement)))
    null = evidence.null_agreement[i]
    return (
        f"The difference is smallest at {evidence.ranks[i]}: agreement "
        f"{evidence.agreement[i].mean():.2f}, and {null.mean():.2f} on average over {len(null)} "
        f"rotated cohorts, at most {null.max():.2f}."
    )


def _variation_reason(evidence: Evidence) -> str:
    """Say whether subjects vary in the same places."""
    explained, _ = evidence.standing
    if not np.isfinite(explained).any():
        return (
            "Components explain halves of the subjects no better than halves of cohorts with "
            "rotated maps."
        )
    i = int(np.argmax(explained))
    return (
        f"The variation is structured: in halves of the subjects {evidence.ranks[i]} components "
        f"explain {_percent(evidence.explained[i].mean())} of it, but only "
        f"{_percent(evidence.null_explained[i].mean())} in maps rotated at random."
    )


def _agreement_reason(
    evidence: Evidence,
    i: int,
) -> str:
    rank = evidence.ranks[i]
    correlation, ari = evidence.split[i].mean(axis=0)[1:3]
    null_correlation, null_ari = evidence.null[i].mean(axis=0)[1:3]
    first = f"{rank} components explain most of what halves of the subjects agree on"
    if len(evidence.ranks) == 1:
        first = f"Halves of the subjects agree on {rank} components, the only number tried"
    return (
        f"{first}: over {evidence.split.shape[1]} splits matched maps correlate {correlation:.2f} "
        f"and winner-takes-all maps have an adjusted Rand index of {ari:.2f}; in "
        f"{evidence.null.shape[1]} cohorts of rotated maps these are {null_correlation:.2f} and "
        f"{null_ari:.2f}."
    )


def _neighbours_reason(
    evidence: Evidence,
    i: int,
) -> str:
    """Say which scores are within one standard error of the best, and whether to try more ranks."""
    ranks = evidence.ranks.tolist()
    if len(ranks) == 1:
        return "Whether another number would be better is not known: try a range."
    # Splits are paired: all ranks are fitted to the same halves.
    loss = evidence.scores[i] - evidence.scores
    is_near = loss.mean(axis=1) <= _standard_error(loss)
    near = [rank for j, rank in enumerate(ranks) if j != i and is_near[j]]
    text = f"No other number of components scores within one standard error of {ranks[i]}."
    if near:
        text = f"{_listed(near)} components do as well within one standard error."
    if i == len(ranks) - 1:
        text += f" {ranks[i]} is the largest number tried: try more."
    elif i == 0 and ranks[0] > 2:
        text += f" {ranks[i]} is the smallest number tried: try fewer."
    return text


def _block_reason(
    evidence: Evidence,
    i: int,
) -> str:
    """Say what left-out blocks tell of this rank, the best, and the smallest that is as good."""
    ranks = evidence.ranks
    error = evidence.bicv.mean(axis=1)
    best = int(np.argmin(error))
    text = (
        f"In left-out blocks of faces × subjects {ranks[i]} components predict "
        f"{_percent(1 - error[i])} of the between-subject variance"
    )
    if best == i:
        return f"{text}." if len(ranks) == 1 else f"{text}, and no other number predicts more."
    text += f", {ranks[best]} (the best) {_percent(1 - error[best])}"
    loss = evidence.bicv - evidence.bicv[best]
    # Rounding must not make the best worse than itself.
    enough = int(np.argmax(loss.mean(axis=1) <= _standard_error(loss) + 1e-15))
    if enough != best:
        text += f", and {ranks[enough]} come within one standard error of that"
    text += "."
    if ranks[enough] > ranks[i] + 1:
        text += (
            " Subjects share more variation than these components carry, but halves of them do not "
            "agree on how to divide it into further components."
        )
    elif ranks[i] > ranks[best] + 1:
        text += (
            " The last components hardly help to predict; look at their maps before you use them."
        )
    return text


def _start_reason(
    evidence: Evidence,
    i: int,
) -> str:
    """Say whether random starts agree; one start has nothing to agree with."""
    value = float(evidence.cophenetic[i])
    if not np.isfinite(value):
        return ""
    verdict = "different"
    if value > 0.9:
        verdict = "the same" if value > 0.98 else "similar"
    return (
        f"Random starts on all subjects lead to {verdict} parcellations (cophenetic correlation "
        f"{value:.3f})."
    )


def _third_reason(
    evidence: Evidence,
    i: int,
) -> str:
    """Say whether loadings of new people would be the same from another group."""
    plain, adjusted = evidence.third[i].mean(axis=0)
    null, null_adjusted = evidence.null_third[i].mean(axis=0)
    if not np.isfinite([plain, adjusted, null, null_adjusted]).all():
        return ""
    return (
        f"Loadings that two groups give to other people correlate {plain:.2f} (rotated maps: "
        f"{null:.2f}), and {adjusted:.2f} ({null_adjusted:.2f}) without each person's global mean."
    )


def _others_reason(
    evidence: Evidence,
    i: int,
) -> str:
    others = other_good(evidence, int(evidence.ranks[i]))
    if others:
        return f"Other good numbers, where the score has a local optimum: {_listed(others)}."
    return "No other number is a local optimum of the score." if len(evidence.ranks) > 2 else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
