"""Videos: both formats can be read again, at 512 pixels."""

from pathlib import Path

import numpy as np
import pytest

from battlesnake_rl.commands.procgen_rollout_command import _write_video
from battlesnake_rl.procgen.procgen_environment import VectorProcgen

imageio = pytest.importorskip("imageio.v3", reason="needs the extra procgen")

# imageio's reader leaves closing its process to the garbage collector.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("kind", ["mp4", "gif"])
def test_videos(kind: str, tmp_path: Path) -> None:
    games = VectorProcgen(1, {"env_name": "bigfish"})
    frames = [games.reset(seed=1)[0][0]]
    frames += [games.step(np.array([turn % 9]))[0][0] for turn in range(20)]
    path = tmp_path / f"film.{kind}"
    _write_video(path, frames)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    film = np.stack([frame[..., :3] for frame in imageio.imiter(path)])
    assert film.shape == (21, 512, 512, 3)
    for shown, frame in zip(film, frames, strict=True):
        # The center of each square has the pixel's color, except for compression errors.
        error = np.abs(shown[4::8, 4::8].astype(int) - frame).mean()
        assert error < 12
