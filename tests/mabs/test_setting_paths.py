"""The learning rate and the number of snakes take the paths that the architecture page lists."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("default")

ROOT = Path(__file__).parents[2]
OURS = ("battlesnake_rl.", "sagemaker_rl.", "battlesnake_gym.")
ENVIRONMENT = ("battlesnake_gym.env.", "battlesnake_gym.engine.", "battlesnake_gym.rules.")
MAX_FUNCTIONS = 6
NUM_GAMES = 4

SETUP = "battlesnake_rl.mabs.base.ladder_evaluation.LadderEvaluationMixin.setup"

READERS = {
    "battlesnake_rl.mabs.battlesnake_launcher.BattlesnakeHyperparameters.recorded",
    "battlesnake_rl.mabs.base.supported_settings._get_public_fields",
    "battlesnake_rl.mabs.envs.training_env_config.env_options",
    "battlesnake_gym.config.EnvConfig.from_options",
    "sagemaker_rl.ray_launcher.Hyperparameters.recorded",
}
"""Functions that return the settings to record or check them, and hand nothing on."""


class Tracer:
    """Records which functions of ours return a setting, or receive it on the way to its sink.

    A function has the setting if it receives or returns the value, or an object that contains it
    directly: the command line, a mapping, a dataclass or RLlib's configuration.
    """

    def __init__(self, name: str, value: float, sink: str) -> None:
        self.name, self.value, self.sink = name, value, sink
        self.found: set[str] = set()
        self.received: set[str] = set()
        self.arrived = False

    def has(self, one: Any) -> bool:
        """Whether ``one`` is the value or contains it."""
        if isinstance(one, str | int | float) and not isinstance(one, bool):
            return bool(str(one) == str(self.value) or one == self.value)
        if isinstance(one, list | tuple):
            flag = f"--{self.name.replace('_', '-')}"
            return flag in one if one and isinstance(one[0], str) else any(map(self.has, one[:1]))
        entries = one if isinstance(one, Mapping) else getattr(one, "__dict__", {})
        return bool(self.name in entries and str(entries[self.name]) == str(self.value))

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        name = _name(frame)
        if self.arrived or not name.startswith(OURS) or "<" in name.rpartition(".")[2]:
            return
        if event == "return" and not name.startswith(ENVIRONMENT) and self.has(result):
            self.found.add(name)
        if event == "call" and next(self._callers(frame))[1]:
            self.received.add(name)
        if event == "call" and name.endswith(self.sink) and self.is_training(frame):
            self.arrived = True
            self.found |= {
                name
                for name, has in self._callers(frame)
                if has and not name.startswith(ENVIRONMENT)
            }

    @staticmethod
    def is_training(frame: FrameType) -> bool:
        """Whether the sink belongs to the training, and not to a check with a single game."""
        return bool(frame.f_locals.get("num_games", NUM_GAMES) == NUM_GAMES)

    def _callers(self, frame: FrameType | None) -> Iterator[tuple[str, bool]]:
        while frame is not None:
            code = frame.f_code
            arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            received = [frame.f_locals.get(one) for one in arguments if one not in ("self", "cls")]
            if (name := _name(frame)).startswith(OURS):
                yield name, any(map(self.has, received))
            frame = frame.f_back


def _name(frame: FrameType) -> str:
    name = f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"
    # The algorithms extend RLlib's method `setup`, which counts once.
    return SETUP if name.startswith(OURS[0]) and name.endswith(".setup") else name


def documented(sink: str) -> list[str]:
    """The functions in the list of the architecture page that ends with ``sink``."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    lists = re.findall(r"(?:^\d\. `[\w.]+`\n)+", page, re.MULTILINE)
    (found,) = [one for one in lists if one.rstrip("`\n").endswith(sink)]
    return re.findall(r"`([\w.]+)`", found)


def test_lr_and_num_snakes_pass_through_the_documented_functions(
    ray_with_games: None, run_folder: Path
) -> None:
    # Imported before the trace, which slows imports and would see what they call.
    import battlesnake_rl.mabs.policy.symmetry_transforms  # noqa: F401
    import sagemaker_rl.runs.launch  # noqa: F401
    from battlesnake_rl.commands.train_command import main

    traced = [
        Tracer("lr", 0.000123, "configure_optimizers_for_module"),
        Tracer("num_snakes", 3, "VectorBattlesnake.from_config"),
    ]

    def trace(frame: FrameType, event: str, result: Any) -> None:
        if all(one.arrived for one in traced):
            sys.setprofile(None)
        elif event in ("call", "return"):
            for one in traced:
                one(frame, event, result)

    sys.setprofile(trace)
    try:
        command = "--algorithm DQN --lr 0.000123 --num-snakes 3 --num-iters 1 --board-size 5"
        small = "--num-env-runners 0 --num-envs-per-env-runner 4 --runs-dir"
        assert main([*command.split(), *small.split(), str(run_folder)]) == 0
    finally:
        sys.setprofile(None)
    for one, last in zip(
        traced, ("configure_optimizers_for_module", "make_vector_env"), strict=True
    ):
        assert one.arrived
        expected = documented(last)
        assert one.found - READERS <= set(expected)
        assert set(expected) <= one.found | one.received
        assert len(expected) <= MAX_FUNCTIONS
