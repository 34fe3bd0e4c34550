"""The methods paragraph of a paper, from what was really done: ready to paste, with references and
versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.names import smoothing_of
from icofactor.cohort.people import Scans, people_of
from icofactor.errors import counted
from icofactor.factorization.extrapolation import HONNORAT
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.recurrence import NEAR, SAME_MAP, n_recurring
from icofactor.results.meaning import fitted_units, measure_title, what_remained
from icofactor.sphere.names import fsaverage_level, is_fs_lr, mesh_known_as, mesh_name_of

_FSAVERAGE = (
    "Fischl B, Sereno MI, Tootell RBH, Dale AM. High-resolution intersubject averaging and a coordinate system for the "
    "cortical surface. Human Brain Mapping 8(4), 272-284 (1999)."
)
_FS_LR = (
    "Van Essen DC, Glasser MF, Dierker DL, Harwell J, Coalson T. Parcellations and hemispheric asymmetries of human "
    "cerebral cortex analyzed on surface-based atlases. Cerebral Cortex 22(10), 2241-2262 (2012)."
)
_COMBAT = (
    "Johnson WE, Li C, Rabinovic A. Adjusting batch effects in microarray expression data using empirical Bayes "
    "methods. Biostatistics 8(1), 118-127 (2007)."
)
_COMBAT_THICKNESS = (
    "Fortin J-P, et al. Harmonization of cortical thickness measurements across scanners and sites. NeuroImage 167, "
    "104-120 (2018)."
)
_NUMPY = "Harris CR, et al. Array programming with NumPy. Nature 585, 357-362 (2020)."
_SCIPY = (
    "Virtanen P, et al. SciPy 1.0: fundamental algorithms for scientific computing in Python. Nature Methods 17, "
    "261-272 (2020)."
)


_TAKEN_OUT = {
    "none": "",
    "mean": " as deviations from the mean map of the subjects",
    "zscore": " as z-scores (at every site, the deviation from the subjects' mean over their standard deviation)",
}
"""`center_` → what X is."""


_LEFT_OUT = {
    "by name": "by name",
    "that the participants table marks for exclusion": "marked for exclusion in the table of participants",
    "that the participants table does not list": "not in the table of participants",
    "of the participants table without maps": "without maps",
    "with missing files": "with missing files",
    "with missing covariates": "with missing covariates",
    "without all measures": "without all measures",
}
"""Why subjects were left out, as the journal has it → as a paper says it."""


LATER = (
    "\nAfter `icofactor select` (`--ranks`, `--bootstrap`, `--atlas`) or `icofactor associate`, run `icofactor report "
    "FOLDER --overwrite` to add their results to this file and to `report.html`.\n"
)
"""The end of methods.md, which the page leaves out."""


class _Citations:
    """Numbers references in the order they are cited."""

    def __init__(self) -> None:
        self.cited: list[str] = []

    def __call__(self, *references: str) -> str:
        for reference in references:
            if reference not in self.cited:
                self.cited.append(reference)
        return f"[{', '.join(str(self.cited.index(reference) + 1) for reference in references)}]"

    def listed(self) -> str:
        return "\n".join(f"{i}. {reference}" for i, reference in enumerate(self.cited, start=1))


def methods_text(model: Any, cohort: Any, scans: Scans | None = None) -> str:
    """A methods paragraph in Markdown, with references.

    Parameters
    ----------
    model : a fitted CorticalFactorization.
    cohort : the Cohort it was fitted to, or one on disk.
    scans : which scans were fitted, where people have several.
    """
    cite = _Citations()
    sentences = [
        _data(model, cohort, cite, scans),
        _left_out(cohort.provenance),
        _measures(model),
        _preprocessing(cohort.provenance),
        _harmonization(model, cite),
        _covariates(model),
        _problem(model, cite),
        _weights(model),
        _coarse(model, cite),
        _recurrence(model),
        _refinement(model),
        _full_resolution(model),
        _results(model),
        _software(cite),
    ]
    text = " ".join(sentence for sentence in sentences if sentence)
    return f"# Methods\n\n{text}\n\n## References\n\n{cite.listed()}\n{LATER}"


def _data(model: Any, cohort: Any, cite: _Citations, scans: Scans | None) -> str:
    sites, mesh = model.sites_.of_measure(), mesh_name_of(model.sites_)
    where = f"the {sites.on} of {mesh}"
    if is_fs_lr(mesh):
        where = f"the {sites.on} of the fs_LR 32k mesh {cite(_FS_LR)}"
    elif fsaverage_level(mesh) is not None:
        where = f"the {sites.on} of {mesh.removesuffix('7')} {cite(_FSAVERAGE)}"
    elif (known := mesh_known_as(mesh)) is not None:
        where = f"the {sites.on} of CIVET's mesh ({known.n_vertices} vertices per hemisphere)"
    elif sites.name is None:
        where = f"the {sites.on} of a spherical mesh"
    if sites.regions is not None:
        of = where.partition(" of ")[2] if sites.regions.mesh else "a mesh of its own"
        atlas = f"the atlas {sites.regions.atlas}" if sites.regions.atlas else "an atlas"
        where = f"the regions of {atlas} on {of}" if sites.placed else "regions"
    side = {
        "left": "the left hemisphere",
        "right": "the right hemisphere",
        "both": "both hemispheres",
    }
    what = "Simulated cortical maps" if cohort.simulated else "Cortical maps"
    what += "" if cohort.modality == "unknown" else f" of {measure_title(cohort.modality)}"
    units = f" (in {cohort.units})" if cohort.units else ""
    used = sites.n if model.mask_ is None else int(model.mask_[: sites.n].sum())
    left_out = (
        ""
        if used == sites.n
        else f", of which {used} were used and the others, such as the medial wall, left out"
    )
    people = people_of(cohort)
    who, rest = counted(len(cohort.subjects) if people is None else people.n_scans, "subject"), ""
    if scans is not None and scans.people is not None and scans.people.repeated:
        n_others = scans.people.n_scans - len(scans.rows) * scans.people.n_scans // len(
            scans.people.scans
        )
        who, rest = scans.people.as_scans, f"; fitted on {scans.fit_on.phrase}"
        rest += (
            f", with loadings of the other {counted(n_others, 'scan')} from that fit"
            if n_others
            else ""
        )
    whose = (
        ""
        if sites.regions is not None and sites.regions.hemi is None
        else f", {side[cohort.hemisphere]}"
    )
    return (
        f"{what}{units} of {who} on {where}{whose} ({sites.n} {sites.on}{left_out}), were "
        f"factorized into {counted(len(model.components_), 'component')}{rest}."
    )


def _left_out(provenance: Mapping[str, Any]) -> str:
    """How many subjects were left out, and why."""
    told = provenance.get("left_out")
    listed = told.items() if isinstance(told, Mapping) else ()
    found = {why: len(names) for why, names in listed if isinstance(names, list | tuple) and names}
    failed = {str(one.get("subject")) for one in _records(provenance, "failed")}
    reasons = [f"{n} {_LEFT_OUT.get(why, shown(why))}" for why, n in found.items()]
    reasons += [f"{len(failed)} whose maps could not be made"] if failed else []
    total = sum(found.values()) + len(failed)
    return (
        f"{total} {'subject was' if total == 1 else 'subjects were'} left out: {_and(reasons)}."
        if reasons
        else ""
    )


def _measures(model: Any) -> str:
    """How several measures were joined."""
    found = model.measures_
    if found is None:
        return ""
    shared = {
        "maps": "one set of maps for all of them and a loading for every subject, component and measure",
        "loadings": "one loading for every subject and component and maps of each of them",
    }[found.share]
    scaled = {
        "none": "",
        "variance": "; each was divided by the root of its total between-subject variance",
        "zscore": "",
    }[found.scale]
    if np.ptp(found.weights):
        listed = _and([f"{name} {w:g}" for name, w in zip(found.names, found.weights, strict=True)])
        scaled += f"; squared errors were weighted ({listed})"
    apart = " Each was centred by itself." if model.center_ != "none" else ""
    return f"The measures {_and(list(found.names))} were factorized together, with {shared}{scaled}.{apart}"


def _preprocessing(provenance: Mapping[str, Any]) -> str:
    """The steps that a store or a cohort knows of, in their order."""
    of_measures = provenance.get("measures")
    if isinstance(of_measures, Mapping):
        known = {
            name: _preprocessing(one)
            for name, one in of_measures.items()
            if isinstance(one, Mapping)
        }
        said = {
            text: [name for name in known if known[name] == text] for text in known.values() if text
        }
        every = lambda names: (
            "" if len(names) == len(known) else f"Of {_and(list(map(shown, names)))}: "
        )
        return " ".join(f"{every(names)}{text}" for text, names in said.items())
    files = [str(one["path"]) for one in _records(provenance, "inputs") if one.get("path")]
    told = {smoothing_of(Path(file).name) for file in files}
    smoothed = told.pop() if len(told) == 1 else None
    steps = (
        []
        if smoothed is None
        else [f"The maps had been smoothed with a Gaussian kernel of {smoothed} mm FWHM"]
    )
    steps += [text for step in _records(provenance, "preprocessing") if (text := _step(step))]
    if provenance.get("stored_dtype") == "float16":
        steps.append(
            "The maps were stored as 16-bit floating-point numbers, which keep three digits"
        )
    return "".join(f"{text}. " for text in steps).rstrip()


def _step(step: Mapping[str, Any]) -> str:
    """One step of preprocessing as a sentence without its end."""
    name, of = step.get("step"), step
    say = lambda key: shown(of.get(key))
    band = f"between {say('low_hz')} and {say('high_hz')} Hz"
    if name == "bandpass":
        kind = f"a Butterworth filter of order {say('order')}"
        kind = kind if of.get("method") == "butterworth" else "a filter in the frequency domain"
        return f"Time series were band-pass filtered {band} with {kind}"
    if name == "regress_confounds":
        return (
            f"{say('n_columns')} confounds that fMRIPrep estimated were regressed out of the series together with mean "
            "and linear trend"
        )
    if name == "censor":
        filled = " and interpolated in time" if of.get("filled") else ""
        return f"Volumes with a framewise displacement above {say('max_fd_mm')} mm were censored{filled}"
    if name == "detrend":
        return "Mean and linear trend were removed from each series"
    if name == "concatenate_runs":
        return "Each run was scaled to zero mean and unit norm, and runs were joined"
    if name == "reho":
        ties = "with" if of.get("tie_correction") else "without"
        return (
            f"ReHo was computed at each vertex of {say('mesh')} as Kendall's W of the series up to {say('rings')} "
            f"edges away, {ties} correction for ties"
        )
    if name == "alff":
        series = " of detrended series" if of.get("detrend") else ""
        scaled = " and divided by its mean over the cortex" if of.get("normalize") == "mean" else ""
        return f"ALFF was computed{series} as the amplitude {band}{scaled}"
    if name == "limit_outliers":
        return (
            f"Values further than {say('n_deviations')} median absolute deviations from a subject's own median "
            "were set to that limit"
        )
    if name == "fill_from_neighbours":
        most = f"a share of at most {say('max_missing')} of the cortex of a hemisphere"
        return f"Vertices without data ({most}) were filled with the mean of their neighbours"
    if name == "smooth":
        return f"Maps were smoothed along the surface with a Gaussian kernel of {say('fwhm_mm')} mm FWHM"
    if name == "resample" and of.get("method") == "nested":
        return f"Only the vertices that {say('from')} shares with {say('to')} were kept"
    if name == "resample":
        method = "adaptive barycentric" if of.get("method") == "adaptive" else "barycentric"
        return f"Maps were resampled from {say('from')} to {say('to')} by {method} interpolation"
    return f"Then {shown(name).replace('_', ' ')} was applied" if name else ""


def shown(value: Any) -> str:
    """A setting from a file, as text of a line."""
    return (
        f"{value:g}"
        if isinstance(value, int | float)
        else "".join(filter(str.isprintable, str(value)[:60]))
    )


def _records(provenance: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The records that a provenance, which may come from a file, lists under a name."""
    listed = provenance.get(key)
    return (
        [one for one in listed if isinstance(one, Mapping)]
        if isinstance(listed, list | tuple)
        else []
    )


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _harmonization(model: Any, cite: _Citations) -> str:
    done = getattr(model, "harmonization_", None)
    if done is None:
        return ""
    scans = _and(
        [f"{level} ({n} scans)" for level, n in zip(done.levels, done.counts, strict=True)]
    )
    how = " with empirical Bayes estimates" if done.empirical_bayes else ""
    kept = f"; linear effects of {_and(list(map(str, done.terms)))} were kept" if done.terms else ""
    to = "" if done.reference is None else f"; {done.reference} was the reference"
    lifted = (
        "; a constant was added where values would have become negative" if done.n_shifted else ""
    )
    return (
        f"Maps were harmonized over {done.column}, {scans}, by ComBat {cite(_COMBAT, _COMBAT_THICKNESS)}: location and "
        f"scale were adjusted at every {_place(model)}{_of_each(model)}{how}{kept}{to}{lifted}."
    )


def _place(model: Any) -> str:
    """A site by a name that no reader takes for a scanner's: a paper may harmonize over sites."""
    return {"vertices": "vertex", "parcels": "region"}.get(
        model.sites_.on, model.sites_.on.removesuffix("s")
    )


def _of_each(model: Any) -> str:
    return (
        " of each measure by itself"
        if model.measures_ is not None and model.measures_.n > 1
        else ""
    )


def _covariates(model: Any) -> str:
    covariates = getattr(model, "covariates_", None)
    if covariates is None:
        return ""
    kept = (
        ", plus a constant where values would have become negative" if covariates.n_shifted else ""
    )
    when = "Beforehand" if getattr(model, "harmonization_", None) is None else "Then"
    return (
        f"{when}, linear effects of {covariates} were removed at every {_place(model)}{_of_each(model)} by least "
        f"squares over the subjects; its mean was kept{kept}."
    )


def _problem(model: Any, cite: _Citations) -> str:
    scheme = _method(model).scheme
    text = scheme.text
    weighted = {
        "default": f"in the penalty of W the sites are weighted so that their weights sum to {model.sites_.n_roots}",
        "paper": "the penalty of W is that of its coefficients on the faces",
    }[model.rules]
    relative = (
        " (the published value at the scale of the data)" if _penalty_is_relative(model) else ""
    )
    penalty = (
        ""
        if not scheme.penalised
        else f"; λ = {model.solution_.penalty:.4g}{relative}, and {weighted}"
    )
    itself = ", on the regions themselves," if _on_regions(model) else ""
    where = (
        "the columns of W are the basis maps and "
        + ("WᵀX" if scheme.projective else "C")
        + " contains the loadings"
    )
    return (
        f"We used the hierarchical method of Honnorat and Davatzikos {cite(HONNORAT)}{itself} for {text.name} "
        f"{cite(*text.references)}, which minimises {text.objective}, where X is the matrix of sites × subjects"
        f"{_TAKEN_OUT[model.center_]}, {where}{penalty}."
    )


def _weights(model: Any) -> str:
    if model.weights_ is None:
        return ""
    return f"In every sum over sites, each site was weighted by {model.weighting_}, scaled to a mean of 1."


def _penalty_is_relative(model: Any) -> bool:
    return model.rules == "default" and isinstance(model.penalty, str)


def _on_regions(model: Any) -> bool:
    """Whether the regions of a table are the columns of the design, without a hierarchy."""
    return model.sites_.regions is not None and model.design_.level == model.sites_.max_level


def _coarse(model: Any, cite: _Citations) -> str:
    level = min(model.level, model.sites_.max_level)
    columns = {
        "partition": "constant on each of",
        "smooth": "a sum of smooth bumps, summing to one at every site, on",
        "exponential": "a sum of exponential bumps on",
    }[model.columns]
    rules = {
        "default": "No update was allowed to increase the objective.",
        "paper": f"The updates follow {cite(HONNORAT)} exactly.",
    }[model.rules]
    ending = (
        f" and ended when the objective fell by less than {model.tol:g} (relative) over ten updates"
    )
    stop = ending if model.tol else ""
    halved = ", while the worse half of the starts was dropped repeatedly" if model.halving else ""
    seed = f" (seed {model.random_state})" if isinstance(model.random_state, int) else ""
    text, n_starts = _method(model).scheme.text, model.starts_.n_starts
    kind = f", {text.starts} {cite(*text.start_references)}" if text.starts else ""
    kind = kind.replace("of the faces", "of the regions") if _on_regions(model) else kind
    starts = f"from one random start{seed}{kind}; it"
    if n_starts > 1:
        n_run = int((model.starts_.start_n_iter > 0).sum())
        continued = f", of which the {n_run} best were continued" if 0 < n_run < n_starts else ""
        starts = f"from {n_starts} random starts{seed}{kind}{continued}, and the one with the smallest objective was kept"
        starts += "; each"
    updates = _updates(_method(model), cite)
    where = f"{columns} the {20 * 4**level} faces per hemisphere of level {level} of the icosahedral hierarchy"
    where += " of the sphere"
    if _on_regions(model):
        where = "one value per region"
    return f"The basis was first fitted as {where}, {starts} made at most {model.n_iter} {updates}{stop}{halved}. {rules}"


def _refinement(model: Any) -> str:
    schedule, n_done = model.schedule, len(model.refined_.divisions)
    if n_done == 0:
        return ""
    worst = {"residual": "largest squared residual", "projected": "largest projected error"}[
        schedule.indicator
    ]
    return (
        f"Then the {schedule.faces} faces with the {worst} were divided into four, {n_done} times, with "
        f"{schedule.n_iter} updates after each division, which gave {model.design_.n_columns} faces in total."
    )


def _full_resolution(model: Any) -> str:
    if not model.lift:
        return "The basis was left at the resolution of the faces; loadings were computed with that basis fixed."
    if _method(model).scheme.projective:
        polish = f", followed by {model.polish} gradient steps there" if model.polish else ""
        return (
            "The basis was then computed at every site by solving the optimality condition at full resolution, given "
            f"the coarse solution{polish}; loadings are projections on that basis."
        )
    polish = (
        f"; {model.polish} sweeps over both at full resolution followed" if model.polish else ""
    )
    return (
        "With the loadings fixed, the basis was then computed at every site by solving the same problem, which is "
        f"convex there, and the loadings with that basis fixed{polish}."
    )


def _results(model: Any) -> str:
    what = {"none": "maps", "mean": "deviations", "zscore": "z-scores"}[model.center_]
    units = {
        "standard deviations": "in standard deviations",
        "scaled units": "in the units of the scaled measures",
    }
    own = units.get(fitted_units(model, ""), "in the units of the data")
    if own.endswith("measures") and model.measures_.share == "loadings":
        own = "in the units of each measure"
    scale = (
        f"Loadings are the projections of the {what} onto the components."
        if not _method(model).scheme.scaled
        else f"Loadings were scaled to a root mean square of one over subjects, so components are {own}."
    )
    more, less = (
        (
            "a deviation from the average of the subjects like that of the map",
            "the opposite deviation",
        )
        if _method(model).scheme.signed_maps
        else ("values above the average of the subjects in the component", "values below it")
    )
    sign = (
        ""
        if model.center_ == "none"
        else f" A positive loading means {more}, a negative loading {less}."
    )
    return (
        f"The fit explains {100 * model.explained_:.1f} % of the variance between subjects{what_remained(model)}. "
        f"{scale}{sign} Components "
        "are ordered by the variance each carries alone. For the parcellation, every site was assigned to the "
        f"component that contributes most there."
    )


def _recurrence(model: Any) -> str:
    """How many components other starts on the same people reach; "" where that cannot be judged."""
    share = model.recurrence_
    if share is None or np.isnan(share).any():
        return ""
    n, one = n_recurring(share), len(share) == 1
    which = (
        f"The component was{'' if n else ' not'}"
        if one
        else f"Of the components, {n} of {len(share)} were"
    )
    limit = "; this says nothing about other people" if n else ""
    return (
        f"{which} reached (correlation of maps at least {SAME_MAP:g}) by at least half of the {model.starts_.n_near} "
        "other random starts on the same people whose objective came within "
        f"{100 * NEAR:g} % of the smallest{limit}."
    )


def _software(cite: _Citations) -> str:
    return (
        f"Computations were performed with icofactor {version('icofactor')}, NumPy {version('numpy')} {cite(_NUMPY)} "
        f"and SciPy {version('scipy')} {cite(_SCIPY)}."
    )


def _updates(method: Method, cite: _Citations) -> str:
    """How the updates were made: of the scheme, and of its extrapolation."""
    text, extrapolation = method.scheme.text, method.extrapolation
    parts, references = ["updates", text.updates], text.update_references
    if extrapolation is not None:
        added = extrapolation.text.replace(
            "with ", "and " if " with " in f" {text.updates}" else "with ", 1
        )
        parts, references = [*parts, added], (*references, *extrapolation.references)
    return " ".join([*filter(None, parts), *([cite(*references)] if references else [])])


def _method(model: Any) -> Method:
    """The fitted method."""
    return method_named(model.solution_.method)
