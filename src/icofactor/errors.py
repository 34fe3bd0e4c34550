"""The errors icofactor raises of its own; all are ValueErrors, so scikit-learn's habits keep working."""

from __future__ import annotations


class DivergenceError(ValueError):
    """The updates left the finite numbers; the message says what to change."""


class ModelFileError(ValueError):
    """A file does not hold a model of icofactor, or is damaged."""


class CheckpointError(ValueError):
    """A work folder belongs to another run, or is damaged."""


class CohortError(ValueError):
    """Files do not make a cohort; the message names every bad one."""
