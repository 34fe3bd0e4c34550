"""`choose_n_components`: one pass over the data, then many small problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from icofactor.assessment.selection.agreement import (
    MEASURES,
    THIRD_MEASURES,
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
from icofactor.assessment.selection.nulls import Kept, spun_cohort
from icofactor.assessment.selection.recommend import Evidence, other_good, recommend, spread_of
from icofactor.checks import Whole, check_parameters, check_value
from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.measures import measures_of, people_of_rows
from icofactor.cohort.people import RowGroups, choose_scans
from icofactor.errors import ArgumentError, Phrase, counted, literal
from icofactor.estimator.inputs import check_mask, read_input
from icofactor.estimator.site_weights import weighted_sites
from icofactor.factorization.engines import check_engine
from icofactor.factorization.methods import method_named
from icofactor.maps.workers import in_order, one_blas_thread
from icofactor.preprocessing.adjusted import steps_of
from icofactor.preprocessing.centering import center_of
from icofactor.preprocessing.combat import ComBat, as_combat
from icofactor.preprocessing.confounds import Confounds, unadjusted
from icofactor.progress import Stages

DEFAULT_RANKS = range(2, 21)
"""Numbers of components that are tried where none are given, as far as subjects and faces allow."""
# first numbers of the seeds, by what is drawn
_SPLITS, _FOLDS, _BLOCKS, _NULLS, _NULL_SPLITS, _THIRDS, _NULL_THIRDS = range(7)
# and of the fits
_ALL, _HELDOUT, _BICV, _HALVES, _NULL_HALVES, _THIRD_GROUPS, _NULL_THIRD_GROUPS = range(10, 17)

_EXCHANGED = (
    'The positions of the regions are not known, so "rotated maps" here are maps with values exchanged at random '
    "between regions. This destroys the similarity of neighbours, and data beat it easily: give the atlas (parcels)."
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
    groups: Any = None,
    order: str | None = None,
    method: str = "parts",
    center: str = "auto",
    level: int = 2,
    mesh: Any = None,
    hemi: str | None = None,
    weights: Any = None,
    random_state: int = 0,
    engine: str = "cpu",
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
    tried = check_settings(ranks, n_splits, n_starts, n_nulls, random_state, level)
    chosen = method_named(method)
    asked, center = center, center_of(center, chosen.scheme.centers, method)
    check_engine(engine)
    if steps_of(cohort) and (covariates or harmonize is not None):
        raise ArgumentError(
            "cohort", None, f"The cohort is already {literal(steps_of(cohort)[-1].done)}"
        )
    n_rows = None
    if subject_names(cohort) is None:
        n_rows = read_input(cohort, mesh, hemi)[0].n_subjects
    scans = choose_scans(cohort, fit_on, groups, order, random_state, n_rows=n_rows)
    cohort, confounds = unadjusted(scans.of(cohort))
    maps, placement = read_input(cohort, mesh, hemi)
    sites, weighting = weighted_sites(
        placement.sites, check_mask(placement.mask, placement.sites), weights, placement.hemi
    )
    placement = replace(placement, sites=sites)
    measures = measures_of(cohort)
    if measures is not None:
        center = measures.center(center, asked, chosen)
    n_subjects = maps.n_subjects
    if covariates or harmonize is not None:
        names = subject_names(cohort) or tuple(map(str, range(n_subjects)))
        table, people = people_of_rows(cohort, getattr(cohort, "participants", {}), names)
        signed = chosen.takes_negative(center)
        confounds = Confounds.of(table, people, as_combat(harmonize), covariates, not signed)
    tried = check_subjects(tried, n_subjects, scans.groups, fewer=ranks is None)
    strata = strata_of(getattr(cohort, "participants", {}), list(stratify), n_subjects)
    if confounds is not None and confounds.scans is not None:
        own_codes = confounds.scans.codes
        codes = np.tile(own_codes, n_subjects // len(own_codes))
        _, strata = np.unique(strata * (codes.max() + 1) + codes, return_inverse=True)
    stages = Stages(verbose)
    with one_blas_thread():
        with stages.stage("statistics") as show:
            cohorts = gather(cohort, level, chosen, show, center, confounds, (maps, placement))
        tried = _check_faces(tried, cohorts.coarse, fewer=ranks is None)
        fit = Fitter(method, n_starts, random_state, engine)
        work = _Work(cohorts, fit, n_splits, n_nulls, strata, scans.groups)
        found = work.evidence(tried, stages)
        recommended, reasons = recommend(found)
        if recommended is not None:
            with stages.stage("full size") as show:
                reasons = (*reasons, work.full_resolution_reason(recommended, show))
        reasons = reasons if sites.placed else (*reasons, _EXCHANGED)
    settings = {**work.settings, "ranks": tried, "stratify": list(stratify), **scans.record}
    settings |= {} if weighting is None else {"weights": weighting}
    return Choice(_table(found), recommended, reasons, settings, other_good(found, recommended))


def check_settings(
    ranks: Iterable[int] | None,
    n_splits: int,
    n_starts: int,
    n_nulls: int,
    random_state: int,
    level: int,
) -> list[int]:
    """The ranks to try, in order; refuses settings of `choose_n_components` that no data would fit."""
    tried = list(DEFAULT_RANKS if ranks is None else ranks)
    for rank in tried:
        if not Whole(2).accepts(rank):
            raise ArgumentError(
                "ranks",
                rank,
                "whole numbers ≥ 2 (one component is the mean map, on which halves always agree)",
            )
    if not tried:
        raise ArgumentError("ranks", [], "the numbers of components to try, e.g. range(2, 21)")
    check_parameters(n_splits=n_splits, n_starts=n_starts, n_nulls=n_nulls, level=level)
    check_value("random_state", random_state, Whole(0))
    return sorted({int(rank) for rank in tried})


def check_subjects(
    ranks: list[int], n_subjects: int, groups: RowGroups | None = None, fewer: bool = False
) -> list[int]:
    """Refuse more components than halves of the subjects, or of their groups, can hold, or leave
    these out (`fewer`). However unequal the groups are, each half, and what a fold or block leaves,
    then has as many rows (`RowGroups.deal`).
    """
    if groups is not None:
        if groups.n < 4:
            found = f"{{groups}} makes {counted(groups.n, 'group')} of {n_subjects} rows"
            raise ArgumentError("groups", None, f"{found}; at least 4 are needed, two in each half")
        if fewer:
            ranks = [rank for rank in ranks if rank <= groups.n // 2]
        if ranks[-1] > groups.n // 2:
            raise ArgumentError(
                "ranks",
                ranks[-1],
                f"at most {groups.n // 2}, the people or other groups in half of {groups.n}",
            )
    half = n_subjects // 2
    if half < 2:
        raise ArgumentError(
            "cohort", Phrase(f"{n_subjects}"), "of at least 4 subjects, two in each half"
        )
    if fewer:
        ranks = [rank for rank in ranks if rank <= half]
    if ranks[-1] > half:
        raise ArgumentError(
            "ranks", ranks[-1], f"at most {half}, the subjects in half of {n_subjects}"
        )
    return ranks


def _check_faces(ranks: list[int], data: Coarse, fewer: bool) -> list[int]:
    # blocks that are left out take a third of the faces with them
    n_faces, level = data.stats.n_columns, int(data.design.level)
    most = (BLOCK_FOLDS - 1) * n_faces // BLOCK_FOLDS
    if fewer and most >= ranks[0]:
        ranks = [rank for rank in ranks if rank <= most]
    if ranks[-1] > most:
        where = (
            f"at most {most}, or {{level}} higher: the maps are on {n_faces} faces of level {level}"
        )
        if data.design.sites.regions is not None:
            where = f"at most {most}: the maps have {n_faces} regions"
        expected = f"{where}, of which a third is left out at a time"
        raise ArgumentError("ranks", ranks[-1], expected)
    return ranks


@dataclass
class _Work:
    """All fits of a selection, and what they show."""

    cohorts: Cohorts
    fit: Fitter
    n_splits: int
    n_nulls: int
    strata: np.ndarray
    groups: RowGroups | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """How the numbers of components are compared."""
        data, fit = self.cohorts.coarse, self.fit
        return {
            "method": fit.method,
            "center": data.center,
            "level": int(data.design.level),
            "n_subjects": data.n_subjects,
            "n_faces": data.stats.n_columns,
            "n_starts": int(fit.n_starts),
            "tol": fit.tol,
            "n_splits": int(self.n_splits),
            "n_nulls": int(self.n_nulls),
            "random_state": int(fit.seed),
            **({} if data.measures is None else {"measures": data.measures.record}),
        }

    def _deal(self, n_parts: int, rng: np.random.Generator) -> np.ndarray:
        return deal(self.strata, n_parts, rng, self.groups)

    def _rng(self, *where: int) -> np.random.Generator:
        return np.random.default_rng(self.fit.seeds(*where))

    @cached_property
    def splits(self) -> list[np.ndarray]:
        return [self._deal(2, self._rng(_SPLITS, i)) for i in range(self.n_splits)]

    @cached_property
    def folds(self) -> np.ndarray:
        n = len(self.strata) if self.groups is None else self.groups.n
        return self._deal(min(SUBJECT_FOLDS, n), self._rng(_FOLDS))

    @cached_property
    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        rng = self._rng(_BLOCKS)
        return self._deal(BLOCK_FOLDS, rng), face_groups(self.cohorts.coarse, rng)

    @property
    def n_thirds(self) -> tuple[int, int]:
        """Divisions into two groups and people in neither, of the data and of null cohorts, one
        each.
        """
        return max(2, self.n_splits // 4), max(2, self.n_nulls // 2)

    @cached_property
    def nulls(self) -> list[Coarse]:
        method, (_, n_thirds) = self.fit.chosen, self.n_thirds
        signed = method.takes_negative(self.cohorts.coarse.center)

        def one(q: int) -> Coarse:
            made = spun_cohort(self.cohorts, self.fit.seeds(_NULLS, q), signed, self.groups)
            thirds = self._third_parts(_NULL_THIRDS, q) if q < n_thirds else None
            return Kept.left_of(made, method.scheme, self._null_split(q), thirds)

        return list(in_order(one, range(self.n_nulls)))

    def _null_split(self, q: int) -> np.ndarray:
        return self._deal(2, self._rng(_NULL_SPLITS, q))

    def _third_parts(self, draw: int, i: int) -> np.ndarray:
        return deal_thirds(self.strata, self._rng(draw, i), self.groups)

    def _condense(self) -> None:
        """Make what all ranks share, on all processors, where it needs no people."""
        data, scheme, n = (
            self.cohorts.coarse,
            self.fit.chosen.scheme,
            self.cohorts.coarse.n_subjects,
        )
        if not data.apart or n <= data.stats.n_columns:
            return
        halves = [np.flatnonzero(split == half) for split in self.splits for half in (0, 1)]
        thirds = [self._third_parts(_THIRDS, i) for i in range(self.n_thirds[0])]
        groups = [np.flatnonzero(part == group) for part in thirds for group in (0, 1)]
        rest = [
            np.flatnonzero(part != p)
            for part in (self.folds, self.blocks[0])
            for p in np.unique(part)
        ]
        for _ in in_order(
            lambda some: data.condensed(some, scheme), [np.arange(n), *halves, *groups, *rest]
        ):
            pass

    # ------------------------------------------------------------------ numbers of one rank

    def _error(self, rank: int) -> np.ndarray:
        data = self.cohorts.coarse
        everyone = np.arange(data.n_subjects)
        stats = data.condensed(everyone, self.fit.chosen.scheme).stats
        variance = stats.sq_norm if data.apart else data.centred(everyone).variance
        cophenetic, dispersion = stability(data, self.fit, rank)
        return np.array([self.fit(stats, rank, _ALL).error / variance, cophenetic, dispersion])

    def _heldout(self, rank: int) -> np.ndarray:
        return heldout_subjects(self.cohorts.coarse, self.fit, rank, self.folds, _HELDOUT)

    def _bicv(self, rank: int) -> np.ndarray:
        return bicross_validation(self.cohorts.coarse, self.fit, rank, *self.blocks, _BICV)

    def _split(self, rank: int) -> np.ndarray:
        cohorts, wheres = (
            [self.cohorts.coarse] * self.n_splits,
            [(_HALVES, i) for i in range(self.n_splits)],
        )
        return split_halves(cohorts, self.fit, rank, self.splits, wheres)

    def _null(self, rank: int) -> np.ndarray:
        parts = [self._null_split(q) for q in range(self.n_nulls)]
        wheres = [(_NULL_HALVES, q) for q in range(self.n_nulls)]
        return split_halves(self.nulls, self.fit, rank, parts, wheres)

    def _third(self, rank: int) -> np.ndarray:
        n, _ = self.n_thirds
        return self._thirds(rank, [self.cohorts.coarse] * n, _THIRDS, _THIRD_GROUPS)

    def _null_third(self, rank: int) -> np.ndarray:
        _, n = self.n_thirds
        return self._thirds(rank, self.nulls[:n], _NULL_THIRDS, _NULL_THIRD_GROUPS)

    def _thirds(self, rank: int, cohorts: list[Coarse], draw: int, group: int) -> np.ndarray:
        parts = [self._third_parts(draw, i) for i in range(len(cohorts))]
        wheres = [(group, i) for i in range(len(cohorts))]
        return third_people(cohorts, self.fit, rank, parts, wheres)

    # ------------------------------------------------------------------ all of them

    def evidence(self, ranks: list[int], stages: Stages) -> Evidence:
        """All numbers of every rank, on all processors; those that take longest first."""
        makers: dict[str, Callable[[int], np.ndarray]] = {
            "split": self._split,
            "null": self._null,
            "third": self._third,
            "null_third": self._null_third,
            "bicv": self._bicv,
            "heldout": self._heldout,
            "error": self._error,
        }
        jobs = [(kind, rank) for kind in makers for rank in reversed(ranks)]
        found: dict[str, list[np.ndarray]] = {kind: [] for kind in makers}
        with stages.stage("nulls"):
            assert (
                len(self.nulls) == self.n_nulls
            )  # made here, on all processors, not by the first of the jobs
        with stages.stage("selection") as show:
            self._condense()
            make = lambda job: makers[job[0]](job[1])
            for done, ((kind, _), values) in enumerate(
                zip(jobs, in_order(make, jobs), strict=True), 1
            ):
                found[kind].insert(0, values)
                show(done / len(jobs))
        stacked = {kind: np.stack(values) for kind, values in found.items()}
        error, cophenetic, dispersion = stacked.pop("error").T
        return Evidence(
            np.array(ranks), **stacked, error=error, cophenetic=cophenetic, dispersion=dispersion
        )

    def full_resolution_reason(self, rank: int, show: Callable[[float], None]) -> str:
        """The held-out error of the recommended rank where it matters."""
        share = (
            1 - heldout_full(self.cohorts, self.fit, rank, self.folds, _HELDOUT, report=show).mean()
        )
        return (
            f"Subjects left out of the fit: at full resolution {rank} components explain {100 * share:.1f} % of their "
            "variance about the other subjects' mean map."
        )


def _table(found: Evidence) -> dict[str, np.ndarray]:
    standard_error = lambda x: x.std(axis=1, ddof=1) / np.sqrt(x.shape[1])
    split = dict(zip(MEASURES, found.split.mean(axis=1).T, strict=True))
    null = dict(zip(MEASURES, found.null.mean(axis=1).T, strict=True))
    third, null_third = (
        dict(zip(THIRD_MEASURES, values.mean(axis=1).T, strict=True))
        for values in (found.third, found.null_third)
    )
    reported = (
        "inner_product",
        "inner_product_median",
        "correlation",
        "ari",
        "stability_coefficient",
    )
    gain = np.full(len(found.ranks), np.nan)
    gain[1:] = -np.diff(found.error) / np.diff(found.ranks)
    return {
        "rank": found.ranks,
        "error": found.error,
        "gain": gain,
        "heldout": found.heldout.mean(axis=1),
        "heldout_se": standard_error(found.heldout),
        "bicv": found.bicv.mean(axis=1),
        "bicv_se": standard_error(found.bicv),
        **{name: split[name] for name in reported},
        **{f"null_{name}": null[name] for name in reported},
        "agreement": found.agreement.mean(axis=1),
        "agreement_se": standard_error(found.agreement),
        "null_agreement": found.null_agreement.mean(axis=1),
        "null_sd": spread_of(found.null_agreement),
        "null_max": found.null_agreement.max(axis=1),
        "excess": found.excess,
        "score": found.scores.mean(axis=1),
        **third,
        **{f"null_{name}": values for name, values in null_third.items()},
        "half_error": split["half_error"],
        "null_error": null["half_error"],
        "cophenetic": found.cophenetic,
        "dispersion": found.dispersion,
    }
