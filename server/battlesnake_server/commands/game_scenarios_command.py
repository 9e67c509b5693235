"""``battlesnake-gym game scenarios``: test a snake on scenarios.

The good moves of each scenario are known.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    colorize,
    print_json,
    reports_errors,
)
from battlesnake_gym.common.exceptions import describe_exception
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_gym.snakes import Decision, Reason, StrategyFactory
from battlesnake_heuristics.analysis.scenarios import (
    BUILTIN_SCENARIOS,
    Scenario,
    ScenarioResult,
    load,
)
from battlesnake_heuristics.rule_based.pipeline import explain
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.players import check_responds, request_single_move
from battlesnake_server.strategy_loader import strategy_factory

SNAKE_HELP = "snake to test: a built-in name, a file, a policy or a URL"


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Run scenarios and print a table.

    Returns:
        Exit status 0 if all scenarios pass, 1 if a scenario fails, 2 for a usage error.
    """
    command = parser()
    options = command.parse_args(argv)
    address_policy.reject_unused_options(command, options, [options.snake])
    scenarios = [scenario for file in options.files or BUILTIN_SCENARIOS for scenario in load(file)]
    results = run_scenarios(
        options, scenarios, (lambda text: None) if options.json else sys.stdout.write
    )
    passed = sum(result.passed for result in results)
    if options.json:
        print_json([_to_dict(result) for result in results])
    else:
        sys.stdout.write(f"{passed} of {len(scenarios)} scenarios passed\n")
    return 0 if passed == len(scenarios) else 1


def _to_dict(result: ScenarioResult) -> dict[str, Any]:
    """Convert the result of a scenario to a dict of JSON values."""
    return {
        "name": result.scenario.name,
        "passed": result.passed,
        "move": result.decision.move,
        "allowed": list(result.scenario.allowed),
        "reasons": [asdict(reason) for reason in result.decision.reasons],
    }


def _format_result(result: ScenarioResult) -> str:
    """Format a result as one line; add the board and the reasons after a failure."""
    scenario, decision = result.scenario, result.decision
    if result.passed:
        return f"{colorize('pass', 'green', sys.stdout)}  {scenario.name:<26} {decision.move}\n"
    wrong = f"{decision.move or 'no move'}, not {' or '.join(scenario.allowed)}"
    details = [
        f"{colorize('FAIL', 'red', sys.stdout)}  {scenario.name:<26} {wrong}",
        textwrap.indent(scenario.note, "      "),
        textwrap.indent(str(scenario.board), "      "),
        textwrap.indent(explain(decision), "      "),
    ]
    return "\n".join(line for line in details if line) + "\n"


def _run_with_strategy(scenario: Scenario, number: int, factory: StrategyFactory) -> ScenarioResult:
    """Run a scenario with a new strategy.

    If the strategy raises an exception, the move is ``""``.
    """
    try:
        return scenario.run(factory(number))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A user's snake may raise any exception.
        reason = Reason("exception", note=describe_exception(error))
        return ScenarioResult(scenario, Decision("", (reason,)))


def _run_with_url(
    scenario: Scenario, number: int, url: str, addresses: AddressPolicy
) -> ScenarioResult:
    """Run a scenario with a snake behind a URL.

    If the snake does not respond, the move is ``""``.
    """
    body = scenario.board.to_limited_api()
    body["game"] = {**body["game"], "id": f"scenario-{number}"}
    return ScenarioResult(scenario, asyncio.run(request_single_move(body, url, addresses)))


def run_scenarios(
    options: argparse.Namespace, scenarios: Iterable[Scenario], show: Callable[[str], object]
) -> list[ScenarioResult]:
    """Run scenarios with the snake that the option ``snake`` selects.

    Args:
        options: Parsed options.
        scenarios: The scenarios.
        show: Called with the formatted result of each scenario.
    """
    run = _make_scenario_runner(options)
    results = []
    for number, scenario in enumerate(scenarios):
        results.append(run(scenario, number))
        show(_format_result(results[-1]))
    return results


def _make_scenario_runner(options: argparse.Namespace) -> Callable[[Scenario, int], ScenarioResult]:
    """Return a function that runs a scenario with the snake that ``snake`` selects."""
    if (spec := SnakeSpec.parse(options.snake)).is_remote:
        addresses = AddressPolicy.from_options(options).with_typed_address(spec.source)
        asyncio.run(check_responds(spec.source, addresses, json_required=False))
        return functools.partial(_run_with_url, url=spec.source, addresses=addresses)
    return functools.partial(_run_with_strategy, factory=strategy_factory(options.snake))


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym game scenarios",
        description="Test a snake on positions with known good moves. Failures are printed with "
        "the board and the rules that applied.",
        epilog="Exit status: 0 if all scenarios pass, 1 if a scenario fails, 2 for a usage error.",
    )
    add = parser.add_argument
    add("files", type=Path, nargs="*", metavar="FILE",
        help="scenario files, text or JSON (default: the built-in scenarios)")  # fmt: skip
    add("--snake", metavar="SNAKE", default="cautious", help=SNAKE_HELP)
    address_policy.add_options(parser)
    add_json_option(parser)
    return parser
