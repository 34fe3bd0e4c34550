"""
Coming from opNMF, cobra-nmf or scikit-learn
============================================

You know NMF of brain maps already. This page shows which option corresponds to what you use now.

=============================  ===========================================  =========================================
you use                        it minimises                                 in icofactor
=============================  ===========================================  =========================================
opNMF, brainparts, cobra-nmf   ‖X − WWᵀX‖², W ≥ 0 (projective)              ``method="LE-PPNMF"``
the same, for statistics       the same, of deviations from the mean map    ``method="parts"``, the default
``sklearn.decomposition.NMF``  ‖X − WC‖², W, C ≥ 0                          ``method="CD-PNNMF"``
``sklearn`` dictionaries       ½‖X − DC‖² + λ‖·‖₁, signs free               ``method="E-DL"``
=============================  ===========================================  =========================================

cobra-nmf and opNMF take matrices of vertices × subjects. icofactor takes subjects × vertices, as scikit-learn does.
"""

# %%
# Compared with scikit-learn
# --------------------------
#
# The estimator has the same methods. X is a plain array of subjects × vertices.

import numpy as np
from sklearn.decomposition import NMF

import icofactor as ico

cohort = ico.simulate_cohort(60, 5, mesh="fsaverage4", random_state=0)
X = cohort.X

theirs = NMF(5, init="nndsvda", max_iter=300, tol=1e-3)
their_loadings = theirs.fit_transform(X)
ours = ico.CorticalFactorization(
    5, method="CD-PNNMF", mesh="fsaverage4", hemi="left", random_state=0
)
our_loadings = ours.fit_transform(X)


def error(loadings, components):
    return np.sum((X - loadings @ components) ** 2) / np.sum((X - X.mean(axis=0)) ** 2)


print(f"unexplained variance: scikit-learn {error(their_loadings, theirs.components_):.3f}")
print(f"                      icofactor    {error(our_loadings, ours.components_):.3f}")

# %%
# Compared with opNMF
# -------------------
#
# Projective NMF without centering, W ≥ 0 with loadings WᵀX:

projective = ico.CorticalFactorization(
    5, method="LE-PPNMF", mesh="fsaverage4", hemi="left", random_state=0
).fit(X)

# %%
# The default removes the mean map first. Its loadings say how a person differs from the average.

parts = ico.CorticalFactorization(5, mesh="fsaverage4", hemi="left", random_state=0).fit(X)

for name, model in {"CD-PNNMF": ours, "LE-PPNMF": projective, "parts": parts}.items():
    match = ico.match_components(model, cohort.truth.components)
    print(f"{name:9} correlation with the simulated maps: {match.mean:.2f}")

figure = ico.plot_components(parts, views=["lateral"])

# %%
# Your scripts
# ------------
#
# * Split-half stability, as cobra-nmf computes it: ``icofactor select``.
# * Your matrix in a ``.mat`` or CSV file: ``icofactor fit`` reads subjects × vertices; transpose it if necessary.
# * Spatial smoothing and z-scores: ``center="zscore"`` fits z-scores of every vertex.
# * A pipeline: the estimator can be cloned and used in scikit-learn's pipelines and grid searches.
