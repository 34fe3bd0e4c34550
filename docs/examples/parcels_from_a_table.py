"""
Parcels from a table
====================

Many cohorts are shared as a table with one column per region, such as those of ``aparcstats2table`` or ENIGMA. This
tutorial factorizes such a table.
"""

# %%
# A table and its atlas
# ---------------------
#
# In practice you have ``lh.aparc.thickness.tsv`` and the files ``lh.aparc.annot`` and ``rh.aparc.annot`` of fsaverage
# already. Here we make an atlas of 40 parcels per hemisphere and average simulated thickness over them.

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from nibabel.freesurfer import write_annot

import icofactor as ico

people = ico.simulate_cohort(
    80, 4, hemisphere="both", mesh="fsaverage4", variability=0.008, random_state=0
)
points = ico.Sites.named("fsaverage4").coordinates
rng = np.random.default_rng(0)
labels = np.argmax(points @ rng.permutation(points)[:40].T, axis=1)
names = [f"area{i + 1}" for i in range(40)]

folder = Path(tempfile.mkdtemp())
colours = np.column_stack([rng.permutation(250)[:120].reshape(40, 3), np.zeros((40, 2), int)])
for side, values in zip(("lh", "rh"), np.split(people.X, 2, axis=1), strict=True):
    write_annot(folder / f"{side}.toy.annot", labels, colours, names, fill_ctab=True)
    means = np.stack([values[:, labels == i].mean(axis=1) for i in range(40)], axis=1)
    table = pd.DataFrame(means, people.subjects, [f"{side}_{name}_thickness" for name in names])
    table[f"{side}_MeanThickness_thickness"] = values.mean(axis=1)
    table.rename_axis(f"{side}.toy.thickness").to_csv(
        folder / f"{side}.toy.thickness.tsv", sep="\t"
    )

print(table.iloc[:3, :3])

# %%
# Read
# ----
#
# The tables of the two hemispheres are joined by the names of the people. Columns are matched to the regions of the
# atlas, and totals such as the mean thickness are left out.

tables = sorted(folder.glob("*.tsv"))
atlas = (folder / "lh.toy.annot", folder / "rh.toy.annot")
cohort = ico.load_cohort(tables, parcels=atlas)
print(cohort)

# %%
# Fit
# ---
#
# Each region is weighted by its number of vertices. ``weights="none"`` gives all regions the same weight, as other
# programs do with tables.

model = ico.CorticalFactorization(n_components=4, random_state=0).fit(cohort)
figure = ico.plot_components(model)

# %%
# The strongest regions of each component:

regions = np.array(model.sites_.regions.names)
for j, component in enumerate(model.components_):
    print(f"component {j + 1}:", ", ".join(regions[np.argsort(component)[:-4:-1]]))

# %%
# Parcels or vertices?
# --------------------
#
# Parcels cannot show that a component ends inside a region. If you have the maps, fit the vertices; if you only have
# the table, fit the table. The loadings of the two are similar:

vertices = ico.CorticalFactorization(n_components=4, random_state=0).fit(people)
r = np.corrcoef(model.loadings_.T, vertices.loadings_.T)[:4, 4:]
print("best correlation of each component's loadings:", np.round(r.max(axis=1), 2))

# %%
# The same in the shell
# ---------------------
#
# .. code-block:: bash
#
#     icofactor fit lh.aparc.thickness.tsv rh.aparc.thickness.tsv -o out --parcels lh.aparc.annot rh.aparc.annot
