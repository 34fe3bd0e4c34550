"""Sentences about `icofactor select` and `associate` for the methods paragraph."""

from __future__ import annotations

from typing import Any

from icofactor.assessment.atlas import is_of
from icofactor.results.methods_text import LATER, shown

# Headings before and after the sentences.
_ASSESSED = "\n\n## Assessment\n\n"
_REFERENCES = "\n\n## References"


def with_assessment(
    text: str,
    selection: Any,
    associations: Any = None,
    latent: Any = None,
    norm: Any = None,
    *,
    last: bool = False,
) -> str:
    """Return a methods text with sentences about assessment before its references.

    Parameters
    ----------
    last : whether to keep the last line, which says how the sentences get there.
    """
    if not text:
        return ""
    sentences = [
        _selection(selection.choice),
        _bootstrap(selection.stability),
        _atlas(selection.overlap),
        _associations(associations),
        _latent(latent),
        _norm(norm),
    ]
    added = " ".join(filter(None, sentences))
    body, mark, references = text.removesuffix(LATER).partition(_REFERENCES)
    # The text may have the sentences of an earlier report.
    body = body.partition(_ASSESSED)[0]
    if added:
        body = f"{body}{_ASSESSED}{added}"
    end = LATER if last and text.endswith(LATER) else ""
    return f"{body}{mark}{references}{end}"


def _selection(choice: Any) -> str:
    if choice is None:
        return ""
    settings = choice.settings
    ranks = choice.table.get("rank", ())
    tried = f" of {min(ranks)} to {max(ranks)}" if len(ranks) > 1 else ""
    # Settings come from a file, which may lack any of them.
    splits = "random halves"
    if "n_splits" in settings:
        splits = f"{shown(settings['n_splits'])} {splits}"
    nulls = "rotated maps"
    if "n_nulls" in settings:
        nulls = f"{shown(settings['n_nulls'])} cohorts of randomly rotated maps"
    strata = ""
    columns = settings.get("stratify")
    if isinstance(columns, list) and columns:
        strata = f", stratified by {', '.join(map(shown, columns))}"
    if "n_groups" in settings:
        rows = "scans of a person"
        if "groups" in settings:
            rows = f"rows of the same {shown(settings['groups'])}"
        strata += f", {rows} staying together,"
    recommended = "no number was"
    if choice.recommended is not None:
        recommended = f"{choice.recommended} components were"
    return (
        f"Numbers of components{tried} were compared by the agreement of fits to {splits} of the "
        f"subjects{strata} beyond that in {nulls}, and by the variance they predict in left-out "
        f"data; {recommended} recommended."
    )


def _bootstrap(stability: Any) -> str:
    if stability is None:
        return ""
    n_resamples = stability.get("n_resamples")
    resamples = f"{n_resamples[0]:.0f} resamples" if n_resamples else "resamples"
    return (
        "Standard errors of maps and loadings, and the stability of components (mean correlation "
        f"of each map with its partner), come from fits to {resamples} of the subjects with "
        "replacement."
    )


def _atlas(overlap: Any) -> str:
    if overlap is None:
        return ""
    n_spins = overlap.get("n_spins")
    rotations = f"{n_spins[0]:.0f} random rotations" if n_spins else "random rotations"
    # With several measures, the table has their shares beside the mean.
    mean = ""
    if any(map(is_of, overlap)):
        mean = " (means over the measures, each map divided by its sum)"
    n_regions = len(set(overlap["region"]))
    return (
        f"The overlap of components{mean} with the {n_regions} regions of an atlas was tested "
        f"against {rotations} of the maps on the sphere, with p-values adjusted for the false "
        "discovery rate over all components and regions (Benjamini and Hochberg)."
    )


def _associations(associations: Any) -> str:
    if associations is None:
        return ""
    settings = associations.settings
    rows = "subjects"
    model = "ordinary least squares"
    exchange = ""
    n_groups = settings.get("n_groups")
    if n_groups is not None:
        rows = "scans"
        model = f"linear models with a random intercept for each of {shown(n_groups)} groups (REML)"
        exchange = ", exchanged within groups or by whole groups of equal size"
    p = f"p-values are those of the t and F distributions, not corrected over {associations.over}"
    if associations.corrected:
        p = (
            f"p-values come from {settings['n_permutations']:,} permutations of the residuals of "
            f"the model without the tested term (Freedman and Lane){exchange}, and are corrected "
            f"over {associations.over} by the largest statistic"
        )
    return (
        f"Associations of the loadings of {settings['n_rows']:,} {rows} with the terms of the "
        f"formula {_printable(settings['formula'])} were estimated by {model}, each in the model "
        f"with the others, with 95 % confidence intervals; {p}."
    )


def _latent(latent: Any) -> str:
    if latent is None:
        return ""
    settings = latent.settings
    # The table has a row for each measure and latent variable.
    n_measures = latent.variables["side"].count("measure") // len(latent.latent["p"])
    tests = ""
    if settings["n_permutations"]:
        n = f"{settings['n_permutations']:,}"
        tests = f", latent variables tested by {n} permutations of behaviour"
    if settings["n_bootstrap"]:
        n = f"{settings['n_bootstrap']:,}"
        tests += f", with 95 % intervals from {n} resamples of people"
    return (
        f"Patterns of components that correlate with patterns of {n_measures} measures of "
        "behaviour were found by behavioural partial least squares in "
        f"{settings['n_rows']:,} rows{tests}."
    )


def _norm(norm: Any) -> str:
    if norm is None:
        return ""
    n_rows = int(norm.reference.sum())
    return (
        f"W-scores of loadings are deviations from what {n_rows:,} rows of the reference "
        f"({_printable(norm.settings['chosen_by'])}) have by a linear model of "
        f"{_printable(norm.settings['formula'])}, in its residual standard deviations."
    )


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))
