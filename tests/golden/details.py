"""Golden cases: what planted faults showed the other cases to miss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import icofactor as ico
from golden.adapter import run_command, save_store, save_tall_store
from golden.assessment import fitted_model
from golden.figures import Exactly, Factors, Figure, Number, Objective, Values
from golden.inputs import (
    N_COMPONENTS,
    SUBJECTS,
    both_maps,
    cohort,
    coordinates,
    generator,
    left_maps,
    medial_wall,
    people,
    regional_maps,
    true_loadings,
)
from golden.models import FITTED, FIXED, NEW, parts_model
from helpers.trees import write_npz


def order_sign_and_scale() -> dict[str, Figure]:
    """Pin what `Factors` leaves open: the order of components, their signs and their scale."""
    figures: dict[str, Figure] = {}
    for method in ("parts", "DL", "LE-PNNMF", "PPNMF"):
        model = parts_model(method=method, mesh="fsaverage3", hemi="left", level=1, **FIXED).fit(
            left_maps()
        )
        figures[f"{method}: shares in order"] = Values(model.explained_variance_ratio_)
        figures[f"{method}: signs"] = Exactly(np.sign(model.components_.sum(axis=1)).tolist())
        figures[f"{method}: sizes of loadings"] = Values(np.sqrt((model.loadings_**2).mean(axis=0)))
    return figures


def compiled_engine() -> dict[str, Figure]:
    """Update by the compiled code, which small problems do not take by themselves."""
    sites = ico.Sites.named("fsaverage3")
    maps = left_maps().T
    statistics = ico.Statistics.from_data(maps, ico.Design(sites, level=1))
    smooth = ico.Statistics.from_data(maps, ico.Design(sites, "smooth", level=1, sigma=0.1))
    settings = {"n_starts": 3, "n_iter": 80, "engine": "cpu", "random_state": 0}
    figures: dict[str, Figure] = {}
    for method in ico.PAPER_METHODS:
        for rules in ("default", "paper"):
            best = ico.multistart(statistics, method, N_COMPONENTS, rules=rules, **settings)
            figures[f"{method}, {rules}"] = Objective(best.objective[-1])
    for method in ("DL", "LE-SPNNMF", "E-PPNMF"):
        best = ico.multistart(smooth, method, N_COMPONENTS, **settings)
        figures[f"{method}, smooth columns"] = Objective(best.objective[-1])
    return figures


def stopping() -> dict[str, Figure]:
    """Stop by the tolerance; rounding may move the end by an update."""
    figures: dict[str, Figure] = {}
    for method in ("parts", "PNNMF", "LE-PNNMF", "DL"):
        for engine in ("numpy", "cpu"):
            model = parts_model(
                method=method, mesh="fsaverage3", hemi="left", level=1, n_starts=10, engine=engine
            )
            model.fit(left_maps())
            figures[f"{method}, {engine}: updates of the starts"] = Number(
                model.starts_.start_n_iter.mean(), 0.03
            )
    # These starts begin on a plateau, where the objective hardly falls.
    statistics = ico.Statistics.from_data(
        left_maps().T, ico.Design(ico.Sites.named("fsaverage3"), level=1)
    )
    for engine in ("numpy", "cpu"):
        settings = {"n_starts": 6, "n_iter": 300, "tol": 1e-4, "engine": engine, "random_state": 0}
        best = ico.multistart(statistics, "PPNMF", N_COMPONENTS, **settings)
        figures[f"plateau, {engine}: updates of the starts"] = Number(
            best.start_n_iter.mean(), 0.03
        )
    return figures


def paper_refinement() -> dict[str, Figure]:
    """Divide faces by the error of the paper, and carry a quarter of each row of B."""
    figures: dict[str, Figure] = {}
    for method in ("DL", "LE-PNNMF"):
        model = ico.CorticalFactorization.paper(
            method,
            N_COMPONENTS,
            mesh="fsaverage4",
            hemi="left",
            level=0,
            n_starts=3,
            n_iter=60,
            refinement=ico.Refinement(
                steps=2, faces=5, n_iter=10, indicator="projected", carry="quarter"
            ),
            random_state=0,
        )
        model.fit(left_maps("fsaverage4"))
        figures[f"{method}: columns"] = Exactly(model.design_.n_columns)
        figures[f"{method}: objective"] = Objective(model.solution_.objective[-1])
        figures[f"{method}: factors"] = Factors(model.components_, model.loadings_)
    return figures


def tall_blocks(folder: Path) -> dict[str, Figure]:
    """Fit a store whose chunks are several blocks tall: sums of blocks add up to those of a part."""
    stored = save_tall_store(
        cohort(mesh="fsaverage5", X=both_maps("fsaverage5").astype(np.float32)), folder / "store"
    )
    model = parts_model().fit(stored)
    return {
        "explained": Number(model.explained_, 1e-5),
        "factors": Factors(model.components_, model.loadings_),
    }


def float32_blocks(as_store: bool, folder: Path) -> dict[str, Figure]:
    """Fit maps above 32 MiB, whose blocks are float32, from an array or from a float16 store."""
    maps = both_maps("fsaverage5", n_subjects=264).astype(np.float32)
    mask = np.tile(~medial_wall("fsaverage5"), 2)
    data = ico.Cohort.from_array(maps, "fsaverage5", "both", mask=mask)
    training = data[:240]
    if as_store:
        training = save_store(training, folder / "store", dtype="float16")
    model = parts_model().fit(training)
    return {
        "explained": Number(model.explained_, 1e-5),
        "factors": Factors(model.components_, model.loadings_),
        "loadings of new people": Values(np.sort(model.transform(data[240:]), axis=1)),
    }


def thousands_of_people() -> dict[str, Figure]:
    """Fit more people than sites, in float32 blocks, whose means are far above what people differ by."""
    maps = (left_maps("fsaverage4", n_subjects=3000) + 300).astype(np.float32)
    model = parts_model(mesh="fsaverage4", hemi="left").fit(maps)
    return {
        "explained": Number(model.explained_, 1e-5),
        "factors": Factors(model.components_, model.loadings_),
    }


def chosen_people(folder: Path) -> dict[str, Figure]:
    """Slice a store, and fit people of it in another order."""
    stored = save_tall_store(cohort(X=both_maps().astype(np.float32)), folder / "store")
    # Four components of twelve people have several minima that fit nearly alike.
    model = parts_model(n_components=3).fit(stored[[7, 3, 20, 11, 0, 15, 2, 9, 22, 5, 18, 13]])
    return {
        "some sites of some people": Values(stored.X[[5, 2, 9], 300:400]),
        "factors": Factors(model.components_, model.loadings_),
        "mean map": Values(model.mean_),
    }


def masked_measures() -> dict[str, Figure]:
    """Join measures that lack different sites."""
    points = coordinates("fsaverage3")
    masks = {"first": points[:, 1] > -0.8, "second": points[:, 2] > -0.8}
    cohorts = {
        name: ico.Cohort.from_array(left_maps(), "fsaverage3", "left", mask=masks[name])
        for name in masks
    }
    figures: dict[str, Figure] = {}
    for share in ("maps", "loadings"):
        joined = ico.join_measures(cohorts, share, scale="variance")
        model = parts_model().fit(joined)
        figures[f"{share}: sites in use"] = Exactly(int(joined.mask.sum()))
        figures[f"{share}: factors"] = Factors(model.components_, model.loadings_)
    return figures


def components_of_other_starts() -> dict[str, Figure]:
    """Count the starts that reach each component, where not all do."""
    statistics = ico.Statistics.from_data(
        left_maps().T, ico.Design(ico.Sites.named("fsaverage3"), level=1)
    )
    best = ico.multistart(statistics, "LE-PNNMF", 5, n_starts=20, n_iter=150, random_state=0)
    # Rounding may decide about a start.
    return {
        "starts near the best": Number(best.n_near, 0.1),
        "shares": Values(best.recurrence, 0.2),
    }


def reconstructions() -> dict[str, Figure]:
    """Make maps from loadings, in the units of the data."""
    figures: dict[str, Figure] = {}
    for center in ("mean", "zscore"):
        model = parts_model(n_components=3, center=center, mesh="fsaverage3", hemi="left").fit(
            left_maps()[FITTED]
        )
        maps = model.inverse_transform(model.transform(left_maps()[NEW]))
        figures[f"{center}: reconstruction"] = Values(maps)
    return figures


def covariates_near_zero() -> dict[str, Figure]:
    """Regress age out of maps near 0: sites are raised, and values of new people that fall below 0 become 0."""
    maps = left_maps() - left_maps().min(axis=0)
    data = cohort("left", X=maps)
    effects = ico.Covariates.fit(data[FITTED], ["age"], nonnegative=True)
    model = parts_model(method="LE-PNNMF", **FIXED).fit(effects.apply(data[FITTED]))
    return {
        "shift": Values(effects.shift),
        "factors": Factors(model.components_, model.loadings_),
        "loadings of new people": Values(np.sort(model.transform(data[NEW]), axis=1)),
    }


def new_scanner() -> dict[str, Figure]:
    """Harmonize two scanners to the first, and estimate a third from scans that the fit did not have."""
    table = people()
    table["site"] = np.where(np.arange(len(table["site"])) < 18, table["site"], "C")
    maps = left_maps().copy()
    maps[NEW] = 0.3 + 1.2 * maps[NEW]
    data = ico.Cohort.from_array(maps, "fsaverage3", "left", subjects=SUBJECTS, participants=table)
    figures: dict[str, Figure] = {}
    for reference in (None, "A"):
        combat = ico.preprocessing.ComBat("site", ["age"], reference=reference, min_scans=3).fit(
            data[FITTED]
        )
        figures[f"{reference}: location"] = Values(combat.harmonization_.location)
        figures[f"{reference}: scale"] = Values(combat.harmonization_.scale)
        figures[f"{reference}: maps of the third scanner"] = Values(
            np.asarray(combat.transform(data[NEW]).X[:])
        )
    return figures


def shared_maps_of_positive_values() -> dict[str, Figure]:
    """Fit two measures that keep their means: shares and order count deviations from the mean of each measure."""
    second = regional_maps(coordinates("fsaverage3"), true_loadings(), seed=9) ** 2
    measures = {"thickness": cohort("left"), "myelin": cohort("left", X=second)}
    model = parts_model(method="LE-PNNMF", **FIXED).fit(
        ico.join_measures(measures, "maps", scale="variance")
    )
    return {
        "shares in order": Values(model.explained_variance_ratio_),
        "factors": Factors(model.components_, model.loadings_),
    }


def missing_values(folder: Path) -> dict[str, Figure]:
    """Give loadings to people who lack some vertices, with the measures of how well they are described."""
    maps = left_maps("fsaverage4").astype(np.float32)
    fitted = write_npz(folder / "fitted.npz", SUBJECTS[:18], {"left": maps[:18]})
    incomplete = maps[18:].copy()
    incomplete[:, :40] = np.nan
    new = write_npz(folder / "new.npz", SUBJECTS[18:], {"left": incomplete})
    side = ("--hemisphere", "left", "--mesh", "fsaverage4", "--quiet")
    figures: dict[str, Figure] = {}
    for method in ("parts", "LE-PNNMF"):
        out = folder / method
        run_command(
            "fit", fitted, "-o", out, "--n-components", 3, "--method", method, "--no-figures", *side
        )
        table = folder / f"{method}.tsv"
        run_command("transform", out, new, "-o", table, "--quiet")
        numbers = pd.read_csv(table, sep="\t").select_dtypes("number")
        figures[f"{method}: loadings"] = Values(
            np.sort(numbers.filter(like="component").to_numpy(), axis=1)
        )
        quality = numbers[[name for name in numbers if not name.startswith("component")]]
        figures[f"{method}: measures of quality"] = Exactly(list(quality))
        figures[f"{method}: quality"] = Values(quality.to_numpy().T)
    return figures


def interactions() -> dict[str, Figure]:
    """Test a formula with an interaction: sizes of effects, intervals and corrected values."""
    found = ico.associate(fitted_model(), people(), "age * sex + group", n_permutations=0)
    columns = (
        "estimate",
        "standardized",
        "ci_low",
        "ci_high",
        "partial_r2",
        "q_fdr",
        "q_fdr_all",
        "df_residual",
    )
    return {
        "terms": Exactly(list(dict.fromkeys(found.table["term"].tolist()))),
        **{name: Values(found.table[name], 1e-5) for name in columns},
        "coefficients": Values(found.coefficients["estimate"], 1e-5),
    }


def pls_resampled() -> dict[str, Figure]:
    """Resample the patterns of PLS: ratios of weights, intervals, and agreement of halves."""
    loadings = fitted_model().loadings_
    random = generator(8)
    behaviour = {
        f"test{number}": loadings @ random.standard_normal(4) + random.standard_normal(24)
        for number in "123"
    }
    patterns = ico.pls(
        loadings, behaviour, n_permutations=0, n_bootstrap=100, n_splits=10, random_state=0
    )
    names = ("measure_ratios", "component_ratios", "measure_interval", "component_reproducibility")
    return {
        "explained": Values(patterns.explained, 1e-5),
        "correlations of components": Values(np.abs(patterns.component_correlations), 1e-5),
        **{name.replace("_", " "): Values(getattr(patterns, name).ravel(), 0.01) for name in names},
    }


def recommendation(method: str) -> dict[str, Figure]:
    """Recommend a number of components, with a covariate regressed out within every half and fold."""
    settings = {"n_splits": 4, "n_starts": 4, "n_nulls": 5, "level": 1, "covariates": ["age"]}
    choice = ico.choose_n_components(cohort(), (2, 3), method=method, **settings)
    return {
        "recommended": Exactly(choice.recommended),
        "heldout": Values(choice.table["heldout"], 1e-3),
        "bicv": Values(choice.table["bicv"], 1e-3),
        "score": Values(choice.table["score"], 0.05),
    }


def bootstrap_of_families() -> dict[str, Figure]:
    """Draw families instead of people."""
    families = [f"family{number // 2}" for number in range(len(SUBJECTS))]
    model = ico.CorticalFactorization(3, random_state=0).fit(cohort())
    resamples = ico.bootstrap.bootstrap(
        model, cohort(), n_resamples=4, groups=families, random_state=0
    )
    return {
        "standard errors of loadings": Values(np.sqrt((resamples.loading_se**2).mean(axis=0)), 1e-3)
    }


def rotated_atlas() -> dict[str, Figure]:
    """Pin the null of an atlas, which the p-values alone hardly show."""
    points = coordinates("fsaverage3")
    regions = np.concatenate([points[:, 1] > 0, 2 + (points[:, 1] > 0)]).astype(int)
    overlap = ico.atlas.overlap(
        fitted_model(), ico.atlas.Atlas(regions, ("a", "b", "c", "d")), n_spins=19
    )
    order = np.lexsort((overlap.table["region"], overlap.table["component"]))
    return {
        "mean of rotations": Values(overlap.table["null_enrichment"][order], 1e-3),
        "least p": Number(float(np.nanmin(overlap.table["p"])), 1e-6),
        "names": Exactly(list(overlap.names)),
    }


CASES: dict[str, Callable[..., dict[str, Figure]]] = {
    "order, sign and scale": order_sign_and_scale,
    "compiled engine": compiled_engine,
    "stopping": stopping,
    "paper refinement": paper_refinement,
    "tall blocks": tall_blocks,
    "float32 blocks, array": partial(float32_blocks, False),
    "float32 blocks, float16 store": partial(float32_blocks, True),
    "thousands of people": thousands_of_people,
    "chosen people of a store": chosen_people,
    "measures with masks of their own": masked_measures,
    "components of other starts": components_of_other_starts,
    "reconstructions": reconstructions,
    "covariates near zero": covariates_near_zero,
    "new scanner": new_scanner,
    "shared maps of positive values": shared_maps_of_positive_values,
    "missing values": missing_values,
    "interactions": interactions,
    "PLS, resampled": pls_resampled,
    "recommendation, parts": partial(recommendation, "parts"),
    "recommendation, LE-PNNMF": partial(recommendation, "LE-PNNMF"),
    "bootstrap of families": bootstrap_of_families,
    "rotations of an atlas": rotated_atlas,
}
