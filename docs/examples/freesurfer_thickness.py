"""
From a FreeSurfer folder to components
======================================

You have run ``recon-all -qcache -target fsaverage5`` for every subject and want to know in which parts of the cortex
people differ in thickness. This tutorial goes from the folder of subjects to maps, loadings and a report.
"""

# %%
# A folder of subjects
# --------------------
#
# Your data are already in ``$SUBJECTS_DIR``. Here we simulate 60 people, so that this page runs everywhere, and write
# their thickness maps with the names that ``recon-all -qcache`` uses.

import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np

import icofactor as ico

settings = {"mesh": "fsaverage4", "variability": 0.008, "random_state": 0}
people = ico.simulate_cohort(60, 5, hemisphere="both", **settings)
subjects_dir = Path(tempfile.mkdtemp()) / "subjects"
for subject, row in zip(people.subjects, people.X, strict=True):
    surf = subjects_dir / subject / "surf"
    surf.mkdir(parents=True)
    for side, values in zip(("lh", "rh"), np.split(row, 2), strict=True):
        image = nib.MGHImage(values[:, None, None].astype("float32"), np.eye(4))
        nib.save(image, surf / f"{side}.thickness.fwhm10.fsaverage4.mgh")

print(*sorted(path.name for path in surf.iterdir()), sep="\n")

# %%
# Read the cohort
# ---------------
#
# ``load_cohort`` finds the files from the folder alone: you say which measure, which smoothing and which mesh. Bad
# files are reported all at once, by name. A table of participants selects the subjects and adds age and sex.

columns = ("participant_id", "age", "sex")
table = {name: people.participants[name] for name in columns}
files = {"measure": "thickness", "smoothing": 10, "target": "fsaverage4"}
cohort = ico.load_cohort(subjects_dir, **files, participants=table)
print(cohort)

# %%
# Fit
# ---
#
# The default method, ``parts``, finds parts of the cortex where people deviate from the average together. Loadings are
# signed: +1 means thicker than the average subject in this part, by the values of the component's map.

model = ico.CorticalFactorization(n_components=5, random_state=0)
out = Path(tempfile.mkdtemp()) / "out"
fit = ico.fit_cohort(cohort, model, out, figures=False)
print(fit.found())

# %%
# Look at the results
# -------------------
#
# ``out`` contains the maps as GIFTI files, the loadings as a table and ``report.html``, which you open in a browser.

figure = ico.plot_components(model, units=cohort.units)

# %%
# The loadings are a table with one row per subject, ready for your statistics program:

print("\n".join((out / "desc-icofactor_loadings.tsv").read_text().splitlines()[:4]))

# %%
# The same in the shell
# ---------------------
#
# .. code-block:: bash
#
#     icofactor fit $SUBJECTS_DIR --measure thickness --smoothing 10 --target fsaverage5 -o out
#
# Add ``--dry-run`` to see first what would be read, and how much memory it takes.
