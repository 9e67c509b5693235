"""The rules agree with every recorded game, and conformance notices every broken rule."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from battlesnake_gym import rules
from battlesnake_gym.cli import conformance
from battlesnake_gym.cli.conformance import Comparison, PythonRules, replay
from battlesnake_gym.engine import engine
from battlesnake_gym.records import recordings
from battlesnake_gym.records.recordings import Recording, RecordingError

TRACES = Path(__file__).parents[1] / "data/traces"
RULES = Path(rules.__file__).parent

needs_engine = pytest.mark.skipif(not engine.COMPILED, reason="the engine was not built")

_parsed: dict[str, list[Recording]] = {}


def games(name: str) -> list[Recording]:
    """The recorded games of one file, parsed once."""
    if name not in _parsed:
        _parsed[name] = list(recordings.read(TRACES / f"{name}.jsonl.gz"))
    return _parsed[name]


FILES = [path.name.removesuffix(".jsonl.gz") for path in sorted(TRACES.iterdir())]


def test_the_recordings_cover_every_map_and_ruleset() -> None:
    found = {(game.game.map, game.game.ruleset) for name in FILES for game in games(name)}
    assert found == {(m, r) for m in ["", *rules.MAPS] for r in rules.RULESETS}


@pytest.mark.parametrize("name", FILES)
def test_the_rules_agree_with_the_reference(name: str) -> None:
    outcomes = [replay(game, name, "python", PythonRules()) for game in games(name)]
    assert [str(outcome.difference) for outcome in outcomes if outcome.difference] == []
    assert sum(o.transitions for o in outcomes) == sum(game.turns for game in games(name))


class Mutation(NamedTuple):
    """A change of one rule: ``old`` stands once in ``file`` and becomes ``new``."""

    rule: str
    file: str
    old: str
    new: str
    games: str = "_synthetic"


MUTATIONS = [
    Mutation(
        "collisions before feeding",
        "rulesets.py",
        'Stage("feed", feed),\n    Stage("eliminate", eliminate_losers),',
        'Stage("eliminate", eliminate_losers),\n    Stage("feed", feed),',
    ),
    Mutation(
        "feeding before hazards",
        "rulesets.py",
        'Stage("hazard", hazard),\n    Stage("feed", feed),',
        'Stage("feed", feed),\n    Stage("hazard", hazard),',
        "hz_columns",
    ),
    Mutation("solo ends like standard", "rulesets.py", "1 if alone else 2", "2"),
    Mutation("a win needs no end", "rulesets.py", "1 if alone else 2", "1"),
    Mutation(
        "food does not protect",
        "stages.py",
        "if layers and snake.head not in state.food:",
        "if layers:",
        "hz_columns",
    ),
    Mutation(
        "hazards do not stack",
        "stages.py",
        "state.hazards.count(snake.head)",
        "int(snake.head in state.hazards)",
        "sinkholes",
    ),
    Mutation(
        "0 health survives a hazard",
        "stages.py",
        "if not snake.health:",
        "if snake.health < 0:",
    ),
    Mutation(
        "healing beyond 100",
        "stages.py",
        "min(MAX_HEALTH, health - layers * game.settings.hazard_damage_per_turn)",
        "health - layers * game.settings.hazard_damage_per_turn",
        "hz_columns",
    ),
    Mutation("nobody starves", "stages.py", "snake.health -= 1", "snake.health -= 0", "standard"),
    Mutation(
        "0 health plays on",
        "stages.py",
        'if snake.health <= 0:\n            eliminate(snake, "out-of-health"',
        'if snake.health < 0:\n            eliminate(snake, "out-of-health"',
    ),
    Mutation(
        "food does not heal",
        "stages.py",
        "snake.health = MAX_HEALTH\n            grow(snake)",
        "grow(snake)",
        "standard",
    ),
    Mutation(
        "only one snake eats a food",
        "stages.py",
        "for snake in eaters:",
        "for snake in eaters[:1]:",
    ),
    Mutation(
        "equal heads survive",
        "stages.py",
        "other.length >= snake.length",
        "other.length > snake.length",
    ),
    Mutation(
        "the shortest is the culprit",
        "stages.py",
        "key=lambda snake: -snake.length",
        "key=lambda snake: snake.length",
    ),
    Mutation(
        "the neck does not hurt",
        "stages.py",
        "if head in snake.body[1:]:",
        "if head in snake.body[3:]:",
    ),
    Mutation("heads hit before bodies", "stages.py", "in other.body[1:]", "in other.body[2:]"),
    Mutation(
        "eliminations dated a turn early",
        "stages.py",
        "turn = state.turn + 1\n    for snake in living",
        "turn = state.turn\n    for snake in living",
    ),
    Mutation(
        "the dead do not grow",
        "stages.py",
        "for snake in state.snakes:\n        snake.health = MAX_HEALTH",
        "for snake in living(state):\n        snake.health = MAX_HEALTH",
    ),
    Mutation("constrictors keep food", "stages.py", "state.food = []", "pass", "standard"),
    Mutation("wrap to the near side", "stages.py", "return size - 1", "return 0", "standard"),
    Mutation(
        "a stacked start goes down",
        "stages.py",
        'return "up"\n\n\ndef move_w',
        'return "down"\n\n\ndef move_w',
        "hz_rivers_bridges_xl",
    ),
    Mutation(
        "straight on over the left border",
        "stages.py",
        "if neck_x == 0 and head_x > 0:",
        "if False:",
        "hz_grow_box",
    ),
    Mutation(
        "spawn chance one too high",
        "food.py",
        "100 - rand.intn(100) < chance",
        "100 - rand.intn(100) <= chance",
        "standard",
    ),
    Mutation("dead bodies block food", "food.py", "if snake.alive:", "if True:", "standard"),
    Mutation(
        "food beside heads",
        "food.py",
        "taken.update((x + dx, y + dy) for",
        "taken.update((x, y) for",
        "standard",
    ),
    Mutation(
        "food from the list's end", "food.py", "cells[:count]", "cells[::-1][:count]", "standard"
    ),
    Mutation(
        "food of the next turn",
        "food.py",
        "game_rand(game, state.turn)",
        "game_rand(game, state.turn + 1)",
        "standard",
    ),
    Mutation(
        "food beside snakes towards the centre",
        "placement.py",
        "middle[axis] < head[axis] < cell[axis]",
        "middle[axis] > head[axis] > cell[axis]",
        "standard",
    ),
    Mutation(
        "sides before corners", "placement.py", "rand.intn(2) == 0", "rand.intn(2) == 1", "standard"
    ),
    Mutation(
        "shrinking a turn late", "royale.py", "(state.turn + 1) //", "state.turn //", "royale"
    ),
    Mutation("sides exchanged", "royale.py", "left += side == 0", "left += side == 1", "royale"),
    Mutation(
        "hazards row by row",
        "royale.py",
        "for x in range(state.width)\n        for y in range(state.height)",
        "for y in range(state.height)\n        for x in range(state.width)",
        "royale",
    ),
    Mutation(
        "royale hazards pile up",
        "maps/royale.py",
        "state.hazards = royale",
        "state.hazards += royale",
        "royale",
    ),
    Mutation("a shorter cycle of pits", "maps/pits.py", "CYCLE = 7", "CYCLE = 6", "hz_hazard_pits"),
    Mutation(
        "castle food a turn late",
        "maps/castle.py",
        "FIRST_FOOD_TURN = 10",
        "FIRST_FOOD_TURN = 11",
        "hz_castle_wall_xl",
    ),
    Mutation(
        "a castle forgets its list",
        "maps/castle.py",
        "state.memory[CANDIDATES] = candidates",
        "pass",
        "hz_castle_wall_xl",
    ),
    Mutation(
        "pools forget their stream",
        "maps/pools.py",
        "state.memory[DRAWN] = rand.drawn",
        "pass",
        "healing_pools",
    ),
    Mutation(
        "trails fade twice as fast", "maps/snail.py", "(layers - 1)", "(layers - 2)", "snail_mode"
    ),
    Mutation(
        "the arcade's chance",
        "maps/arcade.py",
        "rand.intn(100) > chance",
        "rand.intn(100) >= chance",
        "arcade_maze",
    ),
    Mutation(
        "a wet food",
        "maps/rivers.py",
        "spare_hazards=True",
        "spare_hazards=False",
        "hz_rivers_bridges_xl",
    ),
    Mutation(
        "the spiral turns left",
        "maps/spiral.py",
        "(1, 0), (0, -1), (-1, 0), (0, 1)",
        "(0, -1), (1, 0), (0, 1), (-1, 0)",
        "hz_spiral",
    ),
    Mutation(
        "the scatter ends early",
        "maps/scatter.py",
        "> state.width * state.height",
        ">= state.width * state.height",
        "hz_scatter",
    ),
    Mutation(
        "rings drawn like x",
        "maps/boxes.py",
        "1), rand.between(1, state.width - 1)",
        "1), rand.between(1, state.height - 1)",
        "hz_expand_scatter",
    ),
    Mutation(
        "maze food on old walls",
        "maps/solo_maze.py",
        "old_walls.union(state.hazards)",
        "set(state.hazards)",
        "solo_maze",
    ),
]


@pytest.fixture
def mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Makes a copy of the rules with one change and lets conformance play by it."""

    def make(file: str, old: str, new: str) -> ModuleType:
        folder = tmp_path / "mutant_rules"
        shutil.copytree(RULES, folder, ignore=shutil.ignore_patterns("__pycache__"))
        source = (folder / file).read_text()
        assert source.count(old) == 1, f"{old!r} must stand once in {file}"
        (folder / file).write_text(source.replace(old, new))
        spec = importlib.util.spec_from_file_location("mutant_rules", folder / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["mutant_rules"] = module
        spec.loader.exec_module(module)
        monkeypatch.setattr(conformance, "rules", module)
        monkeypatch.setattr(conformance, "RulesError", module.RulesError)
        return module

    yield make
    for name in [name for name in sys.modules if name.startswith("mutant_rules")]:
        del sys.modules[name]


def first_difference(name: str) -> conformance.Difference | None:
    found = (replay(game, name, "python", PythonRules()) for game in games(name))
    return next((outcome.difference for outcome in found if outcome.difference), None)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_broken_rule_is_noticed(mutation: Mutation, mutant: Callable[..., ModuleType]) -> None:
    mutant(mutation.file, mutation.old, mutation.new)
    difference = first_difference(mutation.games)
    assert difference is not None
    assert difference.details


def test_an_unchanged_copy_is_not_noticed(mutant: Callable[..., ModuleType]) -> None:
    mutant("stages.py", "snake.health -= 1", "snake.health = snake.health - 1")
    assert first_difference("standard") is None
    assert first_difference("hz_scatter") is None


class TestComparison:
    """What is compared, and what the format lets pass."""

    def change(self, **fields: Any) -> list[str]:
        """The details when one position of a royale game has other ``fields``."""
        recording = games("royale")[0]
        recorded = recording.frames[-1].state
        played = dataclasses.replace(copy.deepcopy(recorded), **fields)
        return Comparison(recording).details(recorded, played)

    def test_order_counts(self) -> None:
        recording = games("royale")[0]
        state = next(frame.state for frame in recording.frames if len(frame.state.food) > 1)
        played = copy.deepcopy(state)
        played.food.reverse()
        assert Comparison(recording).details(state, played)[0].startswith("food: ")

    @pytest.mark.parametrize("name", ["turn", "food", "hazards"])
    def test_every_field_counts(self, name: str) -> None:
        (detail,) = self.change(**{name: 1000 if name == "turn" else [(9, 9)] * 50})
        assert detail.startswith(name)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("id", "other"),
            ("body", [(1, 1)]),
            ("health", 7),
            ("eliminated_cause", "snake-collision"),
            ("eliminated_by", "nobody"),
            ("eliminated_on", 1),
        ],
    )
    def test_every_field_of_a_snake_counts(self, name: str, value: Any) -> None:
        recorded = games("royale")[0].frames[-1].state
        snakes = copy.deepcopy(recorded).snakes
        setattr(snakes[0], name, value)
        (detail,) = self.change(snakes=snakes)
        assert name in detail

    def test_a_missing_snake_counts(self) -> None:
        assert self.change(snakes=[])[0].startswith("snakes: ")

    def test_hazard_order_counts_only_where_it_is_exact(self) -> None:
        recording = next(g for g in games("snail_mode") if len(set(g.frames[-1].state.hazards)) > 1)
        recorded = recording.frames[-1].state
        played = copy.deepcopy(recorded)
        played.hazards.sort()
        played.hazards.reverse()
        assert Comparison(recording).details(recorded, played) == []
        exact = dataclasses.replace(recording, hazard_order_exact=True)
        assert Comparison(exact).details(recorded, played) != []
        played.hazards.append(played.hazards[0])
        assert Comparison(recording).details(recorded, played) != []

    def test_culprits_may_tie_among_more_than_12_snakes_of_equal_length_only(self) -> None:
        recording = games("_synthetic")[0]
        snakes = [rules.Snake(f"s{i}", [(i, 0)] * (3 + i // 12)) for i in range(13)]
        snakes[0].eliminated_cause, snakes[0].eliminated_by = "snake-collision", "s1"
        recorded = rules.State(5, 25, 25, snakes)

        def details(by: str, state: rules.State) -> list[str]:
            played = copy.deepcopy(state)
            played.snakes[0].eliminated_by = by
            return compare.details(state, played)

        compare = Comparison(recording)
        assert details("s12", recorded) != []
        assert details("s2", recorded) == []
        recorded.snakes[2].body.append((2, 0))
        assert details("s2", recorded) == []  # once let pass, the name stays
        assert details("s3", recorded) != []
        few = dataclasses.replace(recorded, snakes=snakes[:12])
        assert Comparison(recording).details(few, few) == []
        compare = Comparison(recording)
        assert details("s3", few) != []


class TestEnds:
    """How a recording may end."""

    @pytest.fixture
    def game(self) -> Recording:
        return next(game for game in games("standard") if game.reason == "over")

    def difference(self, recording: Recording, **fields: Any) -> str:
        changed = dataclasses.replace(recording, **fields)
        return str(replay(changed, "here", "python", PythonRules()).difference)

    def test_over_never_before_the_end(self, game: Recording) -> None:
        frames = [*game.frames, game.frames[-1]]
        assert "the recording goes on" in self.difference(game, frames=frames)

    def test_over_at_the_end(self, game: Recording) -> None:
        frames = game.frames[:-1]
        state = frames[-1].state
        alive = tuple(snake.id for snake in state.snakes if snake.alive)
        assert "but the rules go on" in self.difference(game, frames=frames, alive=alive)

    def test_a_cap_is_not_over(self, game: Recording) -> None:
        assert "another reason: cap" in self.difference(game, reason="cap")
        assert self.difference(game, reason="cap", max_turns=game.turns) == "None"

    def test_survivors(self, game: Recording) -> None:
        assert "survivors" in self.difference(game, alive=("s9",))

    def test_a_panic_is_refused(self) -> None:
        game = next(g for g in games("hz_rivers_bridges") if g.reason == "cap")
        assert "the rules play it" in self.difference(game, reason="panic")


class TestProgram:
    """The command: what it prints and the status it gives."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name in ("_synthetic", "standard"):
            shutil.copy(TRACES / f"{name}.jsonl.gz", tmp_path)
        return tmp_path

    def rewrite(self, folder: Path, change: Callable[[list[Any]], None]) -> None:
        """Change the lines of the first standard game, and store it uncompressed."""
        path = folder / "standard.jsonl.gz"
        lines = next(iter(recordings.read_lines(path)))
        objects = [json.loads(line) for line in lines]
        change(objects)
        path.unlink()
        text = "".join(json.dumps(line) + "\n" for line in objects)
        (folder / "standard.jsonl").write_text(text)

    @needs_engine
    @pytest.mark.parametrize("rules", ["python", "engine", "both"])
    def test_agreement_is_status_0(
        self, folder: Path, rules: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert conformance.main([str(folder), "--rules", rules, "--jobs", "1"]) == 0
        out = capsys.readouterr().out
        assert out.count("0 games differ.") == (2 if rules == "both" else 1)
        refused = "games refused by the engine, replayed in Python instead:" in out
        assert refused == (rules != "python")
        assert "72/827" in out

    def test_more_processes_find_the_same(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = [str(folder), "--rules", "python"]
        assert conformance.main([*arguments, "--jobs", "1"]) == 0
        alone = capsys.readouterr().out
        assert conformance.main([*arguments, "--jobs", "2"]) == 0
        assert capsys.readouterr().out == alone

    def test_a_difference_is_status_1_and_readable(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def hurt(objects: list[Any]) -> None:
            objects[2]["s"][0]["hp"] -= 3

        self.rewrite(folder, hurt)
        assert conformance.main([str(folder), "--rules", "python", "--jobs", "1"]) == 1
        out = capsys.readouterr().out
        assert "1 games differ." in out
        assert "standard.jsonl: pub-00144" in out
        assert "the python rules differ at turn 1" in out
        assert "s0 health: recorded 96, played 99" in out
        assert "| python rules" in out

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda objects: objects.pop(), "ends in the middle of a game"),
            (lambda objects: objects[0].update(format=2), "format must be 1, got 2"),
            (lambda objects: objects[0].pop("seed"), "KeyError: 'seed'"),
            (lambda objects: objects[-1].update(reason="bored"), "reason must be one of"),
            (lambda objects: objects[-1].update(t=999), "the end is at turn 999"),
            (lambda objects: objects[1].pop("hz"), "needs its hazards"),
            (lambda objects: objects[1]["f"].append(3), "format of recorded games (ValueError"),
            (lambda objects: objects.pop(0), "needs lines of the kinds game, t, ..., end"),
        ],
    )
    def test_a_broken_file_is_status_2(
        self,
        folder: Path,
        change: Callable[[list[Any]], None],
        message: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.rewrite(folder, change)
        with pytest.raises(SystemExit) as caught:
            conformance.main([str(folder), "--rules", "python", "--jobs", "1"])
        assert caught.value.code == 2
        error = capsys.readouterr().err
        assert message in error
        assert "standard.jsonl" in error

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere"], "DIR must be a folder, got 'nowhere'"),
            ([".", "--jobs", "0"], "--jobs must be 1 or more, got 0"),
            (
                [".", "--rules", "moral"],
                "unknown rules 'moral'; choose one of python, engine",
            ),
            (["."], "holds no recorded games"),
        ],
    )
    def test_a_wrong_call_is_status_2(
        self,
        arguments: list[str],
        message: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as caught:
            conformance.main(arguments)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err

    def test_the_engine_s_rules_need_the_engine(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(engine, "COMPILED", False)
        with pytest.raises(SystemExit) as caught:
            conformance.main([str(folder), "--jobs", "1"])
        assert caught.value.code == 2
        assert "--rules both needs the compiled engine" in capsys.readouterr().err
        assert conformance.main([str(folder), "--rules", "python", "--jobs", "1"]) == 0

    def test_a_torn_archive_is_an_error(self, folder: Path) -> None:
        path = folder / "standard.jsonl.gz"
        path.write_bytes(gzip.compress(b"{}")[:-4])
        with pytest.raises(RecordingError, match="cannot be read"):
            list(recordings.read_lines(path))
