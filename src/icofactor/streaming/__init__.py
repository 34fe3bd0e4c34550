"""Passing over X once: held or not, in this process or on a cluster."""
