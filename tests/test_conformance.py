"""The rules agree with every recorded game, and the tools detect every broken rule."""

import ast
import copy
import gzip
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import rules
from battlesnake_gym.engine import engine as compiled
from conformance import run
from conformance.run import Engine, Recording, _Comparison
from tests import processes

KIT = Path(run.__file__).parent
sys.path.append(str(KIT / "adapters"))
import battlesnake_python  # noqa: E402
import gym_records  # noqa: E402
import server_loop  # noqa: E402

FILES = sorted((KIT / "games").iterdir())
MUTANTS = json.loads((KIT / "mutants.json").read_text())

_read: dict[str, list[Recording]] = {}


def games(name: str) -> list[Recording]:
    """The recorded games of one file, read once."""
    if name not in _read:
        _read[name] = list(run.iter_recordings(KIT / "games" / f"{name}.jsonl.gz"))
    return _read[name]


@pytest.fixture(scope="module")
def engine() -> Iterator[Callable[[str], Engine]]:
    """Engines by the names of their adapters, each started once."""
    started: dict[str, Engine] = {}

    def start(name: str) -> Engine:
        if name not in started:
            started[name] = Engine(*run.engine_command(name), 60)
        return started[name]

    yield start
    for one in started.values():
        one.stop()


def test_the_kit_stands_alone() -> None:
    nodes = [*ast.walk(ast.parse((KIT / "run.py").read_text()))]
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    assert {str(name).partition(".")[0] for name in imported} <= sys.stdlib_module_names
    for path in (KIT / "adapters").iterdir():
        if path.is_file():
            assert sum(map(bool, path.read_text().split("\n"))) <= 60, path


def test_the_recordings_cover_every_map_and_ruleset() -> None:
    headers = [game.header for path in FILES for game in games(path.name.split(".")[0])]
    assert {(h["map"], h["ruleset"]) for h in headers} == {
        (m, r) for m in ["", *rules.MAPS] for r in rules.RULESETS
    }
    text = (KIT / "RULES.md").read_text()
    # One size of each of these maps is played above.
    assert [name for name in [*rules.MAPS, *rules.RULESETS] if name not in text] == [
        *("hz_castle_wall_lg", "hz_castle_wall_xl", "hz_rivers_bridges_lg"),
        *("hz_rivers_bridges_xl", "hz_islands_bridges_lg"),
    ]


@pytest.mark.parametrize("name", [path.name.split(".")[0] for path in FILES])
@pytest.mark.parametrize("which", ["python", "c", "search"])
def test_our_engines_agree_with_the_official_engine(
    name: str, which: str, engine: Callable[[str], Engine]
) -> None:
    """Play from the seeds; C rejects only artificial boards, the search unsupported positions."""
    if which != "python" and not compiled.COMPILED:
        pytest.skip("the engine was not built")
    found = list(run._play_recordings(engine(f"battlesnake_{which}"), iter(games(name))))
    assert [str(one) for one in found if one.verdict == "differs"] == []
    agree = sum(one.verdict == "agrees" for one in found)
    least = {"python": len(found), "c": 23 if name == "_synthetic" else len(found)}
    assert agree >= least.get(which, 0 if name == "solo_maze" else 8)
    if agree == len(found):
        assert sum(one.turns for one in found) == sum(len(g.frames) - 1 for g in games(name))


MORE = sorted((KIT / "more").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("which", ["python", "c", "search"])
def test_they_agree_on_the_games_that_python_recorded(
    which: str, engine: Callable[[str], Engine]
) -> None:
    recorded = [game for path in MORE for game in run.iter_recordings(path)]
    assert len(recorded) == 4 * sum(len(games(path.name.split(".")[0])) for path in FILES)
    assert len({game.header["id"] for game in recorded}) == len(recorded)
    found = list(run._play_recordings(engine(f"battlesnake_{which}"), iter(recorded)))
    assert [str(one) for one in found if one.verdict == "differs"] == []
    least = {"python": 1440, "c": 1200, "search": 500}
    assert sum(one.verdict == "agrees" for one in found) >= least[which]


def test_any_engine_can_record_games(tmp_path: Path, engine: Callable[[str], Engine]) -> None:
    """Equal seeds and settings give equal games, and another engine agrees."""
    words = ["battlesnake_python", "--each", "1", "--only", "hz_rings*", "--to", str(tmp_path)]
    done = processes.run(sys.executable, KIT / "record.py", *words)
    assert done.stdout.endswith("12 games\n"), done.stderr
    recorded = list(run.iter_recordings(tmp_path / "hz_rings.jsonl.xz"))
    ours = {
        game.header["id"]: game for game in run.iter_recordings(KIT / "more" / "hz_rings.jsonl.xz")
    }
    assert [ours[game.header["id"]] for game in recorded] == recorded
    found = run._play_recordings(engine("battlesnake_c"), iter(recorded))
    assert [one.verdict for one in found] == ["agrees"] * len(recorded)


class EngineHere(Engine):
    """An adapter in this process, because a process for each mutant is slow to start."""

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.title, self.lacks = adapter, "here", frozenset()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def request(self, message: run.Json) -> run.Json:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said:
            patch.setattr(sys, "stdin", io.StringIO(json.dumps(message) + "\n"))
            try:
                server_loop.serve("here", self.adapter, accepts_any_move=True)
            except Exception as error:
                raise run._EngineFailedError(str(error)) from error
        response: run.Json = json.loads(said.getvalue())
        return response


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Engine]]:
    """Return a function that makes an engine with a broken rule."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield lambda rule: EngineHere(
        battlesnake_python._PythonGame(gym_records.import_mutant(rule, str(tmp_path)))
    )
    for name in [one for one in sys.modules if one.startswith("mutant_rules")]:
        del sys.modules[name]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant["rule"]))
def test_a_broken_rule_is_detected(mutant: dict[str, str], broken: Callable[[str], Engine]) -> None:
    outcomes = run._play_recordings(broken(mutant["rule"]), iter(games(mutant["games"])))
    noticed = next(one for one in outcomes if one.verdict == "differs")
    assert noticed.details
    assert noticed.rule.endswith(")") or "cannot continue" in noticed.details[0]
    assert f"turn {noticed.turn}, rule: {noticed.rule}" in str(noticed)


class TestComparison:
    """Compared fields, and differences that the format permits."""

    @pytest.mark.parametrize("key", ["t", "f", "hz", "b", "hp", "x", "by", "on", "s"])
    def test_every_field_is_compared_unless_the_engine_lacks_it(self, key: str) -> None:
        recording = games("royale")[0]
        recorded = recording.frames[-1]
        played = copy.deepcopy(recorded)
        (played if key in played else played["s"][0])[key] = [9, 9] if key in ("f", "b") else []
        compare = _Comparison(recording.header)
        assert compare.find_differences(recorded, recorded) == []
        assert [found for found, _ in compare.find_differences(recorded, played)] == [
            key.replace("s", "b")
        ]
        if key != "s":
            assert (
                _Comparison(recording.header, frozenset({key})).find_differences(recorded, played)
                == []
            )

    def test_order_is_compared_if_it_is_exact(self) -> None:
        recording = next(g for g in games("snail_mode") if len(g.frames[-1]["hz"]) > 4)
        recorded = recording.frames[-1]
        cells = sorted(run.parse_cells(recorded["hz"]), reverse=True)
        played = recorded | {"hz": [number for cell in cells for number in cell]}
        exact = {**recording.header, "hazardOrderExact": True}
        assert _Comparison(recording.header).find_differences(recorded, played) == []
        assert _Comparison(exact).find_differences(recorded, played) != []
        played["hz"] = [*played["hz"], *cells[0]]
        assert _Comparison(recording.header).find_differences(recorded, played) != []

    def test_culprits_may_tie_among_more_than_12_snakes_of_equal_length_only(self) -> None:
        names = [f"s{i}" for i in range(13)]
        header = games("_synthetic")[0].header | {"snakes": names}
        snakes: list[Any] = [{"hp": 9, "b": [i, 0] * (3 + i // 12)} for i in range(13)]
        snakes[0] |= {"x": "snake-collision", "by": "s1", "on": 5}
        compare = _Comparison(header)

        def details(by: str, few: int = 13) -> list[tuple[str, str]]:
            recorded: dict[str, Any] = {"t": 5, "s": snakes[:few], "f": [], "hz": []}
            played = copy.deepcopy(recorded)
            played["s"][0]["by"] = by
            return compare.find_differences(recorded, played)

        assert details("s12") != []
        assert details("s2", 12) != []
        assert details("s2") == []
        snakes[2]["b"] += [2, 0]
        assert details("s2") == []  # An accepted culprit stays accepted.
        assert details("s3") != []


@pytest.mark.parametrize(
    ("end", "message"), [({"reason": "cap"}, "'cap'"), ({"reason": "panic"}, "'panic'")]
)
def test_ends_are_compared(
    end: dict[str, Any], message: str, engine: Callable[[str], Engine]
) -> None:
    python = engine("battlesnake_python")
    game = next(g for g in games("standard") if g.end["reason"] == "over")
    changed = replace(game, end=game.end | end)
    assert re.search(message, str(run._play_recording(python, changed)))
    at_cap = game.header | {"maxTurns": len(game.frames) - 1}
    assert run._play_recording(python, replace(changed, header=at_cap)).verdict == (
        "agrees" if end["reason"] == "cap" else "differs"
    )
    shorter = replace(game, frames=game.frames[:-1])
    assert re.search(r"over.* False", str(run._play_recording(python, shorter)))
    longer = replace(game, frames=[*game.frames, game.frames[-1]])
    assert "continues" in str(run._play_recording(python, longer))
    capped = next(g for g in games("hz_rivers_bridges") if g.end["reason"] == "cap")
    crash = run._play_recording(python, replace(capped, end=capped.end | {"reason": "panic"}))
    assert "crashes" in str(crash)


class TestProgram:
    """The output and the exit status of the command."""

    def test_agreement_is_status_0(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run.main(["battlesnake_python", "--only", "standard*"]) == 0
        out = capsys.readouterr().out
        assert re.search(r"12 of 12.* 0.* 531", out)
        assert "map standard" in out

    @pytest.mark.parametrize(
        "engine",
        [
            "import sys; sys.exit(3)",
            "print('[]', flush=True)",
            "import time; time.sleep(9)",
            "print('{}', flush=True)",
        ],
    )
    def test_a_silent_engine_is_rejected(
        self, engine: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            run.main([f'it={sys.executable} -c "{engine}"', "--timeout", "0.5"])
        assert "it=" in capsys.readouterr().err

    def test_an_engine_that_exits_differs_and_is_restarted(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "engine.py"
        path.write_text(
            'import json\nprint(json.dumps({"engine": "brief"}), flush=True)\ninput(), input()\n'
        )
        words = [f"brief={sys.executable} {path}", "--only", "standard*", "--differences", "1"]
        assert run.main(words) == 1
        out = capsys.readouterr().out
        assert "0 of 12" in out
        assert "no response" in out

    @pytest.mark.parametrize(
        "torn", [b"{}", b'{"k": "game"}\n', gzip.compress(b"{}", mtime=0)[:-4]]
    )
    def test_a_broken_file_is_status_2(
        self, torn: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / f"bad.jsonl{'.gz' if torn[0] == 31 else ''}").write_bytes(torn)
        with pytest.raises(SystemExit, match="2"):
            run.main(["battlesnake_python", "--games", str(tmp_path)])
        assert str(tmp_path / "bad.jsonl") in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["moral"], "'moral'"),
            (["c", "--only", "x*"], r"x\*"),
            ([], "name an engine"),
            (["c", "--views", "--only=s*"], "--only has no effect with --views"),
            (["--mutants", "--views"], "--views has no effect without engines"),
        ],
    )
    def test_a_wrong_call_is_status_2(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            run.main(words)
        assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("is_shorter", [False, True])
def test_views_agree_with_the_recorded_ones(
    engine: Callable[[str], Engine], is_shorter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine whose snakes see one cell less differs."""
    python = engine("battlesnake_python")
    if is_shorter:
        ask = python.request
        monkeypatch.setattr(
            python, "request", lambda m: ask(m | {"radius": max(0, m["radius"] - 1)})
        )
    views = list(run._find_view_differences(python, KIT / "views.jsonl.xz"))
    assert len(views) == 4930
    different = [name for name, difference in views if difference]
    assert len(different) > 1000 if is_shorter else not different


def test_an_engine_without_a_view_radius_is_named(engine: Callable[[str], Engine]) -> None:
    found = list(run._find_view_differences(engine("battlesnake_c"), KIT / "views.jsonl.xz"))
    assert found == [("refused", "the engine has no view radius")]
