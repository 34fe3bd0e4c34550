"""A number of damaged files, read one after the other, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from hostile.bombs import bombs
from hostile.mutations import damaged
from hostile.worker import Outcome, Worker


@dataclass
class Result:
    """What came of a campaign.

    Attributes
    ----------
    counts : kind of file → verdict → how many.
    bad : (kind, how it was damaged, outcome) of those that must not be.
    messages : kind of file → messages of the refusals.
    slowest, largest : seconds and megabytes of the worst, with its kind.
    """

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[tuple[str, str, Outcome]] = field(default_factory=list)
    messages: dict[str, set[str]] = field(default_factory=dict)
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[float, str] = (0.0, "")

    @property
    def total(self) -> int:
        return sum(sum(counter.values()) for counter in self.counts.values())

    def add(self, kind: str, how: str, outcome: Outcome) -> None:
        self.counts.setdefault(kind, Counter())[outcome.verdict] += 1
        if outcome.verdict == "refused":
            self.messages.setdefault(kind, set()).add(outcome.message)
        if not outcome.good:
            self.bad.append((kind, how, outcome))
        self.slowest = max(self.slowest, (outcome.seconds, kind))
        self.largest = max(self.largest, (outcome.megabytes, kind))


def run_campaign(
    folder: Path,
    per_kind: int,
    kinds: Callable[[str], bool] = lambda kind: True,
    with_bombs: bool = True,
    large: bool = False,
    random_seed: int = 0,
    keep: Path | None = None,
) -> Result:
    """Damage every kind of file `per_kind` times, and read it.

    Parameters
    ----------
    folder : where the valid files are made.
    kinds : which kinds.
    with_bombs : whether to read the files that are made to do harm, too.
    large : whether these may have up to 130 MB.
    keep : folder for the bytes of files that did what must not be.
    """
    result, worker = Result(), Worker(folder)
    try:
        for number, specimen in enumerate(worker.specimens):
            if not kinds(specimen["kind"]):
                continue
            file, kind = Path(specimen["file"]), specimen["kind"]
            whole = file.read_bytes()
            untouched = worker.ask(number)
            if untouched.verdict != "read":
                raise AssertionError(f"the valid {kind} is not read: {untouched}")

            def read(
                data: bytes, how: str, number: int = number, file: Path = file, kind: str = kind
            ) -> None:
                file.write_bytes(data)
                outcome = worker.ask(number)
                result.add(kind, how, outcome)
                if keep is not None and not outcome.good:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{len(result.bad):04d}-{outcome.verdict}-{file.name}").write_bytes(
                        data
                    )

            for data in drawn(whole, specimen["form"], per_kind, random_seed):
                read(data, "damaged")
            if with_bombs:
                for how, place in bombs(file, whole, specimen["form"], large):
                    place()
                    outcome = worker.ask(number)
                    result.add(kind, how, outcome)
            _restore(file, whole)
    finally:
        worker.close()
    return result


def drawn(data: bytes, form: str, n: int, random_seed: int) -> Iterable[bytes]:
    """`n` damaged copies, the same ones for the same seed."""
    found: list[bytes] = []
    if n == 0:
        return found

    @seed(random_seed)
    @settings(
        max_examples=n,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(damaged(data, form))
    def collect(new: bytes) -> None:
        if new != data:
            found.append(new)

    collect()
    return found[:n]


def _restore(file: Path, whole: bytes) -> None:
    if file.is_symlink() or not file.is_file():
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        else:
            file.unlink()
    file.write_bytes(whole)
