"""What is known about a fit: frozen records of arrays, numbers and text, and the file that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from icofactor.io.records import Form, Numbers


@dataclass(frozen=True, eq=False)
class Convergence:
    """The course of the objective.

    Attributes
    ----------
    updates, objective : (m,) the kept run, thinned: the objective after so many updates
    band_updates : (q,) updates at which the starts were compared
    band : (5, q) least, lower quartile, median, upper quartile and largest objective over the starts
    divisions : updates made before each refinement
    n_columns : active faces after each refinement
    n_starts : how many starts were run; of "parts" only the most promising ones are
    converged : whether the starts met their tolerance
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
    column : its name
    values : (n_subjects,) NaN where unknown
    n : subjects with a value
    measure : whose loadings these are, where people have those of several
    r : (k,) Pearson's correlation with each component's loadings
    p : (k,) permutation p, two-sided, corrected over components by the largest |r|
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
    column : its name
    labels : names of the groups
    codes : (n_subjects,) number of each subject's group, −1 where unknown or in a group too small to compare
    n : subjects in a group
    measure : as in `Association`
    eta2 : (k,) share of the variance of each component's loadings that lies between the groups
    p : (k,) permutation p, corrected over components by the largest share
    boxes : (n_groups, k, 5) least, lower quartile, median, upper quartile, largest loading
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
    """Subjects far from the others, the furthest first.

    Attributes
    ----------
    subject : (m,) row of the subject
    component : (m,) which loading is unusual, counted from 0; −1 where it is the residual
    value : (m,) that loading, or the root mean square residual in the data's units
    z : (m,) its distance from the median in robust standard deviations; see `unusual_subjects`
    limit : the distance from which on a subject is listed
    """

    subject: Annotated[np.ndarray, Numbers("m", "i", least=0, below="n")]
    component: Annotated[np.ndarray, Numbers("m", "i", least=-1, below="k")]
    value: Annotated[np.ndarray, Numbers("m")]
    z: Annotated[np.ndarray, Numbers("m")]
    limit: float


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Everything a report shows of a fit of k components to n subjects.

    Attributes
    ----------
    subjects : names, in the order of the loadings
    hemisphere, modality, units : of the data; units "" when unknown
    simulated : whether the data were made by a computer
    median, deviation : (n_sites,) over subjects, in the data's units; NaN where masked, as all maps here
    explained_map : (n_sites,) share of each site's between-subject variance that the fit explains
    parcellation : (n_sites,) number of the component that carries most, 1 to k; 0 where none does, or masked
    depth : (n_sites,) how often the face that holds each site was divided
    loadings : (n, k)
    residual : (n,) root mean square of x − fit over sites, in the data's units, or in standard deviations for a fit of
        z-scores. All shares of variance are of what was fitted, `explained_X` aside
    subject_explained : (n,) share of the subject's variance about the mean map that the fit explains
    explained : share of the between-subject variance that the fit explains
    measure_explained : (n_measures,) the same of each measure; None for one measure
    explained_X : share of ‖X‖² in the data's units, mean map included, which is near 1 for any sensible fit
    alone : (k,) share of the between-subject variance that each component carries by itself
    unique : (k,) share that is lost when the loadings of all others stand in for it, by linear regression
    linear : share that the loadings of all components explain by linear regression; what `unique` is taken from
    l1_B, l1_C : (k,) sums of absolute values of each component's basis and loadings in design coordinates
    extent : (k,) share of the sites in use where the component exceeds 5 % of its largest value
    overlap : (k, k) how much of two maps lies in the same place, 0 to 1, each taken as a distribution over sites
    similarity : (k, k) correlation of the maps
    together : (k, k) correlation of the loadings
    order, component_order : of subjects and components, alike ones side by side
    tree : (n − 1, 4) SciPy's linkage of the subjects that `order` comes from; (0, 4) when there are too many
    convergence, associations, groupings, unusual : see there
    left_out : columns of the participants that were not compared, and why
    timing : stage → seconds; `memory` : bytes at most in use, 0 when unknown
    warnings : what a reader should know before believing the rest
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


_FILE = Form(Diagnostics, "icofactor diagnostics", "diagnostics", 3, "run icofactor fit again to write its diagnostics")


def save_diagnostics(diagnostics: Diagnostics, path: str | Path, overwrite: bool = False) -> Path:
    """Write diagnostics to one npz file, whole or not at all: arrays of numbers and one JSON text, no pickle."""
    _FILE.save(diagnostics, path, overwrite)
    return Path(path)


def load_diagnostics(path: str | Path) -> Diagnostics:
    """Read diagnostics written by `save_diagnostics`; nothing in the file is run."""
    found: Diagnostics = _FILE.load(path)
    return found
