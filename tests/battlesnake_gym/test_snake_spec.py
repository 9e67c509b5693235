"""The one grammar of snakes, and its meaning in every place that names a snake."""

from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.env import opponent_names
from battlesnake_gym.snake_spec import SnakeSpec


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hungry", ("hungry",)),
        ("minimax@400", ("minimax", "", "", "400")),
        ("minimax@", ("minimax", "", "", "")),
        ("new=minimax@400", ("minimax", "new", "", "400")),
        ("http://host:1/a?b=c", ("http://host:1/a?b=c",)),
        ("my snake=https://me@host/a?b=c@4", ("https://me@host/a?b=c@4", "my snake")),
        ("old=runs/a=1/policy.onnx", ("runs/a=1/policy.onnx", "old")),
        ("./a=1/policy.onnx", ("./a=1/policy.onnx",)),
        ("mine=policy.onnx+my_rules.py", ("policy.onnx", "mine", "my_rules.py")),
        ("shipped+a+b.py", ("shipped", "", "a+b.py")),
        ("a+b.py", ("a+b.py",)),
        ("snake.zip@400", ("snake.zip", "", "", "400")),
        ("task/snake.json@400", ("task/snake.json", "", "", "400")),
        ("me@work.py", ("me@work.py",)),
        ("me@work/snake.zip", ("me@work/snake.zip",)),
        ("policy:runs/a@400", ("policy:runs/a@400",)),
        ("past", ("past",)),
        ("", ("",)),
    ],
)
def test_every_text_has_parts_that_make_the_text_again(text: str, parts: tuple[str, ...]) -> None:
    spec = SnakeSpec.parse(text)
    assert spec == SnakeSpec(*parts)
    assert (f"{spec.label}=" if spec.label else "") + str(spec) == text


def test_a_run_may_have_an_at_sign(tmp_path: Path) -> None:
    run = tmp_path / "run@400"
    run.mkdir()
    assert SnakeSpec.parse(str(run)) == SnakeSpec(str(run))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("minimax@", r"minimax@ .*''.* minimax@400"),
        ("nobody@50", "'nobody'"),
        ("minimax@many", r"minimax@ .*'many'.* minimax@400"),
        ("minimax@0", r"nodes.* 1 .*0"),
        ("hungry@400", r"'hungry'.* sets its own nodes, so omit @400"),
        ("mine=hungry", r"mine=hungry.*'mine'.* hungry"),
        ("http://host", r"http://host.* arena.* name"),
        ("policy:a.onnx", r"policy:a\.onnx.* training.* a\.onnx"),
        ("hungri", r"'hungri'.* hungry"),
    ],
)
def test_a_part_without_effect_is_rejected_with_the_remedy(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        snakes.make(name)


@pytest.mark.parametrize("name", ["mine=hungry", "http://host", "past@400", "runs/nowhere"])
def test_an_opponent_that_cannot_train_is_rejected_before_the_training(name: str) -> None:
    with pytest.raises(ValueError, match=r"opponents: .*snakes"):
        opponent_names.check_name(name)


def test_all_paths_of_an_opponent_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    channel = tmp_path / "channel"
    channel.mkdir()
    for file in ("mine.zip", "strong.onnx"):
        (channel / file).touch()
    names = ["mine.zip@400", "here.onnx+my_rules.py", "policy:strong", "hungry", "minimax@9"]
    assert list(opponent_names.with_absolute_paths(dict.fromkeys(names, 0.1), channel)) == [
        f"{channel}/mine.zip@400",
        f"{tmp_path}/here.onnx+{tmp_path}/my_rules.py",
        f"policy:{channel}/strong.onnx",
        "hungry",
        "minimax@9",
    ]
