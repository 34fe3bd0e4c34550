"""The methods paragraph of a paper, from the fit itself, with references and versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.names import smoothing_of
from icofactor.cohort.people import Scans, people_of
from icofactor.errors import plural
from icofactor.factorization.extrapolation import HONNORAT
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.recurrence import NEAR, SAME_MAP, n_recurring
from icofactor.results.meaning import fitted_units, measure_title, what_remained
from icofactor.sphere.names import fsaverage_level, is_fs_lr, mesh_known_as, mesh_name_of

# References, in the style of a journal without DOIs.
_FSAVERAGE = (
    "Fischl B, Sereno MI, Tootell RBH, Dale AM. High-resolution intersubject averaging and a "
    "coordinate system for the cortical surface. Human Brain Mapping 8(4), 272-284 (1999)."
)
_FS_LR = (
    "Van Essen DC, Glasser MF, Dierker DL, Harwell J, Coalson T. Parcellations and hemispheric "
    "asymmetries of human cerebral cortex analyzed on surface-based atlases. Cerebral Cortex "
    "22(10), 2241-2262 (2012)."
)
_COMBAT = (
    "Johnson WE, Li C, Rabinovic A. Adjusting batch effects in microarray expression data using "
    "empirical Bayes methods. Biostatistics 8(1), 118-127 (2007)."
)
_COMBAT_THICKNESS = (
    "Fortin J-P, et al. Harmonization of cortical thickness measurements across scanners and "
    "sites. NeuroImage 167, 104-120 (2018)."
)
_NUMPY = "Harris CR, et al. Array programming with NumPy. Nature 585, 357-362 (2020)."
_SCIPY = (
    "Virtanen P, et al. SciPy 1.0: fundamental algorithms for scientific computing in Python. "
    "Nature Methods 17, 261-272 (2020)."
)

# What X is, by the centering of the fit.
_CENTERED = {
    "none": "",
    "mean": " as deviations from the mean map of the subjects",
    "zscore": (
        " as z-scores (at every site, the deviation from the subjects' mean over their standard "
        "deviation)"
    ),
}

# Why subjects were left out: as the provenance has it → as a paper says it.
_LEFT_OUT = {
    "by name": "by name",
    "that the participants table marks for exclusion": (
        "marked for exclusion in the table of participants"
    ),
    "that the participants table does not list": "not in the table of participants",
    "of the participants table without maps": "without maps",
    "with missing files": "with missing files",
    "with missing covariates": "with missing covariates",
    "without all measures": "without all measures",
}

_SIDES = {
    "left": "the left hemisphere",
    "right": "the right hemisphere",
    "both": "both hemispheres",
}

# The end of methods.md, which the page leaves out.
LATER = (
    "\nAfter `icofactor select` (`--ranks`, `--bootstrap`, `--atlas`) or `icofactor associate`, "
    "run `icofactor report FOLDER --overwrite` to add their results to this file and to "
    "`report.html`.\n"
)


# What loadings are projections of, by the centering of the fit.
_CENTERED_MAPS = {"none": "maps", "mean": "deviations", "zscore": "z-scores"}


# The numbers of references follow the text, so sentences are made in its order.
class _Citations:
    """Numbers references in the order they are cited."""

    def __init__(self) -> None:
        self.cited: list[str] = []

    def __call__(self, *references: str) -> str:
        for reference in references:
            if reference not in self.cited:
                self.cited.append(reference)
        numbers = [str(self.cited.index(reference) + 1) for reference in references]
        return f"[{', '.join(numbers)}]"

    def listed(self) -> str:
        return "\n".join(f"{i}. {reference}" for i, reference in enumerate(self.cited, start=1))


def methods_text(model: Any, cohort: Any, scans: Scans | None = None) -> str:
    """Return a methods paragraph in Markdown, with references.

    Parameters
    ----------
    model : a fitted CorticalFactorization.
    cohort : the Cohort it was fitted to, or one on disk.
    scans : which scans were fitted, if people have several.
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
    sites = model.sites_.one_copy()
    regions = sites.regions
    maps = "Simulated cortical maps" if cohort.simulated else "Cortical maps"
    if cohort.modality != "unknown":
        maps += f" of {measure_title(cohort.modality)}"
    if cohort.units:
        maps += f" (in {cohort.units})"
    n_used = sites.n if model.mask_ is None else int(model.mask_[: sites.n].sum())
    masked = ""
    if n_used != sites.n:
        masked = f", of which {n_used} were used and the others, such as the medial wall, left out"
    people = people_of(cohort)
    n_scans = len(cohort.subjects) if people is None else people.n_scans
    subjects = plural(n_scans, "subject")
    fitted = ""
    if scans is not None and scans.people is not None and scans.people.repeated:
        subjects = scans.people.as_scans
        fitted = f"; fitted on {scans.phrase}"
        # With measures that share maps, a scan has several rows.
        n_scans = scans.people.n_scans
        n_remaining = n_scans - len(scans.rows) * n_scans // len(scans.people.scans)
        if n_remaining:
            remaining = plural(n_remaining, "scan")
            fitted += f", with loadings of the other {remaining} from that fit"
    # Regions of a table may be of no hemisphere in particular.
    has_side = regions is None or regions.hemi is not None
    side = f", {_SIDES[cohort.hemisphere]}" if has_side else ""
    return (
        f"{maps} of {subjects} on {_sites_as_text(model, cite)}{side} ({sites.n} {sites.on}"
        f"{masked}), were factorized into {plural(len(model.components_), 'component')}{fitted}."
    )


def _sites_as_text(model: Any, cite: _Citations) -> str:
    """Return the sites and their mesh, with its reference."""
    sites = model.sites_.one_copy()
    mesh = _mesh_as_text(sites, mesh_name_of(model.sites_), cite)
    regions = sites.regions
    if regions is None:
        return f"the {sites.on} of {mesh}"
    if not sites.placed:
        return "regions"
    atlas = f"the atlas {regions.atlas}" if regions.atlas else "an atlas"
    return f"the regions of {atlas} on {mesh if regions.mesh else 'a mesh of its own'}"


def _mesh_as_text(sites: Any, mesh: str, cite: _Citations) -> str:
    if is_fs_lr(mesh):
        return f"the fs_LR 32k mesh {cite(_FS_LR)}"
    if fsaverage_level(mesh) is not None:
        return f"{mesh.removesuffix('7')} {cite(_FSAVERAGE)}"
    standard = mesh_known_as(mesh)
    if standard is not None:
        return f"CIVET's mesh ({standard.n_vertices} vertices per hemisphere)"
    return "a spherical mesh" if sites.name is None else mesh


def _left_out(provenance: Mapping[str, Any]) -> str:
    """Say how many subjects were left out, and why."""
    record = provenance.get("left_out")
    counts = {}
    # The provenance may come from a file, and hold anything.
    if isinstance(record, Mapping):
        for reason, names in record.items():
            if isinstance(names, list | tuple) and names:
                counts[_LEFT_OUT.get(reason, shown(reason))] = len(names)
    failed = {str(failure.get("subject")) for failure in _records(provenance, "failed")}
    if failed:
        counts["whose maps could not be made"] = len(failed)
    if not counts:
        return ""
    total = sum(counts.values())
    verb = "subject was" if total == 1 else "subjects were"
    reasons = [f"{n} {reason}" for reason, n in counts.items()]
    return f"{total} {verb} left out: {_and(reasons)}."


def _measures(model: Any) -> str:
    """Say how several measures were joined."""
    measures = model.measures_
    if measures is None:
        return ""
    shared = "one loading for every subject and component and maps of each of them"
    if measures.share == "maps":
        shared = (
            "one set of maps for all of them and a loading for every subject, component and measure"
        )
    scaling = ""
    if measures.scale == "variance":
        scaling = "; each was divided by the root of its total between-subject variance"
    if np.ptp(measures.weights):
        pairs = zip(measures.names, measures.weights, strict=True)
        weights = _and([f"{name} {weight:g}" for name, weight in pairs])
        scaling += f"; squared errors were weighted ({weights})"
    centring = " Each was centred by itself." if model.center_ != "none" else ""
    return (
        f"The measures {_and(list(measures.names))} were factorized together, with {shared}"
        f"{scaling}.{centring}"
    )


def _preprocessing(provenance: Mapping[str, Any]) -> str:
    """Say which steps a store or a cohort went through, in their order."""
    of_measures = provenance.get("measures")
    if isinstance(of_measures, Mapping):
        return _preprocessing_of_measures(of_measures)
    files = [str(record["path"]) for record in _records(provenance, "inputs") if record.get("path")]
    widths = {smoothing_of(Path(file).name) for file in files}
    width = widths.pop() if len(widths) == 1 else None
    steps = []
    if width is not None:
        steps.append(f"The maps had been smoothed with a Gaussian kernel of {width} mm FWHM")
    steps += [_step(step) for step in _records(provenance, "preprocessing")]
    if provenance.get("stored_dtype") == "float16":
        steps.append(
            "The maps were stored as 16-bit floating-point numbers, which keep three digits"
        )
    return " ".join(f"{step}." for step in steps if step)


def _preprocessing_of_measures(records: Mapping[str, Any]) -> str:
    """Say which steps each measure went through; equal texts are said once."""
    texts = {
        name: _preprocessing(record)
        for name, record in records.items()
        if isinstance(record, Mapping)
    }
    sentences = []
    for text in dict.fromkeys(filter(None, texts.values())):
        names = [shown(name) for name in texts if texts[name] == text]
        prefix = "" if len(names) == len(texts) else f"Of {_and(names)}: "
        sentences.append(f"{prefix}{text}")
    return " ".join(sentences)


def _step(step: Mapping[str, Any]) -> str:
    """Return one step of preprocessing as a sentence without its end."""
    name = step.get("step")
    # A store may have steps that this version does not have.
    unknown = f"Then {shown(name).replace('_', ' ')} was applied" if name else ""
    return _sentences(step).get(str(name), unknown)


def _sentences(step: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each name that a step may have, with the settings of this one."""

    def say(key: str) -> str:
        return shown(step.get(key))

    def if_set(key: str, text: str) -> str:
        return text if step.get(key) else ""

    method = step.get("method")
    band = f"between {say('low_hz')} and {say('high_hz')} Hz"
    kind = "a filter in the frequency domain"
    if method == "butterworth":
        kind = f"a Butterworth filter of order {say('order')}"
    divided = ""
    if step.get("normalize") == "mean":
        divided = " and divided by its mean over the cortex"
    interpolation = "adaptive barycentric" if method == "adaptive" else "barycentric"
    meshes = f"from {say('from')} to {say('to')}"
    resampled = f"Maps were resampled {meshes} by {interpolation} interpolation"
    if method == "nested":
        resampled = f"Only the vertices that {say('from')} shares with {say('to')} were kept"
    return {
        "bandpass": f"Time series were band-pass filtered {band} with {kind}",
        "regress_confounds": (
            f"{say('n_columns')} confounds that fMRIPrep estimated were regressed out of the "
            "series together with mean and linear trend"
        ),
        "censor": (
            f"Volumes with a framewise displacement above {say('max_fd_mm')} mm were censored"
            f"{if_set('filled', ' and interpolated in time')}"
        ),
        "detrend": "Mean and linear trend were removed from each series",
        "concatenate_runs": "Each run was scaled to zero mean and unit norm, and runs were joined",
        "reho": (
            f"ReHo was computed at each vertex of {say('mesh')} as Kendall's W of the series up "
            f"to {say('rings')} edges away, "
            f"{if_set('tie_correction', 'with') or 'without'} correction for ties"
        ),
        "alff": (
            f"ALFF was computed{if_set('detrend', ' of detrended series')} as the amplitude "
            f"{band}{divided}"
        ),
        "limit_outliers": (
            f"Values further than {say('n_deviations')} median absolute deviations from a "
            "subject's own median were set to that limit"
        ),
        "fill_from_neighbours": (
            f"Vertices without data (a share of at most {say('max_missing')} of the cortex of a "
            "hemisphere) were filled with the mean of their neighbours"
        ),
        "smooth": (
            "Maps were smoothed along the surface with a Gaussian kernel of "
            f"{say('fwhm_mm')} mm FWHM"
        ),
        "resample": resampled,
    }


def shown(value: Any) -> str:
    """Return a setting from a file as text of a line."""
    if isinstance(value, int | float):
        return f"{value:g}"
    return "".join(filter(str.isprintable, str(value)[:60]))


def _records(provenance: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the records that a provenance, which may come from a file, lists under a name."""
    records = provenance.get(key)
    if not isinstance(records, list | tuple):
        return []
    return [record for record in records if isinstance(record, Mapping)]


def _and(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _harmonization(model: Any, cite: _Citations) -> str:
    step = getattr(model, "harmonization_", None)
    if step is None:
        return ""
    pairs = zip(step.levels, step.counts, strict=True)
    scans = _and([f"{level} ({n} scans)" for level, n in pairs])
    # Details follow each other after semicolons.
    details = " with empirical Bayes estimates" if step.empirical_bayes else ""
    if step.terms:
        details += f"; linear effects of {_and(list(map(str, step.terms)))} were kept"
    if step.reference is not None:
        details += f"; {step.reference} was the reference"
    if step.n_shifted:
        details += "; a constant was added where values would have become negative"
    references = cite(_COMBAT, _COMBAT_THICKNESS)
    return (
        f"Maps were harmonized over {step.column}, {scans}, by ComBat {references}: location and "
        f"scale were adjusted at every {_site(model)}{_of_each(model)}{details}."
    )


def _site(model: Any) -> str:
    """Return what a site is, because "site" may be a scanner's in the same paper."""
    names = {"vertices": "vertex", "parcels": "region"}
    return names.get(model.sites_.on, model.sites_.on.removesuffix("s"))


def _of_each(model: Any) -> str:
    if model.measures_ is None or model.measures_.n == 1:
        return ""
    return " of each measure by itself"


def _covariates(model: Any) -> str:
    covariates = getattr(model, "covariates_", None)
    if covariates is None:
        return ""
    when = "Beforehand" if getattr(model, "harmonization_", None) is None else "Then"
    constant = ""
    if covariates.n_shifted:
        constant = ", plus a constant where values would have become negative"
    return (
        f"{when}, linear effects of {covariates} were removed at every {_site(model)}"
        f"{_of_each(model)} by least squares over the subjects; its mean was kept{constant}."
    )


def _problem(model: Any, cite: _Citations) -> str:
    scheme = _method(model).scheme
    text = scheme.text
    penalty = f"; {_penalty(model)}" if scheme.penalised else ""
    on_regions = ", on the regions themselves," if _on_regions(model) else ""
    loadings = "WᵀX" if scheme.projective else "C"
    # References are numbered in the order of the sentence, so this comes first.
    method = f"the hierarchical method of Honnorat and Davatzikos {cite(HONNORAT)}{on_regions}"
    return (
        f"We used {method} for {text.name} {cite(*text.references)}, which minimises "
        f"{text.objective}, where X is the matrix of sites × subjects{_CENTERED[model.center_]}, "
        f"the columns of W are the basis maps and {loadings} contains the loadings{penalty}."
    )


def _penalty(model: Any) -> str:
    weighting = "the penalty of W is that of its coefficients on the faces"
    if model.rules == "default":
        weighting = (
            "in the penalty of W the sites are weighted so that their weights sum to "
            f"{model.sites_.n_roots}"
        )
    is_published = model.rules == "default" and isinstance(model.penalty, str)
    relative = " (the published value at the scale of the data)" if is_published else ""
    return f"λ = {model.solution_.penalty:.4g}{relative}, and {weighting}"


def _weights(model: Any) -> str:
    if model.weights_ is None:
        return ""
    return (
        f"In every sum over sites, each site was weighted by {model.weighting_}, scaled to a mean "
        "of 1."
    )


def _on_regions(model: Any) -> bool:
    """Return whether the columns of the design are regions, without a hierarchy."""
    return model.sites_.regions is not None and model.design_.level == model.sites_.max_level


def _coarse(model: Any, cite: _Citations) -> str:
    basis = _coarse_basis(model)
    starts = _starts(model, cite)
    updates = _updates(_method(model), cite)
    ending = ""
    if model.tol:
        ending = (
            f" and ended when the objective fell by less than {model.tol:g} (relative) over ten "
            "updates"
        )
    if model.halving:
        ending += ", while the worse half of the starts was dropped repeatedly"
    rules = "No update was allowed to increase the objective."
    if model.rules == "paper":
        rules = f"The updates follow {cite(HONNORAT)} exactly."
    return (
        f"The basis was first fitted as {basis}, {starts} made at most {model.n_iter} {updates}"
        f"{ending}. {rules}"
    )


def _coarse_basis(model: Any) -> str:
    if _on_regions(model):
        return "one value per region"
    level = min(model.level, model.sites_.max_level)
    shape = {
        "partition": "constant on each of",
        "smooth": "a sum of smooth bumps, summing to one at every site, on",
        "exponential": "a sum of exponential bumps on",
    }[model.columns]
    return (
        f"{shape} the {20 * 4**level} faces per hemisphere of level {level} of the icosahedral "
        "hierarchy of the sphere"
    )


def _starts(model: Any, cite: _Citations) -> str:
    text = _method(model).scheme.text
    details = f" (seed {model.random_state})" if isinstance(model.random_state, int) else ""
    if text.starts:
        kind = f", {text.starts} {cite(*text.start_references)}"
        details += kind.replace("of the faces", "of the regions") if _on_regions(model) else kind
    n_starts = model.starts_.n_starts
    if n_starts == 1:
        return f"from one random start{details}; it"
    # Starts that were not continued have no updates.
    n_continued = int((model.starts_.start_n_iter > 0).sum())
    if 0 < n_continued < n_starts:
        details += f", of which the {n_continued} best were continued"
    return (
        f"from {n_starts} random starts{details}, and the one with the smallest objective was "
        "kept; each"
    )


def _refinement(model: Any) -> str:
    # Refinement may end early, where no face can be divided.
    n_divisions = len(model.refined_.divisions)
    if n_divisions == 0:
        return ""
    schedule = model.schedule
    worst = {"residual": "largest squared residual", "projected": "largest projected error"}
    return (
        f"Then the {schedule.faces} faces with the {worst[schedule.indicator]} were divided into "
        f"four, {n_divisions} times, with {schedule.n_iter} updates after each division, which "
        f"gave {model.design_.n_columns} faces in total."
    )


def _full_resolution(model: Any) -> str:
    if not model.lift:
        return (
            "The basis was left at the resolution of the faces; loadings were computed with that "
            "basis fixed."
        )
    if _method(model).scheme.projective:
        polish = ""
        if model.polish:
            polish = f", followed by {model.polish} gradient steps there"
        return (
            "The basis was then computed at every site by solving the optimality condition at full "
            f"resolution, given the coarse solution{polish}; loadings are projections on that "
            "basis."
        )
    polish = ""
    if model.polish:
        polish = f"; {model.polish} sweeps over both at full resolution followed"
    return (
        "With the loadings fixed, the basis was then computed at every site by solving the same "
        f"problem, which is convex there, and the loadings with that basis fixed{polish}."
    )


def _results(model: Any) -> str:
    scheme = _method(model).scheme
    scale = (
        f"Loadings are the projections of the {_CENTERED_MAPS[model.center_]} onto the components."
    )
    if scheme.scaled:
        scale = (
            "Loadings were scaled to a root mean square of one over subjects, so components are "
            f"{_component_units(model)}."
        )
    sign = ""
    if model.center_ != "none" and scheme.signed_maps:
        sign = (
            " A positive loading means a deviation from the average of the subjects like that of "
            "the map, a negative loading the opposite deviation."
        )
    elif model.center_ != "none":
        sign = (
            " A positive loading means values above the average of the subjects in the component, "
            "a negative loading values below it."
        )
    return (
        f"The fit explains {100 * model.explained_:.1f} % of the variance between subjects"
        f"{what_remained(model)}. {scale}{sign} Components are ordered by the variance each "
        "carries alone. For the parcellation, every site was assigned to the component that "
        "contributes most there."
    )


def _component_units(model: Any) -> str:
    units = fitted_units(model, "")
    if units == "standard deviations":
        return "in standard deviations"
    if units != "scaled units":
        return "in the units of the data"
    if model.measures_.share == "loadings":
        return "in the units of each measure"
    return "in the units of the scaled measures"


def _recurrence(model: Any) -> str:
    """Say how many components other starts reach; "" if that cannot be judged."""
    share = model.recurrence_
    if share is None or np.isnan(share).any():
        return ""
    n = n_recurring(share)
    components = f"Of the components, {n} of {len(share)} were"
    if len(share) == 1:
        components = "The component was" if n else "The component was not"
    limit = "; this says nothing about other people" if n else ""
    return (
        f"{components} reached (correlation of maps at least {SAME_MAP:g}) by at least half of the "
        f"{model.starts_.n_near} other random starts on the same people whose objective came "
        f"within {100 * NEAR:g} % of the smallest{limit}."
    )


def _software(cite: _Citations) -> str:
    return (
        f"Computations were performed with icofactor {version('icofactor')}, NumPy "
        f"{version('numpy')} {cite(_NUMPY)} and SciPy {version('scipy')} {cite(_SCIPY)}."
    )


def _updates(method: Method, cite: _Citations) -> str:
    """Say how the updates of a scheme were made, and extrapolated."""
    text = method.scheme.text
    parts = ["updates", text.updates]
    references = text.update_references
    if method.extrapolation is not None:
        extrapolation = method.extrapolation.text
        # The text begins with "with", which the updates may have said already.
        if " with " in f" {text.updates}":
            extrapolation = extrapolation.replace("with ", "and ", 1)
        parts.append(extrapolation)
        references = (*references, *method.extrapolation.references)
    if references:
        parts.append(cite(*references))
    return " ".join(filter(None, parts))


def _method(model: Any) -> Method:
    return method_named(model.solution_.method)
