"""Several measures of the same people as one cohort: one set of maps, or of loadings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.checks import Number, OneOf, check_value
from icofactor.cohort.cohort import subject_rows
from icofactor.cohort.people import MEASURE, PERSON, People, bare
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, plural, shown
from icofactor.io.records import Numbers, plain_signature
from icofactor.maps.maps import Maps, maps_of
from icofactor.sphere.meshes import same_sites
from icofactor.sphere.names import mesh_name_of
from icofactor.sphere.parcels import only_in_one
from icofactor.sphere.sites import Sites

SHARES = ("maps", "loadings")
SCALES = ("none", "variance", "zscore")
# A measure with a larger share of the fitted variance leaves little to the others.
DOMINANT = 0.8
# What `join_measures` needs of a cohort.
_COHORT = ("subjects", "sites", "X", "participants", "provenance")


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
    >>> a = ico.simulate_cohort(20, 3, "thickness", mesh="fsaverage3")
    >>> b = ico.simulate_cohort(20, 3, "myelin", mesh="fsaverage3")
    >>> measures = {"thickness": a, "myelin": b}
    >>> joined = ico.join_measures(measures, share="loadings", scale="variance")
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
        # Rows of shared maps are complete blocks, one for each measure.
        if n_rows % self.n:
            text = f"must have one row per person for each of {', '.join(self.names)}"
            raise ArgumentError("X", f"{text}; found {plural(n_rows, 'row')}")
        return np.repeat(np.arange(self.n), n_rows // self.n)

    def check_people(self, n_rows: int) -> None:
        """Raise an error for one person, whose rows would look like several people."""
        if self.share == "maps" and n_rows // self.n < 2:
            text = "has 1 person with all measures; fit needs at least 2 (transform takes one)"
            raise ArgumentError("X", text)

    def center(
        self,
        center: str,
        asked: str,
        method: Any,
    ) -> str:
        """Return the centering of each measure: that of the model, or "zscore" if the scale is."""
        if self.scale != "zscore":
            return center
        if "zscore" not in method.scheme.centers:
            text = f"'zscore' makes values negative, which method {method.name!r} cannot factorize"
            raise ArgumentError("scale", f"{text}; use 'variance', or method 'parts'")
        # The scale fixes the centering, so another one cannot be asked for.
        if asked not in ("auto", "zscore"):
            text = f"{asked!r} contradicts --scale zscore (scale='zscore'); leave one out"
            raise ArgumentError("center", text)
        return "zscore"

    def people(
        self,
        participants: Mapping[str, Any],
        subjects: Sequence[str],
    ) -> tuple[Mapping[str, Any], list[str]]:
        """Return table and names of the people, from those of the rows of X."""
        rows = list(subjects)
        if self.share == "loadings" or self.n == 1:
            return participants, rows
        self.codes(len(rows))
        n_people = len(rows) // self.n
        names = [name.removesuffix(f"_{self.names[0]}") for name in rows[:n_people]]
        table = {
            column: values[:n_people] if len(values) == len(rows) else values
            for column, values in participants.items()
        }
        return table, names

    def arrangement(self, sites: Sites) -> Arrangement:
        """Return how the measures lie in maps on these sites."""
        if self.n == 1:
            return Arrangement()
        if self.share == "maps":
            return Arrangement(n_stacked=self.n, names=self.names)
        return Arrangement(site_measure=sites.copy, names=self.names)

    @property
    def plain(self) -> bool:
        """Whether values are neither scaled nor weighted."""
        return self.scale == "none" and bool((self.weights == 1).all())

    def factors(
        self,
        variance: NDArray[Any],
        n: int,
        n_sites: float,
        center: str,
    ) -> NDArray[np.float64]:
        """Return the factor of each measure.

        `variance` is Σ (x − mean)² of each measure, for n people and n_sites sites.
        """
        if self.scale != "variance" or center == "zscore":
            return np.sqrt(self.weights)
        # A constant measure would be divided by zero.
        if (variance <= 0).any():
            name = self.names[int(np.argmin(variance))]
            raise ArgumentError("X", f"{name} is the same in all people: no variance to scale by")
        factors: NDArray[np.float64] = np.sqrt(self.weights * max(1, n - 1) * n_sites / variance)
        return factors

    def split(self, values: Any) -> dict[str, Any]:
        """Split loadings (shared maps) or maps (shared loadings): measure → its own."""
        # Shared maps have rows of each measure, shared loadings columns.
        axis = 0 if self.share == "maps" else -1
        return dict(zip(self.names, np.split(np.asarray(values), self.n, axis=axis), strict=True))

    def maps(self, components: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the maps of each measure in its units, for a loading of 1: measure → maps.

        Maps of z-scores are in standard deviations.
        """
        if self.share == "loadings":
            maps = self.split(components)
        else:
            maps = dict.fromkeys(self.names, components)
        factors = np.ones(self.n) if self.factor is None else self.factor
        return {name: maps[name] / factor for name, factor in zip(self.names, factors, strict=True)}

    @property
    def record(self) -> dict[str, Any]:
        """Record for the provenance and the work folder."""
        return {
            "names": list(self.names),
            "share": self.share,
            "scale": self.scale,
            "weights": dict(zip(self.names, map(float, self.weights), strict=True)),
        }

    @property
    def warning(self) -> str:
        """A warning if one measure dominates the others, unless weights were given; else ""."""
        if self.variance is None or self.n < 2:
            return ""
        # Weights that the user gave are meant so.
        if self.variance.max() <= DOMINANT or np.ptp(self.weights):
            return ""
        largest = int(self.variance.argmax())
        percent = f"{min(100 * self.variance[largest], 99.9):.3g} %"
        return (
            f"{self.names[largest]} has {percent} of the variance of all measures: the components "
            "mostly describe it. Scale the measures (scale='variance', --scale variance) to weight "
            "them equally"
        )


def measures_of(X: Any) -> Measures | None:
    """Return how measures are joined in a cohort; None if they are not."""
    measures = getattr(X, "measures", None)
    return measures if isinstance(measures, Measures) else None


def check_measures(
    measures: Measures | None,
    fitted: Measures | None,
) -> None:
    """Raise an error for a cohort that is not joined as that of a fit was."""
    if _summary(measures) != _summary(fitted):
        text = f"has {_summary(measures)}; the fit had {_summary(fitted)}: see join_measures"
        raise ArgumentError("X", text)


def _summary(measures: Measures | None) -> str:
    if measures is None:
        return "one measure"
    return f"{' and '.join(measures.names)} with shared {measures.share}"


def people_of_rows(
    X: Any,
    participants: Mapping[str, Any],
    subjects: Sequence[str],
) -> tuple[Mapping[str, Any], list[str]]:
    """Return table and names of the people in rows of X; see `Measures.people`."""
    measures = X if isinstance(X, Measures) else measures_of(X)
    if measures is None:
        return participants, list(subjects)
    return measures.people(participants, subjects)


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
        self,
        maps: Maps,
        mask: NDArray[np.bool_] | None = None,
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
        stacked = values.reshape(n_rows, self.n_stacked, -1).swapaxes(0, 1)
        return stacked.reshape(self.n_stacked * n_rows, -1)

    def regressors(self, Z: np.ndarray) -> np.ndarray:
        """Return regressors of people as those of rows: each measure has effects of its own."""
        return np.kron(np.eye(self.n_stacked), Z)

    def codes(
        self,
        codes: np.ndarray | None,
        n_codes: int,
        n_people: int,
    ) -> np.ndarray | None:
        """Return codes of people as those of rows: each measure has codes of its own."""
        if self.n_stacked == 1:
            return codes
        codes = np.zeros(n_people, dtype=np.int64) if codes is None else codes
        return np.concatenate([number * n_codes + codes for number in range(self.n_stacked)])


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
    >>> measures = {"one": cohort, "other": cohort[:19]}
    >>> joined = ico.join_measures(measures, share="maps", missing="skip")
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
        table = _joined_table(self.cohorts)
        measures = self.measures
        if measures.share == "loadings":
            return table
        persons = People.of(self._first.subjects, table).persons
        columns = {
            PERSON: np.tile(np.array(persons), measures.n),
            MEASURE: np.repeat(np.array(measures.names), len(persons)),
        }
        for name, values in table.items():
            if name != PERSON:
                columns[name] = np.tile(np.asarray(values), measures.n)
        return columns

    @cached_property
    def sites(self) -> Sites:
        """Positions of the columns of X."""
        sites: Sites = self._first.sites
        return sites if self.measures.share == "maps" else sites.repeated(self.measures.n)

    @cached_property
    def mask(self) -> NDArray[np.bool_] | None:
        """True for columns in use; None for all."""
        masks = [cohort.mask for cohort in self.cohorts.values()]
        if all(mask is None for mask in masks):
            return None
        n_sites = self._first.sites.n
        # A measure without a mask uses all sites.
        masks = [np.ones(n_sites, dtype=bool) if mask is None else mask for mask in masks]
        if self.measures.share == "maps":
            return np.logical_and.reduce(masks)
        return np.concatenate(masks)

    @property
    def hemisphere(self) -> str:
        """Hemisphere of the maps."""
        return str(self._first.hemisphere)

    hemi = hemisphere

    @property
    def modality(self) -> str:
        """Names of the measures."""
        *first, last = self.measures.names
        return f"{', '.join(first)} and {last}" if first else last

    @property
    def units(self) -> str:
        """Units of the joined maps."""
        alike = self.measures.plain and len(set(self.measures.units)) == 1
        return self.measures.units[0] if alike else ""

    truth = None

    @property
    def provenance(self) -> dict[str, Any]:
        """Provenance of all measures, and how they were joined."""
        left_out = {"without all measures": list(self.left_out)} if self.left_out else {}
        return {
            "simulated": self.simulated,
            "joined": self.measures.record,
            "left_out": left_out,
            "measures": {name: dict(cohort.provenance) for name, cohort in self.cohorts.items()},
        }

    @property
    def simulated(self) -> bool:
        """Whether the maps are simulated."""
        return any(cohort.provenance.get("simulated", False) for cohort in self.cohorts.values())

    def __getitem__(self, which: Any) -> JoinedCohort:
        """Some rows: by a mask, row numbers, a slice, or names.

        Of shared maps, the same people of every measure.
        """
        rows = np.array(subject_rows(self.subjects, which))
        if self.measures.share == "maps":
            n = len(self._first.subjects)
            people = [rows[rows // n == number] % n for number in range(self.measures.n)]
            # Row r of a measure is row n + r of the next.
            if any(not np.array_equal(people[0], numbers) for numbers in people[1:]):
                text = "must choose the same people in the same order for every measure"
                raise ArgumentError("which", text)
            rows = people[0]
        return replace(self, cohorts={name: cohort[rows] for name, cohort in self.cohorts.items()})

    __iter__ = None  # a cohort is not a sequence of cohorts

    def __len__(self) -> int:
        return len(self.subjects)

    def __repr__(self) -> str:
        shared = "one set of maps"
        if self.measures.share == "loadings":
            shared = "one loading per person and component"
        cohorts = "\n  ".join(map(repr, self.cohorts.values()))
        left_out = f"; left out: {some(self.left_out, 10)}" if self.left_out else ""
        return f"{plural(self.measures.n, 'measure')} with {shared}{left_out}:\n  {cohorts}"


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
    >>> a = ico.simulate_cohort(20, 3, "thickness", mesh="fsaverage3")
    >>> b = ico.simulate_cohort(20, 3, "myelin", mesh="fsaverage3")
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
    problems = [f"must be name → cohort, as {{'thickness': cohort}}; found {shown(measures)}"]
    if isinstance(measures, Mapping) and measures:
        problems = [
            _problem_of_name(name, measures) or _problem_of_cohort(name, cohort, share)
            for name, cohort in measures.items()
        ]
    for problem in filter(None, problems):
        raise ArgumentError("measures", problem)
    check_sites_alike(measures)
    names = tuple(measures)
    units = tuple(str(getattr(cohort, "units", "")) for cohort in measures.values())
    numbers = _check_weights(weights, names)
    joint = Measures(names, units, share, scale, numbers)  # type: ignore[arg-type]
    cohorts, left_out = _match_people(measures, missing)
    return JoinedCohort(cohorts, joint, left_out)


def _problem_of_name(
    name: Any,
    measures: Mapping[str, Any],
) -> str:
    """Say why the names of files cannot contain the name of a measure; "" if they can."""
    if not isinstance(name, str) or not re.fullmatch("[0-9A-Za-z]+", name):
        text = "names must be letters and digits, because file names contain them"
        return f"{text}; found {shown(name)}"
    # Files are named after measures.
    if sum(name.lower() == str(other).lower() for other in measures) > 1:
        text = f"the name {name!r} differs from another one only in case"
        return f"{text}, so files would be the same on Windows and macOS"
    return ""


def _problem_of_cohort(
    name: str,
    cohort: Any,
    share: str,
) -> str:
    """Say why something is not a cohort, or cannot be joined; "" if it can."""
    # Stored, joined and adjusted cohorts are all accepted.
    if not all(hasattr(cohort, attribute) for attribute in _COHORT):
        return f"{name!r} is no cohort but a {type(cohort).__name__}"
    # Adjustments are estimated per measure, after joining.
    if getattr(cohort.X, "adjustments", ()) or measures_of(cohort) is not None:
        text = f"{name!r} is joined or adjusted already: join measures first"
        return f"{text}, then regress out covariates and scanners"
    if share == "maps" and MEASURE in cohort.participants:
        return f"the table of {name!r} has a column {MEASURE!r}, which icofactor adds; rename it"
    return ""


def check_sites_alike(measures: Mapping[str, Any]) -> None:
    """Raise an error for cohorts that are not on one mesh."""
    (first, reference), *following = measures.items()
    for name, cohort in following:
        is_same_side = cohort.hemisphere == reference.hemisphere
        if is_same_side and same_sites(cohort.sites, reference.sites):
            continue
        region = only_in_one(reference.sites.regions, cohort.sites.regions)
        mesh = mesh_name_of(reference.sites)
        remedy = f"resample one first (icofactor prepare INPUT -o STORE --resample-to {mesh})"
        if region is not None:
            remedy = f"only one has a region {region}: give their atlas with --parcels (parcels=)"
        elif not is_same_side:
            remedy = "read the same hemisphere of both with --hemisphere (hemisphere=)"
        text = f"must be on one mesh: {first} is on {_describe_sites(reference)}, {name} on"
        raise ArgumentError("measures", f"{text} {_describe_sites(cohort)}; {remedy}")


def _describe_sites(cohort: Any) -> str:
    return f"{cohort.sites.regions or mesh_name_of(cohort.sites)} (hemisphere {cohort.hemisphere})"


def _match_people(
    measures: Mapping[str, Any],
    missing: str,
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return the cohorts of the people with every measure, and who lacks which.

    People are in the order of the first measure.
    """
    rows = {name: _rows_by_person(name, cohort) for name, cohort in measures.items()}
    subjects = [str(subject) for cohort in measures.values() for subject in cohort.subjects]
    # The name of a person is that of the first measure that has it.
    names = {bare(subject): subject for subject in reversed(subjects)}
    # All that somebody lacks is listed, not only the first measure.
    left_out = {}
    for key in dict.fromkeys(map(bare, subjects)):
        lacking = tuple(measure for measure in rows if key not in rows[measure])
        if lacking:
            left_out[names[key]] = lacking
    if len(left_out) == len(names):
        raise ArgumentError("measures", "have no person in common: names of people must agree")
    if left_out and missing == "raise":
        people = [f"{subject} ({', '.join(lacking)})" for subject, lacking in left_out.items()]
        text = f"{len(left_out)} of {len(names)} people lack a measure: {some(people, 10)}"
        raise ArgumentError("missing", f"{text}; --missing skip (missing='skip') leaves them out")
    common = [key for key in next(iter(rows.values())) if names[key] not in left_out]
    cohorts = {}
    for name, cohort in measures.items():
        chosen = [rows[name][key] for key in common]
        # A whole cohort is not copied.
        is_whole = chosen == list(range(len(cohort.subjects)))
        cohorts[name] = cohort if is_whole else cohort[chosen]
    return cohorts, left_out


def _rows_by_person(
    measure: str,
    cohort: Any,
) -> dict[str, int]:
    """Return the row of each person of a cohort, by name without "sub-"."""
    names = [bare(subject) for subject in cohort.subjects]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        text = f"{measure} has {some(repeated)} with and without 'sub-', one person elsewhere"
        raise ArgumentError("measures", f"{text}: rename them")
    return {name: row for row, name in enumerate(names)}


def _check_weights(
    weights: Any,
    names: tuple[str, ...],
) -> NDArray[np.float64]:
    """Return the weight of each measure."""
    weights = {} if weights is None else weights
    if not isinstance(weights, Mapping) or not set(weights) <= set(names):
        text = f"must be measure → number, for {', '.join(names)}"
        raise ArgumentError("weights", f"{text}; found {shown(weights)}")
    for weight in weights.values():
        check_value("weights", weight, Number(positive=True))
    return np.array([float(weights.get(name, 1.0)) for name in names])


def _joined_table(cohorts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the participants' tables as one.

    A column with other values than that of an earlier measure is named after its measure.
    """
    table: dict[str, Any] = {}
    for measure, cohort in cohorts.items():
        for name, values in cohort.participants.items():
            if name not in table:
                table[name] = values
            # Names of people may be written with sub- in one table and without in another.
            elif name != PERSON and list(map(str, table[name])) != list(map(str, values)):
                table[f"{name}_{measure}"] = values
    return table
