"""The errors icofactor raises of its own; all are ValueErrors, so scikit-learn's habits keep working."""

from __future__ import annotations


class DivergenceError(ValueError):
    """The updates left the finite numbers; the message says what to change."""


class FileError(ValueError):
    """A file is damaged, or is not what it was taken for; the message names it."""


class ModelFileError(FileError):
    """A file does not hold a model of icofactor, or is damaged."""


class CheckpointError(FileError):
    """A work folder belongs to another run, or is damaged."""


class CohortError(FileError):
    """Files do not make a cohort; the message names every bad one."""
