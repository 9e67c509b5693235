"""Conversion between lines of the protocol and the positions of `battlesnake_gym`."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

from server_loop import Json, flatten_cells, parse_cells

from battlesnake_gym import rules
from battlesnake_gym.rules import Game, Settings, Snake, State


def parse_game(header: Json) -> Game:
    """Create the game that a header line describes."""
    given = {name.lower(): value for name, value in header["settings"].items()}
    names = {name: name.replace("_", "") for name in Settings.__dataclass_fields__}
    named = {name: given[key] for name, key in names.items() if key in given}
    return Game(header["ruleset"], header["map"], Settings(**named), header["seed"], header["solo"])


def parse_position(header: Json, state: Json) -> State:
    """Create the position that a line of the protocol describes."""
    snakes = [
        Snake(name, parse_cells(s["b"]), s["hp"], s.get("x", ""), s.get("by", ""), s.get("on", 0))
        for name, s in zip(header["snakes"], state["s"], strict=True)
    ]
    food, hazards = parse_cells(state["f"]), parse_cells(state["hz"])
    return State(state["t"], header["w"], header["h"], snakes, food, hazards)


def format_position(state: State, over: bool) -> Json:
    """Convert a position to a line of the protocol."""
    snakes = []
    for snake in state.snakes:
        fate = (snake.eliminated_cause, snake.eliminated_by, snake.eliminated_on)
        shown = {key: value for key, value in zip(("x", "by", "on"), fate, strict=True) if value}
        snakes.append({"hp": snake.health, "b": flatten_cells(snake.body), **shown})
    food, hazards = flatten_cells(state.food), flatten_cells(state.hazards)
    return {"t": state.turn, "s": snakes, "f": food, "hz": hazards, "over": over}


def import_mutant(name: str, folder: str) -> ModuleType:
    """Import a copy of the rules in ``folder``, changed by the mutant ``name``."""
    mutants = json.loads((Path(__file__).parents[1] / "mutants.json").read_text())
    mutant = next(one for one in mutants if one["rule"] == name)
    shutil.copytree(Path(str(rules.__file__)).parent, Path(folder) / "mutant_rules")
    path = Path(folder) / "mutant_rules" / mutant["file"]
    text = path.read_text()
    assert text.count(mutant["old"]) == 1, f"{mutant['old']!r} must be once in {mutant['file']}"
    path.write_text(text.replace(mutant["old"], mutant["new"]))
    sys.path.insert(0, folder)
    return importlib.import_module("mutant_rules")
