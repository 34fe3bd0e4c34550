"""Golden cases: how many components, how stable, where, related to what, and compared with what."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

import icofactor as ico
from golden.figures import Exactly, Figure, Number, Values
from golden.inputs import N_COMPONENTS, cohort, coordinates, generator, people

# p-values count permutations; another order of random numbers moves them by so much, relative to their norm.
P_VALUES = 0.2
# The same of averages over random halves, resamples or rotations.
AVERAGES = 1e-3


@cache
def fitted_model() -> ico.CorticalFactorization:
    return ico.CorticalFactorization(N_COMPONENTS, random_state=0).fit(cohort())


def select() -> dict[str, Figure]:
    """Compare two and three components; of more, halves of so few people end in minima that rounding decides."""
    choice = ico.choose_n_components(cohort(), (2, 3), n_splits=4, n_starts=4, n_nulls=5, level=1)
    averages = ("heldout", "bicv", "loadings", "null_loadings")
    return {
        "errors": Values(choice.table["error"], 1e-6),
        # Parcellations of halves change by whole faces.
        "agreement": Values(choice.table["agreement"], 0.02),
        "null agreement": Values(choice.table["null_agreement"], 0.02),
        **{name: Values(choice.table[name], AVERAGES) for name in averages},
    }


def bootstrap() -> dict[str, Figure]:
    """Draw people anew, and fit again."""
    model = ico.CorticalFactorization(3, random_state=0).fit(cohort())
    resamples = ico.bootstrap.bootstrap(model, cohort(), n_resamples=6, random_state=0)
    return {
        "stability": Values(resamples.stability, AVERAGES),
        "standard errors of maps": Values(
            np.sqrt((resamples.component_se**2).mean(axis=1)), AVERAGES
        ),
        "standard errors of loadings": Values(
            np.sqrt((resamples.loading_se**2).mean(axis=0)), AVERAGES
        ),
    }


def atlas() -> dict[str, Figure]:
    """Compare components with the regions of an atlas."""
    points = coordinates("fsaverage3")
    regions = 1 + (points[:, 1] > 0) + 2 * (points[:, 2] > 0)
    labels = np.concatenate([regions, regions + 4])
    names = tuple(f"{side} {number}" for side in ("left", "right") for number in range(1, 5))
    overlap = ico.atlas.overlap(
        fitted_model(), ico.atlas.Atlas(labels, ("none", *names)), n_spins=49
    )
    order = np.lexsort((overlap.table["region"], overlap.table["component"]))
    return {
        "regions": Exactly([str(region) for region in overlap.table["region"][order]]),
        "shares": Values(overlap.table["share"][order]),
        "areas": Values(overlap.table["area"][order]),
        "enrichment": Values(overlap.table["enrichment"][order]),
        "p": Values(overlap.table["p"][order], P_VALUES),
    }


def associate() -> dict[str, Figure]:
    """Test age, sex and group, a spline and a contrast."""
    model = fitted_model()
    associations = ico.associate(
        model,
        people(),
        "age + sex + group",
        contrast="group: patient - control",
        n_permutations=499,
    )
    spline = ico.associate(model, people(), "sex", smooth="age=3", n_permutations=0)
    table = associations.table
    return {
        "terms": Exactly(
            [f"{term} {name}" for term, name in zip(table["term"], table["component"], strict=True)]
        ),
        "estimates": Values(table["estimate"], 1e-5),
        "standard errors": Values(table["se"], 1e-5),
        "statistics": Values(table["value"], 1e-5),
        "p by theory": Values(table["p_theory"], 1e-5),
        "p by permutation": Values(table["p_permutation"], P_VALUES),
        "p corrected": Values(table["p_corrected"], P_VALUES),
        "contrast": Values(associations.contrasts["estimate"], 1e-5),
        "spline": Values(spline.table["value"], 1e-5),
    }


def pls() -> dict[str, Figure]:
    """Find patterns of components that go with patterns of behaviour."""
    loadings = fitted_model().loadings_
    random = generator(8)
    behaviour = {
        f"test{number}": loadings @ random.standard_normal(4) + random.standard_normal(24)
        for number in "123"
    }
    patterns = ico.pls(
        loadings, behaviour, n_permutations=199, n_bootstrap=100, n_splits=10, random_state=0
    )
    return {
        "singular values": Values(patterns.singular_values, 1e-5),
        "weights": Values(np.abs(patterns.measure_weights), 1e-5),
        "correlation": Values(patterns.correlation, 1e-5),
        "p": Values(patterns.p, P_VALUES),
    }


def normative_scores() -> dict[str, Figure]:
    """Compare patients with controls of the same age."""
    norms = ico.normative_scores(
        fitted_model().loadings_, people(), "age + sex", reference="group=control"
    )
    return {
        "scores": Values(norms.scores.T, 1e-5),
        "deviation": Values(norms.deviation, 1e-5),
        "reference": Exactly(int(norms.reference.sum())),
    }


def compare() -> dict[str, Figure]:
    """Match the components of two halves of a cohort."""
    halves = [
        ico.CorticalFactorization(N_COMPONENTS, random_state=0).fit(cohort()[half::2])
        for half in (0, 1)
    ]
    comparison = ico.compare(*halves, n_spins=49, random_state=0)
    return {
        "similarity": Values(np.sort(comparison.table["similarity"])),
        "mean": Number(comparison.mean),
        "mean of rotated maps": Number(comparison.null_mean, 0.01),
        "p": Number(comparison.p, P_VALUES),
    }


CASES: dict[str, Callable[..., dict[str, Figure]]] = {
    "select": select,
    "bootstrap": bootstrap,
    "atlas": atlas,
    "associate": associate,
    "PLS": pls,
    "W-scores": normative_scores,
    "compare": compare,
}
