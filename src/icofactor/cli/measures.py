"""--share: several measures of the same people, of which every INPUT, or every name of --measure,
is one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cli.options import plan_inputs, words
from icofactor.errors import ArgumentError, Phrase, literal
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
        return {
            name.strip(): float(value) for name, value in (part.split("=") for part in words(text))
        }
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"NAME=X,..., e.g. thickness=1,myelin=2; found {text!r}"
        ) from None


def named_input(text: str) -> tuple[str | None, str]:
    """Name of a measure, where one is given, and path: thickness=a.store → thickness, a.store."""
    found = re.fullmatch("([^=/\\\\]+)=(.+)", text)
    if found is None or has_magic(found[1]) or Path(text).exists():
        return None, text
    if not re.fullmatch("[0-9A-Za-z]+", found[1]):
        raise ArgumentError(
            "inputs", None, f"NAME=INPUT: {literal(found[1])} must be letters and digits only"
        )
    return found[1], found[2]


def are_measures(options: argparse.Namespace) -> bool:
    """Whether inputs are measures of the same people; refuses several without a word on what they
    share.
    """
    from icofactor.cohort.store.layout import is_zarr

    several = len(words(getattr(options, "measure", None) or "")) > 1
    if getattr(options, "share", None) is not None:
        return True
    given = [
        name for name in ("scale", "measure_weights") if getattr(options, name, None) is not None
    ]
    if given:
        raise ArgumentError(
            given[0], None, f"{{{given[0]}}} applies to several measures: give {{share}}"
        )
    if several and not hasattr(options, "share"):
        raise ArgumentError("measure", options.measure, "one measure")
    if several or (
        len(options.inputs) > 1 and all(is_zarr(named_input(one)[1]) for one in options.inputs)
    ):
        text = "Several measures" if several else "Several stores are measures of the same people"
        maps = ": choose {share='maps'}, one set of maps with a loading per person, component and measure, or "
        raise ArgumentError(
            "share", None, f"{text}{maps}{{share='loadings'}}, one loading per person and component"
        )
    for name, path in map(named_input, options.inputs):
        if name is not None and is_url(
            path
        ):  # as the name of a file it would be shown, with what may be secret
            raise ArgumentError(
                "inputs", None, f"INPUT names the measure {literal(name)}: give its URL alone"
            )
    return False


def _inputs_by_measure(
    options: argparse.Namespace, fitted: Measures | None
) -> list[tuple[str | None, dict[str, Any]]]:
    """Of each measure its name, where one is given, and the options that read it."""
    from icofactor.cohort.find.files import is_tree

    named, asked = (
        [named_input(one) for one in options.inputs],
        words(getattr(options, "measure", None) or ""),
    )
    trees = [is_tree(Path(path)) for _, path in named]
    if fitted is not None and not asked and all(trees) and not any(name for name, _ in named):
        asked = fitted.names
    if len(asked) > 1:  # all of them in every input
        wrong = next((name for name, _ in named if name), None)
        if wrong is not None:
            text = f"INPUT names the measure {literal(wrong)}, and {{measure}} several: give one of the two"
            raise ArgumentError("measure", None, text)
        return [(None, {"inputs": options.inputs, "measure": one}) for one in asked]
    if len(named) == 1 and trees[0] and not asked and not named[0][0]:
        text = f"{literal(named[0][1])} contains several measures: name those to read with {{measure}}, e.g. "
        raise ArgumentError("measure", None, text + "{measure='thickness,area'}")
    own = lambda name, tree: asked[0] if asked else name if tree else None
    return [
        (name, {"inputs": [path], "measure": own(name, tree)})
        for (name, path), tree in zip(named, trees, strict=True)
    ]


class _Unread:
    """A plan as far as `join_measures` looks at it; nothing is read."""

    def __init__(self, plan: Plan) -> None:
        self.subjects, self.participants, self.sites = plan.subjects, plan.participants, plan.sites
        self.hemisphere, self.modality, self.X = plan.hemisphere, plan.modality, None
        self.provenance: dict[str, Any] = {}

    def __getitem__(self, rows: Any) -> _Unread:
        import numpy as np

        found = copy(self)
        found.subjects = tuple(self.subjects[row] for row in rows)
        found.participants = {
            name: np.asarray(values)[rows] for name, values in self.participants.items()
        }
        return found


def plan_measures(
    options: argparse.Namespace,
    needed: Sequence[str],
    fitted: Measures | None,
    given: dict[str, Any],
) -> Plan:
    """The plan of several measures as one cohort, joined as options or a fit say."""
    from icofactor.cohort.measures import check_sites_alike, join_measures

    plans: dict[str, tuple[Plan, Any]] = {}
    known: dict[str, Any] = {}
    taken: list[dict[str, Any]] = []
    if (
        fitted is not None
    ):  # what it says of one measure; masks lie side by side where loadings are shared
        whole = given["mesh"].of_measure(), given.get("mask") if fitted.share == "maps" else None
        given = {**given, "mesh": whole[0], "mask": whole[1]}
    for name, own in _inputs_by_measure(options, fitted):
        shown = " ".join(own["inputs"])
        if own in taken:
            raise ArgumentError(
                "inputs", None, f"INPUT {literal(shown)} is given twice: one INPUT per measure"
            )
        taken.append(own)
        alone = {**vars(options), **own, "share": None, "scale": None, "measure_weights": None}
        plan = plan_inputs(argparse.Namespace(**alone), needed, **given)
        plan.check()
        # stores are opened and tables small; files are read when all is known to go together
        cohort = (
            plan.read()
            if plan.stored or getattr(plan.sites, "regions", None) is not None
            else _Unread(plan)
        )
        if len(plan.subjects) < 2 and fitted is None:
            text = f"{literal(shown)} contains maps of one person. With {{share}}, every INPUT is one measure of all "
            raise ArgumentError(
                "inputs", None, text + "people: a store, a folder, or a pattern in quotes"
            )
        told = (
            re.sub("[^0-9A-Za-z]", "", str(cohort.modality)) if cohort.modality != "unknown" else ""
        )
        if not (name or told) and has_magic(shown):
            text = f"The names of the files of {literal(shown)} do not say their measure: write NAME=INPUT"
            raise ArgumentError("inputs", None, text)
        name = name or told or re.sub("[^0-9A-Za-z]", "", Path(own["inputs"][0]).name.split(".")[0])
        if name in plans:
            what = f"INPUT has two measures {literal(repr(name))}: write NAME=INPUT to distinguish them"
            raise ArgumentError("inputs", None, what)
        plans[name], known[f"{name} ({shown})"] = (plan, cohort), cohort
    joint: dict[str, Any] = {}
    if fitted is None:
        joint = {
            "share": options.share,
            "scale": options.scale or "none",
            "weights": options.measure_weights,
        }
    else:
        lacking = [name for name in fitted.names if name not in plans]
        if lacking or len(plans) != fitted.n:
            found = Phrase(" and ".join(plans))
            raise ArgumentError(
                "inputs",
                found,
                f"INPUT must be the measures of the fit, {' and '.join(fitted.names)}",
            )
        plans = {name: plans[name] for name in fitted.names}
        weights = dict(zip(fitted.names, map(float, fitted.weights), strict=True))
        joint = {"share": fitted.share, "scale": fitted.scale, "weights": weights}
    joint["missing"] = options.missing or "raise"
    try:
        check_sites_alike(known)
        joined = join_measures({name: cohort for name, (_, cohort) in plans.items()}, **joint)
    except ArgumentError as problem:
        argument = {"weights": "measure_weights", "measures": "inputs"}.get(
            problem.argument, problem.argument
        )
        raise ArgumentError(argument, problem.message) from None
    first, each = next(iter(plans.values()))[0], [plan for plan, _ in plans.values()]
    first.journal.note(f"measures {', '.join(plans)}, which share {joint['share']}")
    if joined.left_out:
        first.journal.leave_out(list(joined.left_out), "without all measures")
    read: Any = lambda: join_measures(
        {name: plan.read() for name, (plan, _) in plans.items()}, **joint
    )
    return replace(
        first,
        subjects=joined.subjects,
        participants=joined.participants,
        sites=joined.sites,
        measures=joined.measures,
        open=read,
        n_files=sum(plan.n_files for plan in each),
        n_bytes=sum(plan.n_bytes for plan in each),
        lowest=min(plan.lowest for plan in each),
        stored=all(plan.stored for plan in each),
    )
