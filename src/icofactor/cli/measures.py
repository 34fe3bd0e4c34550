"""--share: several measures of the same people; every INPUT, or every name of --measure, is one."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cli.options import plan_inputs, words
from icofactor.errors import ArgumentError, named
from icofactor.io.url import is_url

if TYPE_CHECKING:
    from icofactor.cohort.measures import Measures
    from icofactor.cohort.plan import Plan


def add_measures(group: Any) -> None:
    """--share, --scale, --weights: several measures of the same people."""
    group.add_argument(
        "--share",
        choices=["maps", "loadings"],
        help="what several measures of the same people share. maps: one set of maps, with a loading per "
        "person, component and measure. loadings: one loading per person and component, with maps of each measure",
    )
    group.add_argument(
        "--scale",
        choices=["none", "variance", "zscore"],
        help="divide each measure by the root of its total variance (variance), or each site by its standard "
        "deviation (zscore, not for non-negative factorizations), or do nothing (none, the default)",
    )
    group.add_argument(
        "--weights",
        dest="measure_weights",
        metavar="NAME=X,...",
        type=measure_weights,
        help="weights of the squared errors of the measures, e.g. thickness=1,myelin=2 (default: 1 each)",
    )


def measure_weights(text: str) -> dict[str, float]:
    """thickness=1,myelin=2 → {"thickness": 1.0, "myelin": 2.0}."""
    try:
        pairs = [part.split("=") for part in words(text)]
        return {name.strip(): float(value) for name, value in pairs}
    except ValueError:
        message = f"NAME=X,..., e.g. thickness=1,myelin=2; found {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def named_input(text: str) -> tuple[str | None, str]:
    """Return the name of a measure, or None, and its path: thickness=a.store."""
    match = re.fullmatch("([^=/\\\\]+)=(.+)", text)
    if match is None or has_magic(match[1]) or Path(text).exists():
        return None, text
    if not re.fullmatch("[0-9A-Za-z]+", match[1]):
        message = f"the name of a measure must be letters and digits only; found {named(match[1])}"
        raise ArgumentError("inputs", message)
    return match[1], match[2]


def are_measures(options: argparse.Namespace) -> bool:
    """Return whether inputs are measures of the same people.

    Several measures are refused if no option says what they share.
    """
    from icofactor.cohort.store.layout import is_zarr

    if getattr(options, "share", None) is not None:
        return True
    for option in ("scale", "measure_weights"):
        if getattr(options, option, None) is not None:
            raise ArgumentError(option, "applies to several measures: give --share too")
    has_several_names = len(words(getattr(options, "measure", None) or "")) > 1
    if has_several_names and not hasattr(options, "share"):
        raise ArgumentError("measure", f"must be one measure; found {options.measure}")
    inputs = [named_input(text) for text in options.inputs]
    are_stores = len(inputs) > 1 and all(is_zarr(path) for _, path in inputs)
    if has_several_names or are_stores:
        message = (
            "is missing: several measures of the same people share maps (one set of maps, with a "
            "loading per person, component and measure) or loadings (one per person and component)"
        )
        raise ArgumentError("share", message)
    for name, path in inputs:
        # The name of a file would be shown, with what may be secret in its address.
        if name is not None and is_url(path):
            raise ArgumentError("inputs", f"names the measure {name}: give its URL alone")
    return False


@dataclass(frozen=True)
class MeasureInput:
    """Where one measure is read from.

    Attributes
    ----------
    name : name that the user gave it; None: that of its maps
    inputs, measure : the options that read it
    """

    name: str | None
    inputs: tuple[str, ...]
    measure: str | None

    @property
    def text(self) -> str:
        """The inputs as the user wrote them, for messages."""
        return named(" ".join(self.inputs))


def inputs_by_measure(options: argparse.Namespace, fitted: Measures | None) -> list[MeasureInput]:
    """Return where each measure is read from."""
    from icofactor.cohort.find.files import is_tree

    inputs = [named_input(text) for text in options.inputs]
    names = words(getattr(options, "measure", None) or "")
    trees = [is_tree(Path(path)) for _, path in inputs]
    named_by_user = [name for name, _ in inputs if name is not None]
    if fitted is not None and not names and all(trees) and not named_by_user:
        names = fitted.names
    if len(names) > 1 and named_by_user:
        message = f"INPUT names the measure {named_by_user[0]}, and --measure several: give one"
        raise ArgumentError("measure", message)
    if len(names) > 1:
        # Every input has all measures.
        return [MeasureInput(None, tuple(options.inputs), name) for name in names]
    if len(inputs) == 1 and trees[0] and not names and not named_by_user:
        message = f"is missing: name the measures to read from {named(inputs[0][1])}"
        raise ArgumentError("measure", f"{message}, as in --measure thickness,area")
    measures = []
    for (name, path), is_folder_of_measures in zip(inputs, trees, strict=True):
        # In a tree, the name says what to read.
        measure = name if is_folder_of_measures else None
        measures.append(MeasureInput(name, (path,), names[0] if names else measure))
    return measures


class UnreadCohort:
    """A plan as `join_measures` looks at it; nothing is read."""

    def __init__(self, plan: Plan) -> None:
        self.subjects = plan.subjects
        self.participants = plan.participants
        self.sites = plan.sites
        self.hemisphere = plan.hemisphere
        self.modality = plan.modality
        self.X = None
        self.provenance: dict[str, Any] = {}

    def __getitem__(self, rows: Any) -> UnreadCohort:
        import numpy as np

        cohort = copy(self)
        cohort.subjects = tuple(self.subjects[row] for row in rows)
        cohort.participants = {
            column: np.asarray(values)[rows] for column, values in self.participants.items()
        }
        return cohort


def plan_measures(
    options: argparse.Namespace,
    needed: Sequence[str],
    fitted: Measures | None,
    given: dict[str, Any],
) -> Plan:
    """Return the plan of several measures as one cohort, joined as options or a fit say."""
    from icofactor.cohort.measures import check_sites_alike, join_measures

    if fitted is not None:
        # A fit says what holds for each measure; masks lie side by side where loadings are shared.
        mask = given.get("mask") if fitted.share == "maps" else None
        given = {**given, "mesh": given["mesh"].one_copy(), "mask": mask}
    plans: dict[str, Plan] = {}
    cohorts: dict[str, Any] = {}
    inputs: dict[str, str] = {}
    sources = set()
    for measure_input in inputs_by_measure(options, fitted):
        source = (measure_input.inputs, measure_input.measure)
        if source in sources:
            message = f"has {measure_input.text} twice: give one INPUT per measure"
            raise ArgumentError("inputs", message)
        sources.add(source)
        plan = plan_measure(options, measure_input, needed, given)
        # Stores are opened, and tables are small. Files are read once all go together.
        is_light = plan.stored or getattr(plan.sites, "regions", None) is not None
        cohort = plan.read() if is_light else UnreadCohort(plan)
        if len(plan.subjects) < 2 and fitted is None:
            message = f"{measure_input.text} has maps of one person; with --share, every INPUT is "
            message += "one measure of all people: a store, a folder, or a pattern in quotes"
            raise ArgumentError("inputs", message)
        name = name_of_measure(measure_input, cohort)
        if name in plans:
            message = f"has the measure {name} twice: write NAME=INPUT for different measures"
            raise ArgumentError("inputs", message)
        plans[name] = plan
        cohorts[name] = cohort
        inputs[name] = measure_input.text
    if fitted is not None:
        if set(plans) != set(fitted.names):
            message = f"must be the measures of the fit, {' and '.join(fitted.names)}"
            raise ArgumentError("inputs", f"{message}; found {' and '.join(plans)}")
        plans = {name: plans[name] for name in fitted.names}
        cohorts = {name: cohorts[name] for name in fitted.names}
    settings = join_settings(options, fitted)
    try:
        check_sites_alike({f"{name} ({inputs[name]})": cohorts[name] for name in cohorts})
        joined = join_measures(cohorts, **settings)
    except ArgumentError as problem:
        option = {"weights": "measure_weights", "measures": "inputs"}.get(problem.argument)
        raise ArgumentError(option or problem.argument, problem.message) from None
    first = next(iter(plans.values()))
    first.journal.note(f"measures {', '.join(plans)}, which share {settings['share']}")
    if joined.left_out:
        first.journal.leave_out(list(joined.left_out), "without all measures")

    def read() -> Any:
        return join_measures({name: plan.read() for name, plan in plans.items()}, **settings)

    return replace(
        first,
        subjects=joined.subjects,
        participants=joined.participants,
        sites=joined.sites,
        measures=joined.measures,
        open=read,
        n_files=sum(plan.n_files for plan in plans.values()),
        n_bytes=sum(plan.n_bytes for plan in plans.values()),
        lowest=min(plan.lowest for plan in plans.values()),
        stored=all(plan.stored for plan in plans.values()),
    )


def plan_measure(
    options: argparse.Namespace,
    measure_input: MeasureInput,
    needed: Sequence[str],
    given: dict[str, Any],
) -> Plan:
    """Return the plan of one measure, whose files are there."""
    alone = dict(vars(options))
    alone.update(inputs=list(measure_input.inputs), measure=measure_input.measure)
    alone.update(share=None, scale=None, measure_weights=None)
    plan = plan_inputs(argparse.Namespace(**alone), needed, **given)
    plan.check()
    return plan


def name_of_measure(measure_input: MeasureInput, cohort: Any) -> str:
    """Return the name the user gave a measure, that of its maps, or that of its file."""
    if measure_input.name is not None:
        return measure_input.name
    if cohort.modality != "unknown":
        name = re.sub("[^0-9A-Za-z]", "", str(cohort.modality))
        if name:
            return name
    if has_magic(" ".join(measure_input.inputs)):
        message = f"the files of {measure_input.text} do not name their measure: write NAME=INPUT"
        raise ArgumentError("inputs", message)
    return re.sub("[^0-9A-Za-z]", "", Path(measure_input.inputs[0]).name.split(".")[0])


def join_settings(options: argparse.Namespace, fitted: Measures | None) -> dict[str, Any]:
    """Return how measures are joined: as the fit did, or as the options say."""
    missing = options.missing or "raise"
    if fitted is None:
        scale = options.scale or "none"
        weights = options.measure_weights
        return {"share": options.share, "scale": scale, "weights": weights, "missing": missing}
    weights = dict(zip(fitted.names, map(float, fitted.weights), strict=True))
    return {
        "share": fitted.share,
        "scale": fitted.scale,
        "weights": weights,
        "missing": missing,
    }
