"""Experiment 4: maps of LE-PNNMF after hundreds of refinements, and whether these went where the data vary."""

from __future__ import annotations

import copy

import numpy as np
from scipy.stats import spearmanr

import icofactor as ico
from reproduction.data import Maps
from reproduction.settings import DEFAULT, FACES_PER_REFINEMENT, LITERAL, Setting
from reproduction.study import Study, hoyer, overlap

METHOD = "LE-PNNMF"
# Basis maps that the paper shows.
N_DRAWN = 3


def run(study: Study) -> None:
    """Refine under two settings, and compare with faces that are divided at random.

    The covering columns are left out: refining thousands of overlapping columns takes hours.
    """
    maps = study.lead.load()
    random = [correlations(maps, depth) for depth in random_depths(maps, study)]
    low, high = np.percentile([deviation for deviation, _ in random], (2.5, 97.5))
    rows = []
    for setting in (LITERAL, DEFAULT):
        model = fit(maps, setting, study)
        draw(model, maps, setting, study)
        rows.append(
            {
                "setting": setting.key,
                **measures(model, maps, study),
                "random_low": low,
                "random_high": high,
            }
        )
    study.write_table("maps", rows)


def fit(maps: Maps, setting: Setting, study: Study) -> ico.CorticalFactorization:
    """Fit the twenty columns from many starts, then refine; there is no lift in the paper."""
    sizes = study.sizes
    model = ico.CorticalFactorization(
        sizes.n_components,
        method=METHOD,
        mesh=maps.mesh,
        hemi=study.lead.side,
        mask=maps.cortex,
        columns=setting.kind,
        sigma=setting.sigma,
        level=0,
        n_starts=sizes.starts,
        n_iter=sizes.updates,
        tol=0,
        refinement=setting.refinement(sizes.steps),
        lift=False,
        rules=setting.rules,
        random_state=study.seed,
    )
    return model.fit(maps.on_faces.T)


def correlations(maps: Maps, depth: np.ndarray) -> tuple[float, float]:
    """Correlate the ranks of depth with those of the standard deviation, and of the median map."""
    deviation = spearmanr(depth, maps.X.std(axis=1)).statistic
    level = spearmanr(depth, np.median(maps.X, axis=1)).statistic
    return float(deviation), float(level)


def random_depths(maps: Maps, study: Study) -> list[np.ndarray]:
    """Return how often the face of each site is divided when faces are drawn at random."""
    depths = []
    for seeds in np.random.SeedSequence([study.seed, 4]).spawn(study.sizes.random_refinements):
        rng = np.random.default_rng(seeds)
        design = ico.Design(maps.sites)
        for _ in range(study.sizes.steps):
            divisible = np.flatnonzero(design.divisible)
            if len(divisible) == 0:
                break
            n_divided = min(FACES_PER_REFINEMENT, len(divisible))
            design = design.divide(rng.choice(divisible, n_divided, replace=False))
        depths.append(design.site_depth)
    return depths


def measures(model: ico.CorticalFactorization, maps: Maps, study: Study) -> dict:
    """Measure the focus of the refinement and the overlap of the maps."""
    components = np.asarray(model.components_).T[maps.cortex]
    deviation, level = correlations(maps, np.asarray(model.depth_)[maps.cortex])
    # What each map contributes to a typical subject; loadings have a root mean square of 1.
    contributions = np.sort(components, axis=1)
    reached = contributions[:, -1] > 0
    shared = contributions[reached, -2] > 0.5 * contributions[reached, -1]
    errors = model.refined_.solution.errors / (maps.X**2).sum()
    return {
        "refinements": len(model.refined_.divisions),
        "columns": model.design_.n_columns,
        "error_before": errors[study.sizes.updates],
        "error_after": errors[-1],
        "depth_and_deviation": deviation,
        "depth_and_median": level,
        "overlap": overlap(components),
        "shared_sites": shared.mean(),
        "hoyer": hoyer(components),
        "reached_sites": reached.mean(),
    }


def draw(model: ico.CorticalFactorization, maps: Maps, setting: Setting, study: Study) -> None:
    """Draw the first basis maps; then median, standard deviation and depth, as in figure 6 of the paper."""
    components = ico.plot_components(model, components=range(N_DRAWN), scale="each")
    study.save_figure(f"4_maps_{setting.key}_components", components)
    # plot_components draws the components of a model: put the other maps in their place.
    data = copy.copy(model)
    median = np.median(maps.on_faces, axis=1)
    data.components_ = np.stack([median, maps.on_faces.std(axis=1), model.depth_])
    names = ("median", "standard deviation", "times divided")
    study.save_figure(
        f"4_maps_{setting.key}_data", ico.plot_components(data, scale="each", names=names)
    )
