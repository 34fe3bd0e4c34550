"""Loadings of new subjects on the maps of a fit, and how well the fit describes these subjects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.adjusted import with_maps
from icofactor.cohort.cohort import Measurement
from icofactor.cohort.measures import people_of_rows
from icofactor.cohort.problems import some
from icofactor.errors import CohortError, counted, literal
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._lift import gram, loadings, shared_loadings, weighed
from icofactor.factorization.methods import method_named
from icofactor.maps.adjustment import Adjustment, floor_at_zero
from icofactor.maps.blocks import Arrays, value_range
from icofactor.maps.maps import maps_of
from icofactor.maps.passes import map_strips
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.adjusted import as_the_fit
from icofactor.preprocessing.covariates import columns_of
from icofactor.preprocessing.summary import Summary
from icofactor.results.description import DIAGNOSTICS
from icofactor.results.diagnostics import Diagnostics, load_diagnostics
from icofactor.results.diagnostics.diagnose import limit_of, robust_z

MOST_MISSING = 0.05
"""Share of the fit's sites that a new subject may lack."""
_MOST_OF_A_MAP = 0.5
"""Share of a component's square that may lie there."""
_ZERO_IS_FAR = 3.0
"""0 is a missing value where it lies this many standard deviations of the fitted subjects from
their mean.
"""
QUALITY = {
    "explained_variance": "Share of the subject's variance about the fitted mean map that the components explain",
    "residual": "Root mean square over sites of the map minus its fit, in the fitted units",
    "distance": "Mahalanobis distance of the loadings from those of the fitted subjects",
    "residual_z": "Residual in robust standard deviations from the fitted subjects' median, on a logarithmic scale",
    "distance_z": "The same for the distance, on the scale of cube roots of squares",
    "missing_sites": "Sites of the fit where the subject has no value",
    "unusual": "What is unusual about the subject: residual, distance, or both",
}
_BEYOND, _FEW = 0.99, 10
_SCALE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "residual": lambda values: np.log(np.maximum(values, np.finfo(float).tiny)),
    "distance": lambda values: np.cbrt(np.square(values)),
}
"""Scales on which residuals and distances of a cohort are nearly normal."""


@dataclass(frozen=True, eq=False)
class NewLoadings:
    """Loadings of new subjects.

    Attributes
    ----------
    subjects : their names.
    loadings : (n_subjects, n_components), in the scale of the fit's own.
    notes : what is worth knowing about how they came about.
    quality : column of `QUALITY` → one value per subject, see there.
    fitted : "explained_variance", "residual" and "distance" of the fitted subjects, as far as they
        are known.
    rule : what counts as unusual, and how many of the fitted subjects would.
    n_measures : how many rows each subject has, one per measure of shared maps.
    """

    subjects: tuple[str, ...]
    loadings: np.ndarray
    notes: tuple[str, ...]
    quality: Mapping[str, np.ndarray] = field(default_factory=dict)
    fitted: Mapping[str, np.ndarray] = field(default_factory=dict)
    rule: str = ""
    n_measures: int = 1

    @property
    def summary(self) -> list[str]:
        """What was found, as lines."""
        share, few = 100 * self.quality["explained_variance"], len(self.subjects)
        low, middle, high = np.percentile(share, (0, 50, 100))
        spread = (
            f"{low:.0f} to {high:.0f} % (median {middle:.0f} %)" if few > 1 else f"{middle:.0f} %"
        )
        own = self.fitted.get("explained_variance")
        beside = "" if own is None else f" (fitted subjects: median {100 * np.median(own):.0f} %)"
        strange = [
            f"{literal(s)} ({what})"
            for s, what in zip(self.subjects, self.quality["unusual"], strict=True)
            if what
        ]
        listed = f": {some(strange, 20)}" if strange else ""
        n = self.n_measures
        rows = (
            counted(few, "subject")
            if n == 1
            else f"{few} rows ({counted(few // n, 'subject')} × {n} measures)"
        )
        return [
            f"The components explain {spread} of a subject's variance about the fitted mean map{beside}.",
            f"{len(strange)} of {rows} unusual{listed}. {self.rule}",
            *([self.doubt] if self.doubt else []),
        ]

    @property
    def doubt(self) -> str:
        """What to check where most of several new subjects are unusual; "" elsewhere."""
        n, few = sum(map(bool, self.quality["unusual"])), len(self.subjects)
        text = "Most new subjects are unusual: check that measure, units and preprocessing are those of the fit."
        return text if few > 2 and 2 * n > few else ""


# ---------------------------------------------------------------------- are they the same kind of
# maps?


def check_measurement(model: CorticalFactorization, cohort: Any, force: bool = False) -> list[str]:
    """Refuse maps of another measure, unit, smoothing or preprocessing than those of the fit,
    unless `force`.

    Returns
    -------
    What could not be compared, or differs all the same, as notes.
    """
    fitted, new = getattr(model, "measurement_", None), Measurement.of(cohort)
    if fitted is None or new is None:
        who = "the model" if fitted is None else "the new maps"
        return [
            f"measure, unit, smoothing and preprocessing are not recorded in {who}, and could not be compared"
        ]
    pairs: dict[str, list[str | None]] = {
        "measure": [None if one.modality == "unknown" else one.modality for one in (fitted, new)],
        "unit": [one.units or None for one in (fitted, new)],
        "smoothing": [
            None if one.smoothing is None else f"{one.smoothing} mm FWHM" for one in (fitted, new)
        ],
        "preprocessing": [_steps(one) for one in (fitted, new)],
        "resampling": [_resampled(one) for one in (fitted, new)],
    }
    differ = {name: pair for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]}
    listed = "; ".join(
        f"{name} {literal(old)} in the fit, {literal(now)} in the new maps"
        for name, (old, now) in differ.items()
    )
    if differ and not force:
        raise CohortError(
            "the new subjects",
            f"differ from the fitted maps: {listed}. {{force=True}} continues anyway",
        )
    unknown = [name for name, (old, now) in pairs.items() if (old is None) != (now is None)]
    notes = (
        [f"differs from the fit (forced): {listed}".replace("{{", "{").replace("}}", "}")]
        if differ
        else []
    )
    if unknown:
        sides = [f"{name} ({'fit' if pairs[name][0] is None else 'new maps'})" for name in unknown]
        notes.append(f"not recorded, and not compared: {', '.join(sides)}")
    return notes


def _steps(one: Measurement) -> str:
    """Steps that change values but resampling; what was filled is not compared."""
    steps = [
        step
        for step in one.preprocessing
        if step.get("step") not in ("resample", "fill_from_neighbours")
    ]
    shown = lambda step: ", ".join(
        f"{name} {value}" for name, value in step.items() if name != "step"
    )
    return "; ".join(f"{step.get('step')} ({shown(step)})" for step in steps) or "none"


def _resampled(one: Measurement) -> str:
    """From which meshes maps were brought to theirs, and how."""
    steps = [step for step in one.preprocessing if step.get("step") == "resample"]
    return (
        "; ".join(
            f"{step.get('method', 'resampled')} from {step.get('from', 'unknown')}"
            for step in steps
        )
        or "none"
    )


# ---------------------------------------------------------------------- loadings


def loadings_of(
    model: CorticalFactorization, cohort: Any, fitted: Diagnostics | None = None
) -> NewLoadings:
    """Loadings of a cohort, after doing to it what the fit did to its own subjects.

    A subject may lack a few sites: NaN, 0 where that is not a value, or masked in the new cohort.
    The loadings are
    then solved on the sites that the subject has (`shared_loadings`); more than `MOST_MISSING` is
    refused.

    Parameters
    ----------
    fitted : diagnostics of the fit, with which residuals are compared; with each other's when None.
    """
    lost = _lost_sites(model, cohort)
    holes = Holes(lost=lost, zero=_zero_is_missing(model))
    maps = maps_of(cohort.X).adjusted(holes)
    data = as_the_fit(
        with_maps(cohort, maps), model.harmonization_, model.covariates_, measures=model.measures_
    )
    with one_blas_thread():
        sums = _Sums.of(model, data, cohort.subjects)
    notes = _check_missing(model, sums, lost, cohort.subjects)
    method, WW = method_named(model.solution_.method), gram(sums.W, sums.weights)
    C = loadings(sums.WX, WW, method.scheme, model.solution_.penalty)
    error = sums.error(C, WW)
    for some_subjects, shared in sums.grams(WW):
        own = shared_loadings(
            sums.WX[:, some_subjects], shared, WW, method.scheme, model.solution_.penalty
        )
        C[:, some_subjects], error[some_subjects] = own, sums.error(own, shared, some_subjects)
    if model.harmonization_ is not None:
        notes += [
            f"harmonized over {model.harmonization_} by the estimates of the fit",
            *(note for adjustment in data.X.adjustments for note in adjustment.notes),
        ]
    if model.covariates_ is not None:
        notes.append(f"adjusted for {model.covariates_} by the coefficients of the fit")
    notes += _extrapolated(model, cohort)
    if sums.n_below:
        share = 100 * sums.n_below / (len(cohort.subjects) * len(sums.W))
        notes.append(f"{sums.n_below} values ({share:.2g} %) became negative and were set to 0")
    found = C.T / model.scale_
    with np.errstate(invalid="ignore", divide="ignore"):
        explained = np.where(sums.variance > 0, 1 - error / sums.variance, np.nan)
    residual = np.sqrt(error / np.maximum(sums.weight, np.finfo(float).tiny))
    known = {"explained_variance": explained, "residual": residual, "missing_sites": sums.n_missing}
    quality, null, rule = _judged(model, found, known, fitted)
    measures = model.measures_
    n_measures = measures.n if measures is not None and measures.share == "maps" else 1
    return NewLoadings(tuple(cohort.subjects), found, tuple(notes), quality, null, rule, n_measures)


def _extrapolated(model: CorticalFactorization, cohort: Any) -> list[str]:
    """One line where covariates lie outside those of the fitted subjects."""
    steps = [step for step in (model.harmonization_, model.covariates_) if step is not None]
    terms = {term.name: term for step in steps for term in step.terms}.values()
    table, subjects = people_of_rows(cohort, cohort.participants, cohort.subjects)
    found = [term.beyond(table[term.name], subjects) for term in terms if term.name in table]
    listed = "; ".join(filter(None, found))
    return [f"outside the fitted range, where effects are extrapolated: {listed}"] if listed else []


def check_table(
    model: CorticalFactorization, participants: Mapping[str, Any], subjects: Sequence[str]
) -> None:
    """Refuse a table that lacks what the fit took out of its maps, before any map is read."""
    participants, subjects = people_of_rows(model.measures_, participants, subjects)
    if model.harmonization_ is not None:
        model.harmonization_.check(participants, subjects)
        columns_of(model.harmonization_.terms, participants, subjects, "keep")
    if model.covariates_ is not None:
        columns_of(model.covariates_.terms, participants, subjects)


def diagnostics_beside(model_path: Path, model: CorticalFactorization) -> Diagnostics | None:
    """Diagnostics of the same fit in the model's folder; None where there are none."""
    path = model_path.parent / DIAGNOSTICS
    found = load_diagnostics(path) if path.is_file() else None
    return found if found is not None and np.array_equal(found.loadings, model.loadings_) else None


@dataclass(frozen=True, eq=False)
class Holes(Adjustment):
    """Where new maps have no value: a change that makes these values NaN.

    Attributes
    ----------
    lost : (n_sites,) bool, sites without any value
    zero : (n_sites,) bool, sites where 0 is not a value
    """

    lost: np.ndarray = field(kw_only=True)
    zero: np.ndarray = field(kw_only=True)

    def at(self, subjects: Any, sites: Any) -> Holes:
        """Return the holes at some sites."""
        return Holes(lost=self.lost[sites], zero=self.zero[sites])

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Return values with NaN where there is none."""
        is_hole = (x == 0) & self.zero[:, None] | self.lost[:, None]
        return np.where(is_hole, x.dtype.type(np.nan), x)


def compare_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    mean: np.ndarray,
    near: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Return sums of every person over the sites that the person has, and who lacks which site.

    They are WᵀX, Σ (x − near)², Σ (x − mean)² and the weight of the sites.

    Parameters
    ----------
    shared : "member", the row of `mean` of each person; "floor", whether values below 0 become 0
    mean : (n_sites, n_rows) of the fitted people
    near : (n_sites,) a map that is close to all others
    """
    n_below = 0
    if shared["floor"]:
        x, n_below = floor_at_zero(x)
    is_missing = ~np.isfinite(x)
    values = np.where(is_missing, 0.0, x)
    deviation = np.where(is_missing, 0.0, x - mean @ shared["member"])
    difference = np.where(is_missing, 0.0, x - near[:, None])
    return {
        **value_range(values),
        "sum.WX": weighed(W, weights).T @ values,
        "sum.square": np.einsum("ij,ij->j", difference, weighed(difference, weights)),
        "sum.variance": np.einsum("ij,ij->j", deviation, weighed(deviation, weights)),
        "sum.weight": weighed((~is_missing).astype(np.float64), weights).sum(axis=0),
        "sum.below": np.array(n_below),
        "site.missing": np.packbits(is_missing, axis=1),
    }


@dataclass(frozen=True, eq=False)
class _Sums:
    """What one pass over the new maps gives, sums over the sites that each subject has.

    Attributes
    ----------
    W : (n_sites, k) maps on the sites of the fit, as loadings are solved with them.
    near : (k,) mean loadings of the fitted subjects
    WX : (k, n); square, variance : (n,) ‖x − W near‖² and ‖x − mean map‖²
    missing : numbers of the sites where anybody has no value, and who, packed: (their number, n /
        8).
    n_missing : (n,)
    n_below : values that were below 0 and became 0
    weight : (n,) of the sites that each subject has
    weights : (n_sites,) of the sites; None: all count alike
    """

    W: np.ndarray
    near: np.ndarray
    WX: np.ndarray
    square: np.ndarray
    variance: np.ndarray
    missing: tuple[np.ndarray, np.ndarray]
    n_missing: np.ndarray
    n_below: int
    weight: np.ndarray
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, model: CorticalFactorization, data: Any, names: Iterable[str]) -> _Sums:
        method = method_named(model.solution_.method)
        maps = model._fitted_maps(data)
        used = _used(model)
        W = model.components_[:, used].T / model.scale_
        near = (model.loadings_ * model.scale_).mean(axis=0)
        n = maps.n_subjects
        centering = model.centering_.at(used)
        # The pass sets values below 0 to 0 by itself, and counts them.
        shared = {"member": centering.membership(n), "floor": maps.floor}
        maps = maps.adjusted(floor=False)
        summary = Summary(maps.n_sites, n, method.refusal(model.center_), list(names))
        sums = {"WX": np.zeros((W.shape[1], n)), "below": np.zeros(())}
        sums |= {name: np.zeros(n) for name in ("square", "variance", "weight")}
        missing = [(np.zeros(0, int), np.zeros((0, -(-n // 8)), np.uint8))]
        weights = model._used_weights
        per_site = (W, centering.left.T, W @ near, weights)
        for rows, result in map_strips(compare_strip, maps, *per_site, shared=shared, double=True):
            summary.add_range(result)
            incomplete = np.flatnonzero(result["site.missing"].any(axis=1))
            sites = np.arange(maps.n_sites)[rows][incomplete]
            missing.append((sites, result["site.missing"][incomplete]))
            for name in sums:
                sums[name] = sums[name] + result[f"sum.{name}"]
        summary.check_signs()
        sites, who = (np.concatenate(arrays) for arrays in zip(*missing, strict=True))
        n_missing = np.zeros(n, np.int64)
        for row in who:
            n_missing += np.unpackbits(row, count=n)
        order = np.argsort(sites)
        n_below = int(sums.pop("below"))
        return cls(
            W,
            near,
            **sums,
            missing=(sites[order], who[order]),
            n_missing=n_missing,
            n_below=n_below,
            weights=weights,
        )

    def error(self, C: np.ndarray, WW: np.ndarray, subjects: Any = slice(None)) -> np.ndarray:
        """‖x − W c‖² of some subjects with loadings C (k, n), who share WᵀW.

        From the difference of c and `near`: ‖x‖² is so much larger where the mean map was not taken
        out that a difference of such squares would be mostly rounding.
        """
        z = C - self.near[:, None]
        beside = self.WX[:, subjects] - (WW @ self.near)[:, None]
        return np.maximum(self.square[subjects] + np.sum(z * (WW @ z - 2 * beside), axis=0), 0.0)

    def lacking(self, subject: int) -> np.ndarray:
        """Numbers of the sites where a subject has no value, in order."""
        sites, who = self.missing
        return sites[(who[:, subject // 8] >> (7 - subject % 8)) & 1 > 0]

    def grams(self, WW: np.ndarray) -> Iterable[tuple[list[int], np.ndarray]]:
        """Subjects who lack the same sites, and WᵀW over those that they have."""
        alike: dict[bytes, list[int]] = {}  # one border of the cortex for all
        for subject in np.flatnonzero(self.n_missing).tolist():
            alike.setdefault(self.lacking(subject).tobytes(), []).append(subject)
        for key, subjects in alike.items():
            lost = np.frombuffer(key, dtype=np.int64)
            yield (
                subjects,
                WW - gram(self.W[lost], None if self.weights is None else self.weights[lost]),
            )


def _used(model: CorticalFactorization) -> np.ndarray:
    return np.ones(model.n_features_in_, dtype=bool) if model.mask_ is None else model.mask_


def _lost_sites(model: CorticalFactorization, cohort: Any) -> np.ndarray:
    """Sites that the fit uses and where no new subject has a value."""
    if cohort.mask is None or len(cohort.mask) != model.n_features_in_:
        return np.zeros(
            cohort.X.shape[1], dtype=bool
        )  # sites that are not the fit's are refused later
    return _used(model) & ~np.asarray(cohort.mask)


def _zero_is_missing(model: CorticalFactorization) -> np.ndarray:
    """Sites where 0 is too far from the fitted subjects' values to be one: 0 mm of thickness, not a
    z-score of 0.
    """
    n, used = len(model.loadings_), _used(model)
    variance = model.total_variance_ / (max(n - 1, 1) * max(int(used.sum()), 1))
    centering = model.centering_
    deviation = centering.deviation
    if deviation is None:
        deviation = np.full_like(centering.mean, np.sqrt(variance))
    if centering.factor is not None:
        # Masked sites have no factor.
        deviation = deviation / np.where(centering.factor > 0, centering.factor, 1.0)
    is_far = np.abs(centering.mean) > _ZERO_IS_FAR * deviation
    return used & is_far.all(axis=0)


def _check_missing(
    model: CorticalFactorization, sums: _Sums, lost: np.ndarray, names: Iterable[str]
) -> list[str]:
    """What to say of missing sites: a few are solved without, a lobe is refused."""
    n_sites, each, names = len(sums.W), sums.n_missing, list(names)
    share, all_lack = each / n_sites, int(lost.sum())
    text = (
        f"{counted(all_lack, 'site')} that the fit uses are NaN or zero in every new subject"
        if all_lack
        else ""
    )
    worst = np.flatnonzero(share > MOST_MISSING)
    if len(worst):
        limit = f"at most {100 * MOST_MISSING:g} % may be missing. Give maps with the mesh and the mask of the fit."
        if all_lack > MOST_MISSING * n_sites:
            raise CohortError(
                "the new subjects",
                f"{text}, {100 * all_lack / n_sites:.2g} % of its {n_sites}; {limit}",
            )
        who = f"{some([names[s] for s in worst], len(worst))} lack up to {100 * share.max():.2g} %"
        raise CohortError(
            "the new subjects",
            f"{who} of the {n_sites} sites that the fit uses; {limit} {{exclude}} leaves subjects out",
        )
    WW = gram(sums.W, sums.weights)
    whole = np.diag(WW)
    for subjects, shared in sums.grams(WW):
        gone = np.flatnonzero((whole > 0) & (shared.diagonal() < (1 - _MOST_OF_A_MAP) * whole))
        if len(gone):
            where = f"more than half of component {gone[0] + 1} is where {literal(names[subjects[0]])} has no value"
            raise CohortError("the new subjects", f"{where}: {{exclude}} leaves subjects out")
    notes = []
    solved = "loadings are solved on the sites that a subject has"
    if all_lack:
        notes.append(f"{text}; {solved}")
    single = np.flatnonzero(each > all_lack)
    if len(single):
        most = int(each.max())
        have, which = "has" if len(single) == 1 else "have", "further" if all_lack else "some"
        own = f"{counted(len(single), 'subject')} {have} NaN or 0 at {which} sites"
        notes.append(f"{own}, {most} of {n_sites} at most; {solved}")
    return notes


# ---------------------------------------------------------------------- who is unusual?


def _judged(
    model: CorticalFactorization,
    found: np.ndarray,
    known: Mapping[str, np.ndarray],
    fitted: Diagnostics | None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], str]:
    """Columns of quality, the same of the fitted subjects, and the rule with its count among these."""
    new = len(found)
    distance, own = distances(model.loadings_, found)
    null = {} if own is None else {"distance": own}
    if fitted is not None:
        null |= {"explained_variance": fitted.subject_explained, "residual": fitted.residual}
    limit, nothing = limit_of(2 * new), np.full(new, np.nan)
    reference = {
        "residual": null.get("residual", known["residual"] if new >= _FEW else None),
        "distance": own,
    }
    values, z, marks, among = {"residual": known["residual"], "distance": distance}, {}, {}, []
    for name, others in reference.items():
        z[name] = (
            nothing
            if others is None
            else robust_z(_SCALE[name](values[name]), _SCALE[name](others))
        )
        beyond = np.quantile(others, _BEYOND) if others is not None and name in null else -np.inf
        marks[name] = (z[name] > limit) & (values[name] > beyond)
        if others is not None and name in null:
            among.append(
                (robust_z(_SCALE[name](others), _SCALE[name](others)) > limit) & (others > beyond)
            )
    quality = {"explained_variance": known["explained_variance"], **values}
    quality |= {f"{name}_z": found for name, found in z.items()} | {
        "missing_sites": known["missing_sites"]
    }
    strange = [", ".join(name for name, mark in marks.items() if mark[s]) for s in range(new)]
    quality["unusual"] = np.array(strange, dtype=object)
    far = f"more than {limit:.2f} robust standard deviations above the median of the"
    rule = (
        f"Unusual: the residual or the distance of the loadings is {far} fitted subjects, and beyond 99 % of them"
        if "residual" in null
        else f"Unusual: the residual is {far} new subjects, or the distance of the loadings {far} fitted subjects and "
        "beyond 99 % of them"
    )
    if among:
        rows = (
            "subjects" if model.measures_ is None or model.measures_.share == "loadings" else "rows"
        )
        rule += f"; {int(np.any(among, axis=0).sum())} of the {len(model.loadings_)} fitted {rows} would be unusual"
    return quality, null, rule + "."


def distances(fitted: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Mahalanobis distances of new loadings from the fitted ones, and of each fitted one from the
    others.

    NaN and None where there are too few fitted subjects for their covariance.
    """
    n, k = fitted.shape
    if n < k + 3:
        return np.full(len(new), np.nan), None
    middle, scale = fitted.mean(axis=0), fitted.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    own, other = (fitted - middle) / scale, (new - middle) / scale
    inverse = np.linalg.pinv(np.cov(own, rowvar=False).reshape(k, k), hermitian=True, rcond=1e-10)
    square = lambda rows: np.maximum(np.einsum("ij,jk,ik->i", rows, inverse, rows), 0.0)
    u = square(own) / (
        n - 1
    )  # without the subject: mean and covariance change by one row (Sherman-Morrison)
    left_out = (n / (n - 1)) ** 2 * (n - 2) * u / np.maximum(1 - n / (n - 1) * u, 1e-12)
    return np.sqrt(square(other)), np.sqrt(left_out)
