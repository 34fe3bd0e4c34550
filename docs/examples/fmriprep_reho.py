"""
ReHo from fMRIPrep's output
===========================

Regional homogeneity (ReHo) is Kendall's W of each vertex and its neighbours: how alike their time series are. This
tutorial computes it from the surface series that fMRIPrep writes, and factorizes the maps.
"""

# %%
# Series as fMRIPrep writes them
# ------------------------------
#
# Run fMRIPrep with ``--output-spaces fsaverage5``. Here we simulate twelve short runs on a coarse mesh. In each
# person, series are more alike inside two regions; how much differs between people.

import json
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np

import icofactor as ico
from icofactor.preprocessing import Cleaning, Steps, prepare_bold

rng = np.random.default_rng(0)
sphere = ico.Sites.named("fsaverage3")
n_volumes, tr = 120, 2.0
regions = [sphere.coordinates @ centre > 0.75 for centre in ([0, -0.9, 0.3], [-0.5, 0.8, 0.2])]
strength = rng.uniform(0.3, 2, (12, len(regions)))

derivatives = Path(tempfile.mkdtemp()) / "fmriprep"
for i, strengths in enumerate(strength):
    func = derivatives / f"sub-{i + 1:02d}" / "func"
    func.mkdir(parents=True)
    run = f"sub-{i + 1:02d}_task-rest"
    motion = {
        name: rng.normal(size=n_volumes)
        for name in ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
    }
    motion["framewise_displacement"] = rng.gamma(2, 0.08, n_volumes)
    table = np.column_stack(list(motion.values()))
    np.savetxt(
        func / f"{run}_desc-confounds_timeseries.tsv",
        table,
        "%.4f",
        "\t",
        header="\t".join(motion),
        comments="",
    )
    for side in "LR":
        series = rng.normal(size=(n_volumes, sphere.n)) + motion["trans_x"][:, None]
        for region, amount in zip(regions, strengths, strict=True):
            series[:, region] += amount * rng.normal(size=(n_volumes, 1))
        arrays = [nib.gifti.GiftiDataArray(volume.astype("float32")) for volume in 1000 + series]
        name = func / f"{run}_hemi-{side}_space-fsaverage3_bold"
        nib.save(nib.GiftiImage(darrays=arrays), f"{name}.func.gii")
        Path(f"{name}.json").write_text(json.dumps({"RepetitionTime": tr}))

print(*sorted(path.name for path in func.iterdir()), sep="\n")

# %%
# Compute ReHo
# ------------
#
# ``6p`` are the six motion parameters, which are regressed out. Volumes with more than 0.5 mm of framewise displacement
# are censored. The band is 0.01 to 0.1 Hz.

store = derivatives.with_name("reho.store")
cohort = prepare_bold(derivatives, store, Steps("reho", low=0.01), Cleaning(("6p",), max_fd=0.5))
print(len(cohort.subjects), "subjects,", cohort.X.shape[1], "vertices")

# %%
# The same in the shell:
#
# .. code-block:: bash
#
#     icofactor prepare reho fmriprep -o reho.store --confounds 6p --max-fd 0.5 --low 0.01

# %%
# The store records what was done to the series, for the methods section:

for step in cohort.provenance["preprocessing"]:
    print(step["step"], {name: value for name, value in step.items() if name != "step"})

# %%
# Factorize
# ---------
#
# Two components should be the two regions, and each person's loading should follow the simulated strength.

model = ico.CorticalFactorization(n_components=2, level=1, random_state=0).fit(cohort)
for j, region in enumerate(np.tile(regions, 2)):
    component = np.argmax(model.components_[:, region].mean(axis=1))
    r = np.corrcoef(model.loadings_[:, component], strength[:, j])[0, 1]
    print(
        f"region {j + 1} is component {component + 1}; its loadings correlate {r:.2f} with the simulated strength"
    )

figure = ico.plot_components(model)

# %%
# With your own data use more people (a hundred rather than a dozen), fsaverage5, and longer runs.
#
# Series to try this on
# ---------------------
#
# nilearn can download preprocessed series on fsaverage5 (the enhanced NKI sample). They are not in fMRIPrep's
# folders, so compute their ReHo in Python. This needs a network and is not run here:
#
# .. code-block:: python
#
#     from icofactor.preprocessing import reho
#     from nilearn.datasets import fetch_surf_nki_enhanced
#     from nilearn.surface import load_surf_data
#
#     faces = ico.Sites.named("fsaverage5").triangles
#     files = fetch_surf_nki_enhanced(n_subjects=100)["func_left"]
#     series = (load_surf_data(file) for file in files)  # each vertices × volumes
#     X = np.stack([reho(one, faces, mask=one.std(axis=1) > 0) for one in series])
#     model = ico.CorticalFactorization(5, mesh="fsaverage5", hemi="left", mask=(X > 0).all(axis=0)).fit(X)
