"""What a fit leaves behind: folder, provenance, methods text, diagnostics and report."""
