"""A small network for boards of any size: its values of a board do not depend on the array.

Convolutions see nothing outside the board, not even its edge in the array, and end in means and
peaks over the board's cells; the cells around the own head go to the dense layers one by one.
Made for the observation ``reach``, whose floods are counted by the means.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from battlesnake_gym.see.observations import PLANES

BOARD, OWN_BODY = PLANES.index("board"), PLANES.index("own_body")

USUAL_CELLS = 121
"""Of 11x11: sums over cells become shares of these, so that a cell counts alike on every board."""


class PooledNetwork(nn.Module):
    """What four moves are worth: (B, C, H, W) uint8 to (B, 4) float32, H and W odd.

    ``channels`` and ``strides`` (1 or 2) are those of the convolutions; ``seen`` and ``felt`` the
    sides (odd) of the squares around the own head that are seen as they are and after the
    first convolution; ``width`` is the size of the dense layer.
    """

    def __init__(
        self,
        planes: int,
        channels: Sequence[int] = (48, 64, 64),
        strides: Sequence[int] = (1, 2, 1),
        seen: int = 7,
        felt: int = 5,
        width: int = 192,
    ) -> None:
        super().__init__()
        self.seen, self.felt, self.strides = seen, felt, tuple(strides)
        self.convolutions = nn.ModuleList()
        before = planes
        for count, stride in zip(channels, strides, strict=True):
            self.convolutions.append(nn.Conv2d(before, count, 3, stride, padding=1))
            before = count
        inputs = planes + planes * seen**2 + channels[0] * felt**2 + 2 * before
        self.dense = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 4)
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, planes: Tensor) -> Tensor:
        """The values of up, down, left and right; only their differences mean anything."""
        # Without a modulo of symbolic sizes, which ONNX cannot say.
        rows, columns = (planes[:, OWN_BODY].amax(side).argmax(1) for side in (2, 1))
        board = planes[:, BOARD : BOARD + 1].float() / 255
        seen = (planes.float() / 255).contiguous(memory_format=torch.channels_last) * board
        parts = [_shares(seen), around(seen, rows, columns, self.seen)]
        for number, (convolution, stride) in enumerate(
            zip(self.convolutions, self.strides, strict=True)
        ):
            board = board[:, :, ::stride, ::stride]
            seen = torch.relu(convolution(seen)) * board
            if number == 0:
                parts.append(around(seen, rows, columns, self.felt))
        parts += [_shares(seen), seen.flatten(2).amax(2)]
        values: Tensor = self.dense(torch.cat([part.to(seen.dtype) for part in parts], 1))
        return values.float()


def _shares(planes: Tensor) -> Tensor:
    """The sum over the cells of each plane, in boards of the usual size."""
    return planes.flatten(2).sum(2) / USUAL_CELLS


def around(planes: Tensor, rows: Tensor, columns: Tensor, side: int) -> Tensor:
    """The cells around (``rows``, ``columns``): (B, side * side * C); zeros off the planes."""
    margin = side // 2
    padded = nn.functional.pad(planes.permute(0, 2, 3, 1), (0, 0, *(margin,) * 4))
    boards, height, width, count = padded.shape
    window = torch.arange(side, device=planes.device)
    offsets = (window[:, None] * width + window).flatten()
    firsts = torch.arange(boards, device=planes.device) * (height * width) + rows * width + columns
    cells = firsts[:, None] + offsets
    return padded.reshape(-1, count).index_select(0, cells.flatten()).reshape(boards, -1)
