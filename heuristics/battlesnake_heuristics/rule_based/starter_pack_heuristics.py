"""Support for files with the starter pack's class ``MyBattlesnakeHeuristics``.

The file can serve as a snake, as policy rules and as an action mask. The methods of the class
receive the same arguments as in the starter pack's endpoint:

* an array (rows, columns, 3) with row 0 at the bottom: food, the snake's own body, and the other
  bodies (food and bodies are 1, heads are 5, and cells outside the board are -1),
* the number 0,
* the number of the next turn,
* the health of all snakes,
* the ``/move`` request.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common import extensions
from battlesnake_gym.mdp import masks
from battlesnake_gym.rules.state import MOVES, Game, State
from battlesnake_heuristics.rule_based.pipeline import Pipeline, PipelineStep, Verdict
from battlesnake_heuristics.rule_based.view import View

# `_BASE_MODULE` is the name of a module in the directory of the file.
_CLASS_NAME, _BASE_MODULE = "MyBattlesnakeHeuristics", "heuristics"


class _Heuristics:
    """Replacement for the starter pack's class ``Heuristics``.

    The class provides decorators. This class is used if the starter pack's module ``heuristics`` is
    missing.
    """

    @staticmethod
    def negative_heuristics(rule: Any) -> Any:
        """Mark a method that returns the action mask of the four moves."""
        return lambda *given, **named: rule(*given, **named)

    positive_heuristics = staticmethod(lambda rule: rule)


@dataclass
class _StarterPackRule:
    """A pipeline step that selects the move returned by ``run`` for a policy's values.

    Without a policy, ``run`` receives random values.
    """

    heuristics: Any
    name: str
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def apply(self, view: View, verdict: Verdict) -> None:
        """Rule out all moves except the move that ``run`` returns.

        The step does nothing if an earlier step ruled out that move.
        """
        values = [view.values[move] for move in MOVES] if view.values else self._random.random(4)
        given = _starter_pack_arguments(view.board)
        number, log = self.heuristics.run(*given, action=np.array([values]))
        vetoed: tuple[str, ...] = ()
        if (chosen := MOVES[int(number)]) in verdict.remaining:
            vetoed = tuple(move for move in verdict.remaining if move != chosen)
            verdict.remaining = [chosen]
        verdict.reasons.append(snakes.Reason(self.name, vetoed, note=log.strip()))


def _starter_pack_arguments(board: Board) -> tuple[Any, int, int, dict[int, int], dict[str, Any]]:
    """Return the arguments of the starter pack's methods, except the policy's values."""
    border = max((21 - board.height) // 2, 1)
    inside = np.zeros((board.height, board.width, 3))
    for x, y in board.food:
        inside[y, x, 0] = 1
    for snake in board.living:
        for x, y in filter(board.inside, reversed(snake.body)):  # Segments may be hidden.
            inside[y, x, 1 if snake is board.you else 2] = 5 if (x, y) == snake.head else 1
    array = np.pad(inside, ((border, border), (border, border), (0, 0)), constant_values=-1)
    health = dict(enumerate([board.you.health, *(snake.health for snake in board.living)]))
    return array, 0, board.turn + 1, health, board.to_api(board.you.id)


def register_starter_pack(path: str | Path, name: str) -> list[PipelineStep]:
    """Register the snake and the action mask of a starter pack file under ``name``.

    The mask consists of the methods marked as negative heuristics. A relative ``path`` may start at
    the working directory, or at the directory of the extension that calls the function.

    Returns:
        The steps to use as policy rules.

    Raises:
        ValueError: If the file does not define the class.
    """
    extension = extensions.current_extension_file()
    if extension is not None and not Path(path).exists():
        path = extension.parent / path
    path = Path(path).resolve()
    # A loaded module with this name may belong to another file.
    sys.modules.pop(_BASE_MODULE, None)
    if not path.with_name(f"{_BASE_MODULE}.py").exists():
        base = sys.modules[_BASE_MODULE] = ModuleType(_BASE_MODULE)
        vars(base)["Heuristics"] = _Heuristics
    sys.path.insert(0, str(path.parent))
    try:
        location = f"{path}:{_CLASS_NAME}"
        heuristics = extensions.load_object(location, "the starter pack's heuristics")()
    finally:
        sys.path.remove(str(path.parent))
        sys.modules.pop(_BASE_MODULE, None)
    marked = {key: getattr(one, "__qualname__", "") for key, one in vars(type(heuristics)).items()}
    rules = [getattr(heuristics, key) for key, made in marked.items() if "negative" in made]

    def compute_mask(game: Game, state: State, snake_id: str) -> list[bool]:
        given = _starter_pack_arguments(Board.from_state(state, game, snake_id))
        return [bool(move) for move in np.all([rule(*given) for rule in rules], axis=0)]

    if rules:
        masks.register(name, compute_mask)
    snakes.register(
        name, lambda seed: Pipeline(_StarterPackRule(heuristics, name, seed), seed=seed)
    )
    return [_StarterPackRule(heuristics, name)]
