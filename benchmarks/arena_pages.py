"""What the arena's pages cost with 10,000 games in the database: CPU seconds of the server.

python benchmarks/arena_pages.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from server.arena.database import Game, Seat, Tournament, open_database
from server.web import create_app
from server.web.roster import Roster
from server.web.timeline import Broadcast

PAGES = (
    ("/games", "the list of games, newest"),
    ("/games?page=400", "the list of games, far back"),
    ("/games?snake=snake+3&ending=won&from=2026-03-04", "the list, filtered"),
    ("/game/game-5000/analysis", "one game by its id"),
    ("/?tournament=1", "the leaderboard, first look"),
    ("/?tournament=1", "the leaderboard, again"),
    ("/leaderboard.json?tournament=1", "what a live page asks for"),
    ("/snake/snake%203?tournament=1", "a snake's page"),
)


def fill(database: Engine, games: int, snakes: int = 12, moves: int = 3) -> None:
    """Put made-up duels into an empty database, each a minute after the one before."""
    rows: list[dict[str, Any]] = []
    seats: list[dict[str, Any]] = []
    for number in range(games):
        rows.append(
            {"id": number + 1, "tournament_id": 1, "number": number, "uuid": f"game-{number}",
             "seed": number, "turns": 100, "finished": True, "replay": None,
             "played": datetime(2026, 3, 2) + timedelta(minutes=number)}
        )  # fmt: skip
        for seat in range(2):
            snake = f"snake {(number + seat * (1 + number // snakes)) % snakes}"
            seats.append(
                {"game_id": number + 1, "seat": seat, "snake": snake, "won": seat == 0,
                 "cause": "" if seat == 0 else "wall-collision", "killer": None,
                 "eliminated_on": 100 * seat, "length": 9, "problems": {}, "opening": "uurrdd",
                 "latencies": [(number * 7 + move) % 50_000 / 100 for move in range(moves)]}
            )  # fmt: skip
    with Session(database) as session:
        session.add(Tournament(id=1, setup={"snakes": ["made", "up"]}))
        session.flush()
        session.execute(insert(Game), rows)
        session.execute(insert(Seat), seats)
        session.commit()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", type=int, default=10_000)
    parser.add_argument("--moves", type=int, default=150, help="latencies of each snake in a game")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{folder}/arena.sqlite")
        fill(database, arguments.games, moves=arguments.moves)
        client = create_app(database, Roster(), Broadcast(), Path(folder)).test_client()
        client.get("/live")  # templates and imports
        print(f"{arguments.games} games")
        for address, what in PAGES:
            began = time.process_time()
            answer = client.get(address)
            took = time.process_time() - began
            print(f"{took:7.3f} CPU-s {len(answer.data) / 1000:7.1f} kB  {what}  {address}")


if __name__ == "__main__":
    main()
