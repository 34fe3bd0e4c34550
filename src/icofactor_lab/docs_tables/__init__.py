"""Programs that measure the numbers in docs/; run one with `python -m icofactor_lab.docs_tables.NAME`."""
