"""
Several measures of the same people
===================================

Do people with a thin cortex in one place also have less myelin there, or elsewhere? This tutorial factorizes
thickness and myelin of the same people together, in two ways.
"""

# %%
# Two cohorts
# -----------
#
# Load each measure as you would for a single fit. They must be on the same mesh. Here we simulate two measures of the
# same people, each with its own noise. The last person has no myelin map.

import numpy as np

import icofactor as ico

settings = {"mesh": "fsaverage4", "hemisphere": "both", "random_state": 0}
thickness = ico.simulate_cohort(60, 4, "thickness", **settings)
myelin = ico.simulate_cohort(60, 4, "myelin", measure=1, **settings)[:59]

# %%
# Shared maps
# -----------
#
# One set of maps for all measures, and a loading for each person, component *and* measure. This answers: how do the
# measures differ in the same places? People are matched by name. ``scale="variance"`` gives both measures the same
# weight, whatever their units.

measures = {"thickness": thickness, "myelin": myelin}
joined = ico.join_measures(measures, share="maps", scale="variance", missing="skip")
print("left out:", joined.left_out)

model = ico.CorticalFactorization(n_components=4, random_state=0).fit(joined)
loadings = model.measures_.split(model.loadings_)
for j in range(4):
    r = np.corrcoef(loadings["thickness"][:, j], loadings["myelin"][:, j])[0, 1]
    print(f"component {j + 1}: loadings of thickness and myelin correlate {r:.2f} over people")

# %%
# The same components, in the units of each measure:

for name, maps in model.measures_.maps(model.components_).items():
    print(f"{name}: largest value {maps.max():.2f} {measures[name].units}")

# %%
# Shared loadings
# ---------------
#
# One loading for each person and component, and a map for each measure. This answers: what varies together over people,
# in the same or in different places?

joined = ico.join_measures(measures, share="loadings", scale="variance", missing="skip")
model = ico.CorticalFactorization(n_components=4, random_state=0).fit(joined)
maps = model.measures_.maps(model.components_)
for j in range(4):
    r = np.corrcoef(maps["thickness"][j], maps["myelin"][j])[0, 1]
    print(f"component {j + 1}: maps of thickness and myelin correlate {r:.2f} over the cortex")

# %%
# The first two components, in thickness and in myelin:

figure = ico.plot_components(model, components=[0, 1], views=["lateral"])

# %%
# Which one?
# ----------
#
# * Share maps when you want to compare measures, region by region. This is how several measures are usually factorized
#   with cobra-nmf.
# * Share loadings when you want one number per person for what the measures have in common.
#
# Do not use ``scale="none"`` if units differ: the measure with the largest variance would dominate, and the fit warns
# about it. :doc:`/measures` has the details.
#
# The same in the shell
# ---------------------
#
# .. code-block:: bash
#
#     icofactor fit thickness.store myelin.store -o out --share maps --scale variance
#     icofactor fit $SUBJECTS_DIR --measure thickness,area --target fsaverage5 --smoothing 10 -o out \
#         --share maps --scale variance
