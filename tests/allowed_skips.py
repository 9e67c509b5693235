"""What continuous integration may skip: a short list with reasons. Any other skip fails the run."""

import os
import re

import pytest

ALLOWED = {
    r"needs a GPU": "no machine of continuous integration has one",
    r"needs root": "a runner may well be an ordinary user; the same tests run where it is root",
    r"needs Linux|needs Landlock and user namespaces": "a matter of the system alone",
    r"needs SAGEMAKER_SDK3_PYTHON": "version 3 of the SDK needs an environment of its own",
    r"(mxnet|procgen) needs Linux on x86-64 and Python 3\.11( or 3\.12)?": "no other wheel exists",
    r"unable to import module .*/mxnet_network\.py'\)": "it imports mxnet; its tests say why not",
    r"this processor has no avx2|this processor has no avx512": "a matter of the machine alone",
}
"""Reasons that a test may give for being skipped (the whole text), and why that is accepted."""


def is_allowed(reason: str) -> bool:
    """Whether continuous integration accepts a skip for this reason."""
    return any(re.fullmatch(pattern, reason) for pattern in ALLOWED)


def skipped(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    """Each skip of the run: where, and the reason."""
    found = []
    for report in reporter.stats.get("skipped", []):
        _, _, text = report.longrepr
        found.append((report.nodeid, text.removeprefix("Skipped: ")))
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End with a failure where something else was skipped; workers leave that to their main."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI") or session.exitstatus != pytest.ExitCode.OK:
        return
    if any(not is_allowed(reason) for _, reason in skipped(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the list, and what was skipped beyond it."""
    if not os.environ.get("CI"):
        return
    found = skipped(terminalreporter)
    terminalreporter.section("skips that continuous integration accepts")
    for pattern, why in ALLOWED.items():
        count = sum(re.fullmatch(pattern, reason) is not None for _, reason in found)
        terminalreporter.write_line(f"{count} x {pattern} ({why})")
    refused = [(where, reason) for where, reason in found if not is_allowed(reason)]
    if refused:
        terminalreporter.section("skips that it does not accept", red=True)
        for where, reason in refused:
            terminalreporter.write_line(f"{where}: {reason}")
