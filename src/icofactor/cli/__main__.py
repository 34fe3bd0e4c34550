"""`python -m icofactor.cli`: the command line without its script."""

from icofactor.cli.main import main

raise SystemExit(main())
