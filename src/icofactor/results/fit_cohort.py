"""Fit a cohort and write all that a fit gives as one folder; `icofactor fit` and `icofactor demo` are made of this."""

from __future__ import annotations

import shutil
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization.methods import method_named
from icofactor.preprocessing.covariates import Covariates
from icofactor.progress import Stages
from icofactor.results.diagnostics import diagnose
from icofactor.results.diagnostics.record import Diagnostics, save_diagnostics
from icofactor.results.folder import check_folder, fit_files, write_fit
from icofactor.results.methods_text import methods_text
from icofactor.results.provenance import provenance_of
from icofactor.results.report.content import component_units
from icofactor.results.report.figures import plot_components
from icofactor.results.report.page import write_page
from icofactor.results.report.panels import draw_panels, is_panel
from icofactor.results.report.selection_files import Beside, read_selection
from icofactor.results.report.surfaces import cortex_of
from icofactor.sphere.names import mesh_name_of

MODEL, FIGURE, DIAGNOSTICS, PAGE, FIGURES = "model.zip", "components.png", "diagnostics.npz", "report.html", "figures"
EXTRAS = (MODEL, FIGURE, DIAGNOSTICS, PAGE)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit that was written.

    Attributes
    ----------
    model : the fitted model.
    data : the cohort as it was fitted, adjusted when there were covariates.
    folder : where it was written.
    files : what was written.
    warnings : what the fit warned of.
    """

    model: CorticalFactorization
    data: Any
    folder: Path
    files: list[Path]
    warnings: list[str]

    def found(self) -> str:
        """What was found, in words."""
        covariates, share = self.model.covariates_, 100 * self.model.explained_
        lines = [repr(self.data)]
        if covariates is not None:
            shifted = f"; {covariates.n_shifted} sites were shifted to stay ≥ 0" if covariates.n_shifted else ""
            lines.append(f"{covariates} took {100 * covariates.explained:.1f} % of that variance with them{shifted}.")
        lines.append(f"{len(self.model.components_)} components explain {share:.0f} % of the between-subject variance.")
        return "\n".join([*lines, *(f"Warning: {text}" for text in self.warnings)])

    def written(self) -> str:
        """What was written, in words."""
        shown = [file.relative_to(self.folder).parts for file in self.files]
        inside = Counter(parts[0] for parts in shown if len(parts) > 1)
        lines = dict.fromkeys(f"{name}/ ({inside[name]} files)" if name in inside else name for name, *_ in shown)
        return f"Written to {self.folder}:\n" + "\n".join(f"  {line}" for line in lines)


def check_place(
    out: str | Path, overwrite: bool, hemi: str | None = None, mesh: str | None = None, figures: bool = True
) -> None:
    """Refuse a folder that cannot take a fit, before anything is read: nobody should wait for what cannot be kept.

    Parameters
    ----------
    hemi, mesh : of the maps, where they are known already; so more names are known.
    figures : whether the panels are drawn for print too.
    """
    names = list(EXTRAS)
    if hemi is not None and mesh is not None:
        names = fit_files(hemi, mesh, mask=True, participants=True, methods=True, extras=EXTRAS)
    check_folder(out, names, overwrite, [FIGURES] if figures else [])


def fit_cohort(
    cohort: Any,
    model: CorticalFactorization,
    out: str | Path,
    *,
    covariates: Sequence[str] = (),
    timing: dict[str, float] | None = None,
    work_dir: str | Path | None = None,
    figures: bool = True,
    overwrite: bool = False,
    verbose: bool = False,
) -> Fitted:
    """Fit a cohort and write maps, loadings, tables, provenance, model, diagnostics, figures and page into `out`.

    All files appear together at the end, or none; with `overwrite` they take the place of an earlier run's files.

    Parameters
    ----------
    cohort : Cohort, or one on disk.
    model : not yet fitted; it is fitted here.
    covariates : columns of the participants' table to take out of the maps first; see `Covariates.fit`.
    timing : stage before this → seconds, for the report.
    work_dir : folder for finished pieces, from which an interrupted call goes on; see `CorticalFactorization.fit`.
    figures : whether to draw every panel of the page for print too (some seconds).
    verbose : show progress bars.

    Examples
    --------
    >>> import icofactor as ico
    >>> import tempfile
    >>> from pathlib import Path
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted = ico.fit_cohort(cohort, model, f"{folder}/out", figures=False)
    ...     print((Path(folder) / "out" / "report.html").is_file())
    True
    """
    mesh = mesh_name_of(cohort.sites)
    check_place(out, overwrite, cohort.hemisphere, mesh, figures)
    stages, spent = Stages(verbose), dict(timing or {})
    data = cohort
    if covariates:
        with stages.stage("covariates"), _timed(spent, "covariates"):
            data = _adjusted(cohort, model, covariates)
    with warnings.catch_warnings(record=True) as raised, _timed(spent, "fit"):
        warnings.simplefilter("always")
        model.fit(data, work_dir=work_dir)
    said = list(dict.fromkeys(str(w.message) for w in raised))
    with stages.stage("diagnostics") as show:
        found = diagnose(model, data, timing=spent, warnings=said, report=show)

    drawn = _Drawn(model, found, Path(out), stages)
    files = write_fit(
        out,
        components=model.components_,
        loadings=model.loadings_,
        subjects=cohort.subjects,
        hemi=cohort.hemisphere,
        mesh_name=mesh,
        mask=model.mask_,
        participants=cohort.participants,
        provenance=provenance_of(model, cohort, said),
        methods=methods_text(model, cohort),
        folders={FIGURES: drawn.figures} if figures else {},
        # the page last: it shows what the others hold
        extras={
            MODEL: model.save,
            FIGURE: drawn.components,
            DIAGNOSTICS: lambda path: save_diagnostics(found, path),
            PAGE: drawn.page,
        },
        overwrite=overwrite,
    )
    _remove_panels(Path(out) / FIGURES, set(files))
    return Fitted(model, data, Path(out), files, said)


def _remove_panels(folder: Path, drawn: set[Path]) -> None:
    """Remove what `icofactor report` drew there of an earlier fit: it is not among that fit's own files."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_panel(path.name) and path not in drawn:
            path.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


class _Drawn:
    """What is drawn of a fit; the cortex is read and its views are worked out once for all of it.

    Of what may lie in `out` already, the choice of a number of components is about the cohort and is shown; the rest is
    about an earlier fit.
    """

    def __init__(self, model: CorticalFactorization, found: Diagnostics, out: Path, stages: Stages) -> None:
        self.model, self.found, self.stages = model, found, stages
        self.beside = Beside(selection=read_selection(out))
        self.cortex = cortex_of(model.sites_, model.hemi_)

    def figures(self, folder: Path) -> None:
        with self.stages.stage("figures") as show:
            draw_panels(self.model, self.found, folder, beside=self.beside, surfaces=self.cortex, on_step=show)

    def components(self, path: Path) -> None:
        """All components on one page; among the figures already when they are few."""
        same = path.parent / FIGURES / path.name
        if same.exists():
            shutil.copyfile(same, path)
            return
        with self.stages.stage("figure"):
            units = component_units(self.model, self.found.units)
            plot_components(self.model, units=units, surfaces=self.cortex).savefig(path)

    def page(self, path: Path) -> None:
        with self.stages.stage("report"):
            shown: dict[str, Any] = {
                "model": self.model,
                "diagnostics": self.found,
                "beside": self.beside,
                "surfaces": self.cortex,
            }
            write_page(path.parent, figures=False, **shown)


def _adjusted(cohort: Any, model: CorticalFactorization, covariates: Sequence[str]) -> Any:
    """The cohort without its covariates."""
    signed = method_named(model.method).scheme.signed_data
    return Covariates.fit(cohort, covariates, mask=model.mask, nonnegative=not signed).apply(cohort)


@contextmanager
def _timed(spent: dict[str, float], stage: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    spent[stage] = time.perf_counter() - begin
