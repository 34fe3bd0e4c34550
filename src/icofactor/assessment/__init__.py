"""How many components, how stable they are, and where they lie."""
