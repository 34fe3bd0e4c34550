"""
From loadings to a sentence in a paper
======================================

A fit gives each person one loading per component. This tutorial tests the loadings against age and sex and ends with
text for a manuscript.
"""

# %%
# Fit, and keep the folder
# ------------------------
#
# In the simulated cohort one component declines with age and another is larger in men.

import tempfile
from pathlib import Path

import icofactor as ico

cohort = ico.simulate_cohort(
    100, 5, hemisphere="both", mesh="fsaverage4", variability=0.008, random_state=0
)
model = ico.CorticalFactorization(n_components=5, random_state=0)
out = Path(tempfile.mkdtemp()) / "out"
fit = ico.fit_cohort(cohort, model, out, figures=False)
figure = ico.plot_components(model, units=cohort.units)

# %%
# Test
# ----
#
# Every term is tested in the model with all others. The p-values come from permutations of people and are corrected
# over components.

found = ico.associate(model, cohort.participants, "age + sex", n_permutations=1000)
print(found)

# %%
# In the shell, the same command also writes the tables and maps of the effects to the folder of the fit:
#
# .. code-block:: bash
#
#     icofactor associate out --formula "age + sex"
#
# In Python, ``found.table`` has these columns, one row per term and component:

print(*found.table, sep=", ")

# %%
# Where the effect is
# -------------------
#
# The sum of components times estimates is a map: the change per year, in the units of the data.

years = found.effects(model.components_)["age"]
print(f"strongest effect of one year: {years[abs(years).argmax()]:.4f} {cohort.units}")

# %%
# The sentence
# ------------
#
# Copy the methods paragraph, and take the results from the table:

text = (out / "methods.md").read_text()
print(text[: text.find("\n\n", 200)])

# %%
# A results sentence contains the number of components and how it was chosen, the share of variance, the test, and
# the corrected p-value. For example:
#
#     *Five parts explained about half of the between-subject variance in thickness. The loadings of one part declined
#     with age (t and p as printed above, permutation test, corrected over components); those of another differed
#     between men and women.*
#
# Do not write that a component "is" a network because it looks like one: ``icofactor select --model out --atlas ...``
# tests the overlap with an atlas against rotations.
