"""Maps of a cohort, and the only way over them: blocks of sites, with all subjects."""
