import re
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_heuristics.builtin_snakes import BUILTIN_SNAKES
from battlesnake_heuristics.commands.snakes_command import main
from tests.processes import COMMAND, run


def test_every_snake_is_listed_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} >= set(BUILTIN_SNAKES)
    assert any(snakes.description("hungry") in line for line in lines)


def test_some_may_duel(capsys: pytest.CaptureFixture[str]) -> None:
    def duel(*names: str) -> list[list[str]]:
        assert main([*names, "--duels", "4", "--ruleset", "wrapped"]) == 0
        return [row.split() for row in capsys.readouterr().out.splitlines()[1:]]

    table = duel("random", "safe-random", "territory")
    assert table[0] == ["territory", ".", "100%", "100%", "100%"]
    assert [row[-1] for row in table] == ["100%", "50%", "0%"]
    assert duel("safe-random", "cautious") == duel("safe-random", "cautious")


@pytest.mark.parametrize(
    ("factory", "error"),
    [
        ("lambda seed: {}[seed]", "faulty.py, line 2: KeyError: 0"),
        ("lambda seed: int('x')", "faulty.py, line 2: ValueError: invalid literal"),
        ("lambda seed: lambda board, seconds: {}[0]", "faulty.py, line 2: KeyError: 0"),
        ("lambda seed: lambda board, seconds: exit(3)", "faulty.py, line 2: SystemExit: 3"),
        ("lambda seed: lambda board, seconds: 'north'", "ValueError: move .*, got 'north'"),
    ],
)
def test_a_faulty_snake_is_named_with_the_line(
    factory: str,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "faulty.py"
    path.write_text(f"from battlesnake_gym import snakes\nsnakes.register('faulty', {factory})\n")
    assert main(["random", "faulty.py", "--duels", "1"]) == 2
    assert re.search(f"snakes: faulty.py cannot play: {error}", capsys.readouterr().err)


@pytest.mark.parametrize("as_file", [True, False])
def test_own_files_are_listed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_file: bool
) -> None:
    path = tmp_path / "own.py"
    if as_file:
        path.write_text(
            "from battlesnake_gym import snakes\n"
            "from battlesnake_heuristics import SAFE, Pipeline\n"
            "def mine(seed):\n"
            '    """My own."""\n'
            "    return Pipeline(*SAFE, seed=seed)\n"
            "snakes.register('mine', mine)\n"
        )
    monkeypatch.setenv("BATTLESNAKE_GYM_EXTENSIONS", str(path))
    done = run(*COMMAND, "snakes", "mine")
    if as_file:
        assert done.stdout == "mine  My own.\n"
    else:
        assert "own.py" in done.stderr
