"""Several measures of the same people as one cohort: one set of maps, or of loadings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.checks import OneOf, check_value
from icofactor.cohort.cohort import subject_rows
from icofactor.cohort.people import MEASURE, PERSON, People, bare
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, Phrase, counted, literal
from icofactor.io.records import Numbers, plain_signature
from icofactor.maps.maps import Maps, maps_of
from icofactor.sphere.meshes import same_sites
from icofactor.sphere.names import mesh_name_of
from icofactor.sphere.parcels import only_in_one
from icofactor.sphere.sites import Sites

SHARES, SCALES = ("maps", "loadings"), ("none", "variance", "zscore")
DOMINANT = 0.8
"""A measure with more than this share of the variance that is fitted leaves little to the others.
"""


@plain_signature
@dataclass(frozen=True, eq=False)
class Measures:
    """How several measures are arranged in one matrix, and how a fit scaled each of them.

    `measures_` of a model that was fitted to joined measures (`icofactor.join_measures`).

    Attributes
    ----------
    names, units : tuples of str
        Names and units of the measures, in order.
    share : {"maps", "loadings"}
        "maps": one row of X per person and measure. "loadings": one row per person, with measures
        side by side.
    scale : {"none", "variance", "zscore"}
        How each measure is scaled.
    weights : array of shape (n_measures,)
        Weight of the squared error of each measure.
    factor : array of shape (n_measures,) or None
        What the fit multiplied each measure by.
    variance : array of shape (n_measures,) or None
        Share of each measure in the variance that was fitted.
    mean, deviation : arrays of shape (n_measures, n_sites) or None
        With shared maps, mean and standard deviation of each measure at every site.

    Examples
    --------
    >>> import icofactor as ico
    >>> a, b = (ico.simulate_cohort(20, 3, kind, mesh="fsaverage3") for kind in ("thickness", "myelin"))
    >>> joined = ico.join_measures({"thickness": a, "myelin": b}, share="loadings", scale="variance")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(joined)
    >>> {name: maps.shape for name, maps in model.measures_.maps(model.components_).items()}
    {'thickness': (3, 642), 'myelin': (3, 642)}
    """

    names: Annotated[tuple[str, ...], Numbers("m", "text")]
    units: Annotated[tuple[str, ...], Numbers("m", "text")]
    share: Literal["maps", "loadings"]
    scale: Literal["none", "variance", "zscore"]
    weights: Annotated[NDArray[np.float64], Numbers("m", least=0)]
    factor: Annotated[NDArray[np.float64] | None, Numbers("m", least=0)] = None
    variance: Annotated[NDArray[np.float64] | None, Numbers("m", least=0)] = None
    mean: Annotated[NDArray[np.float64] | None, Numbers("mv")] = None
    deviation: Annotated[NDArray[np.float64] | None, Numbers("mv", least=0)] = None

    @property
    def n(self) -> int:
        """Number of measures."""
        return len(self.names)

    def codes(self, n_rows: int) -> NDArray[np.int64] | None:
        """Number of the measure of each row of X; None if a row contains all measures."""
        if self.share == "loadings":
            return None
        if n_rows % self.n:
            what = f"one row per person for each of {', '.join(self.names)}, one measure after the other"
            raise ArgumentError("X", Phrase(counted(n_rows, "row")), what)
        return np.repeat(np.arange(self.n), n_rows // self.n)

    def check_people(self, n_rows: int) -> None:
        """Raise an error for a single person, whose rows of several measures would look like
        several people.
        """
        if self.share == "maps" and n_rows // self.n < 2:
            raise ArgumentError(
                "X",
                None,
                "X has 1 person with all measures; fit needs at least 2 (transform takes one)",
            )

    def center(self, center: str, asked: str, method: Any) -> str:
        """Centering of each measure: `center` of the model, or "zscore" if the scale is."""
        if self.scale != "zscore":
            return center
        if "zscore" not in method.scheme.centers:
            text = f"{{scale='zscore'}} makes values negative, which {{method={method.name!r}}} cannot factorize; use "
            raise ArgumentError("scale", None, text + "{scale='variance'}, or {method='parts'}")
        if asked not in ("auto", "zscore"):
            raise ArgumentError(
                "center",
                None,
                f"{{center='{asked}'}} contradicts {{scale='zscore'}}: leave one out",
            )
        return "zscore"

    def people(
        self, participants: Mapping[str, Any], subjects: Sequence[str]
    ) -> tuple[Mapping[str, Any], list[str]]:
        """Table and names of the people, each once, from those of the rows of X."""
        names = list(subjects)
        if self.share == "loadings" or self.n == 1:
            return participants, names
        self.codes(n_rows := len(names))
        names = [name.removesuffix(f"_{self.names[0]}") for name in names[: n_rows // self.n]]
        return {
            name: values[: len(names)] if len(values) == n_rows else values
            for name, values in participants.items()
        }, names

    def arrangement(self, sites: Sites) -> Arrangement:
        """Return how the measures lie in maps on these sites."""
        if self.n == 1:
            return Arrangement()
        if self.share == "maps":
            return Arrangement(n_stacked=self.n, names=self.names)
        return Arrangement(site_measure=sites.measure, names=self.names)

    @property
    def plain(self) -> bool:
        """Whether values are neither scaled nor weighted."""
        return self.scale == "none" and bool((self.weights == 1).all())

    @property
    def as_plain(self) -> Measures:
        """The same measures, for values that are already scaled and weighted."""
        return replace(self, scale="none", weights=np.ones(self.n))

    def factors(
        self, variance: NDArray[Any], n: int, n_sites: float, center: str
    ) -> NDArray[np.float64]:
        """Factor of each measure, from its Σ (x − mean)² and the numbers of people and sites."""
        if self.scale != "variance" or center == "zscore":
            return np.sqrt(self.weights)
        if (variance <= 0).any():
            who = literal(self.names[int(np.argmin(variance))])
            raise ArgumentError(
                "X",
                None,
                f"{who.capitalize()} is the same in all people, so it has no variance to scale by",
            )
        return np.asarray(np.sqrt(self.weights * max(1, n - 1) * n_sites / variance))

    def split(self, values: Any) -> dict[str, Any]:
        """Split loadings (shared maps) or maps (shared loadings) into those of each measure: a dict
        by name.
        """
        axis = 0 if self.share == "maps" else -1
        return dict(zip(self.names, np.split(np.asarray(values), self.n, axis=axis), strict=True))

    def maps(self, components: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Maps of each measure in its own units, for a loading of 1 (in standard deviations for
        z-scores): a dict by name.
        """
        each = (
            self.split(components)
            if self.share == "loadings"
            else dict.fromkeys(self.names, components)
        )
        factor = np.ones(self.n) if self.factor is None else self.factor
        return {name: each[name] / by for name, by in zip(self.names, factor, strict=True)}

    @property
    def record(self) -> dict[str, Any]:
        """Record for the provenance and the work folder."""
        weights = dict(zip(self.names, map(float, self.weights), strict=True))
        return {
            "names": list(self.names),
            "share": self.share,
            "scale": self.scale,
            "weights": weights,
        }

    @property
    def warning(self) -> str:
        """A warning if one measure dominates the others; "" otherwise, and if weights were given."""
        if (
            self.variance is None
            or self.n < 2
            or self.variance.max() <= DOMINANT
            or np.ptp(self.weights)
        ):
            return ""
        largest = int(self.variance.argmax())
        share = f"{self.names[largest]} has {min(100 * self.variance[largest], 99.9):.3g} % of the variance of all measures"
        scale = "Scale the measures (scale='variance', --scale variance) to weight them equally"
        return f"{share}: the components mostly describe it. {scale}"


def measures_of(X: Any) -> Measures | None:
    """How the measures of a joined cohort lie in its X; None for all others."""
    found = getattr(X, "measures", None)
    return found if isinstance(found, Measures) else None


def check_measures(found: Measures | None, fitted: Measures | None) -> None:
    """Refuse a cohort that is not joined as that of a fit was."""
    key = lambda one: None if one is None else (one.names, one.share)
    if key(found) != key(fitted):
        said = lambda one: (
            "one measure" if one is None else f"{' and '.join(one.names)} with shared {one.share}"
        )
        raise ArgumentError(
            "X", Phrase(said(found)), f"as for the fit, {literal(said(fitted))}: see join_measures"
        )


def people_of_rows(
    X: Any, participants: Mapping[str, Any], subjects: Sequence[str]
) -> tuple[Mapping[str, Any], list[str]]:
    """Table and names of the people in the rows of X, or of what a plan or a fit says of it; see
    `Measures.people`.
    """
    measures = X if isinstance(X, Measures) else measures_of(X)
    return (
        (participants, list(subjects))
        if measures is None
        else measures.people(participants, subjects)
    )


@dataclass(frozen=True, eq=False)
class Arrangement:
    """How several measures lie in one matrix, for steps that treat each measure by itself.

    Attributes
    ----------
    n_stacked : number of measures that lie below each other: rows of one after those of another
    site_measure : (n_sites,) measure of each site, if measures lie side by side
    names : of the measures, if there are several
    """

    n_stacked: int = 1
    site_measure: NDArray[np.int64] | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, X: Any) -> Arrangement:
        """Return the arrangement of the measures of a cohort, joined or not."""
        measures = measures_of(X)
        return cls() if measures is None else measures.arrangement(X.sites)

    def each_measure(
        self, maps: Maps, mask: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[Maps, NDArray[np.int64]]]:
        """Yield the maps of each measure at sites in use, and the positions of these sites.

        Positions count the sites of one measure after those of another, however the measures lie.
        """
        in_use = np.ones(maps.n_sites, dtype=bool) if mask is None else mask
        if self.site_measure is not None:
            for number in np.unique(self.site_measure):
                sites = np.flatnonzero(in_use & (self.site_measure == number))
                yield maps.subset(sites=sites), sites
            return
        sites = np.flatnonzero(in_use)
        n_people = maps.n_subjects // self.n_stacked
        for number in range(self.n_stacked):
            people = slice(number * n_people, (number + 1) * n_people)
            yield maps.subset(people, sites), number * maps.n_sites + sites

    def stack(self, values: np.ndarray | None) -> np.ndarray | None:
        """Turn rows over the sites of all measures into rows for each measure that is stacked."""
        if values is None or self.n_stacked == 1:
            return values
        n_rows = len(values)
        each = values.reshape(n_rows, self.n_stacked, -1).swapaxes(0, 1)
        return each.reshape(self.n_stacked * n_rows, -1)

    def regressors(self, Z: np.ndarray) -> np.ndarray:
        """Return regressors of people as those of rows: each measure has effects of its own."""
        return np.kron(np.eye(self.n_stacked), Z)

    def codes(self, codes: np.ndarray | None, n_codes: int, n_people: int) -> np.ndarray | None:
        """Return codes of people as those of rows: each measure has codes of its own."""
        if self.n_stacked == 1:
            return codes
        own = np.zeros(n_people, dtype=np.int64) if codes is None else codes
        return np.concatenate([number * n_codes + own for number in range(self.n_stacked)])


@dataclass(frozen=True, eq=False, repr=False)
class JoinedCohort:
    """Several measures of the same people, the result of `join_measures`. It has the attributes of
    `Cohort`.

    Attributes
    ----------
    cohorts : dict
        Measure → its cohort, all with the same people in the same order.
    measures : Measures
        How the measures are arranged in X.
    left_out : dict
        People who lack a measure → the measures they lack.
    X : array-like
        With shared maps, one row per person and measure: all people of the first measure, then
        those of the second. With shared loadings, one row per person: all sites of the first
        measure, then those of the second.
    subjects, participants : tuple of str, dict
        One entry per row of X; rows of shared maps are named after person and measure.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> joined = ico.join_measures({"one": cohort, "other": cohort[:19]}, share="maps", missing="skip")
    >>> joined.X.shape, joined.left_out
    ((38, 642), {'sub-0020': ('other',)})
    """

    cohorts: Mapping[str, Any]
    measures: Measures
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def _first(self) -> Any:
        return next(iter(self.cohorts.values()))

    @cached_property
    def X(self) -> Maps:
        """Maps of all measures."""
        axis = "subjects" if self.measures.share == "maps" else "sites"
        parts = tuple(maps_of(cohort.X) for cohort in self.cohorts.values())
        return Maps(parts, joined=axis)

    @cached_property
    def subjects(self) -> tuple[str, ...]:
        """Names of the rows of X."""
        names = self._first.subjects
        if self.measures.share == "loadings":
            return tuple(names)
        return tuple(f"{name}_{measure}" for measure in self.measures.names for name in names)

    @cached_property
    def participants(self) -> Mapping[str, Any]:
        """Column → one value per row of X."""
        table = _one_table(self.cohorts)
        if self.measures.share == "loadings":
            return table
        persons, m = People.of(self._first.subjects, table).persons, self.measures.n
        tiled = {
            name: np.tile(np.asarray(values), m) for name, values in table.items() if name != PERSON
        }
        rows = np.repeat(np.array(self.measures.names), len(persons))
        return {PERSON: np.tile(np.array(persons), m), MEASURE: rows, **tiled}

    @cached_property
    def sites(self) -> Sites:
        """Positions of the columns of X."""
        sites: Sites = self._first.sites
        return sites if self.measures.share == "maps" else sites.repeated(self.measures.n)

    @cached_property
    def mask(self) -> NDArray[np.bool_] | None:
        """True for columns in use; None for all."""
        masks = [one.mask for one in self.cohorts.values()]
        if all(mask is None for mask in masks):
            return None
        whole = [
            np.ones(self._first.sites.n, dtype=bool) if mask is None else mask for mask in masks
        ]
        return (
            np.logical_and.reduce(whole) if self.measures.share == "maps" else np.concatenate(whole)
        )

    @property
    def hemisphere(self) -> str:
        """Hemisphere of the maps."""
        return str(self._first.hemisphere)

    hemi = hemisphere

    @property
    def modality(self) -> str:
        """Names of the measures."""
        *others, last = self.measures.names
        return f"{', '.join(others)} and {last}" if others else last

    @property
    def units(self) -> str:
        """Units of the joined maps."""
        alike = self.measures.plain and len(set(self.measures.units)) == 1
        return self.measures.units[0] if alike else ""

    truth = None

    @property
    def provenance(self) -> dict[str, Any]:
        """Provenance of all measures, and how they were joined."""
        known = {name: dict(one.provenance) for name, one in self.cohorts.items()}
        left_out = {"without all measures": list(self.left_out)} if self.left_out else {}
        return {
            "simulated": self.simulated,
            "joined": self.measures.record,
            "left_out": left_out,
            "measures": known,
        }

    @property
    def simulated(self) -> bool:
        """Whether the maps are simulated."""
        return any(bool(one.provenance.get("simulated", False)) for one in self.cohorts.values())

    def __getitem__(self, which: Any) -> JoinedCohort:
        """Some rows: by a mask, row numbers, a slice, or names. Of shared maps, the same people of
        every measure.
        """
        rows = np.array(subject_rows(self.subjects, which))
        if self.measures.share == "maps":
            n = len(self._first.subjects)
            each = [rows[rows // n == number] - n * number for number in range(self.measures.n)]
            if any(not np.array_equal(each[0], other) for other in each[1:]):
                raise ArgumentError(
                    "which", None, "the same people in the same order for every measure"
                )
            rows = each[0]
        return replace(self, cohorts={name: one[rows] for name, one in self.cohorts.items()})

    __iter__ = None  # a cohort is not a sequence of cohorts

    def __len__(self) -> int:
        return len(self.subjects)

    def __repr__(self) -> str:
        shared = (
            "one set of maps"
            if self.measures.share == "maps"
            else "one loading per person and component"
        )
        each = "\n  ".join(repr(one) for one in self.cohorts.values())
        left = f"; left out: {some(list(self.left_out), 10)}" if self.left_out else ""
        return f"{counted(self.measures.n, 'measure')} with {shared}{left}:\n  {each}"


def join_measures(
    measures: Mapping[str, Any],
    share: str,
    scale: str = "none",
    weights: Mapping[str, float] | None = None,
    missing: str = "raise",
) -> JoinedCohort:
    """Join several measures of the same people into one cohort.

    `CorticalFactorization` and all functions that take a cohort accept the result. Centering,
    `scale` and `weights` are applied to each measure by itself and estimated from the fitted
    people, also within halves, folds and resamples. The model keeps them.

    Parameters
    ----------
    measures : mapping of str to Cohort
        Measure → its cohort, in memory or stored. All must be on one mesh; people are matched by
        name.
    share : {"maps", "loadings"}
        What the measures have in common. "maps": one set of maps, with a loading per person,
        component and measure. "loadings": one loading per person and component, with maps of each
        measure.
    scale : {"none", "variance", "zscore"}, default="none"
        Whether to divide each measure by the root of its total variance, or each site by its
        standard deviation (not for non-negative factorizations). Measures in different units need
        one of these.
    weights : mapping of str to float, default=None
        Weight of the squared error of each measure; 1 if not given.
    missing : {"raise", "skip"}, default="raise"
        Whether people who lack a measure are an error, or left out and listed in `left_out`.

    Returns
    -------
    JoinedCohort

    Examples
    --------
    >>> import icofactor as ico
    >>> a, b = (ico.simulate_cohort(20, 3, kind, mesh="fsaverage3") for kind in ("thickness", "myelin"))
    >>> joined = ico.join_measures({"thickness": a, "myelin": b}, share="maps", scale="variance")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(joined)
    >>> model.loadings_.shape, model.components_.shape
    ((40, 3), (3, 642))
    >>> model.measures_.split(model.loadings_)["myelin"].shape
    (20, 3)
    """
    check_value("share", share, OneOf(SHARES))
    check_value("scale", scale, OneOf(SCALES))
    check_value("missing", missing, OneOf(("raise", "skip")))
    _check(measures, share)
    units = tuple(str(getattr(one, "units", "")) for one in measures.values())
    joint = Measures(tuple(measures), units, share, scale, _weights(weights, tuple(measures)))  # type: ignore[arg-type]
    cohorts, left_out = _matched(measures, missing)
    return JoinedCohort(cohorts, joint, left_out)


def _check(measures: Any, share: str) -> None:
    """Refuse what are not cohorts of one mesh and hemisphere under names that files may have."""
    if not isinstance(measures, Mapping) or not measures:
        found = "none" if isinstance(measures, Mapping) else type(measures).__name__
        raise ArgumentError(
            "measures", Phrase(found), "name → cohort, e.g. {{'thickness': cohort}}"
        )
    for name, one in measures.items():
        if not isinstance(name, str) or not re.fullmatch("[0-9A-Za-z]+", name):
            raise ArgumentError(
                "measures", name, "names of letters and digits, because file names contain them"
            )
        if twice := [
            other for other in measures if other != name and str(other).lower() == name.lower()
        ]:
            expected = "names that differ in more than case: on Windows and macOS their files would be the same"
            raise ArgumentError("measures", [name, *twice], expected)
        if not all(
            hasattr(one, part) for part in ("subjects", "sites", "X", "participants", "provenance")
        ):
            raise ArgumentError(
                "measures", Phrase(f"a {type(one).__name__} as {name!r}"), "cohorts"
            )
        if getattr(one.X, "adjustments", ()) or measures_of(one) is not None:
            what = "unadjusted cohorts: join them first, then regress out covariates and scanners"
            raise ArgumentError(
                "measures", Phrase(f"{name!r}, which is joined or adjusted already"), what
            )
        if share == "maps" and MEASURE in one.participants:
            what = f"tables without a column {MEASURE!r}, which icofactor adds"
            raise ArgumentError("measures", Phrase(f"one in {name!r}"), what)
    check_sites_alike(measures)


def check_sites_alike(measures: Mapping[str, Any]) -> None:
    """Refuse cohorts, by whichever names, that are not on one mesh."""
    (first, reference), *others = measures.items()
    for name, one in others:
        if one.hemisphere == reference.hemisphere and same_sites(one.sites, reference.sites):
            continue
        mesh = mesh_name_of(reference.sites)
        if reference.sites.regions is not None or one.sites.regions is not None:
            lost = only_in_one(reference.sites.regions, one.sites.regions)
            remedy = (
                "give both in the same regions, in one order"
                if lost is None
                else (
                    f"only one has a region {literal(lost)}: name regions alike, or give their atlas ({{parcels}})"
                )
            )
        elif mesh_name_of(one.sites) != mesh:
            remedy = f"resample one first (icofactor prepare INPUT -o STORE --resample-to {literal(mesh)})"
        elif one.hemisphere != reference.hemisphere:
            remedy = "read the same hemispheres of both ({hemisphere='left'})"
        else:
            remedy = "their vertices lie elsewhere or in another order, so resample one first"
        on = [
            f"{literal(n)} is on {literal(_place(c))}" for n, c in ((first, reference), (name, one))
        ]
        raise ArgumentError(
            "measures", None, f"Measures must be on one mesh: {', '.join(on)}; {remedy}"
        )


def _place(cohort: Any) -> str:
    sites, side = cohort.sites, cohort.hemisphere
    where = (
        mesh_name_of(sites) if sites.regions is None else f"{sites.n} regions of {sites.regions}"
    )
    return f"{where} ({'both hemispheres' if side == 'both' else f'{side} hemisphere'})"


def _matched(
    measures: Mapping[str, Any], missing: str
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """The cohorts of the people who have every measure, in the order of the first; who lacks which."""
    rows: dict[str, dict[str, int]] = {}
    everyone: dict[str, str] = {}
    for name, one in measures.items():
        keys = list(map(bare, one.subjects))
        rows[name] = {key: row for row, key in enumerate(keys)}
        if len(rows[name]) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            same = [str(who) for who, key in zip(one.subjects, keys, strict=True) if key == twice]
            what = f"{literal(name.capitalize())} has {literal(' and '.join(same))}, which are one person in other "
            raise ArgumentError("measures", None, what + "measures: rename them")
        everyone |= {
            key: str(who)
            for key, who in zip(keys, one.subjects, strict=True)
            if key not in everyone
        }
    lacks = {
        who: tuple(name for name in rows if key not in rows[name]) for key, who in everyone.items()
    }
    left_out = {who: lacking for who, lacking in lacks.items() if lacking}
    if len(left_out) == len(everyone):
        raise ArgumentError(
            "measures", None, "The measures have no person in common: names of people must agree"
        )
    if left_out and missing == "raise":
        listed = some([f"{who} ({', '.join(lacking)})" for who, lacking in left_out.items()], 10)
        what = (
            f"Some people lack a measure, {len(left_out)} of {len(everyone)}: {literal(listed)}; "
        )
        raise ArgumentError("missing", None, what + "{missing='skip'} leaves them out")
    kept = [key for key in next(iter(rows.values())) if everyone[key] not in left_out]
    chosen = {name: [rows[name][key] for key in kept] for name in measures}
    whole = {name: chosen[name] == list(range(len(one.subjects))) for name, one in measures.items()}
    return {
        name: one if whole[name] else one[chosen[name]] for name, one in measures.items()
    }, left_out


def _weights(weights: Any, names: tuple[str, ...]) -> NDArray[np.float64]:
    given = {} if weights is None else weights
    if not isinstance(given, Mapping):
        raise ArgumentError("weights", Phrase(type(given).__name__), "measure → number")
    for name, value in given.items():
        if name not in names:
            raise ArgumentError("weights", name, f"of the measures {literal(', '.join(names))}")
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
            value, bool
        )
        if not number or not 0 < value < np.inf:
            raise ArgumentError(
                "weights", Phrase(f"{value!r} for {literal(name)}"), "numbers above 0"
            )
    return np.array([float(given.get(name, 1.0)) for name in names])


def _one_table(cohorts: Mapping[str, Any]) -> dict[str, Any]:
    """The participants' tables as one; a column that another measure's table holds otherwise is
    named after that.
    """
    (_, first), *others = cohorts.items()
    table = dict(first.participants)
    for measure, one in others:
        for name, values in one.participants.items():
            if name == PERSON and name in table:
                continue
            same = name in table and list(map(str, table[name])) == list(map(str, values))
            if not same:
                table[f"{name}_{measure}" if name in table else name] = values
    return table
