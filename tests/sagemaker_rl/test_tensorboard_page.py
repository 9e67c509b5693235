"""First page of TensorBoard in a browser."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sagemaker_rl.runs import curves
from tests.processes import free_port, served
from tests.sagemaker_rl import tensorboard_cards
from tests.server.browser import Browser, browser

__all__ = ["browser"]

pytestmark = pytest.mark.slow

NAMED = {f"curve_{n:02}": f"env_runners/{n}" for n in range(curves._MAX_MAIN_CURVES - 1)}
GIF = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x00\x00\x00\x00\x00"
    b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """Start TensorBoard for a folder, and yield its URL."""
    port = str(free_port())
    program = Path(sys.executable).with_name("tensorboard")
    words = [program, "--logdir", folder, "--host", "127.0.0.1", "--port", port]
    with served(words, port, "/", stderr=subprocess.DEVNULL) as address:
        yield address


@pytest.mark.parametrize("filmed", [True, False], ids=["with-a-film", "without"])
def test_it_opens_with_the_named_curves(filmed: bool, tmp_path: Path, browser: Browser) -> None:
    settings = {"lr": 1e-4, "algorithm": "DQN"}
    run = curves.Curves(tmp_path, {}, 0, main_curves=NAMED, settings=settings)
    for iteration in (1, 2, 3):
        runners = dict.fromkeys(map(str, range(40)), 0.5 * iteration)
        run.add({
            "training_iteration": iteration,
            "env_runners": {**runners, "num_env_steps_sampled_lifetime": 100 * iteration},
            "config": {"lr": 1e-4, "model": {"width": 256}},
        })  # fmt: skip
        if filmed:
            run.add_animation(GIF, iteration)
    run.close()
    expected = tensorboard_cards.cards(tmp_path / "tensorboard")
    assert tensorboard_cards.check(tmp_path / "tensorboard")
    with tensorboard(tmp_path / "tensorboard") as address:
        browser.look(1280, 5000)  # cards are drawn only if they are visible
        browser.open(address)
        names = (
            "[...document.querySelectorAll('card-view tb-truncated-path')].map(tag => tag.title)"
        )
        browser.wait(f"{names}.length >= {len(expected)}")
        shown = list(map(str, browser.run(names)))
        headers = "[...document.querySelectorAll('.group-title')].map(name => name.textContent)"
        groups = [str(name).strip() for name in browser.run(headers)]
    assert sorted(shown) == expected
    assert groups == ["Pinned", "curves", *(["game"] if filmed else []), "progress", "rllib"]
