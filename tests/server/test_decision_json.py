"""Decisions over HTTP: from a served snake to the replay, and malformed ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_server import replay_json
from battlesnake_server.arena import players
from battlesnake_server.arena.tournament import (
    TournamentSettings,
    play_scheduled_game,
)

DECISION = Decision(
    "up",
    (Reason("walls", ("left", "down"), {}, "off the board"), Reason("space", (), {"up": 2.5})),
    {"up": 2.5, "down": float("-inf")},
    line={"a": ("up", "left"), "b": ()},
)


def answer(decision: object, move: str = "up") -> bytes:
    return json.dumps({"move": move, "decision": decision}).encode()


def test_what_is_written_is_read() -> None:
    assert players._parse_decision(answer(replay_json.decision_to_dict(DECISION))) == DECISION


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(MOVES),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["reasons", "rule", "vetoed", "scores", "note", "line", *MOVES]), inner
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_whatever_is_told_is_a_decision_or_none(told: Any) -> None:
    found = players._parse_decision(answer(told))
    assert found is None or found.move == "up"
    if found is not None:
        json.dumps(replay_json.decision_to_dict(found), allow_nan=False)


@pytest.mark.parametrize(
    ("told", "is_read"),
    [
        ({"reasons": [{"rule": "walls"}], "scores": {"up": None}}, True),
        ({"reasons": [{"rule": "walls", "vetoed": "left"}]}, False),
        ({"scores": {"up": "high"}}, False),
        ({"reasons": [], "note": "y" * players.MAX_DECISION_BYTES}, False),
    ],
)
def test_malformed_and_large_decisions_are_dropped(told: dict[str, Any], is_read: bool) -> None:
    assert (players._parse_decision(answer(told)) is not None) == is_read


def test_a_decision_that_is_nested_too_deeply_is_dropped() -> None:
    nested = b'{"move": "up", "decision": {"line": %s"\\u001b"%s}}' % (b"[" * 800, b"]" * 800)
    assert players._parse_move(nested) == ("up", "")
    assert players._parse_decision(nested) is None


@pytest.mark.parametrize("tells", [True, False])
def test_a_served_snake_tells_its_reasons(
    serve: Callable[..., str], tmp_path: Path, tells: bool
) -> None:
    options = ["--send-decisions"] if tells else []
    url = serve("--snake", "cautious", "--color", "#2a9d5c", "--head", "bendr", *options)
    setup = TournamentSettings(
        (f"far={url}", "cautious"), GameSpec(2, 7, 7, max_turns=3), timeout=5000
    )
    (scheduled,) = setup.missing_games(1)
    result = play_scheduled_game(setup, scheduled, tmp_path)
    assert result.replay is not None
    replay = Replay.load(result.replay)
    far, near = (snake.id for snake in replay.first.snakes)
    assert replay.first.snakes[0].customizations["head"] == "bendr"
    for turn in replay.turns:
        assert turn.decisions[near].reasons
        assert (far in turn.decisions) == tells
        if tells:
            assert turn.decisions[far].reasons
            assert turn.decisions[far].move == turn.moves[far]
