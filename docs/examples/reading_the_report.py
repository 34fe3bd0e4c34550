"""
Reading the report
==================

Every fit ends with ``report.html``. This tutorial explains its parts and shows in which files to find each number, so
that you can check it or plot it yourself.
"""

# %%
# An example fit
# --------------

import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import icofactor as ico

cohort = ico.simulate_cohort(
    80, 5, hemisphere="both", mesh="fsaverage4", variability=0.008, random_state=1
)
out = Path(tempfile.mkdtemp()) / "out"
model = ico.CorticalFactorization(n_components=5, random_state=0)
fit = ico.fit_cohort(cohort, model, out, figures=False)
print(fit.found())

# %%
# The report begins with a verdict. Read it in this order:
#
# 1. **How many components were fitted, and how many are recommended.** ``icofactor select`` recommends a number.
# 2. **Whether the data determine them.** Shown only if other random starts on the same people do not reach some
#    components. Do not interpret these.
# 3. **How much is explained.** The share of the *between-subject* variance, not of the raw values. The mean map, which
#    is nearly all of the raw values, does not count.
# 4. **What the maps were adjusted for**, such as age and sex.
#
# Below it are a list of contents, the parts as a labelled brain, and each component. Every panel links to the tables
# with its numbers:

print(sorted(path.name for path in (out / "tables").iterdir()))

# %%
# Each component
# --------------
#
# ``variance_unique`` is the variance that its loadings add to those of all others. ``extent`` is the share of the
# cortex that it covers. ``recurrence`` is the share of the other random starts on the same people that fit as well and
# reach it. Near 0, the data do not determine the component; 1 says nothing about other people.

with (out / "desc-icofactor_components.tsv").open() as file:
    for row in csv.DictReader(file, delimiter="\t"):
        print(
            {
                name: row[name]
                for name in ("component", "variance_unique", "extent", "recurrence")
                if name in row
            }
        )

# %%
# What a loading means
# --------------------
#
# A subject's map is the mean map plus loadings times components. One loading, times one map, is therefore a difference
# in the units of your data. Here, for the subject with the largest loading of the first component:

who = int(np.argmax(model.loadings_[:, 0]))
difference = model.loadings_[who, 0] * model.components_[0]
print(
    f"{cohort.subjects[who]}: up to {difference.max():.2f} {cohort.units} above the mean map in this part"
)

# %%
# Where people are unusual
# ------------------------
#
# The report lists subjects that are far from the others. Look at their images before you do statistics.

figure, axes = plt.subplots(
    1, model.n_components, figsize=(11, 2.4), sharey=True, layout="constrained"
)
for j, axis in enumerate(axes):
    axis.hist(model.loadings_[:, j], bins=15)
    axis.set(xlabel=f"loading of component {j + 1}")
axes[0].set_ylabel("subjects")

# %%
# The methods paragraph
# ---------------------
#
# ``methods.md`` in the same folder describes what was done, with the numbers of this fit:

print((out / "methods.md").read_text()[:700], "...")
