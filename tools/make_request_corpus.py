"""Requests of whole games in two forms, for the tests: tests/data/requests.jsonl.gz.

    python tools/make_request_corpus.py tests/data/requests.jsonl.gz

One line a request: the ``game`` and ``seat`` that are asked, and the body as the ``official``
command line writes it and as an engine does that lists all snakes to the end (``listing``).
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.boards import board_json
from battlesnake_gym.rules import Game, Snake, State
from battlesnake_server.arena.players import LocalPlayer
from battlesnake_server.arena.referee import ArenaForm, play

GAMES = (("standard", 4, 1), ("royale", 4, 2), ("wrapped", 4, 3), ("constrictor", 3, 4))
MOST_TURNS = 90


def main() -> None:
    """Play the games and write their requests."""
    lines: list[dict[str, Any]] = []
    for ruleset, count, seed in GAMES:
        game, listing = Game(ruleset=ruleset, seed=seed, id=f"{ruleset}-{seed}"), ArenaForm()

        def write(game: Game, state: State, you: Snake, listing: ArenaForm = listing) -> Any:
            official = board_json.write(game, state, you)
            if you.alive:
                seat = state.snakes.index(you)
                body = listing(game, state, you)
                lines.append({"game": game.id, "seat": seat, "official": official, "listing": body})
            return official

        players = [LocalPlayer(snakes.make("hungry", seed + seat), 60.0) for seat in range(count)]
        names = [f"snake {seat}" for seat in range(count)]
        asyncio.run(play(game, 11, 11, names, players, MOST_TURNS, write=write))
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    with open(sys.argv[1], "wb") as file:  # noqa: PTH123
        file.write(gzip.compress(text.encode(), 9, mtime=0))
    sys.stdout.write(f"{len(lines)} requests\n")


if __name__ == "__main__":
    main()
