"""
How many components?
====================

There is no true number of components. There are numbers with which two halves of your subjects agree, and numbers with
which they do not. ``choose_n_components`` measures this and compares it with maps that were rotated at random, in which
people do not vary in the same places.
"""

# %%
# We simulate a cohort with five components and pretend not to know the number. The numbers of splits and of rotated
# cohorts are small here, so that this page runs quickly; leave them at their defaults for your own data.

import icofactor as ico

cohort = ico.simulate_cohort(100, 5, mesh="fsaverage4", random_state=0)
choice = ico.choose_n_components(
    cohort, range(2, 8), n_splits=5, n_starts=3, n_nulls=5, random_state=0
)
print(choice)

# %%
# The printed text says which number is recommended and why. The curves behind it:

figure = choice.plot()

# %%
# How to use the answer
# ---------------------
#
# * ``choice.recommended`` is None when no number is better than chance. Then do not interpret components.
# * ``choice.others`` are numbers that do nearly as well. Choose among them by what you want to describe: few large
#   parts, or more and smaller ones.
# * State in the paper that the number was chosen by split halves, and which range was searched. If the
#   selection is in the folder of a fit, the report contains this sentence.

print(choice.recommended, choice.others)

# %%
# In the shell, write the selection into the folder of a fit, and the report shows it:
#
# .. code-block:: bash
#
#     icofactor select $SUBJECTS_DIR --measure thickness --smoothing 10 --target fsaverage5 -o out --ranks 2-20
#     icofactor report out --overwrite
