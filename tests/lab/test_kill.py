from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from icofactor_lab import kill

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="no fork, and folders are not locked"),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> kill.Campaign:
    with pytest.MonkeyPatch.context() as patched:  # stand-ins for pictures, undone for other tests
        for name in ("icofactor.results.folder.drawn_panels", "icofactor.results.folder.drawn_components"):
            patched.setattr(name, None)
        patched.setattr("icofactor.results.report.page.drawn_panels", None)
        patched.setattr("icofactor.assessment.selection.choice.Choice.plot", None)
        yield kill.Campaign(tmp_path_factory.mktemp("kill"), seed=0, slow=0.01)


def test_kills_and_pairs_lose_nothing(campaign: kill.Campaign) -> None:
    tally = kill.Tally()
    for command in campaign.all:
        campaign.kill(command, tally)
    for pair in campaign.pairs(campaign.all)[:3]:
        campaign.pair(*pair, tally)
    assert not tally.lost
    assert tally.counts["runs"] == len(campaign.all) + 3
    assert "| all | 13 |" in kill.table({"any": tally})


def lose(out: Path) -> None:
    (out / "mine.txt").unlink()


def leave(out: Path) -> None:
    (out / ".tmp-1-x").touch()


def mix(out: Path) -> None:
    (out / "new.tsv").write_text("of another run")


@pytest.mark.parametrize(("damage", "said"), [(lose, "the user's mine.txt"), (leave, "left over"), (mix, "new.tsv")])
def test_a_loss_is_seen(campaign: kill.Campaign, damage: Callable[[Path], None], said: str) -> None:
    """What a careless command would do after its work."""
    plain = next(command for command in campaign.all if command.name == "transform")
    campaign.known(plain)

    def careless(out: Path) -> None:
        plain.run(out)
        damage(out)

    tally = kill.Tally()
    campaign.kill(kill.Command("transform", careless, plain.state, plain.earlier), tally)
    assert len(tally.lost) == 1 and said in tally.lost[0]
