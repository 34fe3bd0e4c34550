"""Fit a cohort, describe the fit and write it as one folder; `icofactor fit` and `icofactor demo`
are made of this.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from icofactor.cohort.measures import measures_of
from icofactor.cohort.people import REPEATED, Scans, choose_scans
from icofactor.errors import counted
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.preprocessing.adjusted import as_the_fit, steps_of
from icofactor.preprocessing.combat import ComBat, as_combat
from icofactor.preprocessing.covariates import Coded, Covariates
from icofactor.progress import Stages
from icofactor.results.description import ScanTable, describe_fit
from icofactor.results.folder import FitFolder, map_columns, write_fit
from icofactor.results.meaning import not_converged, recurrence_line, recurrence_warning
from icofactor.sphere.names import mesh_name_of


@dataclass(frozen=True, eq=False)
class FitResult:
    """A fit and its files, the result of `fit_cohort`.

    Attributes
    ----------
    model : CorticalFactorization
        The fitted model.
    data : Cohort
        The cohort as fitted: the scans that `fit_on` chose, adjusted if there were covariates.
    folder : Path
        Output folder.
    files : list of Path
        Files written.
    warnings : list of str
        Warnings of the fit.
    removed : list of Path
        Files of an earlier fit in this folder that were removed.
    scans : Scans
        Scans and people, and which scans were fitted.
    explained : mapping of str to float
        For several measures: share of the between-subject variance of each that the components
        explain.

    Examples
    --------
    >>> import icofactor as ico
    >>> fit = ico.fit_cohort(ico.simulate_cohort(), ico.CorticalFactorization(10), "out")  # doctest: +SKIP
    >>> print(fit.found())  # doctest: +SKIP
    Cohort(100 subjects × 10242 vertices; simulated thickness in mm, left hemisphere)
    10 components explain 51 % of the between-subject variance.
    10 of 10 components were reached by at least half of the 7 other random starts on the same
    people that fit as well \
(within 0.1 %). This says nothing about other people.
    >>> fit.model.loadings_.shape, fit.files[0].parent.name  # doctest: +SKIP
    ((100, 10), 'out')
    """

    model: CorticalFactorization
    data: Any
    folder: Path
    files: list[Path]
    warnings: list[str]
    removed: list[Path] = field(default_factory=list)
    scans: Scans | None = None
    explained: Mapping[str, float] = field(default_factory=dict)

    def found(self) -> str:
        """What was found, as text."""
        covariates, share = self.model.covariates_, 100 * self.model.explained_
        lines, harmonization = [repr(self.data)], self.model.harmonization_
        if self.scans is not None and self.scans.sentence:
            lines.append(f"{self.scans.sentence}.")
        if harmonization is not None:
            shifted = (
                f"; {harmonization.n_shifted} sites were shifted to stay ≥ 0"
                if harmonization.n_shifted
                else ""
            )
            removed = f"{100 * harmonization.explained:.1f} % of the between-subject variance{self._each(harmonization)}"
            lines.append(f"Harmonized over {harmonization}, which removed {removed}{shifted}.")
        if covariates is not None:
            shifted = (
                f"; {covariates.n_shifted} sites were shifted to stay ≥ 0"
                if covariates.n_shifted
                else ""
            )
            whole = (
                "the between-subject variance"
                if harmonization is None
                else "the remaining variance"
            )
            removed = f"{100 * covariates.explained:.1f} % of {whole}{self._each(covariates)}"
            verb = "was" if len(covariates.terms) == 1 else "were"
            lines.append(f"{covariates} explained {removed} and {verb} regressed out{shifted}.")
        of = (
            "the between-subject variance"
            if covariates is None and harmonization is None
            else "the rest"
        )
        n = len(self.model.components_)
        lines.append(f"{n} component{'s explain' if n > 1 else ' explains'} {share:.0f} % of {of}.")
        if self.explained:
            lines.append(
                f"Of each measure: {', '.join(f'{m} {100 * s:.0f} %' for m, s in self.explained.items())}."
            )
        constant = self.model.n_constant_sites_
        if constant:
            sites = "1 site does" if constant == 1 else f"{constant} sites do"
            lines.append(f"{sites} not vary between subjects; they are left out of z-scores.")
        lines.append(recurrence_line(self.model))
        warned = [*self.warnings, recurrence_warning(self.model)]
        return "\n".join([*filter(None, lines), *(f"Warning: {text}" for text in warned if text)])

    def _each(self, step: Any) -> str:
        """What a step took out of each of several measures."""
        if step.explained_each is None or self.model.measures_ is None:
            return ""
        shares = zip(self.model.measures_.names, step.explained_each, strict=True)
        return f" on average ({', '.join(f'{name} {100 * share:.1f} %' for name, share in shares)})"

    def written(self) -> str:
        """What was written, as text."""
        shown = [file.relative_to(self.folder).parts for file in self.files]
        inside = Counter(parts[0] for parts in shown if len(parts) > 1)
        lines = dict.fromkeys(
            f"{name}/ ({counted(inside[name], 'file')})" if name in inside else name
            for name, *_ in shown
        )
        gone = [
            file.name
            for file in self.removed
            if file.parent == self.folder and "_space-" not in file.name
        ]
        about = [f"Removed with the earlier fit: {', '.join(gone)}"] if gone else []
        return "\n".join([f"Written to {self.folder}:", *(f"  {line}" for line in lines), *about])


def fit_cohort(
    cohort: Any,
    model: CorticalFactorization,
    out: str | Path | FitFolder,
    *,
    harmonize: ComBat | str | None = None,
    keep: Sequence[str] = (),
    covariates: Sequence[str] | Coded | None = (),
    fit_on: str | Scans | None = None,
    groups: str | None = None,
    order: str | None = None,
    timing: Mapping[str, float] | None = None,
    figures: bool = True,
    overwrite: bool = False,
    verbose: bool = False,
) -> FitResult:
    """Fit a cohort and write maps, loadings, tables, model, provenance, figures and a report to a
    folder.

    This is what `icofactor fit` does after reading the files. All files appear together at the end,
    or none.

    Parameters
    ----------
    cohort : Cohort or StoredCohort
        Maps of the subjects, on the vertices of a mesh with a known hemisphere.
    model : CorticalFactorization
        The model to fit.
    out : str, Path or FitFolder
        Output folder, created if necessary. A FitFolder has been checked already and has its own
        `figures` and `overwrite`.
    harmonize : ComBat, str or None, default=None
        Harmonization before the fit, or the column with the scanner. None uses that of `model`.
    keep : sequence of str, default=()
        Columns whose effects harmonization keeps, if `harmonize` is a column.
    covariates : sequence of str, default=()
        Columns of the participants table to regress out of the maps; see `Covariates.fit`. The
        result of `preprocessing.covariates.code_terms` also works.
    fit_on : {"baseline", "one-per-person", "all"}, default=None
        Which scans to fit if people have several: the first, one at random (by the seed of the
        model), or all. The other scans get loadings from the fit. Required if people have several
        scans. The result of `cohort.people.choose_scans` also works.
    groups : str, default=None
        Column of the participants table with groups of people who belong together, such as
        families. The permutations of the page, and `icofactor associate` by default, keep them
        together. Scans of a person always stay together.
    order : str, default=None
        Column that orders the scans of a person, such as age or date. Default: the session name.
    timing : mapping of str to float, default=None
        Seconds of earlier stages, for the report.
    figures : bool, default=True
        Whether to write the charts of the page as SVG files too.
    overwrite : bool, default=False
        Whether to replace an earlier fit in this folder.
    verbose : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    FitResult
        The fitted model, the data as fitted, the files written, and the warnings of the fit.

    See Also
    --------
    CorticalFactorization.fit : the fit alone.
    icofactor.report.write_page : write the page again, with surfaces or an atlas.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(8, 2, hemisphere="left", random_state=0, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = ico.fit_cohort(cohort, model, f"{folder}/out", figures=False)
    >>> result.model.loadings_.shape
    (8, 2)
    >>> [file.name for file in result.files if file.suffix in (".zip", ".html")]
    ['model.zip', 'report.html']
    """
    place = out if isinstance(out, FitFolder) else FitFolder(out, overwrite, figures)
    mesh = mesh_name_of(cohort.sites)
    measures = measures_of(cohort)
    if cohort.sites.regions is None:
        map_columns(
            cohort.sites.of_measure().n, cohort.hemisphere, mesh
        )  # refused before the fit, not after it
    place.check_maps(mesh, cohort.hemisphere, () if measures is None else measures.names)
    seed = model.random_state if isinstance(model.random_state, int) else 0
    scans = (
        fit_on if isinstance(fit_on, Scans) else choose_scans(cohort, fit_on, groups, order, seed)
    )
    everyone, cohort = cohort, scans.of(cohort)
    others = np.setdiff1d(np.arange(len(everyone.subjects)), scans.rows)
    stages, spent = Stages(verbose), dict(timing or {})
    data, combat = cohort, as_combat(harmonize, keep) or model.harmonize
    if combat is not None:
        with stages.stage("harmonization"), _timed(spent, "harmonization"):
            data = model.harmonized(cohort, combat)
    if covariates:
        with stages.stage("covariates"), _timed(spent, "covariates"):
            kept = Covariates.fit(
                data, covariates, mask=model.mask, nonnegative=not model.takes_negative
            )
            data = kept.apply(data)
    # done to scans that are not fitted before the fit, so that what cannot be done to them is
    # refused in time
    rest = as_the_fit(everyone[others], *steps_of(data)) if len(others) else None
    with warnings.catch_warnings(record=True) as raised, _timed(spent, "fit"):
        warnings.simplefilter("always")
        if fit_on == "all":  # as asked for
            warnings.filterwarnings("ignore", REPEATED)
        model.fit(data)
    known = None
    if rest is not None:
        with stages.stage("other scans"), _timed(spent, "other scans"):
            loadings = np.empty((len(everyone.subjects), len(model.components_)))
            loadings[scans.rows], loadings[others] = model.loadings_, model.transform(rest)
            fitted = np.isin(np.arange(len(loadings)), scans.rows).astype(int)
            known = ScanTable(loadings, {**everyone.participants, "fitted": fitted})
    plain = lambda one: (
        not_converged(model) if one.category is ConvergenceWarning else str(one.message)
    )
    said = list(dict.fromkeys(map(plain, raised)))
    with stages.stage("diagnostics") as show:
        # a selection that was written about an earlier fit goes with it
        beside = None if place.replaces else place.path
        about: dict[str, Any] = {"scans": scans, "table": known, "folder": beside}
        fit = describe_fit(model, cohort, data, **about, timing=spent, warnings=said, report=show)
    each = fit.diagnostics.measure_explained
    explained = (
        {}
        if measures is None or each is None
        else dict(zip(measures.names, each.tolist(), strict=True))
    )
    return FitResult(
        model,
        data,
        place.path,
        write_fit(fit, place, stages),
        said,
        place.removed,
        scans,
        explained,
    )


@contextmanager
def _timed(spent: dict[str, float], stage: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    spent[stage] = time.perf_counter() - begin
