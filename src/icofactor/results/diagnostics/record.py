"""What is known about a fit: frozen records of arrays, numbers and text, and the file that holds
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from icofactor.io.records import Form, Numbers, plain_signature


@dataclass(frozen=True, eq=False)
class Convergence:
    """The course of the objective.

    Attributes
    ----------
    updates, objective : arrays of shape (m,)
        Numbers of updates of the best start, thinned, and the objective after each of them.
    band_updates : array of shape (q,)
        Numbers of updates at which the starts were compared.
    band : array of shape (5, q)
        Minimum, quartiles and maximum of the objective over starts.
    divisions, n_columns : arrays of shape (n_refinements,)
        Number of updates before each refinement, and of active faces after it.
    n_starts : int
        Number of starts that were run; for "parts" only the most promising ones are.
    converged : bool
        Whether the starts met their tolerance.
    """

    updates: Annotated[np.ndarray, Numbers("m", "fi")]
    objective: Annotated[np.ndarray, Numbers("m")]
    band_updates: Annotated[np.ndarray, Numbers("q", "fi")]
    band: Annotated[np.ndarray, Numbers("5q", finite=False)]
    divisions: Annotated[np.ndarray, Numbers("d", "fi")]
    n_columns: Annotated[np.ndarray, Numbers("c", "fi")]
    n_starts: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Association:
    """Loadings against a numeric column of the participants.

    Attributes
    ----------
    column : str
        Name of the column.
    values : array of shape (n_subjects,)
        Its values; NaN if unknown.
    n : int
        Number of subjects with a value.
    measure : str
        Measure of these loadings, if people have loadings of several.
    r : array of shape (n_components,)
        Pearson's correlation with the loadings of each component.
    p : array of shape (n_components,)
        Two-sided permutation p, corrected over components by the largest |r|.
    """

    column: str
    values: Annotated[np.ndarray, Numbers("n", finite=False)]
    n: int
    r: Annotated[np.ndarray, Numbers("k", finite=False)]
    p: Annotated[np.ndarray, Numbers("k", finite=False)]
    measure: str = ""

    @property
    def called(self) -> str:
        """Column, and measure where there are several."""
        return f"{self.column}, {self.measure}" if self.measure else self.column


@dataclass(frozen=True, eq=False)
class Grouping:
    """Loadings in the groups of a column of the participants.

    Attributes
    ----------
    column, labels : str, tuple of str
        Names of the column and of its groups.
    codes : int array of shape (n_subjects,)
        Number of each subject's group; −1 if unknown, or if the group is too small to compare.
    n : int
        Number of subjects in a group.
    measure : str
        As in `Association`.
    eta2 : array of shape (n_components,)
        Share of the variance of each component's loadings between the groups.
    p : array of shape (n_components,)
        Permutation p, corrected over components by the largest share.
    boxes : array of shape (n_groups, n_components, 5)
        Minimum, quartiles and maximum of the loadings.
    """

    column: str
    labels: Annotated[tuple[str, ...], Numbers("g", "text")]
    codes: Annotated[np.ndarray, Numbers("n", "i", least=-1, below="g")]
    n: int
    eta2: Annotated[np.ndarray, Numbers("k", finite=False)]
    p: Annotated[np.ndarray, Numbers("k", finite=False)]
    boxes: Annotated[np.ndarray, Numbers("gk5", finite=False)]
    measure: str = ""

    @property
    def called(self) -> str:
        """As in `Association`."""
        return f"{self.column}, {self.measure}" if self.measure else self.column


@dataclass(frozen=True, eq=False)
class Unusual:
    """Subjects far from the others, in order of decreasing distance.

    Attributes
    ----------
    subject : int array of shape (m,)
        Row of the subject.
    component : int array of shape (m,)
        Component whose loading is unusual, from 0; −1 for the residual.
    value : array of shape (m,)
        That loading, or the root mean square of the residual in the units of the data.
    z : array of shape (m,)
        Distance from the median in robust standard deviations; see `unusual_subjects`.
    limit : float
        Distance above which a subject is listed.
    """

    subject: Annotated[np.ndarray, Numbers("m", "i", least=0, below="n")]
    component: Annotated[np.ndarray, Numbers("m", "i", least=-1, below="k")]
    value: Annotated[np.ndarray, Numbers("m")]
    z: Annotated[np.ndarray, Numbers("m")]
    limit: float


@plain_signature
@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Everything the report of a fit shows, the result of `diagnose`.

    Maps are NaN at masked sites. Shares of variance are of what was fitted, except `explained_X`.

    Attributes
    ----------
    subjects : tuple of str
        Names, in the order of the loadings.
    hemisphere, modality, units : str
        As in `Cohort`.
    simulated : bool
        Whether the data are simulated.
    median, deviation : arrays of shape (n_sites,)
        Median and standard deviation over subjects, in the units of the data.
    explained_map : array of shape (n_sites,)
        Share of the between-subject variance of each site that the fit explains.
    parcellation : int array of shape (n_sites,)
        Number of the component that contributes most, from 1; 0 if none does, or if masked.
    depth : array of shape (n_sites,)
        How often the face of each site was divided.
    loadings : array of shape (n_subjects, n_components)
        Loadings.
    residual : array of shape (n_subjects,)
        Root mean square of the residual map, in the units of the data, or in standard deviations
        for z-scores.
    subject_explained : array of shape (n_subjects,)
        Share of the subject's variance about the mean map that the fit explains.
    explained, measure_explained : float, array of shape (n_measures,) or None
        Share of the between-subject variance that the fit explains, in all and of each of several
        measures.
    explained_X : float
        Share of ‖X‖² in the units of the data, with the mean map; near 1 for any sensible fit.
    alone : array of shape (n_components,)
        Share of the between-subject variance that each component carries alone.
    unique : array of shape (n_components,)
        Share that this component explains and no other does, by linear regression on the loadings.
    linear : float
        Share that all loadings explain by linear regression.
    l1_B, l1_C : arrays of shape (n_components,)
        Sums of absolute values of the basis and of the loadings, in design coordinates.
    extent : array of shape (n_components,)
        Share of the sites where the component exceeds 5 % of its maximum.
    overlap, similarity, together : arrays of shape (n_components, n_components)
        Overlap of the maps (0 to 1), correlation of the maps, and correlation of the loadings.
    order, component_order : int arrays
        Orders in which similar subjects and similar components are neighbours.
    tree : array of shape (n_subjects − 1, 4)
        SciPy's linkage of the subjects; (0, 4) if there are too many.
    convergence, associations, groupings, unusual
        `Convergence`, lists of `Association` and `Grouping`, and `Unusual`.
    left_out : dict
        Columns of the participants that were not compared, and why.
    timing, memory : dict, int
        Stage → seconds, and peak memory in bytes (0 if unknown).
    warnings : tuple of str
        What a reader should know first.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> found = ico.diagnostics.diagnose(model, cohort)
    >>> found.extent.shape, abs(found.explained - model.explained_) < 1e-6
    ((3,), True)
    """

    subjects: Annotated[tuple[str, ...], Numbers("n", "text")]
    hemisphere: str
    modality: str
    units: str
    simulated: bool
    median: Annotated[np.ndarray, Numbers("v", finite=False)]
    deviation: Annotated[np.ndarray, Numbers("v", finite=False)]
    explained_map: Annotated[np.ndarray, Numbers("v", finite=False)]
    parcellation: Annotated[np.ndarray, Numbers("v", "i", least=0, below="k+1")]
    depth: Annotated[np.ndarray, Numbers("v", "fi", finite=False)]
    loadings: Annotated[np.ndarray, Numbers("nk")]
    residual: Annotated[np.ndarray, Numbers("n")]
    subject_explained: Annotated[np.ndarray, Numbers("n", finite=False)]
    explained: float
    explained_X: float
    alone: Annotated[np.ndarray, Numbers("k", finite=False)]
    unique: Annotated[np.ndarray, Numbers("k", finite=False)]
    linear: float
    l1_B: Annotated[np.ndarray, Numbers("k")]
    l1_C: Annotated[np.ndarray, Numbers("k")]
    extent: Annotated[np.ndarray, Numbers("k")]
    overlap: Annotated[np.ndarray, Numbers("kk", finite=False)]
    similarity: Annotated[np.ndarray, Numbers("kk", finite=False)]
    together: Annotated[np.ndarray, Numbers("kk", finite=False)]
    order: Annotated[np.ndarray, Numbers("n", "i", order=True)]
    component_order: Annotated[np.ndarray, Numbers("k", "i", order=True)]
    tree: Annotated[np.ndarray, Numbers("t4", "f")]
    convergence: Convergence
    associations: tuple[Association, ...]
    groupings: tuple[Grouping, ...]
    unusual: Unusual
    left_out: Mapping[str, str]
    timing: Mapping[str, float]
    memory: int
    warnings: tuple[str, ...]
    measure_explained: Annotated[np.ndarray | None, Numbers("w", finite=False)] = None


_FILE = Form(
    Diagnostics,
    "icofactor diagnostics",
    "diagnostics",
    3,
    "run icofactor fit again to write its diagnostics",
)


def save_diagnostics(diagnostics: Diagnostics, path: str | Path, overwrite: bool = False) -> Path:
    """Write diagnostics to one npz file, whole or not at all: arrays of numbers and one JSON text,
    no pickle.
    """
    _FILE.save(diagnostics, path, overwrite)
    return Path(path)


def load_diagnostics(path: str | Path) -> Diagnostics:
    """Read diagnostics written by `save_diagnostics`; nothing in the file is run."""
    found: Diagnostics = _FILE.load(path)
    return found
