"""What the maps and loadings of a fit mean, their units, and how far to trust them: the sentences
of all outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.errors import counted
from icofactor.factorization.methods import method_named
from icofactor.results.recurrence_text import in_one_line, undetermined, warning

if TYPE_CHECKING:
    from icofactor.assessment.selection.choice import Choice
    from icofactor.results.description import FitDescription

_MORE = {
    "thickness": ("cortex is thicker", "it is thinner"),
    "myelin": ("myelin is higher", "it is lower"),
}
"""Modality → how people above and below the average are described."""
_HIGH, _MODERATE = 0.9, 0.7
"""Median correlation of maps with those of resamples from which stability is called high, or
moderate.
"""
_MOST, _TIMES = 0.5, 1.5
"""Components that typically cover more than this share of the cortex, and together this many times
the cortex, are not called parts.
"""
_HIGHER = ("values are higher", "they are lower")


def n_people(fit: Any) -> int:
    """Subjects, whatever number of rows each has."""
    measures = fit.model.measures_
    return len(fit.subjects) // (
        measures.n if measures is not None and measures.share == "maps" else 1
    )


def names_of_bars(model: Any) -> list[str]:
    """Names of the columns of components on regions: with shared loadings, those of each measure
    after the other.
    """
    names, measures = list(model.sites_.regions.names), model.measures_
    joined = measures is not None and measures.share == "loadings"
    return (
        [f"{measure} {name}" for measure in measures.names for name in names] if joined else names
    )


def measure_title(modality: str) -> str:
    """A measure as a paper writes it: ReHo, ALFF."""
    return {"reho": "ReHo", "alff": "ALFF", "falff": "fALFF"}.get(modality.lower(), modality)


def fitted_units(model: Any, units: str) -> str:
    """Units of the values that were fitted, and of residuals: the data's, or standard deviations
    for z-scores.
    """
    if model.center_ == "zscore":
        return "standard deviations"
    return (
        "scaled units"
        if model.measures_ is not None and model.measures_.scale == "variance"
        else units
    )


def component_units(model: Any, units: str) -> str:
    """Units of the maps: those of the values fitted, but none where loadings carry them
    (projective, not scaled).
    """
    return fitted_units(model, units) if method_named(model.solution_.method).scheme.scaled else ""


def scale_label(model: Any, units: str) -> str:
    """The same as the name of a colour scale: mm of deviation per unit loading."""
    own = component_units(model, units)
    what = {"none": "", "mean": " of deviation per unit loading", "zscore": " per unit loading"}[
        model.center_
    ]
    return f"{own}{what}" if own else ""


def has_signed_loadings(model: Any) -> bool:
    """Whether loadings say more or less than something, so that colours need two ends."""
    return bool(model.center_ != "none" or np.min(model.loadings_) < 0)


def meaning_of(model: Any, modality: str = "", units: str = "") -> str:
    """What a component and its loading mean, as one or two plain sentences.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, "thickness", mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, method="parts", level=1).fit(cohort)
    >>> meaning_of(model, "thickness", "mm")[:44]
    'Each component is a part of the cortex where'
    """
    scheme = method_named(model.solution_.method).scheme
    scaled, own = scheme.scaled, component_units(model, units)
    if own == "scaled units" and model.measures_.share == "loadings":
        own = "units of each measure"  # in which their maps are written and drawn
    if model.center_ != "none" and scheme.signed_maps:
        return (
            "A loading of +1 means that this person deviates from the average by the values of the map"
            f"{f' ({own})' if own else ''}; −1 means the same deviation in the other direction."
        )
    if model.center_ != "none":
        more, less = _MORE.get(modality, _HIGHER)
        size = f", by the values of the map{f' ({own})' if own else ''}," if scaled else ""
        return (
            "Each component is a part of the cortex where people differ from the average together. A "
            f"{'loading of +1' if scaled else 'positive loading'} means that this person's {more} than average{size} "
            f"in this part; {'−1' if scaled else 'a negative loading'} means that {less}"
            f"{' by as much' if scaled else ''}."
        )
    if not scaled:
        return (
            "A loading is the projection of a person's map onto a component: the larger it is, the higher the "
            "values where the component's map is large."
        )
    return (
        "A person's map is the sum of the components' maps, each times its loading. Loadings have a root mean square "
        f"of 1 over people, so maps are in the units of the data{f' ({own})' if own else ''}."
    )


def recurrence_line(model: Any) -> str:
    """How many components other random starts on the same people reach; "" where it was not
    recorded.
    """
    share = getattr(model, "recurrence_", None)
    return "" if share is None else in_one_line(np.asarray(share), int(model.starts_.n_near))


def recurrence_warning(model: Any) -> str | None:
    """What a reader should know where other starts do not reach most components; None elsewhere."""
    share = getattr(model, "recurrence_", None)
    return (
        None
        if share is None
        else warning(np.asarray(share), int(model.starts_.n_near), _are_parts(model))
    )


def not_converged(model: Any) -> str:
    """What to say of a fit that ended at its last update."""
    return (
        f"The fit ended after {model.n_iter} updates, before its objective converged; more updates may change the maps "
        "(n_iter of CorticalFactorization)."
    )


def _are_parts(model: Any) -> bool:
    """Whether the method is one of deviations by itself."""
    return method_named(model.solution_.method).scheme.centers[0] != "none"


def agreement_line(choice: Choice, n_components: int) -> str:
    """Whether a selection agrees with the number fitted."""
    fitted = f"This fit has {counted(n_components, 'component')}"
    if choice.recommended is None:
        why = "it found no structure beyond that of rotated maps"
        return f"{fitted}; the selection in this folder recommends none, because {why}."
    if choice.recommended == n_components:
        return f"{fitted}, the number that the selection in this folder recommends."
    if n_components in choice.others:
        return f"{fitted}, another good number; the selection in this folder recommends {choice.recommended}."
    return f"{fitted}, but the selection in this folder recommends {choice.recommended}."


def adjusted_for(model: Any) -> tuple[str, ...]:
    """The columns whose effects were taken out of the maps before the fit."""
    steps = (model.harmonization_, model.covariates_)
    return tuple(name for step in steps if step is not None for name in step.names)


def adjustments(model: Any) -> list[tuple[str, str]]:
    """What was done to the maps before the fit: (column, how)."""
    done = (
        (model.harmonization_, "harmonized by ComBat"),
        (model.covariates_, "regressed out before the fit"),
    )
    return [(name, how) for step, how in done if step is not None for name in step.names]


def what_remained(model: Any) -> str:
    """What shares of the variance refer to after harmonization and covariates; "" where nothing was
    removed.
    """
    scanner, covariates = (
        getattr(model, "harmonization_", None),
        getattr(model, "covariates_", None),
    )
    steps = [] if scanner is None else [f"harmonization over {scanner.column}"]
    steps += (
        [] if covariates is None else [f"removal of the effects of {_listed(covariates.names)}"]
    )
    return f" that remained after {' and '.join(steps)}" if steps else ""


@dataclass(frozen=True)
class Verdict:
    """What a reader should know first.

    Attributes
    ----------
    headline : components fitted and recommended, not determined by the data, share explained,
        adjusted for what.
    lines : the same in full sentences.
    recommended, stability : short answers, for the cards at the top; "" where stability was not measured.
    """

    headline: str
    lines: tuple[str, ...]
    recommended: str
    stability: str


def verdict(fit: FitDescription) -> Verdict:
    """How many components, whether the data determine them, how much they explain, adjusted for
    what.
    """
    model, d, choice = fit.model, fit.diagnostics, fit.selection.choice
    k, out, share = len(d.alone), adjusted_for(model), getattr(model, "recurrence_", None)
    best = (
        "not examined"
        if choice is None
        else "none"
        if choice.recommended is None
        else f"{choice.recommended}"
    )
    many, stable = counted(k, "component"), _stability(fit.selection.stability)
    failed = "" if share is None else undetermined(np.asarray(share))
    elsewhere = (
        "Most other random starts on the same people that fit as well end in other components."
    )
    headline = [
        f"{many} fitted; the best number was not examined."
        if choice is None
        else f"{many} fitted, {best} recommended.",
        failed,
        f"Stability over resampled people: {stable}." if stable else "",
        f"{100 * d.explained:.0f} % of the differences between people explained,",
        f"adjusted for {_listed(out)}." if out else "not adjusted for age, sex or anything else.",
    ]
    which = "It explains" if k == 1 else "Together they explain"
    lines = (
        "How many components these data support was not examined; run icofactor select to examine it."
        if choice is None
        else agreement_line(choice, k),
        f"{failed} {elsewhere}" if failed else "",
        stability_line(fit.selection.stability),
        "Most components cover most of the cortex: they overlap, and are not separate parts."
        if k > 1 and np.median(d.extent) > _MOST and d.extent.sum() > _TIMES
        else "",
        f"{which} {100 * d.explained:.1f} % of the between-subject variance{what_remained(model)}.",
    )
    return Verdict(" ".join(filter(None, headline)), tuple(filter(None, lines)), best, stable)


def median_stability(stability: Any) -> float | None:
    """Median over components of the correlation with maps of resamples; None where that was not
    measured.
    """
    values = np.array([] if stability is None else stability["stability"], dtype=np.float64)
    return float(np.nanmedian(values)) if np.isfinite(values).any() else None


def _stability(stability: Any) -> str:
    """moderate (0.84); "" where that was not measured."""
    middle = median_stability(stability)
    if middle is None:
        return ""
    return f"{'high' if middle >= _HIGH else 'moderate' if middle >= _MODERATE else 'low'} ({middle:.2f})"


def stability_line(stability: Any) -> str:
    """How alike the maps are in resampled cohorts, with a word for it; "" where that was not
    measured.
    """
    word = _stability(stability).partition(" ")[0]
    if not word:
        return ""
    values = np.asarray(stability["stability"], dtype=np.float64)
    low, middle, high = np.nanmin(values), np.nanmedian(values), np.nanmax(values)
    span = f"{middle:.2f}" if len(values) == 1 else f"{low:.2f} to {high:.2f} (median {middle:.2f})"
    return f"Stability over resampled people is {word}: maps correlate {span} with their partners in resamples."


def _listed(names: Sequence[str]) -> str:
    """age, sex and site"""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
