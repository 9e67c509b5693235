"""The setup of games, and its form in JSON and YAML."""

import copy
from dataclasses import fields, replace
from typing import Any

import pytest

from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.game_spec import GameSpec, parse_game_spec
from battlesnake_gym.rules import MAPS, RULESETS, RulesError, Settings, State, is_over, step

DEFAULTS: GameSpec[int] = GameSpec(2, max_turns=300)


def test_missing_fields_have_the_default_values() -> None:
    assert parse_game_spec({}, "", DEFAULTS) == GameSpec(2, settings=Settings(), max_turns=300)
    content = {"width": 7, "map": "royale", "max_turns": None, "view_radius": 4, "name": "other"}
    spec = parse_game_spec(content, "boards[0]", DEFAULTS)
    assert spec == GameSpec(2, 7, 11, map="royale", settings=Settings(view_radius=4), max_turns=300)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"width": 26}, r"boards\[1\]\.width must be between 1 and 25, got 26"),
        ({"height": "7"}, r"boards\[1\]\.height must be a whole number, got '7'"),
        ({"num_snakes": 17}, r"boards\[1\]\.num_snakes must be between 1 and 16, got 17"),
        ({"max_turns": 0}, r"boards\[1\]\.max_turns must be at least 1, got 0"),
        ({"ruleset": "solos"}, r"boards\[1\]\.ruleset: unknown ruleset 'solos'; .* solo"),
        ({"map": 3}, r"boards\[1\]\.map must be text, got 3"),
        ({"minimum_food": 0.5}, r"boards\[1\]\.minimum_food must be a whole number, got 0\.5"),
        ({"minimum_food": 2**31}, r"boards\[1\]\.minimum_food must be between .*, got 2147483648"),
        ({"view_radius": -1}, r"boards\[1\]\.view_radius must be .* at least 0, .* got -1"),
    ],
)
def test_an_error_names_the_path_and_the_value(content: dict[str, Any], message: str) -> None:
    with pytest.raises(BoardError, match=message):
        parse_game_spec(content, "boards[1]", DEFAULTS)


def test_no_view_radius_means_no_limit() -> None:
    spec: GameSpec[int] = GameSpec(2, settings={"view_radius": None, "minimum_food": 2})  # type: ignore[dict-item]
    assert spec.game.settings == Settings(minimum_food=2)


def test_a_caller_restricts_the_values_and_the_settings() -> None:
    with pytest.raises(BoardError, match=r"^width must be between 3 and 9, got 11"):
        parse_game_spec({"width": 11}, "", DEFAULTS, {"width": (3, 9)})
    ignored = parse_game_spec({"minimum_food": 9}, "", DEFAULTS, setting_names=["view_radius"])
    assert ignored.settings == Settings()


def test_the_first_position_has_the_seats_of_the_setup() -> None:
    spec: GameSpec[int] = GameSpec(3, 7, 9)
    state = spec.start(seed=4)
    assert (state.width, state.height, [snake.id for snake in state.snakes]) == (7, 9, [*"012"])
    assert state.snakes != spec.start(seed=5).snakes
    with pytest.raises(RulesError, match="width must be between 1 and 25, got 26"):
        GameSpec(2, 26).start()


def _play(spec: GameSpec[int]) -> list[State]:
    """Return up to 60 positions of a game whose snakes turn on every second turn."""
    game, state = replace(spec.game, seed=5), spec.start(seed=5)
    states = [copy.deepcopy(state)]
    for turn in range(60):
        if is_over(game, state):
            break
        moves = {snake.id: ("up", "up", "left", "left", "down", "down", "right", "right")[turn % 8]
                 for snake in state.snakes}  # fmt: skip
        step(game, state, moves)
        states.append(copy.deepcopy(state))
    return states


@pytest.mark.parametrize("ruleset", RULESETS)
def test_unused_settings_change_no_game(ruleset: str) -> None:
    values = {"food_spawn_chance": 90, "minimum_food": 9, "hazard_damage_per_turn": 60,
              "shrink_every_n_turns": 2}  # fmt: skip
    for board_map in MAPS.values():
        (width, height), most = board_map.sizes[0], board_map.players[1]
        spec: GameSpec[int] = GameSpec(min(2, most), width, height, ruleset, board_map.id)
        unused = spec.unused_settings()
        changed = replace(spec, settings={name: values[name] for name in unused})
        assert _play(changed) == _play(spec), board_map.id


@pytest.mark.parametrize(
    ("spec", "unused"),
    [
        (GameSpec(2), {"hazard_damage_per_turn", "shrink_every_n_turns"}),
        (GameSpec(2, map="empty"), {field.name for field in fields(Settings)} - {"view_radius"}),
        (GameSpec(2, map="hz_spiral"), {"shrink_every_n_turns"}),
        (
            GameSpec(2, map="hz_castle_wall"),
            {"food_spawn_chance", "minimum_food", "shrink_every_n_turns"},
        ),
        *(
            (GameSpec(2, map=name), set())
            for name in ("royale", "sinkholes", "healing_pools", "hz_hazard_pits")
        ),
        (GameSpec(2, ruleset="royale"), set()),
        (GameSpec(2, 30), set()),
    ],
)
def test_the_settings_without_effect_are_known(spec: GameSpec[int], unused: set[str]) -> None:
    assert spec.unused_settings() == unused
