"""Videos of games: frames enlarged to 512 pixels, as MP4 or GIF."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common.files import write_atomically

FORMATS = ("mp4", "gif")
SIDE = 512
"""Width and height in pixels."""
FRAMES_PER_SECOND = 15


def write_video(path: Path, frames: Iterable[NDArray[np.uint8]]) -> None:
    """Write ``frames``, each (64, 64, 3) RGB, into ``path``; its suffix says in which format.

    Raises:
        ValueError: the suffix is none of `FORMATS`.
    """
    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ValueError(f"a video's name must end in .mp4 or .gif, got {path}")
    options: dict[str, Any]
    if kind == "mp4":
        # The draft's name does not end in .mp4, by which ffmpeg would know.
        options = {"fps": FRAMES_PER_SECOND, "output_params": ["-f", "mp4"]}
    else:
        # How long a frame stands, in milliseconds; and begin again for ever.
        options = {"duration": 1000 / FRAMES_PER_SECOND, "loop": 0}

    def write(draft: Path) -> None:
        writer: Any = imageio.get_writer(draft, format=kind, **options)
        with writer:
            for frame in frames:
                writer.append_data(enlarge(frame))

    write_atomically(path, write)


def enlarge(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Each pixel of a (64, 64, 3) frame as a square, (512, 512, 3)."""
    factor = SIDE // len(frame)
    return frame.repeat(factor, axis=0).repeat(factor, axis=1)
