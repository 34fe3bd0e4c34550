"""Checks of X, and mean and variance of its sites, on the way to the statistics: they cost no pass
of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, literal
from icofactor.streaming.blocks import Arrays, Levelled, Rows

_LARGEST, _SMALLEST = 1e120, 1e-120


class Inspector:
    """Looks at every part on its way to the statistics.

    Parameters
    ----------
    n_sites, n_subjects : of X
    refusal : why negative values are refused and what to do, completing "..., which"; None: they
        are allowed
    names : of the subjects, where they have one
    codes : (n_subjects,) number of the kind of map that each row is; None: all are of one kind

    Attributes
    ----------
    mean, site_energy, site_variance : (n_sites,) mean, Σ x² and Σ (x − mean)² over subjects; a row
        per kind, if several
    """

    def __init__(
        self,
        n_sites: int,
        n_subjects: int,
        refusal: str | None = None,
        names: Sequence[str] | None = None,
        codes: np.ndarray | None = None,
    ) -> None:
        self.codes, self.n_subjects = codes, n_subjects
        shape = (n_sites,) if codes is None else (int(codes.max()) + 1, n_sites)
        self.mean, self.site_energy, self.site_variance = (np.empty(shape) for _ in range(3))
        # the least and largest value of each subject, and whether any two subjects differ anywhere
        self.low, self.high = np.full(n_subjects, np.inf), np.full(n_subjects, -np.inf)
        self.differ = False
        self._refusal, self._names = refusal, names

    @property
    def shared(self) -> Mapping[str, Any]:
        """What a pass that looks needs."""
        return {} if self.codes is None else {"codes": self.codes}

    @property
    def variance(self) -> float:
        """Σ over sites and subjects of (x − the site's mean)²."""
        return float(self.site_variance.sum())

    def accept(self, rows: Rows | None, seen: Mapping[str, np.ndarray]) -> None:
        """Check and remember what `look` saw of these sites; of no site in particular when `rows`
        is None.
        """
        low, high = seen["min.low"], seen["max.high"]
        finite = np.isfinite(low) & np.isfinite(high)
        if not finite.all():
            raise _refusal(
                f"X contains NaN or infinite values in {literal(self._who(~finite))}; "
                "give a mask that leaves those sites out, or fix the files they come from"
            )
        if max(-low.min(), high.max()) > _LARGEST:
            raise _refusal(
                f"X contains values beyond ±{_LARGEST:g}, too large to square; use other units"
            )
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        if rows is None:
            return
        self.differ = self.differ or bool(seen["max.differ"])
        kind = "site" if self.codes is None else "site.kind"
        for name, values in (
            ("mean", self.mean),
            ("variance", self.site_variance),
            ("energy", self.site_energy),
        ):
            values[..., rows] = seen[f"{kind}.{name}"].T

    def _who(self, chosen: np.ndarray) -> str:
        """Subjects by name where they have one, else by row."""
        rows = np.flatnonzero(chosen)
        if self._names is None:
            return f"{_some('subject', rows)} (row numbers of X)"
        of = f" ({len(rows)} of {len(chosen)})" if len(rows) > 1 else ""
        return _some("subject", [self._names[row] for row in rows.tolist()], 20) + of

    def check_signs(self) -> None:
        """Negative values where they are forbidden; after the last block, so that every such
        subject is named.
        """
        negative = self.low < 0
        if self._refusal is not None and negative.any():
            raise _refusal(
                f"X contains negative values in {literal(self._who(negative))}, down to {self.low.min():.3g}, which "
                f"{self._refusal}, or shift the maps to values ≥ 0"
            )

    def check(self) -> None:
        """What only shows after the last block: also subjects without any pattern, and subjects all
        alike.
        """
        self.check_signs()
        flat = self.low == self.high
        if flat.any():
            zero = "zero" if not self.high[flat].any() else "constant"
            raise _refusal(
                f"X is {zero} over all sites in {literal(self._who(flat))}; leave them out"
            )
        if max(-self.low.min(), self.high.max()) < _SMALLEST:
            raise _refusal(
                f"X contains no value beyond ±{_SMALLEST:g}, too small to square; use other units"
            )
        if not self.differ:
            raise _refusal(
                "X is the same in all subjects; there is no variance between subjects to explain"
            )


def _refusal(sentence: str) -> ArgumentError:
    return ArgumentError("X", None, sentence)


def look(x: np.ndarray, levelled: Levelled) -> Arrays:
    """What an Inspector wants to know of a block of sites × subjects."""
    with np.errstate(invalid="ignore", over="ignore"):  # the Inspector reports what is not finite
        mean, variance = levelled.moments()
        # the first site nearly always tells that subjects differ
        differ = levelled.deviation[:1].any() or levelled.deviation.any()
        return {
            **look_for_bounds(x),
            "max.differ": np.array(differ),
            "site.mean": mean,
            "site.energy": variance + x.shape[1] * mean**2,
            "site.variance": variance,
        }


def look_at_kinds(x: np.ndarray, codes: np.ndarray) -> Arrays:
    """What an Inspector wants to know of a block whose rows are maps of several kinds, each by
    itself.
    """
    each = [
        look(rows, Levelled.of(rows))
        for rows in (x[:, codes == code] for code in range(int(codes.max()) + 1))
    ]
    kinds = {
        f"site.kind.{name}": np.stack([seen[f"site.{name}"] for seen in each], axis=1)
        for name in ("mean", "energy", "variance")
    }
    differ = np.array(any(seen["max.differ"] for seen in each))
    energy = kinds["site.kind.energy"].sum(axis=1)
    return {**look_for_bounds(x), **kinds, "max.differ": differ, "site.energy": energy}


def look_for_bounds(x: np.ndarray) -> Arrays:
    """The least and largest value of each subject; NaN where there is one."""
    low, high = x.min(axis=0, initial=np.inf), x.max(axis=0, initial=-np.inf)
    return {"min.low": low.astype(np.float64), "max.high": high.astype(np.float64)}


def _some(noun: str, things: Sequence[Any] | np.ndarray, most: int = 5) -> str:
    """'subject 3', 'subjects 1, 2, 3 and 97 more'."""
    listed = ", ".join(map(str, things[:most]))
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return f"{noun}{'s' if len(things) > 1 else ''} {listed}{more}"
