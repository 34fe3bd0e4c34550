"""Sentences of all outputs: what maps and loadings mean, their units, and how far to trust them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.errors import plural
from icofactor.factorization.methods import method_named
from icofactor.results.recurrence_text import in_one_line, undetermined, warning

if TYPE_CHECKING:
    from icofactor.assessment.selection.choice import Choice
    from icofactor.results.description import FitDescription

# Modality → how people above and below the average are described.
_COMPARATIVES = {
    "thickness": ("cortex is thicker", "it is thinner"),
    "myelin": ("myelin is higher", "it is lower"),
}
# The same for modalities that have no adjective.
_HIGHER = ("values are higher", "they are lower")
# Median correlation of maps with those of resamples from which stability is high, or moderate.
_HIGH = 0.9
_MODERATE = 0.7
# Components are not parts if their median share of the cortex, and the sum of shares, exceed these.
_MAX_SHARE = 0.5
_MAX_TOTAL = 1.5


def n_people(fit: Any) -> int:
    """Return the number of subjects, whatever number of rows each has."""
    measures = fit.model.measures_
    if measures is None or measures.share != "maps":
        return len(fit.subjects)
    return len(fit.subjects) // int(measures.n)


def names_of_bars(model: Any) -> list[str]:
    """Return names of the columns of components on regions."""
    names = list(model.sites_.regions.names)
    measures = model.measures_
    if measures is None or measures.share != "loadings":
        return names
    # With shared loadings, the measures follow each other.
    return [f"{measure} {name}" for measure in measures.names for name in names]


def measure_title(modality: str) -> str:
    """Return a measure as a paper writes it: ReHo, ALFF."""
    return {"reho": "ReHo", "alff": "ALFF", "falff": "fALFF"}.get(modality.lower(), modality)


def fitted_units(model: Any, units: str) -> str:
    """Return units of the values that were fitted, and of residuals."""
    if model.center_ == "zscore":
        return "standard deviations"
    if model.measures_ is not None and model.measures_.scale == "variance":
        return "scaled units"
    return units


def component_units(model: Any, units: str) -> str:
    """Return units of the maps: of the fitted values, or "" if loadings carry the units."""
    is_scaled = method_named(model.solution_.method).scheme.scaled
    return fitted_units(model, units) if is_scaled else ""


def scale_label(model: Any, units: str) -> str:
    """Return the name of a colour scale: mm of deviation per unit loading."""
    map_units = component_units(model, units)
    if not map_units:
        return ""
    endings = {"none": "", "mean": " of deviation per unit loading", "zscore": " per unit loading"}
    return f"{map_units}{endings[model.center_]}"


def has_signed_loadings(model: Any) -> bool:
    """Return whether loadings have two directions, so that colours need two ends."""
    return bool(model.center_ != "none" or np.min(model.loadings_) < 0)


def meaning_of(model: Any, modality: str = "", units: str = "") -> str:
    """Return what a component and its loading mean, as one or two plain sentences.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, "thickness", mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, method="parts", level=1).fit(cohort)
    >>> meaning_of(model, "thickness", "mm")[:44]
    'Each component is a part of the cortex where'
    """
    scheme = method_named(model.solution_.method).scheme
    map_units = component_units(model, units)
    # Maps of measures that share loadings are in the units of each measure.
    if map_units == "scaled units" and model.measures_.share == "loadings":
        map_units = "units of each measure"
    in_units = f" ({map_units})" if map_units else ""
    if model.center_ != "none" and scheme.signed_maps:
        return (
            "A loading of +1 means that this person deviates from the average by the values of "
            f"the map{in_units}; −1 means the same deviation in the other direction."
        )
    if model.center_ != "none":
        higher, lower = _COMPARATIVES.get(modality, _HIGHER)
        start = (
            "Each component is a part of the cortex where people differ from the average together."
        )
        if not scheme.scaled:
            return (
                f"{start} A positive loading means that this person's {higher} than average in "
                f"this part; a negative loading means that {lower}."
            )
        return (
            f"{start} A loading of +1 means that this person's {higher} than average, by the "
            f"values of the map{in_units}, in this part; −1 means that {lower} by as much."
        )
    if not scheme.scaled:
        return (
            "A loading is the projection of a person's map onto a component: the larger it is, the "
            "higher the values where the component's map is large."
        )
    return (
        "A person's map is the sum of the components' maps, each times its loading. Loadings have "
        "a root mean square of 1 over people, so maps are in the units of the data"
        f"{in_units}."
    )


def recurrence_line(model: Any) -> str:
    """Say how many components other random starts on the same people reach; "" if unknown."""
    share = getattr(model, "recurrence_", None)
    if share is None:
        return ""
    return in_one_line(np.asarray(share), int(model.starts_.n_near))


def recurrence_warning(model: Any) -> str | None:
    """Return a warning if other starts do not reach most components; None otherwise."""
    share = getattr(model, "recurrence_", None)
    if share is None:
        return None
    # Methods of parts centre the maps by default.
    is_of_parts = method_named(model.solution_.method).scheme.centers[0] != "none"
    return warning(np.asarray(share), int(model.starts_.n_near), is_of_parts)


def not_converged(model: Any) -> str:
    """Return a warning about a fit that ended at its last update."""
    return (
        f"The fit ended after {model.n_iter} updates, before its objective converged; more updates "
        "may change the maps (n_iter of CorticalFactorization)."
    )


def agreement_line(choice: Choice, n_components: int) -> str:
    """Say whether a selection agrees with the number fitted."""
    fitted = f"This fit has {plural(n_components, 'component')}"
    selection = "the selection in this folder recommends"
    if choice.recommended is None:
        reason = "it found no structure beyond that of rotated maps"
        return f"{fitted}; {selection} none, because {reason}."
    if choice.recommended == n_components:
        return f"{fitted}, the number that {selection}."
    if n_components in choice.others:
        return f"{fitted}, another good number; {selection} {choice.recommended}."
    return f"{fitted}, but {selection} {choice.recommended}."


def adjusted_for(model: Any) -> tuple[str, ...]:
    """Return the columns whose effects were taken out of the maps before the fit."""
    return tuple(column for column, _ in adjustments(model))


def adjustments(model: Any) -> list[tuple[str, str]]:
    """Return what was done to the maps before the fit: pairs of column and method."""
    steps = (
        (model.harmonization_, "harmonized by ComBat"),
        (model.covariates_, "regressed out before the fit"),
    )
    return [(name, method) for step, method in steps if step is not None for name in step.names]


def what_remained(model: Any) -> str:
    """Say what shares of the variance refer to; "" if nothing was taken out."""
    harmonization = getattr(model, "harmonization_", None)
    covariates = getattr(model, "covariates_", None)
    steps = []
    if harmonization is not None:
        steps.append(f"harmonization over {harmonization.column}")
    if covariates is not None:
        steps.append(f"removal of the effects of {_listed(covariates.names)}")
    return f" that remained after {' and '.join(steps)}" if steps else ""


@dataclass(frozen=True)
class Verdict:
    """What a reader should know first.

    Attributes
    ----------
    headline : components fitted and recommended, not determined by the data, share explained,
        adjusted columns.
    lines : the same in full sentences.
    recommended, stability : short answers, for the cards at the top; "" if stability was not
        measured.
    """

    headline: str
    lines: tuple[str, ...]
    recommended: str
    stability: str


def verdict(fit: FitDescription) -> Verdict:
    """Return what a reader should know first."""
    model = fit.model
    diagnostics = fit.diagnostics
    choice = fit.selection.choice
    n_components = len(diagnostics.alone)
    components = plural(n_components, "component")
    recommended = "not examined"
    number = f"{components} fitted; the best number was not examined."
    agreement = (
        "How many components these data support was not examined; run icofactor select to examine "
        "it."
    )
    if choice is not None:
        recommended = "none" if choice.recommended is None else f"{choice.recommended}"
        number = f"{components} fitted, {recommended} recommended."
        agreement = agreement_line(choice, n_components)
    recurrence = getattr(model, "recurrence_", None)
    failed = "" if recurrence is None else undetermined(np.asarray(recurrence))
    starts = ""
    if failed:
        starts = (
            f"{failed} Most other random starts on the same people that fit as well end in other "
            "components."
        )
    stability = _stability(fit.selection.stability)
    columns = adjusted_for(model)
    adjusted = "not adjusted for age, sex or anything else."
    if columns:
        adjusted = f"adjusted for {_listed(columns)}."
    headline = [
        number,
        failed,
        f"Stability over resampled people: {stability}." if stability else "",
        f"{100 * diagnostics.explained:.0f} % of the differences between people explained,",
        adjusted,
    ]
    subject = "It explains" if n_components == 1 else "Together they explain"
    share = f"{100 * diagnostics.explained:.1f} % of the between-subject variance"
    lines = [
        agreement,
        starts,
        stability_line(fit.selection.stability),
        _overlap_line(diagnostics.extent),
        f"{subject} {share}{what_remained(model)}.",
    ]
    sentences = tuple(filter(None, lines))
    return Verdict(" ".join(filter(None, headline)), sentences, recommended, stability)


def _overlap_line(extent: np.ndarray) -> str:
    """Say whether components are too large to be parts."""
    if len(extent) == 1 or np.median(extent) <= _MAX_SHARE or extent.sum() <= _MAX_TOTAL:
        return ""
    return "Most components cover most of the cortex: they overlap, and are not separate parts."


def median_stability(stability: Any) -> float | None:
    """Return the median correlation of maps with those of resamples; None if not measured."""
    values = np.array([] if stability is None else stability["stability"], dtype=np.float64)
    return float(np.nanmedian(values)) if np.isfinite(values).any() else None


def _stability(stability: Any) -> str:
    """Return a word and a number, such as moderate (0.84); "" if stability was not measured."""
    median = median_stability(stability)
    if median is None:
        return ""
    word = "low"
    if median >= _HIGH:
        word = "high"
    elif median >= _MODERATE:
        word = "moderate"
    return f"{word} ({median:.2f})"


def stability_line(stability: Any) -> str:
    """Say how alike the maps are in resampled cohorts; "" if that was not measured."""
    word = _stability(stability).partition(" ")[0]
    if not word:
        return ""
    values = np.asarray(stability["stability"], dtype=np.float64)
    span = f"{np.nanmedian(values):.2f}"
    if len(values) > 1:
        span = f"{np.nanmin(values):.2f} to {np.nanmax(values):.2f} (median {span})"
    return (
        f"Stability over resampled people is {word}: maps correlate {span} with their partners in "
        "resamples."
    )


def _listed(names: Sequence[str]) -> str:
    """Return names as text: age, sex and site."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
