"""
Myelin maps of an HCP tree
==========================

The Human Connectome Project gives every subject a folder with maps on the fs_LR mesh. This tutorial reads the T1w/T2w
myelin maps of such a tree and factorizes them.
"""

# %%
# An HCP tree
# -----------
#
# If you have access to the HCP's data, download ``MNINonLinear/fsaverage_LR32k`` of each subject and continue with
# the next section. Here we simulate 30 people and write their maps under the names that the HCP uses. Real maps have
# 32,492 vertices per hemisphere; ours have 2,562, so that this page runs quickly.

import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.cifti2 import BrainModelAxis, ScalarAxis

import icofactor as ico

people = ico.simulate_cohort(30, 4, "myelin", hemisphere="both", mesh="fsaverage4", random_state=0)
sphere = ico.Sites.named("fsaverage4")
x = sphere.coordinates[:, 0]
cortex = np.concatenate([x < 0.93, x > -0.93])  # all but the medial wall
left, right = (
    BrainModelAxis.from_mask(inside, name=f"CIFTI_STRUCTURE_CORTEX_{side}")
    for side, inside in zip(("LEFT", "RIGHT"), np.split(cortex, 2), strict=True)
)

points = nib.gifti.GiftiDataArray(
    (100 * sphere.coordinates).astype("float32"), "NIFTI_INTENT_POINTSET"
)
triangles = nib.gifti.GiftiDataArray(sphere.triangles.astype("int32"), "NIFTI_INTENT_TRIANGLE")
tree = Path(tempfile.mkdtemp()) / "HCP"
for i, values in enumerate(people.X):
    folder = tree / f"{100001 + i}" / "MNINonLinear" / "fsaverage_LR32k"
    folder.mkdir(parents=True)
    start = f"{folder}/{100001 + i}"
    image = nib.Cifti2Image(
        values[None, cortex].astype("float32"), (ScalarAxis(["myelin"]), left + right)
    )
    nib.save(image, f"{start}.MyelinMap_BC_MSMAll.32k_fs_LR.dscalar.nii")
    for side in "LR":
        nib.save(
            nib.GiftiImage(darrays=[points, triangles]), f"{start}.{side}.sphere.32k_fs_LR.surf.gii"
        )

print(*sorted(path.name for path in folder.iterdir()), sep="\n")

# %%
# Read the maps
# -------------
#
# ``measure="myelin"`` takes the bias-corrected maps with the MSMAll registration where they exist. The file leaves
# out the medial wall, and the spheres in the same folder give the positions of the vertices.

cohort = ico.load_cohort(tree, measure="myelin")
print(cohort)

# %%
# Fit
# ---
#
# Myelin maps have outliers at the edges of the mask. Limit them first: values far from the median of a subject are
# moved to the limit.

from icofactor.preprocessing import limit_outliers

cohort.X[:, cortex] = limit_outliers(cohort.X[:, cortex])
model = ico.CorticalFactorization(n_components=4, random_state=0).fit(cohort)
match = ico.match_components(model.components_[:, cortex], people.truth.components[:, cortex])
print(f"correlation with the simulated components: {match.mean:.2f}")

# %%
# Every component is in the units of the data (T1w/T2w) per unit of loading.

figure = ico.plot_components(model)

# %%
# The same in the shell
# ---------------------
#
# ``prepare`` limits outliers, resamples to fsaverage5, where the hierarchy of triangles is exact, and keeps the maps in
# a store. It needs the registered spheres of a clone of HCPpipelines.
#
# .. code-block:: bash
#
#     icofactor prepare myelin HCP -o myelin.store --spheres HCPpipelines --n-procs 4
#     icofactor fit myelin.store -o out
#
# Without ``prepare``, ``icofactor fit HCP --measure myelin -o out`` fits the maps directly on fs_LR.
