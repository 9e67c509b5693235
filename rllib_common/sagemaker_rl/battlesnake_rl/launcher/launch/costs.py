"""``battlesnake-gym cost``: what instances cost by the hour, and a million agent-steps on them.

Prices are the user's; speeds are those of ``docs/training.md``, or the user's own.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from battlesnake_gym.common.command_line import Parser, add_json, refuse, write_json
from battlesnake_rl.launcher.launch.job import say

SAMPLED_PER_CPU_SECOND = {"DQN": 83_499, "APEX": 59_843}
"""Agent-steps that one CPU plays in a second, as measured (docs/training.md)."""

TRAINED_PER_CPU_SECOND = 2.0 / (1 / 9_550 - 1 / SAMPLED_PER_CPU_SECOND["DQN"])
"""Transitions that one CPU learns from in a second: DQN took 1 / 9,550 s for an agent-step, playing
it and training on two, less what playing alone took."""


class CostError(ValueError):
    """A field of the calculation cannot be; the message names it, its value and the remedy."""


@dataclass(frozen=True, slots=True)
class Group:
    """Equal instances, as one job rents them."""

    instances: int
    cpus: int
    """CPUs of one instance."""
    price_per_hour: float
    """List price of one instance."""
    spot_share: float = 0.0
    """Part of its hours that run on spot, 0 to 1."""
    spot_saving: float = 0.0
    """Part of the list price that spot saves, 0 to 1."""

    def __post_init__(self) -> None:
        _check_whole("instances", self.instances, "an instance at least is needed")
        _check_whole("cpus", self.cpus, "give the vCPUs of the instance type")
        if not (math.isfinite(self.price_per_hour) and self.price_per_hour >= 0):
            raise CostError(
                f"price_per_hour must be a number from 0 on, got {self.price_per_hour}; "
                "take it from the price list of your region"
            )
        for name, value in (("spot_share", self.spot_share), ("spot_saving", self.spot_saving)):
            if not 0 <= value <= 1:
                raise CostError(f"{name} must be between 0 and 1, got {value}; write 70 % as 0.7")

    @property
    def cost_per_hour(self) -> float:
        """Price of an hour of all instances, in the currency of the list price."""
        return self.instances * self.price_per_hour * (1 - self.spot_share * self.spot_saving)


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

    def __post_init__(self) -> None:
        if self.algorithm not in SAMPLED_PER_CPU_SECOND:
            raise CostError(
                f"algorithm must be one of {', '.join(SAMPLED_PER_CPU_SECOND)}, got "
                f"{self.algorithm!r}; others were not measured, so give agent_steps_per_second"
            )
        _check_positive("replay_ratio", self.replay_ratio, "the job's training_intensity")
        _check_positive("trained_per_second", self.trained_per_second, "what your learner does")

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


def price_per_million(groups: Sequence[Group], agent_steps_per_second: float) -> float:
    """Price of a million agent-steps, in the currency of the list prices."""
    _check_positive(
        "agent_steps_per_second", agent_steps_per_second, "what your job's progress.csv shows"
    )
    hourly = sum(group.cost_per_hour for group in groups)
    return hourly / (3600 * agent_steps_per_second) * 1e6


def _check_whole(name: str, value: int, remedy: str) -> None:
    if value < 1:
        raise CostError(f"{name} must be a whole number from 1 on, got {value}; {remedy}")


def _check_positive(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise CostError(f"{name} must be a number above 0, got {value}; give {remedy}")


def cost_of(
    groups: Sequence[Group], speed: float, forecast: Forecast | None, hours: float
) -> dict[str, Any]:
    """What the job costs, as ``--json`` prints it; speeds are agent-steps a second.

    Without a ``forecast`` the speed is the user's.
    """
    _check_positive("hours", hours, "how long the job runs")
    hourly = sum(group.cost_per_hour for group in groups)
    return {
        "per_hour": hourly,
        "agent_steps_per_second": speed,
        "bound": forecast.bound if forecast else "yours",
        "learner_busy": forecast.learner if forecast else None,
        "runners_busy": forecast.runners if forecast else None,
        "instead": forecast.instead if forecast else "",
        "per_million_agent_steps": price_per_million(groups, speed),
        "hours": hours,
        "cost": hourly * hours,
        "million_agent_steps": speed * hours * 3600 / 1e6,
    }


def report(groups: Sequence[Group], costs: Mapping[str, Any]) -> str:
    """What the command prints of what `cost_of` returns."""
    lines = [
        (
            f"{group.instances} x {group.cpus} CPUs at {group.price_per_hour:g}{_spot(group)}",
            f"{group.cost_per_hour:.4g} an hour",
        )
        for group in groups
    ]
    lines += [
        ("together", f"{costs['per_hour']:.4g} an hour"),
        ("agent-steps", f"{costs['agent_steps_per_second']:,.0f} a second ({costs['bound']})"),
    ]
    if costs["learner_busy"] is not None:
        busy = f"learner {costs['learner_busy']:.0%}, playing {costs['runners_busy']:.0%}"
        lines.append(("busy", busy))
    if costs["instead"]:
        lines.append(("instead", costs["instead"]))
    lines += [
        ("a million agent-steps", f"{costs['per_million_agent_steps']:.3g}"),
        (
            f"{costs['hours']:g} h",
            f"{costs['cost']:.4g}, {costs['million_agent_steps']:,.0f} million",
        ),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def _spot(group: Group) -> str:
    if not group.spot_share:
        return ""
    return f", {group.spot_share:.0%} spot saving {group.spot_saving:.0%}"


def main(argv: list[str] | None = None) -> int:
    """Print the calculation; the exit status is 2 where a value is refused."""
    arguments = parser().parse_args(argv)
    try:
        groups = _groups(arguments)
        forecast = _forecast(arguments, groups)
        speed = forecast.agent_steps if forecast else arguments.agent_steps_per_second
        costs = cost_of(groups, speed, forecast, arguments.hours)
    except CostError as error:
        return refuse("battlesnake-gym cost", error)
    if arguments.json:
        write_json(costs)
    else:
        say(report(groups, costs))
    return 0


def _groups(arguments: argparse.Namespace) -> list[Group]:
    if (arguments.spot_share or arguments.secondary_spot_share) and not arguments.spot_saving:
        raise CostError("spot_saving is 0, so spot would save nothing; give --spot-saving too")
    first = Group(
        arguments.instances, arguments.cpus, arguments.price_per_hour, arguments.spot_share,
        arguments.spot_saving,
    )  # fmt: skip
    if not arguments.secondary_instances:
        return [first]
    if arguments.secondary_cpus is None or arguments.secondary_price_per_hour is None:
        raise CostError(
            f"secondary_instances is {arguments.secondary_instances}, but not what they are; "
            "give --secondary-cpus and --secondary-price-per-hour too"
        )
    second = Group(
        arguments.secondary_instances, arguments.secondary_cpus,
        arguments.secondary_price_per_hour, arguments.secondary_spot_share, arguments.spot_saving,
    )  # fmt: skip
    return [first, second]


def _forecast(arguments: argparse.Namespace, groups: Sequence[Group]) -> Forecast | None:
    if arguments.agent_steps_per_second is not None:
        return None
    speed = Speed(arguments.algorithm, arguments.replay_ratio, arguments.trained_per_second)
    return speed.forecast(sum(group.instances * group.cpus for group in groups))


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym cost",
        description="What training costs by the hour and by the million agent-steps, in the "
        "currency of the prices that you give.",
        epilog="Speeds are those measured for five snakes on 11x11 and the default network "
        "(docs/training.md), which move by a tenth; your own are better. "
        "Example: battlesnake-gym cost --price-per-hour 0.408 --cpus 8 --instances 3 "
        "--replay-ratio 0.25 --spot-share 1 --spot-saving 0.6",
    )
    add = parser.add_argument_group("instances").add_argument
    add("--price-per-hour", type=float, required=True, metavar="PRICE",
        help="list price of one instance")  # fmt: skip
    add("--cpus", type=int, required=True, metavar="N", help="its vCPUs")
    add("--instances", type=int, default=1, metavar="N", help="equal instances")
    add("--spot-share", type=float, default=0.0, metavar="PART",
        help="part of the hours on spot, 0 to 1")  # fmt: skip
    add("--spot-saving", type=float, default=0.0, metavar="PART",
        help="part of the price that spot saves, 0 to 1; SageMaker shows it for "
        "each job")  # fmt: skip
    add = parser.add_argument_group("a second job that plays for the first").add_argument
    add("--secondary-instances", type=int, default=0, metavar="N")
    add("--secondary-cpus", type=int, metavar="N")
    add("--secondary-price-per-hour", type=float, metavar="PRICE")
    add("--secondary-spot-share", type=float, default=0.0, metavar="PART")
    add = parser.add_argument_group("speed").add_argument
    add("--algorithm", default="APEX", help="APEX or DQN")
    add("--replay-ratio", type=float, default=2.0, metavar="RATIO", help="training_intensity")
    add("--trained-per-second", type=float, default=TRAINED_PER_CPU_SECOND, metavar="N",
        help="transitions that the learner trains on in a second (default: %(default).0f, on a "
        "CPU; a GPU's is yours to measure)")  # fmt: skip
    add("--agent-steps-per-second", type=float, metavar="N",
        help="of the whole job, from its progress.csv, instead of these")  # fmt: skip
    parser.add_argument("--hours", type=float, default=1.0, help="how long the job runs")
    add_json(parser)
    return parser
