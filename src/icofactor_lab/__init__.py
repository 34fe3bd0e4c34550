"""The lab: how icofactor is measured. Outside the library, in the same repository and in the same wheel.

- `bench`: `icofactor bench`, speed against the machine and against other libraries;
- `reproduce`: `icofactor reproduce`, the paper's experiments and its claims;
- `docs_tables`: the programs behind the other numbers in docs/;
- `common`: what they share: data, clocks, outcomes and how they are written, the style of figures.

The library never imports the lab. A new experiment is one module with `run(context) -> Outcome` and one line in the
`EXPERIMENTS` of its command.
"""
