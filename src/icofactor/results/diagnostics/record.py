"""What is known about a fit: frozen records of arrays, numbers and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


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
    n_starts : how many starts there were
    agreeing : starts whose last objective is within 0.1 % of the best
    converged : whether the starts met their tolerance
    """

    updates: np.ndarray
    objective: np.ndarray
    band_updates: np.ndarray
    band: np.ndarray
    divisions: np.ndarray
    n_columns: np.ndarray
    n_starts: int
    agreeing: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Association:
    """Loadings against a numeric column of the participants.

    Attributes
    ----------
    column : its name
    values : (n_subjects,) NaN where unknown
    n : subjects with a value
    r : (k,) Pearson's correlation with each component's loadings
    p : (k,) permutation p, two-sided, corrected over components by the largest |r|
    """

    column: str
    values: np.ndarray
    n: int
    r: np.ndarray
    p: np.ndarray


@dataclass(frozen=True, eq=False)
class Grouping:
    """Loadings in the groups of a column of the participants.

    Attributes
    ----------
    column : its name
    labels : names of the groups
    codes : (n_subjects,) number of each subject's group, −1 where unknown or in a group too small to compare
    n : subjects in a group
    eta2 : (k,) share of the variance of each component's loadings that lies between the groups
    p : (k,) permutation p, corrected over components by the largest share
    boxes : (n_groups, k, 5) least, lower quartile, median, upper quartile, largest loading
    """

    column: str
    labels: tuple[str, ...]
    codes: np.ndarray
    n: int
    eta2: np.ndarray
    p: np.ndarray
    boxes: np.ndarray


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

    subject: np.ndarray
    component: np.ndarray
    value: np.ndarray
    z: np.ndarray
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
    residual : (n,) root mean square of x − fit over sites, in the data's units
    subject_explained : (n,) share of the subject's variance about the mean map that the fit explains
    explained : share of the between-subject variance that the fit explains
    explained_X : share of ‖X‖², mean map included, which is near 1 for any sensible fit
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

    subjects: tuple[str, ...]
    hemisphere: str
    modality: str
    units: str
    simulated: bool
    median: np.ndarray
    deviation: np.ndarray
    explained_map: np.ndarray
    parcellation: np.ndarray
    depth: np.ndarray
    loadings: np.ndarray
    residual: np.ndarray
    subject_explained: np.ndarray
    explained: float
    explained_X: float
    alone: np.ndarray
    unique: np.ndarray
    linear: float
    l1_B: np.ndarray
    l1_C: np.ndarray
    extent: np.ndarray
    overlap: np.ndarray
    similarity: np.ndarray
    together: np.ndarray
    order: np.ndarray
    component_order: np.ndarray
    tree: np.ndarray
    convergence: Convergence
    associations: tuple[Association, ...]
    groupings: tuple[Grouping, ...]
    unusual: Unusual
    left_out: Mapping[str, str]
    timing: Mapping[str, float]
    memory: int
    warnings: tuple[str, ...]
