"""What `icofactor select` and `icofactor associate` did, as sentences of the methods paragraph."""

from __future__ import annotations

from typing import Any

from icofactor.assessment.atlas import is_of
from icofactor.results.methods_text import LATER, shown

_ASSESSED, _REFERENCES = "\n\n## Assessment\n\n", "\n\n## References"


def with_assessment(
    text: str,
    selection: Any,
    associations: Any = None,
    latent: Any = None,
    norm: Any = None,
    *,
    last: bool = False,
) -> str:
    """A methods text with what `icofactor select` and `icofactor associate` did, before its
    references.

    Parameters
    ----------
    last : whether to keep the last line, which says how that gets there.
    """
    if not text:
        return ""
    said = [
        *(_selection(selection.choice), _bootstrap(selection.stability), _atlas(selection.overlap)),
        *(_associations(associations), _latent(latent), _norm(norm)),
    ]
    added = " ".join(filter(None, said))
    body, mark, references = text.removesuffix(LATER).partition(_REFERENCES)
    body = body.partition(_ASSESSED)[0]  # of an earlier report
    end = LATER if last and text.endswith(LATER) else ""
    return f"{body}{_ASSESSED * bool(added)}{added}{mark}{references}{end}"


def _selection(choice: Any) -> str:
    if choice is None:
        return ""
    known, ranks = choice.settings, choice.table.get("rank", ())
    tried = f" of {min(ranks)} to {max(ranks)}" if len(ranks) > 1 else ""
    splits = f"{shown(known['n_splits'])} random halves" if "n_splits" in known else "random halves"
    nulls = (
        f"{shown(known['n_nulls'])} cohorts of randomly rotated maps"
        if "n_nulls" in known
        else "rotated maps"
    )
    columns = known.get("stratify")
    strata = (
        f", stratified by {', '.join(map(shown, columns))}"
        if isinstance(columns, list) and columns
        else ""
    )
    if "n_groups" in known:
        kind = (
            "rows of the same " + shown(known["groups"])
            if "groups" in known
            else "scans of a person"
        )
        strata += f", {kind} staying together,"
    found = (
        "no number was" if choice.recommended is None else f"{choice.recommended} components were"
    )
    return (
        f"Numbers of components{tried} were compared by the agreement of fits to {splits} of the subjects{strata} "
        f"beyond that in {nulls}, and by the variance they predict in left-out data; {found} recommended."
    )


def _bootstrap(stability: Any) -> str:
    if stability is None:
        return ""
    n = stability.get("n_resamples")
    times = f"{n[0]:.0f} resamples" if n else "resamples"
    return (
        f"Standard errors of maps and loadings, and the stability of components (mean correlation of each map with its "
        f"partner), come from fits to {times} of the subjects with replacement."
    )


def _atlas(overlap: Any) -> str:
    if overlap is None:
        return ""
    n = overlap.get("n_spins")
    by = f"{n[0]:.0f} random rotations" if n else "random rotations"
    mean = (
        " (means over the measures, each map divided by its sum)"
        if any(map(is_of, overlap))
        else ""
    )
    return (
        f"The overlap of components{mean} with the {len(set(overlap['region']))} regions of an atlas was tested "
        f"against {by} of the maps on the sphere, with p-values adjusted for the false discovery rate over all "
        "components and regions (Benjamini and Hochberg)."
    )


def _associations(found: Any) -> str:
    if found is None:
        return ""
    known = found.settings
    formula = "".join(filter(str.isprintable, known["formula"]))
    groups, exchanged = known.get("n_groups"), ""
    model = "ordinary least squares"
    if groups is not None:
        model = f"linear models with a random intercept for each of {shown(groups)} groups (REML)"
        exchanged = ", exchanged within groups or by whole groups of equal size,"
    if found.corrected:
        p = (
            f"p-values come from {known['n_permutations']:,} permutations of the residuals of the model without the "
            f"tested term (Freedman and Lane){exchanged or ','} and are corrected over {found.over} by the largest "
            "statistic"
        )
    else:
        p = "p-values are those of the t and F distributions, not corrected over " + found.over
    return (
        f"Associations of the loadings of {known['n_rows']:,} {'scans' if groups is not None else 'subjects'} with the "
        f"terms of the formula {formula} were estimated by {model}, each in the model with the others, with 95 % "
        f"confidence intervals; {p}."
    )


def _latent(found: Any) -> str:
    if found is None:
        return ""
    known, measures = (
        found.settings,
        found.variables["side"].count("measure") // len(found.latent["p"]),
    )
    tested = f", latent variables tested by {known['n_permutations']:,} permutations of behaviour"
    spread = f", with 95 % intervals from {known['n_bootstrap']:,} resamples of people"
    return (
        f"Patterns of components that correlate with patterns of {measures} measures of behaviour were found by "
        f"behavioural partial least squares in {known['n_rows']:,} rows{tested if known['n_permutations'] else ''}"
        f"{spread if known['n_bootstrap'] else ''}."
    )


def _norm(found: Any) -> str:
    if found is None:
        return ""
    text = lambda name: "".join(filter(str.isprintable, found.settings[name]))
    return (
        f"W-scores of loadings are deviations from what {int(found.reference.sum()):,} rows of the reference "
        f"({text('chosen_by')}) have by a linear model of {text('formula')}, in its residual standard deviations."
    )
