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
from icofactor.errors import CohortError, plural
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

# Share of the fit's sites that a new subject may lack.
MOST_MISSING = 0.05
# Share of the square of a component's map that may lie on missing sites.
_MAX_MISSING_OF_MAP = 0.5
# 0 is a missing value where it lies this many standard deviations of the fitted subjects from
# their mean.
_ZERO_IS_FAR = 3.0
QUALITY = {
    "explained_variance": (
        "Share of the subject's variance about the fitted mean map that the components explain"
    ),
    "residual": "Root mean square over sites of the map minus its fit, in the fitted units",
    "distance": "Mahalanobis distance of the loadings from those of the fitted subjects",
    "residual_z": (
        "Residual in robust standard deviations from the fitted subjects' median, on a logarithmic "
        "scale"
    ),
    "distance_z": "The same for the distance, on the scale of cube roots of squares",
    "missing_sites": "Sites of the fit where the subject has no value",
    "unusual": "What is unusual about the subject: residual, distance, or both",
}
# Unusual values also exceed this quantile of the fitted subjects'.
_QUANTILE = 0.99
# New subjects are compared with each other only if there are at least this many.
_MIN_COHORT = 10
# Names of subjects in a message.
_MAX_NAMES = 20
# Steps that make maps comparable, so that differences between them do not matter.
_STEPS_NOT_COMPARED = ("resample", "fill_from_neighbours")
# Singular values below this share of the largest are rounding errors.
_RCOND = 1e-10
_TINY = np.finfo(float).tiny
# Scales on which residuals and distances of a cohort are nearly normal.
_SCALE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "residual": lambda values: np.log(np.maximum(values, _TINY)),
    "distance": lambda values: np.cbrt(np.square(values)),
}


@dataclass(frozen=True, eq=False)
class NewLoadings:
    """Loadings of new subjects.

    Attributes
    ----------
    subjects : their names.
    loadings : (n_subjects, n_components), in the scale of the fit's loadings.
    notes : how the loadings were computed, and what could not be compared with the fit.
    quality : column of `QUALITY` → one value per subject, see there.
    fitted : "explained_variance", "residual" and "distance" of the fitted subjects, as far as they
        were recorded.
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
        """Findings as lines of text."""
        share = 100 * self.quality["explained_variance"]
        n_rows = len(self.subjects)
        low, median, high = np.percentile(share, (0, 50, 100))
        spread = f"{median:.0f} %"
        if n_rows > 1:
            spread = f"{low:.0f} to {high:.0f} % (median {median:.0f} %)"
        fitted_share = self.fitted.get("explained_variance")
        reference = ""
        if fitted_share is not None:
            reference = f" (fitted subjects: median {100 * np.median(fitted_share):.0f} %)"
        unusual = [
            f"{subject} ({reason})"
            for subject, reason in zip(self.subjects, self.quality["unusual"], strict=True)
            if reason
        ]
        names = f": {some(unusual, _MAX_NAMES)}" if unusual else ""
        rows = plural(n_rows, "subject")
        if self.n_measures > 1:
            people = plural(n_rows // self.n_measures, "subject")
            rows = f"{n_rows} rows ({people} × {self.n_measures} measures)"
        lines = [
            f"The components explain {spread} of a subject's variance about the fitted mean map"
            f"{reference}.",
            f"{len(unusual)} of {rows} unusual{names}. {self.rule}",
            self.doubt,
        ]
        return [line for line in lines if line]

    @property
    def doubt(self) -> str:
        """What to check if most of several new subjects are unusual; "" otherwise."""
        n_unusual = sum(map(bool, self.quality["unusual"]))
        n_rows = len(self.subjects)
        if n_rows <= 2 or 2 * n_unusual <= n_rows:
            return ""
        return (
            "Most new subjects are unusual: check that measure, units and preprocessing are those "
            "of the fit."
        )


# ---------------------------------------------------------------------- are the maps comparable?


def check_measurement(model: CorticalFactorization, cohort: Any, force: bool = False) -> list[str]:
    """Refuse maps of another measure, unit, smoothing or preprocessing than those of the fit.

    Parameters
    ----------
    force : whether to accept other maps all the same.

    Returns
    -------
    Notes: what differs although it was accepted, and what could not be compared.
    """
    fitted = getattr(model, "measurement_", None)
    new = Measurement.of(cohort)
    if fitted is None or new is None:
        source = "the model" if fitted is None else "the new maps"
        return [
            "measure, unit, smoothing and preprocessing are not recorded in "
            f"{source}, and could not be compared"
        ]
    fitted_properties = _properties(fitted)
    new_properties = _properties(new)
    differences = []
    unknown = []
    for name, before in fitted_properties.items():
        now = new_properties[name]
        if before is None and now is None:
            continue
        if before is None:
            unknown.append(f"{name} (fit)")
        elif now is None:
            unknown.append(f"{name} (new maps)")
        elif before != now:
            differences.append(f"{name} {before} in the fit, {now} in the new maps")
    text = "; ".join(differences)
    if differences and not force:
        raise CohortError(
            "the new subjects",
            f"differ from the fitted maps: {text}. Pass --force (force=True) to continue anyway",
        )
    notes = []
    if differences:
        notes.append(f"differs from the fit (forced): {text}")
    if unknown:
        notes.append(f"not recorded, and not compared: {', '.join(unknown)}")
    return notes


def _properties(measurement: Measurement) -> dict[str, str | None]:
    """Return what must agree between a fit and new maps; None for what was not recorded."""
    modality = measurement.modality
    smoothing = measurement.smoothing
    return {
        "measure": None if modality == "unknown" else modality,
        "unit": measurement.units or None,
        "smoothing": None if smoothing is None else f"{smoothing} mm FWHM",
        "preprocessing": _steps_as_text(measurement),
        "resampling": _resampling_as_text(measurement),
    }


def _steps_as_text(measurement: Measurement) -> str:
    """Return the steps that change values, and their settings."""
    texts = []
    for step in measurement.preprocessing:
        if step.get("step") not in _STEPS_NOT_COMPARED:
            settings = [f"{name} {value}" for name, value in step.items() if name != "step"]
            texts.append(f"{step.get('step')} ({', '.join(settings)})")
    return "; ".join(texts) or "none"


def _resampling_as_text(measurement: Measurement) -> str:
    """Return the meshes that maps were resampled from, and the methods."""
    texts = [
        f"{step.get('method', 'resampled')} from {step.get('from', 'unknown')}"
        for step in measurement.preprocessing
        if step.get("step") == "resample"
    ]
    return "; ".join(texts) or "none"


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
    """Return the diagnostics of the fit in the model's folder; None if there are none."""
    path = model_path.parent / DIAGNOSTICS
    if not path.is_file():
        return None
    diagnostics = load_diagnostics(path)
    is_of_fit = np.array_equal(diagnostics.loadings, model.loadings_)
    return diagnostics if is_of_fit else None


# ---------------------------------------------------------------------- loadings


def loadings_of(
    model: CorticalFactorization, cohort: Any, fitted: Diagnostics | None = None
) -> NewLoadings:
    """Return the loadings of a cohort, after doing to it what the fit did to its own subjects.

    A subject may lack a few sites: NaN, 0 where that is not a value, or masked in the new cohort.
    Its loadings are then solved on the sites that it has (`shared_loadings`); a subject that lacks
    more than `MOST_MISSING` is refused.

    Parameters
    ----------
    fitted : diagnostics of the fit, with which residuals are compared; with each other's when None.
    """
    masked = _masked_sites(model, cohort)
    holes = Holes(lost=masked, zero=_zero_is_missing(model))
    maps = maps_of(cohort.X).adjusted(holes)
    data = as_the_fit(
        with_maps(cohort, maps), model.harmonization_, model.covariates_, measures=model.measures_
    )
    with one_blas_thread():
        sums = _Sums.of(model, data, cohort.subjects)
    notes = _check_missing(model, sums, masked, cohort.subjects)
    C, error = _solve(model, sums)
    if model.harmonization_ is not None:
        notes.append(f"harmonized over {model.harmonization_} by the estimates of the fit")
        for adjustment in data.X.adjustments:
            notes += adjustment.notes
    if model.covariates_ is not None:
        notes.append(f"adjusted for {model.covariates_} by the coefficients of the fit")
    notes += _extrapolated(model, cohort)
    if sums.n_below:
        share = 100 * sums.n_below / (len(cohort.subjects) * len(sums.W))
        notes.append(f"{sums.n_below} values ({share:.2g} %) became negative and were set to 0")
    new_loadings = C.T / model.scale_
    with np.errstate(invalid="ignore", divide="ignore"):
        explained = np.where(sums.variance > 0, 1 - error / sums.variance, np.nan)
    residual = np.sqrt(error / np.maximum(sums.weight, _TINY))
    distance, fitted_distance = distances(model.loadings_, new_loadings)
    reference: dict[str, np.ndarray] = {}
    if fitted_distance is not None:
        reference["distance"] = fitted_distance
    if fitted is not None:
        reference["explained_variance"] = fitted.subject_explained
        reference["residual"] = fitted.residual
    values = {"residual": residual, "distance": distance}
    z, unusual, rule = _compare_with_fit(model, values, reference)
    quality = {
        "explained_variance": explained,
        **values,
        **z,
        "missing_sites": sums.n_missing,
        "unusual": unusual,
    }
    measures = model.measures_
    n_measures = measures.n if measures is not None and measures.share == "maps" else 1
    subjects = tuple(cohort.subjects)
    return NewLoadings(subjects, new_loadings, tuple(notes), quality, reference, rule, n_measures)


def _solve(model: CorticalFactorization, sums: _Sums) -> tuple[np.ndarray, np.ndarray]:
    """Return C (k, n) and the squared error of each subject."""
    scheme = method_named(model.solution_.method).scheme
    penalty = model.solution_.penalty
    WW = gram(sums.W, sums.weights)
    # Loadings of projections are WᵀX itself, which the errors below still need.
    C = loadings(sums.WX, WW, scheme, penalty).copy()
    error = sums.error(C, WW)
    # Subjects with missing sites have a problem of their own.
    for subjects, WW_of_subjects in sums.grams(WW):
        WX = sums.WX[:, subjects]
        C[:, subjects] = shared_loadings(WX, WW_of_subjects, WW, scheme, penalty)
        error[subjects] = sums.error(C[:, subjects], WW_of_subjects, subjects)
    return C, error


def _extrapolated(model: CorticalFactorization, cohort: Any) -> list[str]:
    """Return a note if covariates lie outside those of the fitted subjects."""
    steps = [step for step in (model.harmonization_, model.covariates_) if step is not None]
    terms = {term.name: term for step in steps for term in step.terms}
    table, subjects = people_of_rows(cohort, cohort.participants, cohort.subjects)
    texts = [term.beyond(table[name], subjects) for name, term in terms.items() if name in table]
    text = "; ".join(filter(None, texts))
    return [f"outside the fitted range, where effects are extrapolated: {text}"] if text else []


# ---------------------------------------------------------------------- one pass over the maps


@dataclass(frozen=True, eq=False)
class Holes(Adjustment):
    """A change of new maps that makes missing values NaN.

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
    reference: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Return sums of every person over the sites that the person has, and who lacks which site.

    They are WᵀX, Σ (x − reference)², Σ (x − mean)² and the weight of the sites.

    Parameters
    ----------
    shared : "member", the row of `mean` of each person; "floor", whether values below 0 become 0
    mean : (n_sites, n_rows) of the fitted people
    reference : (n_sites,) a map that is close to those of all people
    """
    n_below = 0
    if shared["floor"]:
        x, n_below = floor_at_zero(x)
    is_missing = ~np.isfinite(x)
    values = np.where(is_missing, 0.0, x)
    deviation = np.where(is_missing, 0.0, x - mean @ shared["member"])
    difference = np.where(is_missing, 0.0, x - reference[:, None])
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
    """Sums over the sites that each new subject has, from one pass over the maps.

    Attributes
    ----------
    W : (n_sites, k) maps on the sites of the fit, as loadings are solved with them.
    mean_loadings : (k,) of the fitted subjects
    WX : (k, n)
    square, variance : (n,) ‖x − W mean_loadings‖² and ‖x − mean map‖²
    missing : numbers of the sites where anybody has no value, and (their number, n / 8) bits: who
    n_missing : (n,)
    n_below : number of values that were below 0 and became 0
    weight : (n,) of the sites that each subject has
    weights : (n_sites,) of the sites; None: all count alike
    """

    W: np.ndarray
    mean_loadings: np.ndarray
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
        """Pass over the maps of new subjects."""
        maps = model._fitted_maps(data, data.X.executor)
        n = maps.n_subjects
        used = _used_sites(model)
        weights = model._used_weights
        W = model.components_[:, used].T / model.scale_
        mean_loadings = (model.loadings_ * model.scale_).mean(axis=0)
        centering = model.centering_.at(used)
        # The pass sets values below 0 to 0 by itself, and counts them.
        shared = {"member": centering.membership(n), "floor": maps.floor}
        maps = maps.adjusted(floor=False)
        refusal = method_named(model.solution_.method).refusal(model.center_)
        summary = Summary(maps.n_sites, n, refusal, list(names))
        sums = {"WX": np.zeros((W.shape[1], n)), "below": np.zeros(())}
        sums |= {name: np.zeros(n) for name in ("square", "variance", "weight")}
        site_numbers = [np.zeros(0, int)]
        bits = [np.zeros((0, -(-n // 8)), np.uint8)]
        per_site = (W, centering.left.T, W @ mean_loadings, weights)
        for rows, strip in map_strips(compare_strip, maps, *per_site, shared=shared, double=True):
            summary.add_range(strip)
            incomplete = np.flatnonzero(strip["site.missing"].any(axis=1))
            site_numbers.append(np.arange(maps.n_sites)[rows][incomplete])
            bits.append(strip["site.missing"][incomplete])
            for name in sums:
                sums[name] = sums[name] + strip[f"sum.{name}"]
        summary.check_signs()
        sites = np.concatenate(site_numbers)
        who_lacks = np.concatenate(bits)
        # Unpacking all at once would take eight times the memory.
        n_missing = np.zeros(n, np.int64)
        for row in who_lacks:
            n_missing += np.unpackbits(row, count=n)
        order = np.argsort(sites)
        n_below = int(sums.pop("below"))
        return cls(
            W,
            mean_loadings,
            **sums,
            missing=(sites[order], who_lacks[order]),
            n_missing=n_missing,
            n_below=n_below,
            weights=weights,
        )

    def error(self, C: np.ndarray, WW: np.ndarray, subjects: Any = slice(None)) -> np.ndarray:
        """Return ‖x − W c‖² of some subjects with loadings C (k, n), who share WᵀW."""
        # Computed from differences to the mean loadings: if the mean map was not taken out,
        # ‖x‖² is so large that a difference of such squares would be mostly rounding.
        z = C - self.mean_loadings[:, None]
        deviation = self.WX[:, subjects] - (WW @ self.mean_loadings)[:, None]
        error = self.square[subjects] + np.sum(z * (WW @ z - 2 * deviation), axis=0)
        return np.maximum(error, 0.0)

    def lacking(self, subject: int) -> np.ndarray:
        """Return the numbers of the sites where a subject has no value, in order."""
        sites, who_lacks = self.missing
        return sites[(who_lacks[:, subject // 8] >> (7 - subject % 8)) & 1 > 0]

    def grams(self, WW: np.ndarray) -> Iterable[tuple[list[int], np.ndarray]]:
        """Yield subjects who lack the same sites, and WᵀW over the sites that they have."""
        # Often all subjects lack the same border of the cortex.
        subjects_of: dict[bytes, list[int]] = {}
        for subject in np.flatnonzero(self.n_missing).tolist():
            subjects_of.setdefault(self.lacking(subject).tobytes(), []).append(subject)
        for key, subjects in subjects_of.items():
            sites = np.frombuffer(key, dtype=np.int64)
            weights = None if self.weights is None else self.weights[sites]
            yield subjects, WW - gram(self.W[sites], weights)


# ---------------------------------------------------------------------- missing sites


def _used_sites(model: CorticalFactorization) -> np.ndarray:
    if model.mask_ is None:
        return np.ones(model.n_features_in_, dtype=bool)
    return model.mask_


def _masked_sites(model: CorticalFactorization, cohort: Any) -> np.ndarray:
    """Return the sites that the fit uses and the mask of the new cohort leaves out."""
    if cohort.mask is None or len(cohort.mask) != model.n_features_in_:
        # Sites that are not the fit's are refused later.
        return np.zeros(cohort.X.shape[1], dtype=bool)
    return _used_sites(model) & ~np.asarray(cohort.mask)


def _zero_is_missing(model: CorticalFactorization) -> np.ndarray:
    """Return the sites where 0 is too far from the fitted subjects to be a value.

    0 mm of thickness is not a value; a z-score of 0 is.
    """
    used = _used_sites(model)
    n_values = max(len(model.loadings_) - 1, 1) * max(int(used.sum()), 1)
    centering = model.centering_
    deviation = centering.deviation
    if deviation is None:
        deviation = np.full_like(centering.mean, np.sqrt(model.total_variance_ / n_values))
    if centering.factor is not None:
        # Masked sites have no factor.
        deviation = deviation / np.where(centering.factor > 0, centering.factor, 1.0)
    is_far = np.abs(centering.mean) > _ZERO_IS_FAR * deviation
    return used & is_far.all(axis=0)


def _check_missing(
    model: CorticalFactorization, sums: _Sums, masked: np.ndarray, names: Iterable[str]
) -> list[str]:
    """Refuse subjects that lack too much; return notes about missing sites otherwise."""
    subjects = list(names)
    n_sites = len(sums.W)
    n_masked = int(masked.sum())
    _check_share_missing(sums, subjects)
    _check_missing_of_maps(sums, subjects)
    notes = []
    solved = "loadings are solved on the sites that a subject has"
    if n_masked:
        sites = plural(n_masked, "site")
        notes.append(f"{sites} that the fit uses are NaN or zero in every new subject; {solved}")
    n_incomplete = int((sums.n_missing > n_masked).sum())
    if n_incomplete:
        verb = "has" if n_incomplete == 1 else "have"
        which = "further" if n_masked else "some"
        notes.append(
            f"{plural(n_incomplete, 'subject')} {verb} NaN or 0 at {which} sites, "
            f"{int(sums.n_missing.max())} of {n_sites} at most; {solved}"
        )
    return notes


def _check_share_missing(sums: _Sums, subjects: Sequence[str]) -> None:
    """Refuse subjects that lack more than `MOST_MISSING` of the sites."""
    n_sites = len(sums.W)
    share = sums.n_missing / n_sites
    incomplete = [subjects[number] for number in np.flatnonzero(share > MOST_MISSING).tolist()]
    if incomplete:
        raise CohortError(
            "the new subjects",
            f"{some(incomplete, _MAX_NAMES)} lack up to {100 * share.max():.2g} % of the {n_sites} "
            f"sites that the fit uses; at most {100 * MOST_MISSING:g} % may be missing. Give maps "
            "with the mesh and the mask of the fit, or leave subjects out with --exclude (exclude)",
        )


def _check_missing_of_maps(sums: _Sums, subjects: Sequence[str]) -> None:
    """Refuse subjects that lack most of the map of a component."""
    WW = gram(sums.W, sums.weights)
    squares = np.diag(WW)
    for numbers, WW_of_subjects in sums.grams(WW):
        remaining = WW_of_subjects.diagonal()
        is_lost = (squares > 0) & (remaining < (1 - _MAX_MISSING_OF_MAP) * squares)
        if is_lost.any():
            component = np.flatnonzero(is_lost)[0] + 1
            raise CohortError(
                "the new subjects",
                f"more than half of component {component} is where {subjects[numbers[0]]} has no "
                "value; leave subjects out with --exclude (exclude)",
            )


# ---------------------------------------------------------------------- who is unusual?


def _compare_with_fit(
    model: CorticalFactorization,
    values: Mapping[str, np.ndarray],
    fitted: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], np.ndarray, str]:
    """Compare residuals and distances of new subjects with those of the fitted ones.

    Returns
    -------
    z-scores, what is unusual about each subject, and the rule, with the number of fitted subjects
    that it would call unusual.
    """
    n_new = len(values["residual"])
    limit = limit_of(2 * n_new)
    z = {}
    is_unusual = {}
    fitted_unusual = []
    for name, new in values.items():
        reference = fitted.get(name)
        threshold = -np.inf
        if reference is not None:
            threshold = np.quantile(reference, _QUANTILE)
            is_high = _robust_z(name, reference, reference) > limit
            fitted_unusual.append(is_high & (reference > threshold))
        elif name == "residual" and n_new >= _MIN_COHORT:
            # Without diagnostics of the fit, new subjects are compared with each other.
            reference = new
        z[name] = np.full(n_new, np.nan)
        if reference is not None:
            z[name] = _robust_z(name, new, reference)
        is_unusual[name] = (z[name] > limit) & (new > threshold)
    reasons = [
        ", ".join(name for name, marks in is_unusual.items() if marks[subject])
        for subject in range(n_new)
    ]
    rule = _rule(limit, "residual" in fitted)
    if fitted_unusual:
        has_measures = model.measures_ is not None and model.measures_.share != "loadings"
        rows = "rows" if has_measures else "subjects"
        n_unusual = int(np.any(fitted_unusual, axis=0).sum())
        rule += f"; {n_unusual} of the {len(model.loadings_)} fitted {rows} would be unusual"
    columns = {f"{name}_z": scores for name, scores in z.items()}
    return columns, np.array(reasons, dtype=object), f"{rule}."


def _robust_z(name: str, values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return robust z-scores on the scale of a residual or a distance."""
    scale = _SCALE[name]
    return robust_z(scale(values), scale(reference))


def _rule(limit: float, has_fitted_residuals: bool) -> str:
    """Say what counts as unusual."""
    above = f"more than {limit:.2f} robust standard deviations above the median of the"
    beyond = f"{above} fitted subjects, and beyond 99 % of them"
    if has_fitted_residuals:
        return f"Unusual: the residual or the distance of the loadings is {beyond}"
    return (
        f"Unusual: the residual is {above} new subjects, or the distance of the loadings {above} "
        "fitted subjects and beyond 99 % of them"
    )


def distances(fitted: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return Mahalanobis distances of loadings from the fitted ones.

    Returns
    -------
    Distances of the new loadings, and of each fitted one from the others; NaN and None if there are
    too few fitted subjects for their covariance.
    """
    n, k = fitted.shape
    if n < k + 3:
        return np.full(len(new), np.nan), None
    mean = fitted.mean(axis=0)
    scale = fitted.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    standard_fitted = (fitted - mean) / scale
    covariance = np.cov(standard_fitted, rowvar=False).reshape(k, k)
    inverse = np.linalg.pinv(covariance, hermitian=True, rcond=_RCOND)

    def squared_distance(rows: np.ndarray) -> np.ndarray:
        return np.maximum(np.einsum("ij,jk,ik->i", rows, inverse, rows), 0.0)

    # Without a subject, mean and covariance change by one row (Sherman-Morrison).
    u = squared_distance(standard_fitted) / (n - 1)
    squared = (n / (n - 1)) ** 2 * (n - 2) * u / np.maximum(1 - n / (n - 1) * u, 1e-12)
    return np.sqrt(squared_distance((new - mean) / scale)), np.sqrt(squared)
