"""The attention network: planes of two turns in, the values of the four moves out.

Each turn goes through the same convolutions. What is not a picture (health, length, turn) is looked
up in tables of learned vectors, the *queries*; every place of the convolved board answers them with
a learned *key*, and the products say how much that place matters to a snake in such a state. A GRU
reads the two turns one after the other.
"""

from __future__ import annotations

import math
from typing import Any

import mxnet as mx
from mxnet import gluon

CHANNELS = 6
REPEAT = 3
"""Every cell becomes 3 x 3 pixels, so that four convolutions of stride 2 fit onto a board."""
HIDDEN = 128
"""Units of the GRU."""
MOVES = 4
PLANES = 7
"""Of one turn: food, own snake, other snakes, hazards, and three numbers spread over a plane:
health, length, turn (`battlesnake_gym.see.observations.STARTER_PLANES`)."""
PICTURES = 3
"""The first planes, which are looked at; the pack knew no hazards."""

# What a query is about: (values it can have, how many vectors each value is given).
HEALTH, LENGTH, TURN = (101, 200), (51, 10), (10, 200)


class Attention(gluon.HybridBlock):  # type: ignore[misc]
    """(B, C, H, W) features and (B,) numbers to (B, vectors, places): what matters where."""

    def __init__(self, values: int, vectors: int) -> None:
        super().__init__()
        self.vectors = vectors
        with self.name_scope():
            self.key = convolution(CHANNELS)
            self.key_norm = gluon.nn.LayerNorm(in_channels=CHANNELS)
            self.query = gluon.nn.Embedding(values, vectors * CHANNELS)
            self.query_norm = gluon.nn.LayerNorm(in_channels=CHANNELS)

    def hybrid_forward(self, F: Any, features: Any, numbers: Any) -> Any:  # noqa: N803
        """Products of every query with every key."""
        keys = self.key(features).reshape((0, 0, -1)).transpose((0, 2, 1))
        queries = self.query(numbers).reshape((0, self.vectors, CHANNELS))
        products = F.batch_dot(self.query_norm(queries), self.key_norm(keys), transpose_b=True)
        return products / math.sqrt(self.vectors)


class AttentionNetwork(gluon.HybridBlock):  # type: ignore[misc]
    """(B, 2 * 7, H, W) float planes, newest turn first, to (B, 4) values."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.pixels = height * REPEAT, width * REPEAT
        self.small = halved(self.pixels, 2)
        rows, columns = halved(self.pixels, 3)
        self.features = CHANNELS * rows * columns
        with self.name_scope():
            self.look = convolution(PICTURES, "softrelu")
            self.look_closer = convolution(CHANNELS, "softrelu")
            self.by_health = Attention(*HEALTH)
            self.by_length = Attention(*LENGTH)
            self.by_turn = Attention(*TURN)
            vectors = HEALTH[1] + LENGTH[1] + TURN[1]
            self.combine = convolution(CHANNELS + vectors)
            self.remember = gluon.rnn.GRU(HIDDEN, layout="NTC", input_size=self.features)
            self.values = gluon.nn.Dense(MOVES, in_units=2 * HIDDEN)

    def hybrid_forward(self, F: Any, planes: Any) -> Any:  # noqa: N803
        """The values of the moves."""
        height, width = (side // REPEAT for side in self.pixels)
        this, last = (
            planes.slice_axis(axis=1, begin=begin, end=begin + PLANES) for begin in (0, PLANES)
        )
        turns = F.concat(last, this, dim=1).reshape((-1, PLANES, height * width))
        pictures = turns.slice_axis(axis=1, begin=0, end=PICTURES)
        # The pack's own numbers: head 5, body 1, outside the board -1 (here 250, 50 and 255).
        pictures = pictures / 50 - (pictures - 250).clip(0, 5) * 1.22
        pictures = pictures.reshape((-1, PICTURES, height, width))
        pictures = pictures.repeat(axis=2, repeats=REPEAT).repeat(axis=3, repeats=REPEAT)
        looked = self.look(pictures)

        numbers = turns.slice_axis(axis=2, begin=0, end=1).reshape((0, -1))
        health, length, turn = (
            numbers.slice_axis(axis=1, begin=plane, end=plane + 1).reshape((-1,))
            for plane in range(PLANES - 3, PLANES)
        )
        matters = F.concat(
            self.by_health(looked, (health * (100 / 255) + 0.5).floor()),
            self.by_length(looked, length / 5),
            self.by_turn(looked, turn.clip(0, TURN[0] - 1)),
            dim=1,
        ).reshape((0, 0, *self.small))

        both = self.combine(F.concat(self.look_closer(looked), matters, dim=1))
        return self.values(self.remember(both.reshape((-1, 2, self.features))))


def convolution(channels_in: int, activation: str | None = None) -> Any:
    """A 3x3 convolution that halves the sides."""
    return gluon.nn.Conv2D(
        CHANNELS, kernel_size=3, strides=2, in_channels=channels_in, activation=activation
    )


def halved(sides: tuple[int, int], times: int) -> tuple[int, int]:
    """Height and width after so many of these convolutions."""
    height, width = sides
    for _ in range(times):
        height, width = (height - 3) // 2 + 1, (width - 3) // 2 + 1
    return height, width


def make_network(height: int, width: int) -> AttentionNetwork:
    """A network with random weights, compiled at its first call."""
    network = AttentionNetwork(height, width)
    network.initialize(mx.init.Xavier())
    network.hybridize(static_alloc=True)
    return network


def weights_of(network: AttentionNetwork) -> dict[str, Any]:
    """A copy of all weights, as numpy arrays by name."""
    return {
        name: weight.data().asnumpy()
        for name, weight in network._collect_params_with_prefix().items()
    }


def set_weights(network: AttentionNetwork, weights: dict[str, Any]) -> None:
    """Take over what `weights_of` gave; raises ``KeyError`` for the weights of another network."""
    for name, weight in network._collect_params_with_prefix().items():
        weight.set_data(mx.nd.array(weights[name]))
