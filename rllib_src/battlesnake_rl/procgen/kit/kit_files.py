"""Python files of the competition's starter kit, as they are: models, preprocessors, callbacks.

They are of RLlib's interfaces of 2020: what was written for these is put into a class of today's,
and what cannot be run is answered with the line to change.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import ray.rllib.evaluation
import ray.rllib.policy
import torch
from gymnasium.spaces import Box
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.models.catalog import MODEL_DEFAULTS
from torch import Tensor

PICTURES_AT_ONCE = 1024
"""Where no gradients are needed, models get batches of at most this many."""

_SUBCLASS = (
    "subclass ray.rllib.algorithms.algorithm.Algorithm, as algorithms/random_agent.py does; for "
    "the kit's random agents write run: random_agent"
)
REMEDIES = {
    "ray.rllib.models.tf": "it is of TensorFlow, for which RLlib has no networks any more: {model}",
    "tensorflow": "it is of TensorFlow, which is not here: {model}",
    "ray.rllib.agents.trainer": f"RLlib has no Trainer any more: {_SUBCLASS}",
    "ray.rllib.agents.trainer_template": f"RLlib has no build_trainer any more: {_SUBCLASS}",
}
"""Modules that are gone, and the line to change."""

HERE = {
    "impala_cnn_tf": "write custom_model: impala_cnn, the same network in PyTorch",
    "my_vision_network": "take the file out of models/, and custom_model: my_vision_network is a "
    "small network of PyTorch's",
}
ELSEWHERE = (
    "write the network as a TorchModelV2, or as an RLModule like models/my_vision_network.py"
)


def check(path: Path) -> None:
    """Refuse a file that imports what is gone.

    Raises:
        ValueError: naming the module and the line to change.
    """
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            for gone, remedy in REMEDIES.items():
                if name == gone or name.startswith(gone + "."):
                    remedy = remedy.format(model=HERE.get(path.stem, ELSEWHERE))
                    raise ValueError(f"{path} imports {name}: {remedy}")


def preprocessor_file(name: str, folder: Path) -> str:
    """The file that ``CUSTOM_PREPROCESSORS`` in ``folder/preprocessors`` means by ``name``.

    Other names are of files, and as they are.
    """
    register = folder / "preprocessors" / "__init__.py"
    if not register.is_file():
        return name
    tree = ast.parse(register.read_text(), str(register))
    files = {
        imported.asname or imported.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for imported in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                named = isinstance(key, ast.Constant) and key.value == name
                if named and isinstance(value, ast.Name) and value.id in files:
                    return files[value.id]
    return name


class DefaultCallbacks:
    """Replaces the class of that name that callbacks were made of."""


@contextmanager
def old_names() -> Iterator[None]:
    """Within, callbacks of the old RLlib can be imported: their bases, and names they mention."""
    agents = ModuleType("ray.rllib.agents")
    callbacks = ModuleType("ray.rllib.agents.callbacks")
    callbacks.DefaultCallbacks = DefaultCallbacks  # type: ignore[attr-defined]
    agents.callbacks = callbacks  # type: ignore[attr-defined]
    modules = {one.__name__: one for one in (agents, callbacks)}
    mentioned = [(ray.rllib.policy, "PolicyID"), (ray.rllib.policy, "AgentID")]
    mentioned.append((ray.rllib.evaluation, "MultiAgentEpisode"))
    missing = [(module, name) for module, name in mentioned if not hasattr(module, name)]
    modules = {name: one for name, one in modules.items() if name not in sys.modules}
    sys.modules.update(modules)
    for module, name in missing:
        setattr(module, name, Any)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
        for module, name in missing:
            delattr(module, name)


class KitModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """A `TorchModelV2` as RLlib's algorithms of today want their networks; `module_of` makes them.

    The model gets the batch as ``input_dict["obs"]``, no state, and as ``model_config`` RLlib's old
    defaults with ``custom_options`` over them and as ``custom_options``.
    """

    model_class: ClassVar[type[Any]]

    def setup(self) -> None:
        """Build the model."""
        options = dict(self.model_config)
        config = MODEL_DEFAULTS | options | {"custom_options": options}
        count = int(self.action_space.n)
        self.model = self.model_class(
            self.observation_space, self.action_space, count, config, type(self).__name__
        )

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        observations = batch[Columns.OBS]
        given = {"obs": observations, "obs_flat": observations.flatten(1), "is_training": True}
        logits, _ = self.model.forward(given, [], None)
        # Only now does the model know the values; they travel in the place of features.
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: self.model.value_function()}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Values (B,); without those of a forward pass, without gradients."""
        if embeddings is not None:
            return embeddings
        with torch.no_grad():
            pieces = torch.split(batch[Columns.OBS], PICTURES_AT_ONCE)
            parts = [self._forward({Columns.OBS: piece})[Columns.EMBEDDINGS] for piece in pieces]
        return torch.cat(parts)


def module_of(model: type[Any]) -> type[RLModule]:
    """A network of today's RLlib made of a `TorchModelV2`."""
    made: type[RLModule] = type(model.__name__, (KitModule,), {"model_class": model})
    return made


class PreprocessedModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """A network behind a `Preprocessor` of RLlib's; `preprocessed` makes them.

    Tests and rollouts have both; observations are kept as the games show them.
    """

    network_class: ClassVar[type[Any]]
    preprocessor_class: ClassVar[type[Any]]

    def setup(self) -> None:
        """Build both; what the network sees is of the kind that the preprocessor gives."""
        self._transform = self.preprocessor_class(self.observation_space).transform
        example = np.asarray(self._transform(self.observation_space.sample()))
        low, high = (0, 255) if example.dtype == np.uint8 else (-np.inf, np.inf)
        self.network = self.network_class(
            observation_space=Box(low, high, example.shape, example.dtype.type),
            action_space=self.action_space,
            model_config=self.model_config,
        )

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        out: dict[str, Tensor] = self.network.forward_train(self._seen(batch))
        return out

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """As those of the network."""
        given = batch if embeddings is not None else self._seen(batch)
        values: Tensor = self.network.compute_values(given, embeddings)
        return values

    def _seen(self, batch: dict[str, Any]) -> dict[str, Any]:
        observations = batch[Columns.OBS]
        made = np.stack([self._transform(one) for one in observations.cpu().numpy()])
        return {**batch, Columns.OBS: torch.from_numpy(made).to(observations.device)}


def preprocessed(network: type[RLModule], preprocessor: type[Any]) -> type[RLModule]:
    """A network of what ``preprocessor`` makes of each observation."""
    classes = {"network_class": network, "preprocessor_class": preprocessor}
    name = f"{preprocessor.__name__}{network.__name__}"
    made: type[RLModule] = type(name, (PreprocessedModule,), classes)
    return made


class OldEpisode:
    """What callbacks of the old RLlib find in an episode, from its beginning to its end.

    RLlib of today has an object for each part of an episode that is sampled at once.
    """

    def __init__(self) -> None:
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, float] = {}
        self.hist_data: dict[str, Any] = {}
        self.episode_id = ""
        self.length = 0
        self.total_reward = 0.0
        self._began = time.perf_counter()
        self._part: Any = None

    def show(self, part: Any) -> None:
        """Go on to the newest turn of ``part``."""
        if part.t > self.length:
            self.total_reward += float(part.get_rewards(-1))
        self.episode_id, self.length, self._part = part.id_, part.t, part

    def last_observation_for(self, agent_id: Any = None) -> Any:
        """The newest frame."""
        return self._part.get_observations(-1)

    def last_action_for(self, agent_id: Any = None) -> Any:
        """The newest action."""
        return self._part.get_actions(-1)

    def last_info_for(self, agent_id: Any = None) -> dict[str, Any]:
        """The newest info, with the turns a second of this episode, which the competition added."""
        seconds = max(time.perf_counter() - self._began, 1e-9)
        return {"timestep_throughput": self.length / seconds} | dict(self._part.get_infos(-1))


class KitCallbacks(RLlibCallback):  # type: ignore[misc]
    """Calls callbacks of the old RLlib; `callbacks_of` makes them.

    Of an episode's ``custom_metrics`` the mean is logged. There are no policies to hand over.
    """

    callbacks_class: ClassVar[type[Any]]

    def __init__(self) -> None:
        super().__init__()
        self._callbacks = self.callbacks_class()
        self._episodes: dict[str, OldEpisode] = {}

    def on_episode_start(self, *, episode: Any, **kwargs: Any) -> None:
        """The same of the old RLlib."""
        self._call("on_episode_start", episode, **kwargs)

    def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
        """The same of the old RLlib."""
        self._call("on_episode_step", episode, **kwargs)

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """The same of the old RLlib; afterwards the metrics are logged."""
        old = self._call("on_episode_end", episode, **kwargs)
        del self._episodes[episode.id_]
        for name, value in old.custom_metrics.items():
            metrics_logger.log_value(name, float(value), reduce="mean")

    def on_sample_end(self, *, env_runner: Any, samples: Any, **kwargs: Any) -> None:
        """The same of the old RLlib, with today's episodes for samples."""
        if hasattr(self._callbacks, "on_sample_end"):
            self._callbacks.on_sample_end(worker=env_runner, samples=samples)

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """The same of the old RLlib."""
        if hasattr(self._callbacks, "on_train_result"):
            self._callbacks.on_train_result(trainer=algorithm, result=result)

    def _call(
        self, name: str, episode: Any, *, env_runner: Any = None, env: Any = None, **kwargs: Any
    ) -> OldEpisode:
        old = self._episodes.setdefault(episode.id_, OldEpisode())
        old.show(episode)
        if hasattr(self._callbacks, name):
            call = getattr(self._callbacks, name)
            call(worker=env_runner, base_env=env, policies={}, episode=old)
        return old


def callbacks_of(callbacks: type[Any]) -> type[RLlibCallback]:
    """Callbacks of today's RLlib made of those of the old one."""
    made: type[RLlibCallback] = type(
        callbacks.__name__, (KitCallbacks,), {"callbacks_class": callbacks}
    )
    return made
