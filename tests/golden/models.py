"""Golden cases: adjusted maps, several measures, repeated scans, new people, a store and a cluster, from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import icofactor as ico
from golden.adapter import fit_on_cluster, save_store
from golden.figures import Exactly, Factors, Figure, Number, Values
from golden.inputs import (
    N_COMPONENTS,
    SUBJECTS,
    both_maps,
    cohort,
    coordinates,
    generator,
    left_maps,
    people,
    regional_maps,
    true_loadings,
)

# A fixed number of updates: where a run stops by itself, rounding could decide about one update more.
FIXED = {"n_starts": 3, "n_iter": 150, "tol": 0.0}
FITTED, NEW = slice(0, 18), slice(18, 24)


def parts_model(**changes: object) -> ico.CorticalFactorization:
    """Return the estimator of most cases."""
    return ico.CorticalFactorization(**{"n_components": N_COMPONENTS, "random_state": 0, **changes})


def figures_of_fit(model: ico.CorticalFactorization) -> dict[str, Figure]:
    """Return what every fit has."""
    return {
        "explained": Number(model.explained_, 1e-5),
        "shares": Values(np.sort(model.explained_variance_ratio_)),
        "factors": Factors(model.components_, model.loadings_),
    }


def covariates(method: str) -> dict[str, Figure]:
    """Regress age and sex out, fit, and apply both to new people."""
    data = cohort()
    model = parts_model() if method == "parts" else parts_model(method=method, **FIXED)
    effects = ico.Covariates.fit(data[FITTED], ["age", "sex"], nonnegative=not model.takes_negative)
    model.fit(effects.apply(data[FITTED]))
    return {
        **figures_of_fit(model),
        "coefficients": Values(effects.coefficients),
        "share of the covariates": Number(effects.explained, 1e-5),
        "loadings of new people": Values(np.sort(model.transform(data[NEW]), axis=1)),
    }


def combat() -> dict[str, Figure]:
    """Harmonize two scanners, fit, and apply both to new people."""
    maps = both_maps().copy()
    scanner_b = people()["site"] == "B"
    cortex = maps[0] > 0
    maps[np.ix_(scanner_b, cortex)] = 0.2 + 1.1 * maps[np.ix_(scanner_b, cortex)]
    data = cohort(X=maps)
    harmonization = (
        ico.preprocessing.ComBat("site", ["age"], min_scans=3).fit(data[FITTED]).harmonization_
    )
    model = parts_model().fit(harmonization.apply(data[FITTED]))
    return {
        **figures_of_fit(model),
        "location": Values(harmonization.location),
        "scale": Values(harmonization.scale),
        "share of the scanners": Number(harmonization.explained, 1e-5),
        "loadings of new people": Values(np.sort(model.transform(data[NEW]), axis=1)),
    }


def z_scores() -> dict[str, Figure]:
    """Fit z-scores, and score new people."""
    data = cohort()
    # Four components of z-scores have several minima that fit nearly alike.
    model = parts_model(n_components=3, center="zscore").fit(data[FITTED])
    return {
        **figures_of_fit(model),
        "mean map": Values(model.mean_),
        "loadings of new people": Values(np.sort(model.transform(data[NEW]), axis=1)),
        "score of new people": Number(model.score(data[NEW]), 1e-5),
    }


def float32_maps() -> dict[str, Figure]:
    """Fit maps of single precision, as files have them."""
    data = cohort(X=both_maps().astype(np.float32))
    return figures_of_fit(parts_model().fit(data))


def measures(share: str) -> dict[str, Figure]:
    """Fit two measures of the same people, with shared maps or shared loadings."""
    thickness = cohort("left", modality="thickness", units="mm")
    second = regional_maps(coordinates("fsaverage3"), true_loadings(), seed=9) ** 2
    myelin = cohort("left", X=second, modality="myelin")
    joined = ico.join_measures({"thickness": thickness, "myelin": myelin}, share, scale="variance")
    model = parts_model().fit(joined)
    maps = model.measures_.maps(model.components_)
    return {
        **figures_of_fit(model),
        "mean of the maps of myelin": Values(np.sort(np.abs(maps["myelin"]).mean(axis=1))),
        "loadings of all rows": Exactly(list(model.loadings_.shape)),
    }


def repeated_scans(folder: Path) -> dict[str, Figure]:
    """Fit first scans, give second ones loadings, and test age with a random intercept per person."""
    random = generator(6)
    table = people()
    second = left_maps() * 0.99 + 0.02 * random.standard_normal(left_maps().shape)
    scans = ico.Cohort.from_array(
        np.concatenate([left_maps(), second]),
        "fsaverage3",
        "left",
        subjects=[f"{name}_ses-{session}" for session in (1, 2) for name in SUBJECTS],
        participants={
            "participant_id": np.tile(SUBJECTS, 2),
            "session_id": np.repeat(["ses-1", "ses-2"], len(SUBJECTS)),
            "age": np.concatenate([table["age"], table["age"] + 3]),
            "group": np.tile(table["group"], 2),
        },
    )
    result = ico.fit_cohort(scans, parts_model(), folder / "fit", fit_on="baseline", figures=False)
    model = result.model
    loadings = model.transform(scans)
    associations = ico.associate(
        loadings, scans.participants, "age + group", n_permutations=199, random_state=0
    )
    values = np.sort(associations.table["value"])
    return {
        **figures_of_fit(model),
        "loadings of all scans": Values(np.sort(loadings, axis=1)),
        "statistics with a random intercept": Values(values),
        "p by theory": Values(np.sort(associations.table["p_theory"]), 1e-3),
    }


def new_people(folder: Path) -> dict[str, Figure]:
    """Save a model, load it, and use it for people it has not seen."""
    model = parts_model(method="LE-SPNNMF", mesh="fsaverage3", hemi="left", **FIXED).fit(
        left_maps()[FITTED]
    )
    model.save(folder / "model.zip")
    loaded = ico.load_model(folder / "model.zip")
    loadings = loaded.transform(left_maps()[NEW])
    reconstruction = loaded.inverse_transform(loadings)
    return {
        "loadings of new people": Values(np.sort(loadings, axis=1)),
        "reconstruction": Values(reconstruction),
        "score": Number(loaded.score(left_maps()[NEW]), 1e-5),
    }


def store_in_python(dtype: str, folder: Path) -> dict[str, Figure]:
    """Fit a store with fewer people than it holds."""
    stored = save_store(cohort(X=both_maps().astype(np.float32)), folder / "store", dtype=dtype)
    return figures_of_fit(parts_model().fit(stored[FITTED]))


def cluster(folder: Path) -> dict[str, Figure]:
    """Fit a store on the workers of a cluster: the numbers of a fit without one."""
    stored = save_store(cohort(X=both_maps().astype(np.float32)), folder / "store")
    return figures_of_fit(fit_on_cluster(parts_model(), stored))


CASES: dict[str, Callable[..., dict[str, Figure]]] = {
    "covariates, parts": partial(covariates, "parts"),
    "covariates, LE-PNNMF": partial(covariates, "LE-PNNMF"),
    "ComBat": combat,
    "z-scores": z_scores,
    "float32": float32_maps,
    "measures, shared maps": partial(measures, "maps"),
    "measures, shared loadings": partial(measures, "loadings"),
    "repeated scans": repeated_scans,
    "new people": new_people,
    "store, float32": partial(store_in_python, "float32"),
    "store, float16": partial(store_in_python, "float16"),
    "cluster": cluster,
}
