"""The campaign of kills, in a process of its own: it forks, and this one may have threads of JAX or OpenMP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from icofactor_lab import kill

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="no fork, and folders are not locked"),
]
DAMAGES = {
    "lose": (lambda out: (out / "mine.txt").unlink(missing_ok=True), "the user's mine.txt"),
    "leave": (lambda out: (out / ".tmp-1-x").touch(), "left over"),
    "mix": (lambda out: (out / "new.tsv").write_text("of another run"), "new.tsv"),
}
"""What a careless command would do after its work, and what is said of it."""
KILLED = ("fit", "select --bootstrap", "associate", "prepare", "append")
PAIRS = (("fit", "associate"), ("report", "select --atlas"))


def test_kills_and_pairs_lose_nothing_and_a_loss_is_seen(tmp_path: Path) -> None:
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)  # on a busy machine too
    assert done.returncode == 0, done.stdout + done.stderr


def kills(campaign: kill.Campaign) -> None:
    tally, named = kill.Tally(), {command.name: command for command in campaign.all}
    for name in KILLED:
        campaign.kill(named[name], tally)
    for pair in PAIRS:
        campaign.pair(*(named[name] for name in pair), tally)
    n = len(KILLED) + len(PAIRS)
    assert not tally.lost, tally.lost
    assert tally.counts["runs"] == n
    assert f"| all | {n} |" in kill.table({"any": tally})


def mixed(campaign: kill.Campaign) -> None:
    plain = next(command for command in campaign.all if command.name == "transform")
    codes, state = campaign.after(plain, plain)
    assert codes == [0, 0] and campaign.mixture(plain, plain, codes, state) == ""
    other = {**state, "new.html": "of another run"}
    assert campaign.mixture(plain, plain, codes, other) == "a mixture: 1 differ, e.g. new.html"
    assert campaign.mixture(plain, plain, [2, 2], state) == "ended with [2, 2], as in no order"


def damaged(campaign: kill.Campaign, what: str) -> None:
    damage, said = DAMAGES[what]
    plain = next(command for command in campaign.all if command.name == "transform")
    campaign.known(plain)

    def careless(out: Path) -> None:
        plain.run(out)
        damage(out)

    tally = kill.Tally()
    campaign.kill(kill.Command("transform", careless, plain.state, plain.earlier), tally)
    assert len(tally.lost) == 1 and said in tally.lost[0], tally.lost


if __name__ == "__main__":
    ours = kill.Campaign(Path(sys.argv[1]), seed=0, slow=0.01)
    kills(ours)
    mixed(ours)
    for each in DAMAGES:
        damaged(ours, each)
