"""
A big cohort on a cluster
=========================

Tens of thousands of maps do not fit into memory. This tutorial writes a cohort to a store, piece by piece, fits it on
a Dask cluster without loading it as a whole.
"""

# %%
# A store, written a few people at a time
# ---------------------------------------
#
# ``create_store`` takes cohorts one after the other, for example one per folder of your archive. Only one of them is in
# memory. ``icofactor prepare`` writes stores too.

import tempfile
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

import icofactor as ico
from icofactor.cohort import append_store, create_store, open_store

people = ico.simulate_cohort(120, 4, mesh="fsaverage4", random_state=0)
folder = Path(tempfile.mkdtemp())
pieces = (people[i : i + 25] for i in range(0, 100, 25))
store = create_store(folder / "cohort.store", pieces)
print(len(store.subjects), "subjects,", store.X.shape[1], "vertices")

# %%
# New people can be added later:

store = append_store(folder / "cohort.store", people[100:])
print(len(store.subjects), "subjects")

# %%
# Fit on workers
# --------------
#
# The client sends work, and the workers read the store themselves: it must be on a disk that all of them can read, or
# in a bucket: ``open_store("s3://bucket/cohort.store")`` (``pip install 'icofactor[remote]'``).
# The maps are read twice, once for sums over triangles and once to bring the components to full resolution.
#
# Here two workers are threads of this process, so that the page runs everywhere. On your machine leave out
# ``processes=False``.

model = ico.CorticalFactorization(n_components=4, n_starts=4, random_state=0)
with (
    LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster,
    Client(cluster) as client,
):
    model.fit(open_store(folder / "cohort.store"), executor=client.get_executor())

print(f"{model.passes_:.0f} passes, {model.bytes_read_ / 2**20:.1f} MiB read")
figure = ico.plot_components(model, views=["lateral"])

# %%
# The result has the same bits with and without the cluster:

again = ico.CorticalFactorization(n_components=4, n_starts=4, random_state=0).fit(store)
print("same components:", np.array_equal(model.components_, again.components_))

# %%
# On SLURM
# --------
#
# Start a scheduler and workers in your job and connect with a file that all of them can read:
#
# .. code-block:: python
#
#     client = Client(scheduler_file="scheduler.json")
#
# :doc:`/scale` has a tested job script.
