"""Kill commands at random moments, and run two of them at once on one folder: nothing may be lost, mixed or left over.

    python -m icofactor_lab.kill --runs 200 --seed 0                # SIGKILL, SIGTERM and SIGINT
    python -m icofactor_lab.kill --runs 100 --slow 0.05             # every rename takes 0.05 s longer
    python -m icofactor_lab.kill --runs 0 --pairs 100               # every pair of commands, started at random moments

After a kill the folder is looked at as the next command does: the earlier results must be whole or the new ones. Then
the same command is run again: it must give the bits of an undisturbed run and leave no other file behind. Files of the
user lie in each folder and must stay as they are. Half of the kills wait for the last moves. Commands run in children
of a process that has everything loaded; there pictures are stand-ins, which are quick to draw, and renames are
slowed. Two commands at once must leave what they leave one after the other, in one order or the other, file by file
and bit by bit but for times and memory; one that is refused must leave nothing. Exits with 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import gc
import io
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icofactor_lab.kill_commands import (
    MINE,
    Command,
    State,
    commands,
    leftovers,
    make_data,
    results,
    run_cli,
    store_state,
)

SIGNALS = tuple(getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGINT") if hasattr(signal, name))
_LONGEST = 300.0


@dataclass
class Tally:
    """What happened to the runs of one command."""

    counts: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------- children


def started(what: Callable[[], object], log: Path, slow: float = 0.0) -> int:
    """A child that does this; what it says goes to `log`."""
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS[1:])  # until the child can handle them
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[1:])
        return child
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[1:])
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        if slow:
            _slow_renames(slow)
        what()
        status = 0
    except SystemExit as stop:
        status = int(stop.code or 0)
    except KeyboardInterrupt:
        status = 130
    except (ValueError, OSError) as problem:  # of a call from Python, as the command line reports it
        print(problem)
        status = 2
    except BaseException:
        traceback.print_exc()
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS[1:])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _draw_little() -> None:
    """Stand-ins for pictures."""
    import icofactor.results.comparison as comparison
    import icofactor.results.folder as folder
    import icofactor.results.report.page as page
    from icofactor.assessment.selection.choice import Choice

    class Picture:
        def savefig(self, path: Path) -> None:
            path.write_bytes(b"a picture")

    panels = lambda fit: (
        (f"{name}.png", name.encode(), 1.0) for name in ("maps", "loadings", "similarity", "subjects")
    )
    changes: dict[str, tuple[Any, Any]] = {
        "drawn_panels": (folder, panels),
        "drawn_components": (folder, lambda fit: b"components"),
        "draw_pairs": (comparison, lambda *given: "pairs"),
        "figure_bytes": (comparison, lambda figure, kind: kind.encode()),
        "plot": (Choice, lambda choice: Picture()),
    }
    for name, (place, stand_in) in changes.items():
        setattr(place, name, stand_in)
    page.drawn_panels = panels


def _slow_renames(seconds: float) -> None:
    for name in ("replace", "rename"):
        plain = getattr(os, name)

        def slowed(*given: Any, plain: Any = plain, **more: Any) -> None:
            time.sleep(seconds)
            plain(*given, **more)

        setattr(os, name, slowed)


def ended(child: int) -> int:
    """Its exit status; negative: the signal that killed it."""
    begin = time.monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - begin > _LONGEST:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -999
        time.sleep(0.002)


def done(what: Callable[[], object], log: Path, slow: float = 0.0) -> int:
    """Do it in a child; its exit status."""
    return ended(started(what, log, slow))


def state_of(command: Command, folder: Path, log: Path) -> State:
    """The state, read in a child; AssertionError with what is wrong."""
    import json

    out = log.with_suffix(".state")
    out.unlink(missing_ok=True)
    if done(lambda: out.write_text(json.dumps(command.state(folder))), log):
        raise AssertionError(f"cannot be read: {_last_line(log)}")
    found: State = json.loads(out.read_text())
    return found


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() or ["(nothing)"]
    return lines[-1][-300:]


# ---------------------------------------------------------------------- kills


class Campaign:
    """Runs in folders below `root`, with `data` made once."""

    def __init__(self, root: Path, seed: int, slow: float) -> None:
        self.root, self.random, self.slow = root, random.Random(seed), slow
        self.data, self.log, self.number = root / "data", root / "log.txt", 0
        self.data.mkdir()
        self.all = commands(self.data)
        with redirect_stdout(io.StringIO()):
            self._warm()
        gc.freeze()  # or each child copies what it finds loaded, only to look for garbage
        self._known: dict[str, tuple[State, State, float]] = {}
        self._outcomes: dict[str, tuple[list[int], State]] = {}

    def _warm(self) -> None:
        """Everything once in this process, whose children then find it loaded."""
        _draw_little()
        make_data(self.data)
        for command in self.all:
            out = self.root / "warm" / command.name
            out.parent.mkdir(exist_ok=True)
            if command.earlier is not None:
                command.earlier(out)
            command.run(out)
        shutil.rmtree(self.root / "warm")

    def place(self, command: Command) -> Path:
        """A new folder with what is there before, and files of the user."""
        self.number += 1
        out = self.root / f"run{self.number}" / "out"
        out.parent.mkdir()
        kept = self.data / f"earlier {command.name}"
        if command.earlier is not None:
            if not kept.exists():
                (kept.parent / "part").mkdir(exist_ok=True)
                if done(lambda: command.earlier(kept.parent / "part" / "out"), self.log):  # type: ignore[misc]
                    raise RuntimeError(f"{command.name}: {self.log.read_text()}")
                (kept.parent / "part" / "out").rename(kept)
            shutil.copytree(kept, out)
        else:
            out.mkdir()
        for name, text in MINE.items():
            (out / name).write_text(text)
        return out

    def known(self, command: Command) -> tuple[State, State, float]:
        """State before, state after an undisturbed run, and how long that takes."""
        if command.name not in self._known:
            out = self.place(command)
            before = state_of(command, out, self.log) if command.earlier is not None else {}
            durations = []
            for _ in range(2):  # the first may load what others find loaded
                shutil.rmtree(out.parent)
                out = self.place(command)
                begin = time.monotonic()
                if done(lambda: command.run(out), self.log, self.slow):  # noqa: B023
                    raise RuntimeError(f"{command.name}: {self.log.read_text()}")
                durations.append(time.monotonic() - begin)
            self._known[command.name] = before, state_of(command, out, self.log), min(durations)
            shutil.rmtree(out.parent)
        return self._known[command.name]

    def kill(self, command: Command, tally: Tally) -> None:
        """One run that is killed, looked at and run again."""
        before, after, duration = self.known(command)
        out, how = self.place(command), self.random.choice(SIGNALS)
        aimed, share = self.random.random() < 0.5 and command.state is results, self.random.random()
        child = started(lambda: command.run(out), self.log, self.slow)
        begin, found = time.monotonic(), 0
        moment = share * (40 * self.slow + 0.004) if aimed else share * 0.9 * duration
        while not found:
            found, status = os.waitpid(child, os.WNOHANG)
            passed = time.monotonic() - begin
            if aimed and any(out.glob(".tmp-*/journal.json")):
                time.sleep(moment)
                break
            if not aimed and passed > moment:
                break
            time.sleep(0.0005)
        if found:
            code = os.waitstatus_to_exitcode(status)
        else:
            os.kill(child, how)
            if how == signal.SIGINT and self.random.random() < 0.5:  # an impatient user
                time.sleep(0.01)
                with suppress(ProcessLookupError):
                    os.kill(child, how)
            code = ended(child)
        tally.counts["runs"] += 1
        tally.counts["finished first" if code == 0 else how.name] += 1
        journal = bool(list(out.glob(".tmp-*/journal.json")))
        tally.counts["in the moves"] += journal
        said = self.log.read_text(errors="replace")
        problem = self._look(command, out, before, after, tally)
        if not problem and "Traceback" in said:
            problem = f"ended with a traceback: {said.strip().splitlines()[-1][-300:]}"
        if problem:
            tally.lost.append(f"{command.name}, {how.name}{', in the moves' if journal else ''}: {problem} ({out})")
        else:
            shutil.rmtree(out.parent)

    def _look(self, command: Command, out: Path, before: State, after: State, tally: Tally) -> str:
        from icofactor.io.publish import settle

        try:
            if done(lambda: settle(out), self.log):
                return f"the next look failed: {_last_line(self.log)}"
            state = state_of(command, out, self.log)
            if state not in (before, after, {}) or (not state and before):
                return f"neither earlier nor new: {_difference(state, before, after)}"
            new = state == after and state != before
            tally.counts["new whole" if new else "earlier whole"] += 1
            if command.again or not new:
                if done(lambda: command.run(out), self.log, self.slow):
                    return f"the next run failed: {_last_line(self.log)}"
                if (state := state_of(command, out, self.log)) != after:
                    return f"the next run gave something else: {_difference(state, before, after)}"
                tally.counts["same bits again"] += 1
                if left := leftovers(out):
                    return f"left over: {left[0]}"
        except AssertionError as problem:
            return str(problem)
        return _users_loss(out)

    # ------------------------------------------------------------------ pairs

    def pairs(self, chosen: Sequence[Command]) -> list[tuple[Command, Command]]:
        """Every two commands that work on the same kind of folder, in random order."""
        on = lambda kind: [command for command in chosen if command.state is kind and command.earlier]
        every = [(one, two) for kind in (results, store_state) for one in on(kind) for two in on(kind)]
        self.random.shuffle(every)
        return every

    def pair(self, one: Command, two: Command, tally: Tally) -> None:
        """Two commands at once on one folder."""
        out = self.place(next(command for command in self.all if command.name == _start(one)))
        logs = [self.root / "one.txt", self.root / "two.txt"]
        wait = self.random.random() * max(self.known(one)[2], 0.1)
        first = started(lambda: one.run(out), logs[0], self.slow)
        time.sleep(wait)
        second = started(lambda: two.run(out), logs[1], self.slow)
        codes = [ended(first), ended(second)]
        tally.counts["runs"] += 1
        tally.counts[{0: "both succeeded"}.get(max(codes), "one was refused")] += 1
        problem = self._judge(one, two, out, codes, logs)
        if problem:
            tally.lost.append(f"{one.name} and {two.name}: {problem} ({out})")
        else:
            shutil.rmtree(out.parent)

    def after(self, first: Command, *others: Command) -> tuple[list[int], State]:
        """How commands that run one after the other end, and what they leave."""
        names = " then ".join(command.name for command in (first, *others))
        if names not in self._outcomes:
            out = self.place(next(command for command in self.all if command.name == _start(first)))
            codes = [done(lambda: command.run(out), self.log) for command in (first, *others)]  # noqa: B023
            self._outcomes[names] = codes, state_of(first, out, self.log)
            shutil.rmtree(out.parent)
        return self._outcomes[names]

    def mixture(self, one: Command, two: Command, codes: Sequence[int], state: State) -> str:
        """What differs where commands at once left what they leave in no order; one that is refused leaves nothing."""
        orders = [self.after(one, two), self.after(two, one)]
        orders[1] = orders[1][0][::-1], orders[1][1]
        orders += [([0, 2], self.after(one)[1]), ([2, 0], self.after(two)[1])]
        possible = [found for ends, found in orders if ends == list(codes)]
        if not possible:
            return f"ended with {list(codes)}, as in no order"
        return "" if state in possible else f"a mixture: {_difference(state, *possible)}"

    def _judge(self, one: Command, two: Command, out: Path, codes: Sequence[int], logs: Sequence[Path]) -> str:
        for name, code, log in zip((one.name, two.name), codes, logs, strict=True):
            if code not in (0, 2) or "Traceback" in log.read_text(errors="replace"):
                return f"{name} ended with {code}: {_last_line(log)}"
        if min(codes):
            return f"both were refused: {_last_line(logs[0])}; {_last_line(logs[1])}"
        if left := leftovers(out):
            return f"left over: {left[0]}"
        try:
            state = state_of(one, out, self.log)
            if mixed := self.mixture(one, two, codes, state):
                return mixed
        except AssertionError as problem:
            return str(problem)
        page = lambda: run_cli("report", out, "--overwrite", "--no-figures", "-q")
        if "model.zip" in state and done(page, self.log):
            return f"the report afterwards failed: {_last_line(self.log)}"
        return _users_loss(out)


def _start(command: Command) -> str:
    """Whose beginning all commands on such a folder can work on."""
    return "append" if command.state is store_state else "report"


def _difference(state: State, *others: State) -> str:
    other = min(others, key=lambda other: len(set(state.items()) ^ set(other.items())))
    names = sorted({name for name, _ in set(state.items()) ^ set(other.items())})
    return f"{len(names)} differ, e.g. {', '.join(names[:3])}"


def _users_loss(out: Path) -> str:
    for name, text in MINE.items():
        if not (out / name).is_file() or (out / name).read_text() != text:
            return f"the user's {name} was lost"
    return ""


# ---------------------------------------------------------------------- the program


def table(tallies: dict[str, Tally]) -> str:
    """Counts as Markdown, with a last row for all."""
    total = Tally(sum((tally.counts for tally in tallies.values()), Counter()))
    total.lost = [one for tally in tallies.values() for one in tally.lost]
    order = ["runs", *(how.name for how in SIGNALS), "finished first", "in the moves", "earlier whole", "new whole"]
    order += ["same bits again", "both succeeded", "one was refused"]
    columns = [name for name in order if total.counts[name]]
    lines = [f"| command | {' | '.join(columns)} | lost, mixed or left over |", "|---" * (len(columns) + 2) + "|"]
    for name, tally in {**tallies, "all": total}.items():
        cells = [str(tally.counts[column]) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} | {len(tally.lost)} |")
    return "\n".join(lines)


def run(root: Path, runs: int, pairs: int, seed: int, slow: float, only: str = "") -> tuple[str, list[str]]:
    """The tables, and what was lost."""
    os.environ |= {"OMP_NUM_THREADS": "1", "SOURCE_DATE_EPOCH": "0"}
    campaign = Campaign(root, seed, slow)
    chosen = [command for command in campaign.all if only in command.name]
    kills: dict[str, Tally] = {command.name: Tally() for command in chosen}
    both: dict[str, Tally] = defaultdict(Tally)
    with suppress(KeyboardInterrupt):  # what was done until then is reported
        for command in itertools.islice(itertools.cycle(chosen), runs):
            tally, tries = kills[command.name], 5
            before = tally.counts["finished first"]
            while tries and tally.counts["finished first"] - before == 5 - tries:
                campaign.kill(command, tally)  # again where it was done before the signal came
                tries -= 1
        for one, two in itertools.islice(itertools.cycle(campaign.pairs(chosen)), pairs):
            campaign.pair(one, two, both[f"{one.name} and another"])
    told = [table(found) for found in (kills, both) if sum(tally.counts["runs"] for tally in found.values())]
    return "\n\n".join(told), [one for tally in (*kills.values(), *both.values()) for one in tally.lost]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="commands to kill (200)")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="pairs of commands to run at once (0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--slow", type=float, default=0.0, metavar="SECONDS", help="how much longer a rename takes (0)")
    parser.add_argument("--only", default="", metavar="WORD", help="only commands whose name has this word")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work there, and keep the folders of what was lost")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) if options.keep is None else options.keep
        root.mkdir(parents=True, exist_ok=True)
        told, lost = run(root, options.runs, options.pairs, options.seed, options.slow, options.only)
    print(f"{told}\n\n{time.monotonic() - begin:.0f} s, seed {options.seed}, renames slowed by {options.slow} s")
    for one in lost:
        print(f"LOST {one}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
