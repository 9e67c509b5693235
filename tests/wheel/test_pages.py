"""Every block of commands and of Python in the documentation runs, with the wheel installed."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import free_port, run
from tests.wheel.conftest import Built, Environment
from tests.wheel.pages import OTHERS, PAGES, ROOT, SHELL, Command, blocks, commands
from tests.wheel.shortened import Rule, rule_of

PATIENCE = 300
"""Seconds that a server may take to answer, on a very busy machine."""

TIMES = re.compile(r"( +[\d.]+){2}  (?=[a-z])|[\d.]+ ms")
"""Milliseconds in the output of `arena`, which differ between runs."""

OF_THE_CLONE = (
    *("Makefile", "pyproject.toml", "setup.py", "constraints.txt", "tools"),
    *("benchmarks", "deployment", "docs", "notebooks"),
    *("rllib_common", "rllib_src", "battlesnake_gym", "heuristics", "server"),
)
"""What commands name that are typed in a clone."""

FRAGMENTS = (
    "docs/tutorials/first-sagemaker-job.md",
    "docs/how-to/run-sagemaker-jobs.md",
    "docs/how-to/check-a-job-before-you-pay.md",
    "docs/how-to/use-several-instances.md",
    "docs/how-to/tune-hyperparameters.md",
    "docs/how-to/serve-on-lambda.md",
)
"""Pages whose Python needs an account: imports are run, and all of it must be Python."""


class Desk:
    """A folder in which the commands of one page are typed, one after the other."""

    def __init__(self, folder: Path, environment: Environment, clone: Path) -> None:
        self.folder = folder
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {"8000": str(free_port()), "8001": str(free_port())}
        self._variables = environment.variables | {
            "BROWSER": "true",
            "AWS_DEFAULT_REGION": "us-west-2",
        }
        for name in OF_THE_CLONE:
            (folder / name).symlink_to(clone / name)
        policy = clone / "server/battlesnake_server/default_policy"
        for place in ("demo", "runs/first/model", "runs/A/model"):
            shutil.copytree(policy, folder / place)

    def type(self, command: Command) -> None:
        """Run a command as its rule says."""
        rule, line = rule_of(command.line), command.line
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._variables[name] = value
            return
        for port, free in self._ports.items():
            line = re.sub(rf"(:|--port ){port}\b", rf"\g<1>{free}", line)
        line = rule.form(line)
        if f":{self._ports['8000']}" in line and self._ports["8000"] not in self._servers:
            self._serve(f"battlesnake-gym serve --snake cautious --port {self._ports['8000']}")
        if not line:
            return
        if rule.server and "battlesnake-gym serve" in line:
            self._serve(line if "--port" in line else f"{line} --port {self._ports['8000']}")
        elif rule.server:
            self._visit(f"{line} --port 0")
        else:
            where = {"cwd": self.folder, "env": self._variables}
            done = run("bash", "-c", line, stdin=subprocess.DEVNULL, **where)
            assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            if rule.stable:
                assert TIMES.sub("", done.stdout) == TIMES.sub("", command.output)

    def close(self) -> None:
        for port in list(self._servers):
            self._stop(port)

    def _start(self, line: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self.folder / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", line.replace("battlesnake-gym", "exec battlesnake-gym", 1)],
                cwd=self.folder, env=self._variables, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        return process, log

    def _serve(self, line: str) -> None:
        """Start a live snake, which stays until another one takes its port."""
        (port,) = re.findall(r"--port (\d+)", line)
        self._stop(port)
        self._servers[port], log = self._start(line)
        self._wait(self._servers[port], log, f"http://127.0.0.1:{port}/healthz")

    def _visit(self, line: str) -> None:
        """Start pages, look at the address that they tell, and end them as with Ctrl-C."""
        process, log = self._start(line)
        try:
            self._wait(process, log)
        finally:
            os.killpg(process.pid, signal.SIGINT)
            status = process.wait(PATIENCE)
        assert status in (0, 130), log.read_text()

    def _wait(self, process: subprocess.Popen[bytes], log: Path, address: str = "") -> None:
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            assert process.poll() is None, log.read_text()
            told = re.search(r" at (http://\S+)", log.read_text())
            try:
                if address or told:
                    urllib.request.urlopen(address or told[1], timeout=PATIENCE).close()  # type: ignore[index]
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"no answer: {log.read_text()}")

    def _stop(self, port: str) -> None:
        if port in self._servers:
            server = self._servers.pop(port)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait(PATIENCE)


@pytest.fixture
def desk(tmp_path: Path, environment: Environment, clone: Path) -> Iterator[Desk]:
    one = Desk(tmp_path, environment, clone)
    yield one
    one.close()


def lines(page: str) -> list[tuple[Command, Rule]]:
    """The commands of a page and their rules."""
    found = []
    for block in blocks(page):
        if block.language in SHELL:
            found += [(command, rule_of(command.line)) for command in commands(block)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language_and_every_command_a_rule(page: str) -> None:
    text = (ROOT / page).read_text()
    for block in blocks(page):
        known = block.language in SHELL | OTHERS or block.language.startswith("{")
        assert known, f"{page}:{block.line} needs one of {', '.join(sorted(SHELL | OTHERS))}"
    for command, rule in lines(page):
        assert re.search(rule.says, text), f"{page} must say {rule.says!r} of {command.line}"


def write_files(page: str, folder: Path) -> None:
    for block in blocks(page):
        if block.file and not block.language.startswith("{"):
            (folder / block.file).write_text(block.text)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.startswith("docs/how-to/") else [])
        for page in PAGES
        if any(not rule.slow for _, rule in lines(page))
    ],
)
def test_commands(page: str, desk: Desk) -> None:
    write_files(page, desk.folder)
    for command, rule in lines(page):
        if not rule.slow:
            desk.type(command)


@pytest.fixture(scope="session")
def trained(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one iteration: of a snake, and of an agent of Procgen."""
    folder = tmp_path_factory.mktemp("trained")
    for line in (
        "battlesnake-gym train --num-iters 1 --name first",
        "battlesnake-gym procgen train -f starter-example --num-iters 1 "
        """--hyperparameter 'env_config={"env_name": "bigfish", "num_levels": 200}' """
        "--name impala-baseline-bigfish",
    ):
        subprocess.run(["bash", "-c", line], cwd=folder, env=environment.variables, check=True)
    return folder / "runs"


@pytest.mark.slow
@pytest.mark.timeout(1800)  # train-procgen takes ten minutes beside one other test.
@pytest.mark.parametrize("page", [p for p in PAGES if any(r.slow for _, r in lines(p))])
def test_commands_that_take_long(page: str, desk: Desk, trained: Path) -> None:
    write_files(page, desk.folder)
    shutil.rmtree(desk.folder / "runs")
    shutil.copytree(trained, desk.folder / "runs")
    for name in ("A", "B", "NAME"):
        shutil.copytree(trained / "first", desk.folder / "runs" / name)
    (desk.folder / "RUN").symlink_to(desk.folder / "runs" / "impala-baseline-bigfish")
    (desk.folder / "server").unlink()
    policy = "server/battlesnake_server/default_policy"
    shutil.copytree(ROOT / policy, desk.folder / policy)
    for command, rule in lines(page):
        if rule.slow or command.line.startswith("export "):
            desk.type(command)


PYTHON = r"""
import ast, contextlib, doctest, json, os, sys, tempfile, traceback
for name in ("torch", "ray.rllib", "sagemaker"):  # once for all pages, which are slow to import
    with contextlib.suppress(ImportError):
        __import__(name)

def run(page, how, blocks):
    names = {"__name__": "page"}
    failed = []
    for line, text in blocks:
        if ">>> " in text:
            test = doctest.DocTestParser().get_doctest(text, names, "page", page, line)
            if doctest.DocTestRunner().run(test, out=failed.append, clear_globs=False).failed:
                sys.exit("".join(failed))
            names.update(test.globs)
            continue
        tree = ast.parse("\n" * line + text)
        if how == "imports":
            tree.body = [one for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
        exec(compile(tree, page, "exec"), names)

told = {}
for page, how, blocks in json.load(sys.stdin):
    said = tempfile.TemporaryFile("w+")
    if not (child := os.fork()):
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        os.chdir(tempfile.mkdtemp(dir="."))
        try:
            run(page, how, blocks)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    said.seek(0)
    told[page] = status, said.read()
print(json.dumps(told))
"""
PYTHON_PAGES = [page for page in PAGES if any(one.language == "python" for one in blocks(page))]


@pytest.fixture(scope="module")
def told(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[int, str]]:
    """The status of each page's Python, in a process and a folder of its own, and its output."""
    given = []
    for page in PYTHON_PAGES:
        text = [(b.line, b.text) for b in blocks(page) if b.language == "python" and not b.file]
        given.append((page, "imports" if page in FRAGMENTS else "all", text))
    where = {"cwd": tmp_path_factory.mktemp("python"), "env": environment.variables}
    done = run(environment.python, "-c", PYTHON, input=json.dumps(given), **where)
    assert done.returncode == 0, done.stderr
    statuses: dict[str, tuple[int, str]] = json.loads(done.stdout.splitlines()[-1])
    return statuses


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_python(page: str, told: dict[str, tuple[int, str]]) -> None:
    status, said = told[page]
    assert status == 0, said


@pytest.mark.slow
def test_the_wheel_installs_with_all_its_extras(built: Built, tmp_path: Path) -> None:
    """Resolved anew, where nothing is installed."""
    extras = "rllib,server,procgen,sagemaker,sagemaker-simulator,notebooks"
    subprocess.run(["python3", "-m", "venv", tmp_path / "empty"], check=True)
    install = (tmp_path / "empty/bin/pip", "install", "--dry-run", "--quiet")
    done = run(*install, "-c", ROOT / "constraints.txt", f"{built.wheel}[{extras}]")
    assert done.returncode == 0, done.stderr
