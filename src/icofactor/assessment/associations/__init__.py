"""What the loadings have to do with the people: regressions, behavioural PLS, normative scores."""

from icofactor.assessment.associations._associate import associate
from icofactor.assessment.associations._pls import PLS, pls
from icofactor.assessment.associations.normative import NormativeScores, normative_scores
from icofactor.assessment.associations.result import Associations

__all__ = ["PLS", "Associations", "NormativeScores", "associate", "normative_scores", "pls"]
