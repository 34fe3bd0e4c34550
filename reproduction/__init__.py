"""The experiments of the paper, repeated, and its claims: `make reproduce`, or `python -m reproduction OUT`.

An experiment is one module with a function `run(study)`. It writes tables and figures to the folder of the study.
`claims.py` judges the claims of the paper from these tables, and `page.py` shows everything on one page.
"""
