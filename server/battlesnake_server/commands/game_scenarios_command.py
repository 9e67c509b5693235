"""``battlesnake-gym game scenarios``: which situations does a snake master?"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from battlesnake_gym.common.command_line import Parser, add_json, colorize, print_error, write_json
from battlesnake_gym.snakes import Decision, Factory, Reason
from battlesnake_heuristics.analysis.scenarios import (
    BUILTIN_SCENARIOS,
    Scenario,
    ScenarioError,
    ScenarioResult,
    load,
)
from battlesnake_heuristics.rule_based.pipeline import explain
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.players import check_responds, request_single_move
from battlesnake_server.strategy_loader import strategy_factory


def main(argv: list[str] | None = None) -> int:
    """Run scenarios and print a table; 0 where all pass, 1 where one fails, 2 for a wrong call."""
    options = parser().parse_args(argv)
    try:
        scenarios = [
            scenario for file in options.files or BUILTIN_SCENARIOS for scenario in load(file)
        ]
        ask = asker(options)
    except (ScenarioError, ValueError, OSError) as error:
        return print_error("battlesnake-gym game scenarios", error)
    outcomes = []
    for number, scenario in enumerate(scenarios):
        outcomes.append(ask(scenario, number))
        if not options.json:
            sys.stdout.write(report(outcomes[-1]))
    passed = sum(outcome.passed for outcome in outcomes)
    if options.json:
        write_json([to_json(outcome) for outcome in outcomes])
    else:
        sys.stdout.write(f"{passed} of {len(scenarios)} scenarios passed\n")
    return 0 if passed == len(scenarios) else 1


def to_json(outcome: ScenarioResult) -> dict[str, Any]:
    """One outcome, as ``--json`` prints it."""
    return {
        "name": outcome.scenario.name,
        "passed": outcome.passed,
        "move": outcome.decision.move,
        "allowed": list(outcome.scenario.allowed),
        "reasons": [asdict(reason) for reason in outcome.decision.reasons],
    }


def report(outcome: ScenarioResult) -> str:
    """One line for a scenario that passed; for one that failed also the board and the reasons."""
    scenario, decision = outcome.scenario, outcome.decision
    if outcome.passed:
        return f"{colorize('pass', 'green', sys.stdout)}  {scenario.name:<26} {decision.move}\n"
    wrong = f"{decision.move or 'no move'}, not {' or '.join(scenario.allowed)}"
    details = [
        f"{colorize('FAIL', 'red', sys.stdout)}  {scenario.name:<26} {wrong}",
        textwrap.indent(scenario.note, "      "),
        textwrap.indent(str(scenario.board), "      "),
        textwrap.indent(explain(decision), "      "),
    ]
    return "\n".join(line for line in details if line) + "\n"


def ask_strategy(scenario: Scenario, number: int, factory: Factory) -> ScenarioResult:
    """Ask a fresh strategy; a board that it refuses is the move ``""`` with its reason."""
    try:
        return scenario.ask(factory(number))
    except ValueError as error:
        return ScenarioResult(scenario, Decision("", (Reason("refused", note=str(error)),)))


def ask_url(scenario: Scenario, number: int, url: str, reach: AddressPolicy) -> ScenarioResult:
    """Ask a snake behind a URL, in a game of its own; no answer is the move ``""``."""
    body = scenario.board.to_api()
    body["game"] = {**body["game"], "id": f"scenario-{number}"}
    return ScenarioResult(scenario, asyncio.run(request_single_move(body, url, reach)))


def asker(options: argparse.Namespace) -> Callable[[Scenario, int], ScenarioResult]:
    """How to ask the snake that the options name: ``snake``, ``policy`` or ``url``."""
    if options.url:
        reach = address_policy.from_options(options).allowing_typed_address(options.url)
        asyncio.run(check_responds(options.url, reach, introduced=False))
        return functools.partial(ask_url, url=options.url, reach=reach)
    if options.policy:
        factory = strategy_factory(policy=options.policy)
    else:
        factory = strategy_factory(snake=options.snake)
    return functools.partial(ask_strategy, factory=factory)


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym game scenarios",
        description="Put a snake into given situations and see whether it makes a right move. "
        "Failures are shown with the board and what the rules said.",
        epilog="exit status: 0 where all pass, 1 where one fails, 2 for a wrong call",
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="scenarios, as text or JSON; without any, those that every careful snake should pass",
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--snake",
        default="cautious",
        metavar="NAME",
        help="a named snake; `battlesnake-gym snakes`",
    )
    who.add_argument("--policy", metavar="FILE", help="a policy.onnx with policy.json beside it")
    who.add_argument("--url", metavar="URL", help="a snake that answers over HTTP")
    address_policy.add_options(parser)
    add_json(parser)
    return parser
