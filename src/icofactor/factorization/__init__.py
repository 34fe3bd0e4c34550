"""The method: pure functions of statistics. Sees no files and no cohorts."""
