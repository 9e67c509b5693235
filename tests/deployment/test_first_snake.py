"""Templates, parameters, outputs and options on the pages for AWS beginners exist."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("cfnlint", reason="needs the extra dev")

from battlesnake_gym.cli.main import COMMANDS, load_command
from battlesnake_server.aws.publishing import DEFAULT_NAME
from tests.deployment import templates

DOCS = templates.FOLDER.parents[1] / "docs"
PAGE = "\n".join(
    (DOCS / f"{name}.md").read_text()
    for name in ("how-to/set-up-an-aws-account", "how-to/serve-on-lambda", "research/costs")
)


def test_templates_parameters_and_outputs_exist() -> None:
    names = set(re.findall(r"`(\w+)\.yaml`", PAGE))
    assert names >= {"snake", "notebook", "network", "container"}
    loaded = {name: templates.load(name) for name in names}
    words = {*re.findall(r"`((?:[A-Z][a-z]+){2,})`", PAGE)} - {"ResourceLimitExceeded"}
    known = {
        key
        for template in loaded.values()
        for part in ("Parameters", "Outputs")
        for key in template[part]
    }
    assert words >= {"SnakeUrl", "BudgetEmail", "MemorySize", "RequestsPerSecond"}
    assert words <= known


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("snake", "MemorySize", "1769"),
        ("snake", "BudgetDollars", "10"),
        ("notebook", "NotebookInstanceType", "ml.t3.xlarge"),
    ],
)
def test_values_on_the_page_are_the_defaults(name: str, parameter: str, value: str) -> None:
    assert parameter in PAGE
    assert value in PAGE
    assert str(templates.load(name)["Parameters"][parameter]["Default"]) == value


def test_jobs_on_the_page_may_run() -> None:
    allowed = templates.load("notebook")["Parameters"]["TrainingInstanceTypes"]["Default"]
    (listed,) = re.findall(r"a training job on (.*?) \|", PAGE)
    assert set(listed.split(", ")) <= set(allowed.split(","))


def test_commands_and_options_exist() -> None:
    commands = {*re.findall(r"battlesnake-gym ((?:(?:aws|game|runs) )?[a-z]+)", PAGE)}
    assert commands >= {"pack", "aws deploy", "aws undeploy"}
    assert commands <= set(COMMANDS)
    known = {
        option
        for name in commands
        for option in load_command(name).parser()._option_string_actions
        if option.startswith("--")
    }
    assert {*re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", PAGE)} <= known


def test_the_stack_has_the_name_that_the_page_says() -> None:
    assert DEFAULT_NAME == "battlesnake"
    assert "*Stacks*, `battlesnake`" in " ".join(PAGE.split())
