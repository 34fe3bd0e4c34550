"""The factorization schemes: objective, start and plain updates, as functions of statistics.

A new scheme is one file with one subclass of `Scheme`, and one line here.
"""

from __future__ import annotations

from icofactor.factorization.schemes.base import (
    Problem,
    Scheme,
    SchemeText,
    Terms,
)
from icofactor.factorization.schemes.dictionary import DictionaryLearning
from icofactor.factorization.schemes.nonnegative import (
    CoordinateRidge,
    CoordinateSparse,
    RidgeNMF,
    SparseNMF,
)
from icofactor.factorization.schemes.parts import Parts
from icofactor.factorization.schemes.projective import ProjectiveNMF

__all__ = ["SCHEMES", "Problem", "Scheme", "SchemeText", "Terms"]

# All schemes by name, those of the paper first.
SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        DictionaryLearning(),
        RidgeNMF(),
        SparseNMF(),
        ProjectiveNMF(),
        CoordinateRidge(),
        CoordinateSparse(),
        Parts(),
    )
}
