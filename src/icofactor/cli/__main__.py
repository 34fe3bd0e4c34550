"""`python -m icofactor.cli`: the command line without its script."""

from icofactor.__main__ import main

raise SystemExit(main())
