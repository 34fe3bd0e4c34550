"""The panels of the page: text, a chart, a table. To add one, write a function and list it in
`PARTS`.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.associations import plot_latent
from icofactor.assessment.atlas import OF_MEASURE, is_of, name_with_shares, rows_to_show
from icofactor.errors import plural
from icofactor.factorization.recurrence import ENOUGH
from icofactor.io.tables import plain
from icofactor.results.assessment_text import with_assessment
from icofactor.results.colours import distinct_colours
from icofactor.results.diagnostics.record import Association, Grouping
from icofactor.results.meaning import (
    adjusted_for,
    adjustments,
    fitted_units,
    has_signed_loadings,
    recurrence_line,
    scale_label,
    verdict,
)
from icofactor.results.report import charts
from icofactor.results.report.drawing import Scale, panels_of
from icofactor.results.report.figures import (
    Pictures,
    component_scale,
    parcel_colours,
    top_of,
)
from icofactor.results.report.markup import (
    NOTHING,
    Markup,
    bullets,
    element,
    fixed,
    join,
    number,
    paragraph,
    percent,
    probability,
    table,
)
from icofactor.results.report.surfaces import labels_on_vertices, on_vertices
from icofactor.results.report.tables import (
    added_by_chance,
    common_share,
    norm_summary,
    settings_of,
    strength_of,
    unusual_values,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icofactor.results.description import FitDescription

# Cells of the table of people on the page; tables/subjects.tsv lists everybody.
_MOST_CELLS = 20_000
# Columns of the participants on the page, the clearest ones.
_MOST_COLUMNS = 40
_CLEAR = 0.05
# Brains on the page have fewer pixels than those for print.
_SHRINK = 1.5
# Other starts reach a component less often than this: worth a line beside its map.
_RARE = 0.5
# Tables of the fit that panels link.
_COMPONENTS = "desc-icofactor_components.tsv"
_LOADINGS = "desc-icofactor_loadings.tsv"
_SUMMARY = "tables/summary.tsv"


@dataclass(frozen=True, eq=False)
class Panel:
    """A section of the page.

    Attributes
    ----------
    name : of its anchor, and of its file in figures/
    title : its heading
    intro : what a reader needs to know to read it
    lines : sentences about the results, before the chart
    figure : its chart; None without one
    body : what follows the chart
    tables : where its numbers are, as far as the files exist
    """

    name: str
    title: str
    intro: str = ""
    figure: Figure | None = None
    body: Markup = NOTHING
    tables: tuple[str, ...] = ()
    lines: Sequence[str] = ()


def panels_by_part(fit: FitDescription) -> Iterator[tuple[str, Iterator[Panel]]]:
    """Yield the parts of the page with their panels, each drawn when it is asked for."""
    for title, functions in PARTS.items():
        panels = (function(fit) for function in functions)
        yield title, (panel for panel in panels if panel is not None)


# Each component


def components_panel(fit: FitDescription) -> Panel:
    """Map, size, trust and relations of every component."""
    d = fit.diagnostics
    pictures = component_pictures(fit)
    # Regions of a table without an atlas lie nowhere.
    place = "regions" if fit.model.sites_.regions is not None and not pictures else "cortex"
    stability = fit.selection.stability
    recurrence = fit.model.recurrence_
    cards = []
    for j, title in enumerate(fit.titles):
        facts = [
            ("unique variance", percent(d.unique[j])),
            (f"of the {place}", percent(d.extent[j], 0)),
            ("smallest and largest loading", _range_text(d.loadings[:, j])),
        ]
        if recurrence is not None and recurrence[j] < _RARE:
            facts.append(("of other starts on the same people reach it", percent(recurrence[j], 0)))
        if stability is not None:
            facts.append(("stability in resamples", fixed(stability["stability"][j])))
        terms = [element("div", element("dt", name), element("dd", fact)) for name, fact in facts]
        anchor = f"component-{j + 1}"
        button = element(
            "button",
            "Show on the large brain",
            type="button",
            class_="screen script",
            data_component=str(j),
            aria_label=f"Show on the large brain: {title}",
        )
        card = element(
            "article",
            element("h4", swatch(fit, j), title, id=anchor),
            element("div", *pictures[j], class_="views") if pictures else NOTHING,
            element(
                "div",
                element("dl", *terms),
                bullets(_relations_of(fit, j)),
                button if pictures else NOTHING,
                class_="facts",
            ),
            class_="component",
            aria_labelledby=anchor,
        )
        cards.append(card)
    intro = (
        "Components are numbered by the variance that each carries alone. Unique variance: what "
        f"its loadings add to those of all others. Of the {place}: where the map exceeds 5 % of "
        f"its largest value. {_about_relations(fit)}"
    )
    if pictures:
        intro = f"All maps have one scale of colours. {intro}"
    tables = (_COMPONENTS, _LOADINGS, "desc-icofactor_dseg.tsv", "*_regions.tsv")
    return Panel("components", "Maps and associations", intro, None, join(cards), tables)


def component_pictures(fit: FitDescription) -> list[list[Markup]]:
    """Return pictures of each component, of each measure with maps of its own; nothing where the
    mesh cannot be drawn.
    """
    by_component: list[list[Markup]] = [[] for _ in fit.titles]
    for measure, one_measure in fit.by_measure() if fit.cortex.hemispheres else []:
        model = one_measure.model
        maps = np.asarray(model.components_, dtype=np.float64)
        if model.mask_ is not None:
            maps = np.where(model.mask_, maps, np.nan)
        top = max(top_of(values) for values in maps)
        scale = component_scale(bool(np.nanmin(maps) < 0), top)
        for j, values in enumerate(maps):
            halves = on_vertices(model.sites_, values)
            caption = f"Map of {fit.titles[j]}{f', {measure}' if measure else ''}"
            if measure:
                by_component[j].append(paragraph(measure, class_="about"))
            by_component[j].append(_picture(one_measure, halves, scale, caption))
    return by_component if fit.cortex.hemispheres else []


def parcellation_pictures(fit: FitDescription, caption: str) -> list[Markup]:
    """Return a picture of the parcellation of each measure with maps of its own."""
    pictures = []
    for measure, one_measure in fit.by_measure():
        d = one_measure.diagnostics
        labels = labels_on_vertices(one_measure.model.sites_, d.parcellation)
        halves = [half.astype(np.float64) for half in labels]
        text = f"{caption}, {measure}" if measure else caption
        pictures.append(_picture(one_measure, halves, parcel_colours(len(d.alone)), text))
    return pictures


def _picture(fit: FitDescription, halves: list[np.ndarray], scale: Scale, caption: str) -> Markup:
    """Return a map with its views in a row."""
    pictures = Pictures(fit.cortex)
    hemi = fit.model.hemi_
    views = panels_of(hemi or "left", ("lateral", "medial"))
    row = [pictures.picture(side, view, halves, scale) for side, view in views]
    words = ", ".join(f"{side} {view}" if hemi else view for side, view in views)
    return _image(np.concatenate(row, axis=1), f"{caption}: {words}")


def _image(pixels: np.ndarray, caption: str) -> Markup:
    """Return pixels as an element. JPEG takes a fifth of the room of PNG, and nobody sees it."""
    from PIL import Image

    image = Image.fromarray(pixels)
    size = (round(pixels.shape[1] / _SHRINK), round(pixels.shape[0] / _SHRINK))
    stream = io.BytesIO()
    image.resize(size).save(stream, "jpeg", quality=85)
    address = f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"
    return element("img", src=address, alt=caption, width=str(size[0]), height=str(size[1]))


def swatch(fit: FitDescription, j: int) -> Markup:
    """Return the colour of a component's parcel."""
    red, green, blue = distinct_colours(len(fit.titles))[j]
    box = element("rect", width="1", height="1", fill=f"rgb({red},{green},{blue})")
    return element("svg", box, viewBox="0 0 1 1", class_="swatch", aria_hidden="true")


def _range_text(values: np.ndarray) -> str:
    return f"{number(float(values.min()))} to {number(float(values.max()))}"


def _relations_of(fit: FitDescription, j: int) -> list[Markup]:
    """Return what goes with a component's loadings, the clearest first."""
    relations = []
    if fit.associations is not None:
        tests = fit.associations.tests
        for i, component in enumerate(tests["component"]):
            if component == j and np.isfinite(tests["p"][i]):
                strength = f"{tests['statistic'][i]} = {number(tests['value'][i])}"
                relations.append((tests["p"][i], f"{_test_name(tests, i)}: {strength}"))
    else:
        for item in clearest_columns(fit)[:_MOST_COLUMNS]:
            symbol = "r" if isinstance(item, Association) else "η²"
            strength = f"{symbol} = {fixed(strength_of(item)[j])}"
            relations.append((item.p[j], f"{item.called}: {strength}"))
    lines = []
    # Four lines are as high as the map beside them.
    for p, text in sorted(relations, key=lambda relation: relation[0])[:4]:
        line = f"{text}, {probability(p)}"
        lines.append(element("strong", line) if p < _CLEAR else join([line]))
    return lines


def _about_relations(fit: FitDescription) -> str:
    tests = fit.associations
    if tests is not None:
        corrected = f"corrected over {tests.over}" if tests.corrected else "not corrected"
        return f"Tests by icofactor associate: bold where p < 0.05, {corrected}."
    if clearest_columns(fit):
        return (
            "Relations to columns of the participants: bold where p < 0.05, corrected over "
            "components."
        )
    return ""


def _test_name(tests: Mapping[str, Sequence[Any]], i: int) -> str:
    measure = tests["measure"][i]
    return f"{tests['term'][i]}, {measure}" if measure else str(tests["term"][i])


def regions_panel(fit: FitDescription) -> Panel | None:
    """Components as bars, for fits of regions."""
    if fit.model.sites_.regions is None:
        return None
    units = scale_label(fit.model, fit.diagnostics.units)
    figure = charts.draw_regions(fit.model, units, fit.titles)
    intro = "One bar per region, on one scale; the four largest are named."
    return Panel("regions", "Components in regions", intro, figure, tables=("*_regions.tsv",))


def atlas_panel(fit: FitDescription) -> Panel | None:
    """Regions of an atlas in which components lie."""
    overlap = fit.selection.overlap
    if overlap is None:
        return None
    measures = [name for name in overlap if is_of(name)]
    heads = [
        "component",
        "proposed name",
        "region",
        "share of the component",
        *(name.removeprefix(OF_MEASURE) for name in measures),
        "share of the cortex",
        "enrichment",
        "p",
        "q",
    ]
    rows = []
    for j in sorted(set(overlap["component"])):
        name = overlap["proposed_name"][overlap["component"].index(j)]
        for i in rows_to_show(overlap, j):
            shares = [percent(overlap[column][i]) for column in ("share", *measures, "area")]
            chances = [fixed(overlap[column][i], 3) for column in ("p", "q")]
            enrichment = f"{fixed(overlap['enrichment'][i])} ×"
            title = name_with_shares(overlap, j, name)
            rows.append([str(j), title, overlap["region"][i], *shares, enrichment, *chances])
    intro = (
        "The five atlas regions with the largest share of each component, and those it is named "
        "after. Enrichment: mean of the map in the region over its mean on the cortex; p: against "
        "rotations of the map; q: p corrected over all components and regions. Names are proposals "
        "from regions with q ≤ 0.05; a question mark means that no region is enriched beyond "
        "chance."
    )
    numeric = [0, *range(3, len(heads))]
    body = table(heads, rows, numeric)
    return Panel("atlas", "Where components lie", intro, None, body, ("atlas_overlap.tsv",))


# Components and people


def loadings_panel(fit: FitDescription) -> Panel:
    """All loadings at once."""
    d = fit.diagnostics
    signed = has_signed_loadings(fit.model)
    if len(d.tree) or len(d.subjects) < 3:
        intro = "Subjects (rows) and components (columns) in the order of Ward's clustering."
    else:
        intro = "Subjects (rows) in the order of the first principal component of their loadings."
    if signed:
        intro += " Orange: above the average; blue: below it."
    figure = charts.draw_loadings(d, signed)
    return Panel("loadings", "Loadings", intro, figure, tables=(_LOADINGS, "loadings_se.tsv"))


def subjects_panel(fit: FitDescription) -> Panel:
    """How well each person is fitted."""
    intro = (
        "Residual over sites, and the share of the subject's variance about the mean map that the "
        "fit explains."
    )
    units = fitted_units(fit.model, fit.diagnostics.units)
    figure = charts.draw_subjects(fit.diagnostics, units)
    return Panel("subjects", "Fit of each subject", intro, figure, tables=("tables/subjects.tsv",))


def people_panel(fit: FitDescription) -> Panel:
    """Everybody, those with unusual values first."""
    d = fit.diagnostics
    unusual = unusual_values(fit)
    k = len(d.alone)
    most = max(20, _MOST_CELLS // (k + 4))
    regular = [row for row in range(len(d.subjects)) if row not in unusual]
    order = [*unusual, *regular][:most]
    rows = []
    for row in order:
        values = unusual.get(row, [])
        rows.append(
            [
                d.subjects[row],
                "; ".join(f"{name} (z = {number(z)})" for name, z in values),
                number(d.residual[row]),
                percent(d.subject_explained[row]),
                *(fixed(loading) for loading in d.loadings[row]),
            ]
        )
    heads = ["subject", "unusual", "residual", "explained", *(str(j + 1) for j in range(k))]
    body = table(heads, rows, range(2, len(heads)), search="Find a subject")
    if len(order) < len(d.subjects):
        remaining = f"And {len(d.subjects) - len(order):,} more, who are in the tables."
        body = join([body, paragraph(remaining, class_="about")])
    intro = (
        f"{len(unusual):,} of {len(d.subjects):,} have unusual values: loadings or residuals more "
        f"than {number(d.unusual.limit)} robust standard deviations from the median. Chance would "
        "produce one such value in twenty cohorts of this size. The numbered columns are loadings."
    )
    tables = ("tables/subjects.tsv", _LOADINGS, "loadings_se.tsv")
    return Panel("people", "Subjects", intro, None, body, tables)


def clearest_columns(fit: FitDescription) -> list[Association | Grouping]:
    """Return the participants' columns, those most clearly related to a component first; without
    covariates, to which loadings cannot relate any more.
    """
    d = fit.diagnostics
    removed = adjusted_for(fit.model)
    items: list[Association | Grouping] = [*d.associations, *d.groupings]
    remaining = [item for item in items if item.column not in removed]
    return sorted(remaining, key=lambda item: float(item.p.min()))


def participants_panel(fit: FitDescription) -> Panel | None:
    """Loadings against the columns of the participants."""
    d = fit.diagnostics
    items = clearest_columns(fit)[:_MOST_COLUMNS]
    excluded = [f"{name} ({reason})" for name, reason in d.left_out.items()]
    adjusted = [f"{name} ({how})" for name, how in adjustments(fit.model)]
    notes = [
        f"{label}: {'; '.join(names)}."
        for label, names in (("Taken out of the maps", adjusted), ("Not compared", excluded))
        if names
    ]
    if not items and not notes:
        return None
    title = "Loadings and participants"
    after = join(paragraph(note, class_="about") for note in notes)
    if not items:
        return Panel("participants", title, body=after)
    k = len(d.alone)
    rows = [
        [
            f"{item.called} ({'r' if isinstance(item, Association) else 'η²'})",
            *(_cell(value, p) for value, p in zip(strength_of(item), item.p, strict=True)),
        ]
        for item in items
    ]
    body = join([table(["column", *map(str, range(1, k + 1))], rows, range(1, k + 1)), after])
    relations = sorted(
        ((item, j) for item in items for j in range(k)),
        key=lambda relation: (
            relation[0].p[relation[1]],
            -abs(strength_of(relation[0])[relation[1]]),
        ),
    )[: charts.MOST_SMALL]
    intro = (
        "Numeric columns: Pearson's r. Categories: η², the share of variance between groups; boxes "
        "show quartiles and extremes. Bold: p < 0.05 by permutations, corrected over components, "
        "not over columns. The chart has the clearest relations, the table has all."
    )
    figure = charts.draw_relations(d, relations, fit.atlas_names)
    tables = ("tables/correlations.tsv", "desc-icofactor_participants.tsv", _LOADINGS)
    return Panel("participants", title, intro, figure, body, tables)


def _cell(value: float, p: float) -> Markup:
    """Return a cell coloured by a value from −1 to 1, bold where p is small."""
    # The style has four shades for either sign.
    level = int(np.ceil(4 * min(1.0, abs(value)))) if np.isfinite(value) else 0
    classes = f"number {'up' if value > 0 else 'down'}{level}"
    text = fixed(value)
    content = element("strong", text) if p < _CLEAR else join([text])
    return element("td", content, class_=classes, title=probability(p))


# What `icofactor associate` found


def associations_panel(fit: FitDescription) -> Panel | None:
    """Tests of the terms of a formula."""
    tables = fit.associations
    if tables is None:
        return None
    tests = tables.tests
    k = len(fit.titles)
    if tables.corrected:
        n = tables.settings["n_permutations"]
        method = f"{n:,} permutations, corrected over {tables.over}"
    else:
        method = "by theory, not corrected"
    heads = ["term", "component", "standardized", "estimate", "95 % interval", "statistic"]
    heads += ["partial R²", "p, corrected" if tables.corrected else "p, by theory"]
    rows = []
    for i, component in enumerate(tests["component"]):
        p = tests["p"][i]
        ends = [number(tests[name][i]) for name in ("ci_low", "ci_high")]
        rows.append(
            [
                _test_name(tests, i),
                str(component + 1),
                _cell(tests["standardized"][i], p),
                number(tests["estimate"][i]),
                "n/a" if "n/a" in ends else " to ".join(ends),
                f"{tests['statistic'][i]} = {number(tests['value'][i])}",
                fixed(tests["partial_r2"][i], 3),
                "n/a" if not np.isfinite(p) else "< 0.001" if p < 0.001 else fixed(p, 3),
            ]
        )
    intro = (
        f"{tables.settings['formula']}, by {tables.settings['model']} (icofactor associate): each "
        f"term with the others in the model. Orange and bold: p < 0.05 ({method})."
    )
    body = join([table(heads, rows, range(1, len(heads))), _notes(tables.settings)])
    figure = charts.draw_effects(tables, k)
    return Panel(
        "associations", "Associations with loadings", intro, figure, body, ("associations.tsv",)
    )


def adjusted_panel(fit: FitDescription) -> Panel | None:
    """Adjusted loadings along the columns of a formula."""
    tables = fit.associations
    if tables is None:
        return None
    tests = tables.tests
    # Tests without p come last.
    order = np.argsort(np.nan_to_num(tests["p"], nan=2.0), kind="stable").tolist()
    pairs = [(tests["column"][i], tests["loading"][i]) for i in order if tests["column"][i] >= 0]
    # A term and a contrast may be about one column.
    first = list(dict.fromkeys(pairs))[: charts.MOST_SMALL]
    if not first:
        return None
    drawn = [(tables.columns[column], loading) for column, loading in first]
    intro = (
        "What the model expects along a column, the others held (orange, with its 95 % interval), "
        f"and the {tables.settings['n_rows']:,} rows about it; the clearest tests."
    )
    figure = charts.draw_adjusted(drawn, fit.atlas_names, tables.measures)
    files = ("associations_expected.tsv", "associations_adjusted.tsv")
    return Panel("adjusted_loadings", "Adjusted loadings", intro, figure, tables=files)


def behaviour_panel(fit: FitDescription) -> Panel | None:
    """Latent variables of loadings and behaviour."""
    tables = fit.latent
    if tables is None:
        return None
    latent = {name: np.asarray(values) for name, values in tables.latent.items()}
    clearest = int(np.argmin(np.nan_to_num(latent["p"], nan=2.0)))
    rows = []
    for j, p in enumerate(latent["p"]):
        halves = [
            f"{fixed(latent[f'{side}_reproducibility'][j])} "
            f"({probability(latent[f'{side}_reproducibility_p'][j])})"
            for side in ("component", "measure")
        ]
        explained = percent(latent["explained"][j])
        correlation = fixed(latent["correlation"][j])
        rows.append([str(j + 1), explained, probability(p), correlation, *halves])
    heads = ["latent variable", "explained", "p", "correlation of scores"]
    heads += ["halves agree: components", "halves agree: behaviour"]
    settings = tables.settings
    intro = (
        f"Behavioural partial least squares of {settings['n_rows']:,} rows (icofactor associate "
        "--pls): patterns of components that correlate with patterns of behaviour. "
        f"{settings['n_permutations']:,} permutations of behaviour, {settings['n_bootstrap']:,} "
        f"resamples of people. The chart shows latent variable {clearest + 1}, the clearest."
    )
    body = join([table(heads, rows, range(len(heads))), _notes(settings)])
    figure = plot_latent(
        tables.variables, clearest + 1, latent["explained"][clearest], latent["p"][clearest]
    )
    files = ("pls.tsv", "pls_variables.tsv")
    return Panel("behaviour", "Components and behaviour", intro, figure, body, files)


def norm_panel(fit: FitDescription) -> Panel | None:
    """Deviations from a reference group."""
    norm = fit.norm
    if norm is None or not np.isfinite(norm.scores).any():
        return None
    k = len(fit.titles)
    summary = norm_summary(norm)
    rows = []
    for i, others in enumerate(summary["others"]):
        name = str(i % k + 1)
        if norm.measures:
            name = f"{name}, {norm.measures[i // k]}"
        shares = [percent(summary[side][i]) for side in ("below", "above")]
        rows.append([name, str(others), fixed(summary["mean"][i]), *shares])
    intro = (
        "W-scores of loadings: how far people are from the values that the reference "
        f"({norm.settings['chosen_by']}, {int(norm.reference.sum()):,} rows; grey) has at the same "
        f"{norm.settings['formula']}, in its residual standard deviations (icofactor associate "
        "--reference). Orange: the others. Dashed: 95 % of a normal reference. Scores of the "
        "reference come from models without the person."
    )
    heads = ["component", "others", "mean W", "W < −1.96", "W > 1.96"]
    body = join([table(heads, rows, range(len(heads))), _notes(norm.settings)])
    figure = charts.draw_norm(norm)
    title = "Deviations from the reference"
    return Panel("norm", title, intro, figure, body, ("normative.tsv",))


def _notes(settings: Mapping[str, Any]) -> Markup:
    return bullets([str(note) for note in settings["notes"]], class_="about")


# How far to trust the components


def trust_panel(fit: FitDescription) -> Panel:
    """What each component explains, and whether other starts and other people give it."""
    d = fit.diagnostics
    shares = {"alone (%)": d.alone} if alone_is_a_share(fit) else {}
    bars = [
        charts.Bars("% of between-subject variance", _percents({**shares, "unique (%)": d.unique}))
    ]
    lines = [*verdict(fit).lines, *_about_variance(fit)]
    recurrence = fit.model.recurrence_
    if recurrence is not None:
        lines.append(recurrence_line(fit.model))
        if not np.isnan(recurrence).any():
            reached = _percents({"reached (%)": np.asarray(recurrence)})
            title = "% of other random starts on the same people that reach it"
            bars.append(charts.Bars(title, reached, 100 * ENOUGH))
    stability = fit.selection.stability
    # Only after icofactor select --bootstrap.
    if stability is not None:
        resamples = {
            "stability": np.array(stability["stability"]),
            "5th percentile": np.array(stability["stability_5th_percentile"]),
        }
        bars.append(charts.Bars("Correlation with maps of resampled people", resamples))
        errors = {"standard error": np.array(stability["relative_standard_error"])}
        bars.append(charts.Bars("Standard error of the map / size of the map", errors))
    columns = {name: values for chart in bars for name, values in chart.series.items()}
    rows = [
        [str(j), *(fixed(value) for value in row)]
        for j, row in enumerate(zip(*columns.values(), strict=True), 1)
    ]
    heads = ["component", *columns]
    body = table(heads, rows, range(len(heads)))
    tables = (_COMPONENTS, "stability.tsv", _SUMMARY)
    title = "Variance and stability of each component"
    return Panel("trust", title, "", charts.draw_bars(bars), body, tables, lines)


def _percents(series: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: 100 * values for name, values in series.items()}


def _about_variance(fit: FitDescription) -> Iterator[str]:
    d = fit.diagnostics
    if d.explained_X != d.explained:
        yield f"Of ‖X‖², {percent(d.explained_X)} are explained, most of it by the mean map."
    if alone_is_a_share(fit):
        yield (
            "Alone: the variance of a component's map times its loadings; components overlap, so "
            "these do not add up."
        )
    chance = added_by_chance(fit)
    by_chance = "" if chance is None else f"; random loadings would add about {percent(chance)}"
    yield (
        "Unique: what the loadings of a component add to those of all others in a linear "
        f"regression of the maps on the loadings, which explains {percent(d.linear)}{by_chance}."
    )


def alone_is_a_share(fit: FitDescription) -> bool:
    """Whether what components carry alone can be read as a share: maps that overlap much carry more
    than all of it.
    """
    d = fit.diagnostics
    return bool(np.all((d.unique <= d.alone + 1e-9) & (d.alone <= 1)))


def selection_panel(fit: FitDescription) -> Panel | None:
    """The choice of the number of components."""
    choice = fit.selection.choice
    if choice is None:
        return None
    columns = list(choice.table)
    rows = [
        [str(int(value)) if float(value).is_integer() else fixed(value, 3) for value in row]
        for row in zip(*(np.asarray(choice.table[name]).tolist() for name in columns), strict=True)
    ]
    numbers = table([name.replace("_", " ") for name in columns], rows, range(len(columns)))
    folded = element("details", element("summary", "All numbers"), numbers)
    intro = (
        "Curves over numbers of components, from icofactor select; grey: the recommended number."
    )
    figure = choice.plot()
    tables = ("selection.tsv",)
    title = "How many components"
    return Panel("selection", title, intro, figure, folded, tables, choice.reasons)


def similarity_panel(fit: FitDescription) -> Panel | None:
    """Whether components are different things."""
    if len(fit.titles) < 2:
        return None
    intro = (
        "Overlap of maps: 0 for none, 1 for the same place. Correlation of maps over the sites in "
        f"use, and of loadings over subjects. {percent(common_share(fit), 0)} of the variance of "
        "the standardized loadings is one common factor; where it is large, test whether "
        "associations remain with each person's mean in the formula."
    )
    figure = charts.draw_similarity(fit.diagnostics)
    title = "Overlap and similarity of components"
    return Panel("similarity", title, intro, figure, tables=("tables/similarity.tsv",))


# How it was made


def methods_panel(fit: FitDescription) -> Panel | None:
    """The methods paragraph."""
    text = with_assessment(fit.methods, fit.selection, fit.associations, fit.latent, fit.norm)
    if not text:
        return None
    copy = element("button", "Copy", type="button", id="copy", class_="screen script")
    status = element("span", role="status", id="copied")
    body = join([copy, status, _preformatted(text, "Text of the methods", id="methods")])
    return Panel("methods", "Methods, ready to paste", body=body)


def settings_panel(fit: FitDescription) -> Panel | None:
    """Settings and versions, and the record of the fit folded below them."""
    if fit.provenance is None:
        return None
    terms = [join([element("dt", name), element("dd", value)]) for name, value in settings_of(fit)]
    summary = "The record of the fit; provenance.json also lists every input file with its checksum"
    record = _preformatted(_readable(fit.provenance), "provenance.json")
    folded = element("details", element("summary", summary), record)
    body = join([element("dl", *terms, class_="settings"), folded])
    return Panel("settings", "Settings and versions", body=body)


def _preformatted(text: str, label: str, **attributes: str) -> Markup:
    return element("pre", text, tabindex="0", role="group", aria_label=label, **attributes)


def _readable(record: Mapping[str, Any]) -> str:
    """Return how the fit was made. Where its files lie stays in provenance.json: a page is shared
    more freely.
    """
    inputs = record.get("inputs")
    n_files = plural(len(inputs) if isinstance(inputs, Mapping) else 0, "file")
    readable = {
        name: _without_folders(value)
        for name, value in record.items()
        if name not in ("data", "inputs")
    }
    readable["inputs"] = (
        f"{n_files}; provenance.json lists their paths, checksums and the reading steps"
    )
    return json.dumps(plain(readable), indent=2, ensure_ascii=False)


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def convergence_panel(fit: FitDescription) -> Panel:
    """The objective over updates."""
    figure = charts.draw_convergence(fit.diagnostics)
    intro = "The objective that the fit made as small as possible."
    return Panel("convergence", "Convergence", intro, figure, tables=("tables/convergence.tsv",))


# The page below the brain, from top to bottom.
PARTS: Mapping[str, tuple[Callable[[FitDescription], Panel | None], ...]] = {
    "Each component": (components_panel, regions_panel, atlas_panel),
    "Components and people": (
        loadings_panel,
        subjects_panel,
        people_panel,
        participants_panel,
        associations_panel,
        adjusted_panel,
        behaviour_panel,
        norm_panel,
    ),
    "How far to trust the components": (
        trust_panel,
        selection_panel,
        similarity_panel,
    ),
    "How it was made": (methods_panel, settings_panel, convergence_panel),
}
# Names of the files that figures/ may contain.
FIGURE_NAMES = (
    *("maps", "regions", "loadings", "subjects", "participants", "associations"),
    *("adjusted_loadings", "behaviour", "norm", "trust", "selection", "similarity", "convergence"),
)
