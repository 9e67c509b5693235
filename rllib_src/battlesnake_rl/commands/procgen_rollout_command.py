"""``battlesnake-gym procgen rollout``: play episodes with a trained Procgen agent."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModule
from tqdm import tqdm

from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    natural,
    output_dir,
    output_file,
    plural,
    positive,
    print_json,
    reports_errors,
    seed,
)
from battlesnake_gym.common.files import write_atomically
from battlesnake_rl.procgen.kit.plugins import PREPROCESSOR_ERROR
from battlesnake_rl.procgen.procgen_env_config import held_out_config, with_defaults
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_episodes import (
    Episode,
    PolicyFn,
    compute_statistics,
    make_policy,
    play_episodes,
)
from battlesnake_rl.procgen.procgen_launcher import (
    DEFAULT_FRAME_STACKS,
    ProcgenHyperparameters,
)
from sagemaker_rl.job.process_environment import limit_torch_threads
from sagemaker_rl.runs import checkpoints

_DEFAULT_NUM_ENVS = 16
"""Default number of parallel games."""

_VIDEO_SIZE_PX, _FRAMES_PER_SECOND = 512, 15
"""Width and height of a video, and its frame rate."""

_VIDEO_WRITER_OPTIONS: dict[str, dict[str, Any]] = {
    # The name of a temporary file does not end in .mp4. ffmpeg therefore needs an explicit format.
    "mp4": {"fps": _FRAMES_PER_SECOND, "output_params": ["-f", "mp4"]},
    # ``duration`` is in milliseconds per frame. ``loop`` 0 repeats the animation forever.
    "gif": {"duration": 1000 / _FRAMES_PER_SECOND, "loop": 0},
}
"""Options of imageio's writer, by video format."""

MODULE_PATH = Path("learner_group", "learner", "rl_module", DEFAULT_MODULE_ID)
"""Path of the network in a checkpoint, relative to the checkpoint."""


def _load_policy(checkpoint: Path, *, greedy: bool = False, seed: int | None = None) -> PolicyFn:
    """Load the policy of a checkpoint.

    The policy samples its actions unless ``greedy`` is True. The checkpoint's metadata determines
    the network. A user-defined network also needs its file in ``models/``. The function unpickles
    only the weights of the checkpoint.

    Raises:
        CheckpointError: If there is no checkpoint, or if the weights contain objects other than
            numbers.
        ValueError: If the algorithm or the network of the checkpoint does not exist.
    """
    limit_torch_threads()
    module = _build_network(checkpoints.read_metadata(checkpoint))
    module.set_state(checkpoints.load_numeric_pickle(checkpoint / MODULE_PATH / "module_state.pkl"))
    torch.manual_seed(np.random.SeedSequence(seed).generate_state(1)[0])
    return make_policy(module, greedy=greedy)


def _build_network(metadata: Mapping[str, Any]) -> RLModule:
    """Build the network of a checkpoint from its metadata, with random weights."""
    identity = metadata["identity"]
    hyperparameters = metadata["hyperparameters"]
    if hyperparameters.get("custom_preprocessor") is not None:
        raise ValueError(PREPROCESSOR_ERROR)
    given = {
        name: hyperparameters[name]
        for name in ("algorithm", "custom_model")
        if name in hyperparameters
    }
    config = ProcgenHyperparameters(
        **given,
        env=identity["env"],
        env_config=identity["env_config"],
        custom_options=identity["network settings"],
    ).build_config()
    games = VectorProcgen(1, identity["env_config"])
    spaces = (games.single_observation_space, games.single_action_space)
    games.close()
    return config.get_rl_module_spec(spaces={DEFAULT_MODULE_ID: spaces}).build()


def _save_rollouts(path: Path, episodes: Sequence[Episode]) -> None:
    """Write episodes as concatenated, compressed numpy arrays (.npz).

    The arrays with one entry per env step are ``actions``, int64 (T,), and ``rewards``, float32
    (T,). The array with one entry per frame is ``observations``, uint8 (F, 64, 64, 3). Each episode
    has one frame more than env steps. The arrays with one entry per episode are ``lengths``, int64
    (E,), in env steps, ``level_seeds``, int64 (E,), and ``terminated``, bool (E,).
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
        """Write the arrays to a temporary file."""
        with draft.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)


def _write_video(path: Path, frames: Iterable[NDArray[np.uint8]]) -> None:
    """Write a video of 512x512 pixels with 15 frames per second.

    Args:
        path: Output file; the suffix sets the format.
        frames: RGB frames, uint8 (64, 64, 3).
    """
    kind = path.suffix.removeprefix(".")

    def write(draft: Path) -> None:
        """Write the frames to a temporary file."""
        writer: Any = imageio.get_writer(draft, format=kind, **_VIDEO_WRITER_OPTIONS[kind])
        with writer:
            for frame in frames:
                factor = _VIDEO_SIZE_PX // len(frame)
                writer.append_data(frame.repeat(factor, axis=0).repeat(factor, axis=1))

    write_atomically(path, write)


_LEVEL_CONVERTERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "training": with_defaults,
    "held-out": held_out_config,
    "all": lambda env_config: with_defaults(env_config) | {"num_levels": 0},
}
"""Function that converts the training ``env_config``, by value of ``--levels``."""


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Run ``battlesnake-gym procgen rollout`` and return the exit status.

    The exit status is 2 if an argument is invalid.
    """
    command = parser()
    arguments = command.parse_args(argv)
    if arguments.episodes:
        command.reject_given(arguments, ["steps"], "with --episodes")
        if arguments.num_envs and arguments.num_envs > arguments.episodes:
            raise ValueError(
                f"--num-envs {arguments.num_envs} is more than --episodes "
                f"{arguments.episodes}; give at most {arguments.episodes}"
            )
    if arguments.video_dir is None:
        command.reject_given(arguments, ["video_format"], "without --video-dir")
    if not isinstance(arguments.config, dict):
        raise ValueError(f"--config must be a JSON object, got {arguments.config!r}")
    if "frame_stack" in arguments.config:
        raise ValueError("--config cannot change frame_stack, which the network needs; omit it")
    if chosen := arguments.config.keys() & {"num_levels", "start_level"}:
        command.reject_given(arguments, ["levels"], f"with {min(chosen)} in --config")
        arguments.levels = ["configured"]
    return _run_rollout(arguments)


def parser() -> Parser:
    """Return the parser for ``battlesnake-gym procgen rollout``."""
    parser = Parser(
        prog="battlesnake-gym procgen rollout",
        description="Run a trained Procgen agent and print its scores. The command can also save "
        "episodes and videos, and measure the generalization to levels outside the training.",
        epilog="Example: procgen rollout runs/impala-baseline-bigfish --episodes 100 --levels "
        "training held-out",
    )
    add = parser.add_argument
    add("checkpoint", type=Path, help="checkpoint, or run directory (its latest checkpoint)")
    add("--levels", nargs="+", choices=list(_LEVEL_CONVERTERS), default=["training"],
        help="levels to play, in this order; with two or more, also print the generalization gap "
        "to the first")  # fmt: skip
    add("--episodes", type=natural, default=0,
        help="number of complete episodes to play, instead of --steps")  # fmt: skip
    add("--steps", type=positive, default=10_000, help="number of env steps to play; only "
        "episodes that end in these steps count, which favors short episodes")  # fmt: skip
    add("--config", type=json.loads, default={}, metavar="JSON",
        help='changes to the env_config, such as {"distribution_mode": "hard"}')  # fmt: skip
    add("--greedy", action="store_true", help="choose the most probable action instead of sampling")
    add("--num-envs", type=positive, help="number of parallel games (default: "
        f"{_DEFAULT_NUM_ENVS}, at most --episodes)")  # fmt: skip
    add("--seed", type=seed, default=0, help="random seed for levels and actions")
    add("-o", "--output", type=output_file, metavar="FILE.npz",
        help="save the episodes to FILE.npz")  # fmt: skip
    add("--video-dir", type=output_dir, metavar="DIR", help="save a video of each episode in DIR")
    add("--video-format", choices=list(_VIDEO_WRITER_OPTIONS), default="mp4",
        help="format of the videos")  # fmt: skip
    add("--run", help="expected algorithm of the checkpoint")
    add("--env", choices=list(DEFAULT_FRAME_STACKS), help="expected environment of the checkpoint")
    add_json_option(parser)
    return parser


def _run_rollout(arguments: argparse.Namespace) -> int:
    """Play the episodes that the command line requests and print the results.

    Raises:
        ValueError: If an argument is invalid, or if no episode ended.
    """
    if arguments.output is not None and arguments.output.suffix != ".npz":
        raise ValueError(f"--output must end in .npz, got {arguments.output}")
    if (arguments.output or arguments.video_dir) and len(arguments.levels) > 1:
        raise ValueError(
            "--output and --video-dir need one value of --levels, got "
            f"{len(arguments.levels)}; run the command once per value"
        )
    checkpoint = checkpoints.find_checkpoint(arguments.checkpoint)
    identity = checkpoints.read_metadata(checkpoint)["identity"]
    if "env" not in identity:
        raise ValueError(f"{checkpoint} has no Procgen agent; `battlesnake-gym evaluate` plays it")
    for flag, key in (("run", "algorithm"), ("env", "env")):
        if getattr(arguments, flag) not in (None, identity[key]):
            raise ValueError(
                f"--{flag} is {getattr(arguments, flag)} but {checkpoint} has {identity[key]}"
            )
    played = with_defaults(identity["env_config"] | arguments.config)
    env_configs = {one: _LEVEL_CONVERTERS.get(one, dict)(played) for one in arguments.levels}
    # RLlib warns that its own networks use a deprecated configuration.
    logging.getLogger("ray._common.deprecation").setLevel(logging.ERROR)
    act = _load_policy(checkpoint, greedy=arguments.greedy, seed=arguments.seed)
    results: dict[str, dict[str, float]] = {}
    for levels, env_config in env_configs.items():
        episodes = _play_and_save(arguments, env_config, act)
        if not episodes:
            raise ValueError(
                f"no episode ended within {arguments.steps} env steps; increase --steps"
            )
        results[levels] = compute_statistics(episodes, env_config)
        if not arguments.json:
            ended = "" if arguments.episodes else " that ended in time"
            sys.stdout.write(_format_result(levels, env_config, results[levels], ended))
            first = next(iter(results))
            if first != levels:
                gap = results[first]["reward"] - results[levels]["reward"]
                sys.stdout.write(f"gap from {first} to {levels} levels: {gap:.2f}\n")
    if arguments.json:
        print_json({"game": played["env_name"], "levels": results})
    return 0


def _play_and_save(
    arguments: argparse.Namespace, env_config: Mapping[str, Any], act: PolicyFn
) -> list[Episode]:
    """Play episodes and write them to the files that the command line requests."""
    num_envs = arguments.num_envs or min(_DEFAULT_NUM_ENVS, arguments.episodes or _DEFAULT_NUM_ENVS)
    games = VectorProcgen(num_envs, env_config)
    episodes = play_episodes(
        games,
        act,
        num_episodes=arguments.episodes,
        num_env_steps=arguments.steps,
        seed=arguments.seed,
        keep_frames=bool(arguments.output or arguments.video_dir),
    )
    games.close()
    if arguments.output is not None:
        _save_rollouts(arguments.output, episodes)
    if arguments.video_dir is not None:
        arguments.video_dir.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(tqdm(episodes, unit="videos", disable=None)):
            name = f"{env_config['env_name']}-{number:03d}.{arguments.video_format}"
            _write_video(arguments.video_dir / name, one.observations)
    return episodes


def _format_result(
    levels: str, env_config: Mapping[str, Any], result: Mapping[str, float], ended: str
) -> str:
    """Return one line of text with the statistics of episodes; ``ended`` describes them."""
    normalized, error = result.get("normalized_score"), result.get("standard_error")
    return (
        f"{env_config['env_name']} on {levels} levels: reward {result['reward']:.2f} "
        + ("" if error is None else f"± {error:.2f} ")
        + f"over {plural(round(result['episodes']), 'episode')}{ended}"
        + f", length {result['length']:.1f}"
        + ("" if normalized is None else f", normalized score {normalized:.3f}")
        + "\n"
    )
