"""What the loadings have to do with the people: regressions, behavioural PLS, normative scores."""

from icofactor.assessment.associations._associate import associate
from icofactor.assessment.associations._pls import PLS, plot_latent, pls
from icofactor.assessment.associations.loadings import TAKEN_OUT, beside_each_other, taken_out_of
from icofactor.assessment.associations.normative import NormativeScores, normative_scores
from icofactor.assessment.associations.result import Associations

__all__ = [
    "PLS",
    "TAKEN_OUT",
    "Associations",
    "NormativeScores",
    "associate",
    "beside_each_other",
    "normative_scores",
    "plot_latent",
    "pls",
    "taken_out_of",
]
