"""``battlesnake-gym rollout`` and ``rollout.py``: what a trained agent does on Procgen's games."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from tqdm import tqdm

from battlesnake_gym.command_line import Parser, add_json, refuse, write_json
from battlesnake_gym.files import write_atomically
from procgen_rllib.env_config import complete, held_out
from procgen_rllib.environment import VectorProcgen
from procgen_rllib.games import normalized_score
from procgen_rllib.launcher import ProcgenHyperparameters, configure
from procgen_rllib.providers import FRAME_SHAPE
from procgen_rllib.video import FORMATS, write_video
from sagemaker_rl import checkpoints, states

MODULE = Path("learner_group", "learner", "rl_module", DEFAULT_MODULE_ID)
"""Where the network stands in a checkpoint."""

Act = Callable[[NDArray[np.uint8]], NDArray[np.int64]]
"""From observations (N, 64, 64, C) to actions (N,)."""


@dataclass
class Episode:
    """One episode of one game, while it is played and after."""

    level_seed: int
    observations: list[NDArray[np.uint8]] = field(default_factory=list)
    """The frames, (64, 64, 3) each, one more than there are actions; none unless they are kept."""
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    """Completed or lost, rather than cut off."""

    @property
    def total(self) -> float:
        """The sum of its rewards."""
        return float(sum(self.rewards))


def play(
    games: VectorProcgen,
    act: Act,
    *,
    episodes: int = 0,
    steps: int = 0,
    seed: int | None = None,
    keep_frames: bool = False,
) -> list[Episode]:
    """Play ``episodes`` to their ends, or, where that is 0, ``steps`` turns; the finished ones.

    The games share the episodes evenly from the start: taking those that end first would favour
    short ones.
    """
    observations, infos = games.reset(seed=seed)
    quota = [
        episodes // games.num_envs + (i < episodes % games.num_envs) for i in range(games.num_envs)
    ]
    finished: list[Episode] = []
    current = [Episode(int(level)) for level in infos["level_seed"]]
    begun = np.ones(games.num_envs, dtype=np.bool_)
    left = episodes or steps
    with tqdm(total=left, unit="episodes" if episodes else "steps", disable=None) as bar:
        while left > 0:
            actions = act(observations)
            frames = observations
            observations, rewards, terminations, truncations, infos = games.step(actions)
            ended = terminations | truncations
            for i, episode in enumerate(current):
                if not begun[i]:
                    # This step showed the next level's first frame; the action was ignored.
                    current[i] = Episode(int(infos["level_seed"][i]))
                    continue
                if keep_frames:
                    episode.observations.append(_newest(frames[i]))
                episode.actions.append(int(actions[i]))
                episode.rewards.append(float(rewards[i]))
                if ended[i]:
                    episode.terminated = bool(terminations[i])
                    if keep_frames:
                        episode.observations.append(_newest(observations[i]))
                    if not episodes or quota[i] > 0:
                        finished.append(episode)
                        quota[i] -= 1
                        bar.update(1 if episodes else 0)
            if not episodes:
                bar.update(int(begun.sum()))
            left = sum(max(one, 0) for one in quota) if episodes else left - int(begun.sum())
            begun = ~ended
    return finished


def _newest(observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return observation[..., -FRAME_SHAPE[-1] :].copy()


def load_policy(checkpoint: Path, *, greedy: bool = False, seed: int | None = None) -> Act:
    """The agent of a checkpoint; it draws its actions unless ``greedy``.

    Its network is built here, from the checkpoint's facts and, where it is one's own, the file in
    ``models/``; of the checkpoint's files only the weights are read.

    Raises:
        CheckpointError: there is none, or its weights are more than weights.
        ValueError: it names an algorithm or a network that is not here.
    """
    module = _build(checkpoints.read_facts(checkpoint))
    module.set_state(states.load(checkpoint / MODULE / "module_state.pkl"))
    if isinstance(module, torch.nn.Module):
        module.eval()
    torch.manual_seed(np.random.SeedSequence(seed).generate_state(1)[0])

    def act(observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        with torch.no_grad():
            outputs = module.forward_inference({Columns.OBS: torch.from_numpy(observations)})
        if Columns.ACTIONS in outputs:
            return np.asarray(outputs[Columns.ACTIONS], dtype=np.int64)
        choice = module.get_inference_action_dist_cls().from_logits(
            outputs[Columns.ACTION_DIST_INPUTS]
        )
        if greedy:
            choice = choice.to_deterministic()
        return np.asarray(choice.sample(), dtype=np.int64)

    return act


def _build(facts: Mapping[str, Any]) -> RLModule:
    """The network of a checkpoint with these facts, untrained."""
    identity = facts["identity"]
    given = {
        name: facts["hyperparameters"].get(name, getattr(ProcgenHyperparameters, name))
        for name in ("algorithm", "custom_model")
    }
    config = configure(
        given["algorithm"],
        env=identity["env"],
        env_config=identity["env_config"],
        custom_model=given["custom_model"],
        custom_options=identity["network settings"],
    )
    games = VectorProcgen(1, identity["env_config"])
    spaces = (games.single_observation_space, games.single_action_space)
    games.close()
    return config.get_rl_module_spec(spaces={DEFAULT_MODULE_ID: spaces}).build()


def save_rollouts(path: Path, episodes: Sequence[Episode]) -> None:
    """Write episodes as compressed numpy arrays (.npz), one after the other.

    ``observations`` uint8 (frames, 64, 64, 3), ``actions`` int64 and ``rewards`` float32 (turns);
    of each episode ``lengths`` in turns (it has one frame more), ``level_seeds``, ``terminated``.
    """
    arrays = {
        "observations": np.array(
            [frame for one in episodes for frame in one.observations], dtype=np.uint8
        ),
        "actions": np.array([action for one in episodes for action in one.actions], np.int64),
        "rewards": np.array([reward for one in episodes for reward in one.rewards], np.float32),
        "lengths": np.array([len(one.actions) for one in episodes], dtype=np.int64),
        "level_seeds": np.array([one.level_seed for one in episodes], dtype=np.int64),
        "terminated": np.array([one.terminated for one in episodes], dtype=np.bool_),
    }

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)


def score(episodes: Sequence[Episode], env_config: Mapping[str, Any]) -> dict[str, float]:
    """Number of episodes, mean reward with its standard error, length and normalized score."""
    totals = [one.total for one in episodes]
    result = {
        "episodes": float(len(episodes)),
        "reward": float(np.mean(totals)),
        "standard_error": float(np.std(totals) / np.sqrt(len(totals))),
        "length": float(np.mean([len(one.actions) for one in episodes])),
    }
    if env_config["distribution_mode"] in ("easy", "hard"):
        result["normalized_score"] = normalized_score(
            result["reward"], env_config["env_name"], env_config["distribution_mode"]
        )
    return result


LEVELS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "training": complete,
    "held-out": held_out,
    "all": lambda env_config: complete(env_config) | {"num_levels": 0},
}
"""On which levels to play, and how that changes the ``env_config`` of the training."""


def main(argv: list[str] | None = None) -> int:
    """``rollout.py``; the exit status is 2 where something is refused."""
    arguments = parser().parse_args(argv)
    try:
        return _run(arguments)
    except ValueError as error:
        return refuse("battlesnake-gym rollout", error)


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym rollout",
        description="Let a trained agent play: scores, rollouts, videos, and how well it does on "
        "levels that it was not trained on.",
        epilog="example: rollout runs/impala-baseline-bigfish --episodes 100 --levels training "
        "held-out",
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint, or a run: its newest one")
    parser.add_argument("--run", help="the algorithm; refused unless it is the checkpoint's")
    parser.add_argument("--env", help="the environment; refused unless it is the checkpoint's")
    parser.add_argument(
        "--episodes", type=int, default=0, help="complete episodes to play (instead of --steps)"
    )
    parser.add_argument("--steps", type=int, default=10_000, help="turns")
    parser.add_argument(
        "--config",
        type=json.loads,
        default={},
        metavar="JSON",
        help='changes of the env_config, such as {"distribution_mode": "hard"}',
    )
    parser.add_argument(
        "--levels",
        nargs="+",
        choices=list(LEVELS),
        default=["training"],
        help="play on these levels, each in turn; of two or more the differences to the first are "
        "told: the generalization gap",
    )
    parser.add_argument("--greedy", action="store_true", help="always the likeliest action")
    parser.add_argument("--num-envs", type=int, default=16, help="games at once")
    parser.add_argument("--seed", type=int, default=0, help="of levels and actions")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="save the rollouts")
    parser.add_argument("--video-dir", type=Path, metavar="DIR", help="save a video an episode")
    parser.add_argument("--video-format", choices=FORMATS, default="mp4")
    add_json(parser)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.episodes < 0 or arguments.steps < 1 or arguments.num_envs < 1:
        raise ValueError("--episodes, --steps and --num-envs must be positive numbers")
    if arguments.out is not None and arguments.out.suffix != ".npz":
        raise ValueError(f"--out must end in .npz, got {arguments.out}")
    if (arguments.out or arguments.video_dir) and len(arguments.levels) > 1:
        raise ValueError("rollouts and videos are of one kind of --levels at a time")
    checkpoint = checkpoints.find(arguments.checkpoint)
    identity = checkpoints.read_facts(checkpoint)["identity"]
    for flag, key in (("run", "algorithm"), ("env", "env")):
        if getattr(arguments, flag) not in (None, identity[key]):
            raise ValueError(
                f"--{flag} is {getattr(arguments, flag)} but {checkpoint} is of {identity[key]}"
            )
    trained_on = complete(identity["env_config"] | arguments.config)
    played_on = {levels: LEVELS[levels](trained_on) for levels in arguments.levels}
    act = load_policy(checkpoint, greedy=arguments.greedy, seed=arguments.seed)
    results: dict[str, dict[str, float]] = {}
    for levels, env_config in played_on.items():
        episodes = _play(arguments, env_config, act)
        if not episodes:
            raise ValueError(f"no episode ended within {arguments.steps} steps; give more --steps")
        results[levels] = score(episodes, env_config)
        if not arguments.json:
            sys.stdout.write(_line(levels, env_config, results[levels]))
            sys.stdout.write(_gap(results))
    if arguments.json:
        write_json({"game": identity["env_config"]["env_name"], "levels": results})
    return 0


def _gap(results: Mapping[str, Mapping[str, float]]) -> str:
    """What the levels of the last result are harder than those of the first."""
    (first, result), levels = (list(results.values())[i] for i in (0, -1)), list(results)
    if len(levels) < 2:
        return ""
    gap = first["reward"] - result["reward"]
    return f"gap from {levels[0]} to {levels[-1]} levels: {gap:.2f}\n"


def _play(arguments: argparse.Namespace, env_config: Mapping[str, Any], act: Act) -> list[Episode]:
    num_envs = min(arguments.num_envs, arguments.episodes or arguments.num_envs)
    games = VectorProcgen(num_envs, env_config)
    episodes = play(
        games,
        act,
        episodes=arguments.episodes,
        steps=arguments.steps,
        seed=arguments.seed,
        keep_frames=bool(arguments.out or arguments.video_dir),
    )
    games.close()
    if arguments.out is not None:
        save_rollouts(arguments.out, episodes)
    if arguments.video_dir is not None:
        arguments.video_dir.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(tqdm(episodes, unit="videos", disable=None)):
            name = f"{env_config['env_name']}-{number:03d}.{arguments.video_format}"
            write_video(arguments.video_dir / name, one.observations)
    return episodes


def _line(levels: str, env_config: Mapping[str, Any], result: Mapping[str, float]) -> str:
    normalized = result.get("normalized_score")
    return (
        f"{env_config['env_name']} on {levels} levels: reward {result['reward']:.2f} "
        f"± {result['standard_error']:.2f} over {result['episodes']:.0f} episodes, "
        f"length {result['length']:.1f}"
        + ("" if normalized is None else f", normalized score {normalized:.3f}")
        + "\n"
    )
