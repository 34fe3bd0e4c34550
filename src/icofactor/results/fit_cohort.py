"""Fit a cohort, describe the fit and write it as one folder, as `icofactor fit` and `demo` do."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from icofactor.cohort.adjusted import with_executor
from icofactor.cohort.measures import measures_of
from icofactor.cohort.people import REPEATED, Scans, choose_scans
from icofactor.errors import plural
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.estimator.inputs import check_executor
from icofactor.preprocessing.adjusted import as_the_fit, steps_of
from icofactor.preprocessing.combat import ComBat, Harmonization, as_combat
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
    >>> model = ico.CorticalFactorization(10)
    >>> fit = ico.fit_cohort(ico.simulate_cohort(), model, "out")  # doctest: +SKIP
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
        """Return the findings as text."""
        model = self.model
        cohort = repr(self.data).strip()
        lines = [cohort]
        if self.scans is not None and self.scans.sentence:
            lines.append(f"{self.scans.sentence}.")
        # Shares of variance refer to what harmonization and covariates leave.
        lines += self._adjustments()
        is_adjusted = model.covariates_ is not None or model.harmonization_ is not None
        variance = "the rest" if is_adjusted else "the between-subject variance"
        n = len(model.components_)
        verb = "explains" if n == 1 else "explain"
        share = f"{100 * model.explained_:.0f} % of {variance}"
        lines.append(f"{plural(n, 'component')} {verb} {share}.")
        if self.explained:
            shares = [f"{name} {100 * share:.0f} %" for name, share in self.explained.items()]
            lines.append(f"Of each measure: {', '.join(shares)}.")
        n_constant = model.n_constant_sites_
        if n_constant:
            verb = "does" if n_constant == 1 else "do"
            lines.append(
                f"{plural(n_constant, 'site')} {verb} not vary between subjects; they are left "
                "out of z-scores."
            )
        lines.append(recurrence_line(model))
        lines += [
            f"Warning: {text}" for text in (*self.warnings, recurrence_warning(model)) if text
        ]
        return "\n".join(filter(None, lines))

    def _adjustments(self) -> list[str]:
        """Return sentences about harmonization and covariates."""
        harmonization = self.model.harmonization_
        covariates = self.model.covariates_
        lines = []
        variance = "the between-subject variance"
        if harmonization is not None:
            removed = f"{100 * harmonization.explained:.1f} % of {variance}"
            lines.append(
                f"Harmonized over {harmonization}, which removed {removed}"
                f"{self._by_measure(harmonization)}{_shifted(harmonization)}."
            )
            variance = "the remaining variance"
        if covariates is not None:
            removed = f"{100 * covariates.explained:.1f} % of {variance}"
            verb = "was" if len(covariates.terms) == 1 else "were"
            lines.append(
                f"{covariates} explained {removed}{self._by_measure(covariates)} and {verb} "
                f"regressed out{_shifted(covariates)}."
            )
        return lines

    def _by_measure(self, step: Harmonization | Covariates) -> str:
        """Return the shares that a step removed from several measures, as text."""
        if step.explained_each is None or self.model.measures_ is None:
            return ""
        shares = zip(self.model.measures_.names, step.explained_each, strict=True)
        return f" on average ({', '.join(f'{name} {100 * share:.1f} %' for name, share in shares)})"

    def written(self) -> str:
        """Return the names of the files as text."""
        paths = [file.relative_to(self.folder).parts for file in self.files]
        # Folders are counted, not listed.
        n_inside = Counter(parts[0] for parts in paths if len(parts) > 1)
        names = dict.fromkeys(parts[0] for parts in paths)
        lines = [f"Written to {self.folder}:"]
        for name in names:
            files = f"/ ({plural(n_inside[name], 'file')})" if name in n_inside else ""
            lines.append(f"  {name}{files}")
        # Maps of the earlier fit are as many as those listed above.
        removed = [
            file.name
            for file in self.removed
            if file.parent == self.folder and "_space-" not in file.name
        ]
        if removed:
            lines.append(f"Removed with the earlier fit: {', '.join(removed)}")
        return "\n".join(lines)


def _shifted(step: Harmonization | Covariates) -> str:
    if not step.n_shifted:
        return ""
    return f"; {step.n_shifted} sites were shifted to stay ≥ 0"


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
    executor: Executor | None = None,
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
    executor : concurrent.futures.Executor, default=None
        Where blocks of the maps are worked on: during harmonization, covariates, fit and
        diagnostics. ``client.get_executor()`` of a dask client, for example. Default: threads of
        this process.

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
    folder = out if isinstance(out, FitFolder) else FitFolder(out, overwrite, figures)
    check_executor(executor)
    # Files per hemisphere that cannot be written are refused before the fit, not after it.
    if cohort.sites.regions is None:
        n_sites = cohort.sites.one_copy().n
        map_columns(n_sites, cohort.hemisphere, mesh_name_of(cohort.sites))
    scans = fit_on
    # The command line chooses scans before it reads any map.
    if not isinstance(scans, Scans):
        seed = model.random_state if isinstance(model.random_state, int) else 0
        scans = choose_scans(cohort, scans, groups, order, seed)
    stages = Stages(verbose)
    seconds = dict(timing or {})
    fitted_cohort = scans.of(cohort)
    data = with_executor(fitted_cohort, executor)
    combat = as_combat(harmonize, keep) or model.harmonize
    if combat is not None:
        with _stage(stages, seconds, "harmonization"):
            data = model.harmonized(data, combat)
    if covariates:
        with _stage(stages, seconds, "covariates"):
            nonnegative = not model.takes_negative
            step = Covariates.fit(data, covariates, mask=model.mask, nonnegative=nonnegative)
            data = step.apply(data)
    # The other scans are adjusted before the fit, so that problems show in time.
    other_rows = np.setdiff1d(np.arange(len(cohort.subjects)), scans.rows)
    other_scans = None
    if len(other_rows):
        other_scans = as_the_fit(with_executor(cohort[other_rows], executor), *steps_of(data))
    with warnings.catch_warnings(record=True) as caught, _stage(None, seconds, "fit"):
        warnings.simplefilter("always")
        # With "all", the user requests repeated scans.
        if fit_on == "all":
            warnings.filterwarnings("ignore", REPEATED)
        model.fit(data, executor=executor)
    texts = [_text_of(warning, model) for warning in caught]
    messages = list(dict.fromkeys(texts))
    scan_table = None
    if other_scans is not None:
        with _stage(stages, seconds, "other scans"):
            loadings = np.empty((len(cohort.subjects), len(model.components_)))
            loadings[scans.rows] = model.loadings_
            loadings[other_rows] = model.transform(other_scans, executor=executor)
            is_fitted = np.isin(np.arange(len(loadings)), scans.rows).astype(int)
            scan_table = ScanTable(loadings, {**cohort.participants, "fitted": is_fitted})
    with stages.stage("diagnostics") as report:
        description = describe_fit(
            model,
            fitted_cohort,
            data,
            scans=scans,
            table=scan_table,
            # A selection that was written about an earlier fit leaves with it.
            folder=None if folder.replaces else folder.path,
            timing=seconds,
            warnings=messages,
            report=report,
        )
    measures = measures_of(cohort)
    shares = description.diagnostics.measure_explained
    explained = {}
    if measures is not None and shares is not None:
        explained = dict(zip(measures.names, shares.tolist(), strict=True))
    # Until here nothing was written.
    files = write_fit(description, folder, stages)
    return FitResult(model, data, folder.path, files, messages, folder.removed, scans, explained)


def _text_of(warning: warnings.WarningMessage, model: CorticalFactorization) -> str:
    if warning.category is ConvergenceWarning:
        return not_converged(model)
    return str(warning.message)


@contextmanager
def _stage(stages: Stages | None, seconds: dict[str, float], name: str) -> Iterator[None]:
    """Show a stage of the fit, and keep how long it took."""
    begin = time.perf_counter()
    with stages.stage(name) if stages is not None else nullcontext():
        yield
    seconds[name] = time.perf_counter() - begin
