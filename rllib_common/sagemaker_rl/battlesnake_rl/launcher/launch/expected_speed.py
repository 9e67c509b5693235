"""How fast a job will play and learn, as far as that was measured: `preflight.check` prints it."""

from __future__ import annotations

import math
from dataclasses import dataclass

SAMPLED_PER_CPU_SECOND = {"DQN": 83_499, "APEX": 59_843}
"""Agent-steps that one CPU plays in a second, as measured (docs/training.md)."""

TRAINED_PER_CPU_SECOND = 2.0 / (1 / 9_550 - 1 / SAMPLED_PER_CPU_SECOND["DQN"])
"""Transitions that one CPU learns from in a second: DQN took 1 / 9,550 s for an agent-step, playing
it and training on two, less what playing alone took."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a job plays and learns."""

    algorithm: str = "APEX"
    replay_ratio: float = 2.0
    """Transitions trained on for each agent-step played (``training_intensity``)."""
    trained_per_second: float = TRAINED_PER_CPU_SECOND
    """Transitions that the learner trains on in a second."""
    thought_per_step: float = 0.0
    """CPU seconds that opponents think for an agent-step, besides what was measured."""

    @property
    def sampled_per_second(self) -> float:
        """Agent-steps that one CPU plays in a second."""
        return 1 / (1 / SAMPLED_PER_CPU_SECOND[self.algorithm] + self.thought_per_step)

    def forecast(self, cpus: int) -> Forecast:
        """What this number of CPUs does.

        DQN plays and learns by turns on one CPU; APEX learns on one and plays on the others.
        """
        sampled = self.sampled_per_second
        learned = self.trained_per_second / self.replay_ratio
        if self.algorithm == "DQN" or cpus == 1:
            steps = 1 / (1 / sampled + 1 / learned)
            idle = cpus - 1
            return Forecast(
                steps,
                "one CPU plays and learns by turns",
                learner=steps / learned,
                runners=steps / sampled,
                instead=f"the other {idle} CPUs do nothing: rent one of 1 or 2, or take APEX"
                if idle > 1
                else "",
            )
        played = (cpus - 1) * sampled
        enough = math.ceil(learned / sampled)
        balanced = self.trained_per_second / played
        steps = min(played, learned)
        if played < learned:
            bound = f"bound by playing, on {cpus - 1} of {cpus} CPUs"
            instead = (
                f"more CPUs that play, up to {enough}, or more learning for nothing, "
                f"training_intensity {balanced:.2g}"
            )
        else:
            bound = f"bound by learning; {enough} of the {cpus - 1} CPUs that play would do"
            instead = (
                f"{enough + 1} CPUs in all, or a learner {played / learned:.2g} times as fast, or "
                f"training_intensity {balanced:.2g}"
            )
        few = enough >= cpus - 1 and played >= learned
        return Forecast(steps, bound, steps / learned, steps / played, "" if few else instead)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a job will do; ``learner`` and ``runners`` are how busy they are, 0 to 1."""

    agent_steps: float
    """Played in a second."""
    bound: str
    """What bounds them, in words."""
    learner: float
    runners: float
    instead: str
    """What else to rent or to set, or ""."""

    def __str__(self) -> str:
        text = (
            f"{self.agent_steps:,.0f} agent-steps a second, {self.bound}: learner "
            f"{self.learner:.0%} busy, playing {self.runners:.0%}"
        )
        return f"{text}. Instead: {self.instead}" if self.instead else text
