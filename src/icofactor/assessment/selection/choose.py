"""`choose_n_components`: one pass over the data, then many small problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from icofactor.assessment.selection.agreement import (
    MEASURES,
    THIRD_MEASURES,
    combine_strata,
    deal,
    deal_thirds,
    split_halves,
    stability,
    strata_of,
    third_people,
)
from icofactor.assessment.selection.choice import Choice
from icofactor.assessment.selection.data import Coarse, Cohorts, Fitter, gather
from icofactor.assessment.selection.heldout import (
    BLOCK_FOLDS,
    SUBJECT_FOLDS,
    bicross_validation,
    face_groups,
    heldout_full,
    heldout_subjects,
)
from icofactor.assessment.selection.nulls import spun_cohort
from icofactor.assessment.selection.recommend import Evidence, other_good, recommend, spread_of
from icofactor.checks import Whole, check_parameters, check_value
from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.measures import measures_of, people_of_rows
from icofactor.cohort.people import RowGroups, choose_scans
from icofactor.errors import ArgumentError, shown
from icofactor.estimator.inputs import check_executor, check_mask, read_input
from icofactor.estimator.site_weights import weighted_sites
from icofactor.factorization.engines import check_engine
from icofactor.factorization.methods import method_named
from icofactor.maps.workers import in_order, one_blas_thread
from icofactor.preprocessing.adjusted import steps_of
from icofactor.preprocessing.centering import center_of
from icofactor.preprocessing.combat import ComBat, as_combat
from icofactor.preprocessing.confounds import Confounds, unadjusted
from icofactor.progress import Stages

# Numbers of components that are tried by default, as far as subjects and faces allow.
DEFAULT_RANKS = range(2, 21)

# First numbers of the keys of random seeds, by what is drawn, and by what is fitted.
_SPLITS, _FOLDS, _BLOCKS, _NULLS, _NULL_SPLITS, _THIRDS, _NULL_THIRDS = range(7)
_ALL, _HELDOUT, _BICV, _HALVES, _NULL_HALVES, _THIRD_GROUPS, _NULL_THIRD_GROUPS = range(10, 17)

_EXCHANGED = (
    'The positions of the regions are not known, so "rotated maps" here are maps with values '
    "exchanged at random between regions. This destroys the similarity of neighbours, and data "
    "beat it easily: give the atlas (--parcels)."
)


def choose_n_components(
    cohort: Any,
    ranks: Iterable[int] | None = None,
    *,
    n_splits: int = 20,
    n_starts: int = 10,
    n_nulls: int = 10,
    stratify: Sequence[str] = (),
    covariates: Sequence[str] = (),
    harmonize: ComBat | str | None = None,
    fit_on: str | None = None,
    groups: str | Sequence[object] | None = None,
    order: str | None = None,
    method: str = "parts",
    center: str = "auto",
    level: int = 2,
    mesh: Any = None,
    hemi: str | None = None,
    weights: Any = None,
    random_state: int = 0,
    engine: str = "cpu",
    executor: Executor | None = None,
    verbose: bool = False,
) -> Choice:
    """Choose the number of components by the agreement of split halves.

    After one pass over X, all fits are made on the faces of one level of the hierarchy, where a fit
    takes milliseconds. Ranks are compared by the agreement of split halves, relative to cohorts of
    rotated maps. The result also has errors on held-out subjects and blocks, agreement of loadings
    of people whom neither of two fits has seen, and stability over starts.

    Parameters
    ----------
    cohort : Cohort, array of shape (n_subjects, n_sites), or nilearn SurfaceImage
        Maps.
    ranks : iterable of int, optional
        Numbers of components to try, from 2 to half the number of subjects. Default: 2 to 20, or as
        many as the subjects and faces allow.
    n_splits : int, default=20
        Number of random halves of the subjects.
    n_starts : int, default=10
        Random starts of every fit; for "parts" hard starts, of which the best three are compared.
    n_nulls : int, default=10
        Number of cohorts of rotated maps, at least 5, with one split each.
    stratify : sequence of str, optional
        Columns of the participants for which halves and folds are balanced.
    covariates : sequence of str, optional
        Columns of the participants to regress out of the maps, as with `Covariates`.
    harmonize : ComBat or str, optional
        Harmonization, or the column with the scanner; halves and folds are balanced for it.
        Covariates and harmonization are estimated within every half and fold, also if `cohort` is
        already adjusted or harmonized.
    fit_on : {"baseline", "one-per-person", "all"}, optional
        Which scans to use if people have several.
    groups : str or sequence, optional
        Column of the participants, or one label per row: rows that stay together in all splits,
        folds and nulls. Default: the scans of a person.
    order : str, optional
        Column that orders the scans of a person. Default: the session name.
    method : str, default="parts"
        One of `icofactor.METHODS`: the one you will fit.
    center : {"auto", "none", "mean", "zscore"}, default="auto"
        As in `CorticalFactorization`, within every half and fold; z-scores are those of the means
        over faces.
    level : int, default=2
        Level of the faces; 2 gives 320 per hemisphere.
    mesh, hemi, weights
        As in `CorticalFactorization`.
    random_state : int, default=0
        Seed. The numbers of a rank do not depend on the other ranks.
    engine : {"auto", "numpy", "cpu", "jax"}
        As in `CorticalFactorization`.
    executor : concurrent.futures.Executor, optional
        Where passes over the maps run, as in `CorticalFactorization.fit`.
    verbose : bool, default=False
        Whether to show progress.

    Returns
    -------
    Choice

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> choice = ico.choose_n_components(cohort, [2, 3], n_splits=2, n_starts=2, n_nulls=5, level=1)
    >>> choice.table["rank"]
    array([2, 3])
    >>> choice.recommended in (None, 2, 3), len(choice.table["bicv"])
    (True, 2)
    """
    candidates = check_settings(ranks, n_splits, n_starts, n_nulls, random_state, level)
    chosen_method = method_named(method)
    fitted_center = center_of(center, chosen_method.scheme.centers, method)
    check_engine(engine)
    check_executor(executor)
    if steps_of(cohort) and (covariates or harmonize is not None):
        raise ArgumentError("cohort", f"is already {steps_of(cohort)[-1].done}")
    # Arrays name no subjects: only reading tells how many there are.
    n_rows = None
    if subject_names(cohort) is None:
        n_rows = read_input(cohort, mesh, hemi)[0].n_subjects
    scans = choose_scans(cohort, fit_on, groups, order, random_state, n_rows=n_rows)
    cohort, confounds = unadjusted(scans.of(cohort))
    maps, placement = read_input(cohort, mesh, hemi)
    maps = replace(maps, executor=executor)
    sites, weighting = weighted_sites(
        placement.sites, check_mask(placement.mask, placement.sites), weights, placement.hemi
    )
    # The weights count in every mean over a face.
    placement = replace(placement, sites=sites)
    measures = measures_of(cohort)
    if measures is not None:
        fitted_center = measures.center(fitted_center, center, chosen_method)
    n_subjects = maps.n_subjects
    participants = getattr(cohort, "participants", {})
    if covariates or harmonize is not None:
        names = subject_names(cohort) or tuple(map(str, range(n_subjects)))
        table, people = people_of_rows(cohort, participants, names)
        nonnegative = not chosen_method.takes_negative(fitted_center)
        confounds = Confounds.of(table, people, as_combat(harmonize), covariates, nonnegative)
    candidates = check_subjects(candidates, n_subjects, scans.groups, fewer=ranks is None)
    strata = strata_of(participants, list(stratify), n_subjects)
    if confounds is not None and confounds.scans is not None:
        scanners = confounds.scans.codes
        # Every half and fold needs scans of every scanner, or it cannot be harmonized.
        strata = combine_strata(strata, np.tile(scanners, n_subjects // len(scanners)))
    stages = Stages(verbose)
    with one_blas_thread():
        with stages.stage("statistics") as show:
            cohorts = gather(
                cohort, level, chosen_method, show, fitted_center, confounds, (maps, placement)
            )
        # Only now are the faces known that have sites.
        candidates = _check_faces(candidates, cohorts.coarse, fewer=ranks is None)
        search = _Search(
            cohorts,
            Fitter(method, n_starts, random_state, engine),
            candidates,
            n_splits,
            n_nulls,
            strata,
            scans.groups,
        )
        with stages.stage("selection") as show:
            evidence = search.evidence(show)
        recommended, reasons = recommend(evidence)
        if recommended is not None:
            # One rank only: it takes passes over the maps.
            with stages.stage("full size") as show:
                reasons = (*reasons, search.full_resolution_reason(recommended, show))
    if not sites.placed:
        reasons = (*reasons, _EXCHANGED)
    settings = {
        **search.settings,
        "ranks": candidates,
        "stratify": list(stratify),
        **scans.record,
    }
    if weighting is not None:
        settings["weights"] = weighting
    return Choice(
        _table(evidence), recommended, reasons, settings, other_good(evidence, recommended)
    )


def check_settings(
    ranks: Iterable[int] | None,
    n_splits: int,
    n_starts: int,
    n_nulls: int,
    random_state: int,
    level: int,
) -> list[int]:
    """Return the ranks to try, in order; refuse settings that no data would fit."""
    candidates = list(DEFAULT_RANKS if ranks is None else ranks)
    if not candidates or not all(map(Whole(2).accepts, candidates)):
        raise ArgumentError(
            "ranks",
            f"must be whole numbers ≥ 2, such as 2-20 (range(2, 21)); found {shown(candidates)}. "
            "One component is the mean map, on which halves always agree",
        )
    check_parameters(n_splits=n_splits, n_starts=n_starts, n_nulls=n_nulls, level=level)
    check_value("random_state", random_state, Whole(0))
    return sorted({int(rank) for rank in candidates})


def check_subjects(
    ranks: list[int],
    n_subjects: int,
    groups: RowGroups | None = None,
    fewer: bool = False,
) -> list[int]:
    """Return the ranks that halves of the subjects, or of their groups, can hold.

    With `fewer` larger ones are left out, else they are refused. However unequal the groups are,
    each half, and what a fold or block leaves, then has as many rows (`RowGroups.deal`).
    """
    # Groups are not divided, so each half has half of the groups.
    n_units = n_subjects if groups is None else groups.n
    if n_units < 4:
        raise ArgumentError(
            "cohort" if groups is None else "groups",
            f"at least 4 subjects or groups are needed, two in each half; found {n_units}",
        )
    largest = min(n_units, n_subjects) // 2
    return _up_to(ranks, largest, fewer, f"the subjects or groups in half of {n_units}")


def _check_faces(
    ranks: list[int],
    data: Coarse,
    fewer: bool,
) -> list[int]:
    """Return the ranks that the faces can hold: blocks take a third of them out."""
    n_faces = data.stats.n_columns
    largest = (BLOCK_FOLDS - 1) * n_faces // BLOCK_FOLDS
    remedy = "the regions"
    if data.design.sites.regions is None:
        remedy = f"the faces of level {int(data.design.level)}; a higher --level (level) has more"
    return _up_to(
        ranks, largest, fewer and largest >= ranks[0], f"two thirds of {n_faces}, {remedy}"
    )


def _up_to(
    ranks: list[int],
    largest: int,
    fewer: bool,
    reason: str,
) -> list[int]:
    """Return ranks without those that are too large; refuse these unless there may be fewer."""
    usable = [rank for rank in ranks if rank <= largest]
    if usable != ranks and not fewer:
        raise ArgumentError("ranks", f"must be at most {largest}, {reason}; found {ranks[-1]}")
    return usable


Job = tuple[str, Callable[[], np.ndarray]]


@dataclass
class _Search:
    """All fits of a selection, and what they show.

    A job makes what all ranks share, such as a half of the subjects, and fits every rank to it.
    """

    cohorts: Cohorts
    fit: Fitter
    ranks: list[int]
    n_splits: int
    n_nulls: int
    strata: np.ndarray
    groups: RowGroups | None = None

    @property
    def data(self) -> Coarse:
        """The cohort on the faces."""
        return self.cohorts.coarse

    @property
    def settings(self) -> dict[str, Any]:
        """How the numbers of components are compared."""
        settings = {
            "method": self.fit.method,
            "center": self.data.center,
            "level": int(self.data.design.level),
            "n_subjects": self.data.n_subjects,
            "n_faces": self.data.stats.n_columns,
            "n_starts": int(self.fit.n_starts),
            "tol": self.fit.tol,
            "n_splits": int(self.n_splits),
            "n_nulls": int(self.n_nulls),
            "random_state": int(self.fit.seed),
        }
        if self.data.measures is not None:
            settings["measures"] = self.data.measures.record
        return settings

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(self.fit.seeds(*key))

    def _deal(
        self,
        n_parts: int,
        rng: np.random.Generator,
    ) -> np.ndarray:
        return deal(self.strata, n_parts, rng, self.groups)

    @cached_property
    def folds(self) -> np.ndarray:
        """(n_subjects,) fold of each subject."""
        n_units = len(self.strata) if self.groups is None else self.groups.n
        return self._deal(min(SUBJECT_FOLDS, n_units), self._rng(_FOLDS))

    def _halves(
        self,
        data: Coarse,
        draw: int,
        key: int,
        number: int,
    ) -> np.ndarray:
        part = self._deal(2, self._rng(draw, number))
        return split_halves(data, self.fit, self.ranks, part, key, number)

    def _thirds(
        self,
        data: Coarse,
        draw: int,
        key: int,
        number: int,
    ) -> np.ndarray:
        part = deal_thirds(self.strata, self._rng(draw, number), self.groups)
        return third_people(data, self.fit, self.ranks, part, key, number)

    def _null(
        self,
        number: int,
        with_thirds: bool,
    ) -> np.ndarray:
        """Return the measures of halves of a null cohort, and then those of thirds."""
        signed = self.fit.chosen.takes_negative(self.data.center)
        # Made here and dropped after its fits: null cohorts of many people together would fill
        # the memory.
        null = spun_cohort(self.cohorts, self.fit.seeds(_NULLS, number), signed, self.groups)
        halves = self._halves(null, _NULL_SPLITS, _NULL_HALVES, number)
        if not with_thirds:
            return halves
        thirds = self._thirds(null, _NULL_THIRDS, _NULL_THIRD_GROUPS, number)
        return np.hstack([halves, thirds])

    def _starts(self) -> list[Job]:
        """Return jobs on all subjects: one per rank, which takes long."""
        # All ranks share these statistics, and fits of a rank take as long as other jobs.
        everyone = self.data.condensed(self.data.everyone, self.fit.scheme)
        variance = self.data.variance

        def errors(rank: int) -> np.ndarray:
            error = self.fit(everyone.stats, rank, _ALL).error / variance
            return np.array([error, *stability(everyone, self.fit, rank)])

        return [("error", lambda rank=rank: errors(rank)) for rank in self.ranks]  # type: ignore[misc]

    def _jobs(self) -> list[Job]:
        """Return all jobs, those that take longest first."""
        data = self.data
        fit = self.fit
        ranks = self.ranks
        # Groups of faces are drawn after the parts of the subjects, by the same generator.
        rng = self._rng(_BLOCKS)
        parts = self._deal(BLOCK_FOLDS, rng)
        faces = face_groups(data, rng)
        # Fewer divisions in thirds than in halves: they only describe the result.
        n_thirds = max(2, self.n_splits // 4)
        n_null_thirds = max(2, self.n_nulls // 2)

        def job(
            kind: str,
            function: Callable[..., np.ndarray],
            *arguments: Any,
        ) -> Job:
            return kind, lambda: function(*arguments)

        return [
            *(job("null", self._null, i, i < n_null_thirds) for i in range(self.n_nulls)),
            *(
                job("bicv", bicross_validation, data, fit, ranks, parts == p, faces, _BICV, p)
                for p in np.unique(parts).tolist()
            ),
            *(job("split", self._halves, data, _SPLITS, _HALVES, i) for i in range(self.n_splits)),
            *(job("third", self._thirds, data, _THIRDS, _THIRD_GROUPS, i) for i in range(n_thirds)),
            *(
                job("heldout", heldout_subjects, data, fit, ranks, self.folds == f, _HELDOUT, f)
                for f in np.unique(self.folds).tolist()
            ),
            *self._starts(),
        ]

    def evidence(self, report: Callable[[float], None]) -> Evidence:
        """Compute all numbers of every rank, on all processors."""
        jobs = self._jobs()
        results: dict[str, list[np.ndarray]] = {}
        finished = in_order(lambda job: job[1](), jobs)
        for number, ((kind, _), values) in enumerate(zip(jobs, finished, strict=True), 1):
            # Results come in the order of the jobs, whichever ends first.
            results.setdefault(kind, []).append(values)
            report(number / len(jobs))
        n_measures = len(MEASURES)
        nulls = [values[:, n_measures:] for values in results["null"]]
        errors = np.stack(results["error"])
        return Evidence(
            ranks=np.array(self.ranks),
            split=np.stack(results["split"], axis=1),
            null=np.stack([values[:, :n_measures] for values in results["null"]], axis=1),
            bicv=np.hstack(results["bicv"]),
            heldout=np.stack(results["heldout"], axis=1),
            error=errors[:, 0],
            cophenetic=errors[:, 1],
            dispersion=errors[:, 2],
            third=np.stack(results["third"], axis=1),
            null_third=np.stack([values for values in nulls if values.size], axis=1),
        )

    def full_resolution_reason(
        self,
        rank: int,
        report: Callable[[float], None],
    ) -> str:
        """Return the held-out error of the recommended rank on all sites, as text."""
        errors = heldout_full(self.cohorts, self.fit, rank, self.folds, _HELDOUT, report=report)
        return (
            f"Subjects left out of the fit: at full resolution {rank} components explain "
            f"{100 * (1 - errors.mean()):.1f} % of their variance about the other subjects' mean "
            "map."
        )


def _table(evidence: Evidence) -> dict[str, np.ndarray]:
    """Return the table of a choice: one row per rank."""

    def standard_error(values: np.ndarray) -> np.ndarray:
        return values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])

    def by_name(
        names: Sequence[str],
        values: np.ndarray,
    ) -> dict[str, np.ndarray]:
        return dict(zip(names, values.mean(axis=1).T, strict=True))

    split = by_name(MEASURES, evidence.split)
    null = by_name(MEASURES, evidence.null)
    half_error = split.pop("half_error")
    null_error = null.pop("half_error")
    gain = -np.diff(evidence.error) / np.diff(evidence.ranks)
    thirds = by_name(THIRD_MEASURES, evidence.third)
    null |= by_name(THIRD_MEASURES, evidence.null_third)
    null_agreement = evidence.null_agreement
    return {
        "rank": evidence.ranks,
        "error": evidence.error,
        "gain": np.concatenate([[np.nan], gain]),
        "heldout": evidence.heldout.mean(axis=1),
        "heldout_se": standard_error(evidence.heldout),
        "bicv": evidence.bicv.mean(axis=1),
        "bicv_se": standard_error(evidence.bicv),
        **split,
        "agreement": evidence.agreement.mean(axis=1),
        "agreement_se": standard_error(evidence.agreement),
        "null_agreement": null_agreement.mean(axis=1),
        "null_sd": spread_of(null_agreement),
        "null_max": null_agreement.max(axis=1),
        "excess": evidence.excess,
        "score": evidence.scores.mean(axis=1),
        **thirds,
        **{f"null_{name}": values for name, values in null.items()},
        "half_error": half_error,
        "null_error": null_error,
        "cophenetic": evidence.cophenetic,
        "dispersion": evidence.dispersion,
    }
