"""Adapter for the official command line, which plays whole games: ``official_cli.py PATH``."""

import subprocess
import sys
from collections.abc import Iterable
from queue import Queue

from scripted_snakes import boards, scripted_moves, start_server
from server_loop import Json, UnsupportedGameError, flatten_cells, serve


class _CommandLineGame:
    """One game of the official command line.

    The start of the next game ends the process of this game.
    """

    process: subprocess.Popen[bytes] | None = None

    def start(self, header: Json) -> Json:
        """Start games until the snakes of a game have the recorded order.

        The order differs between the starts of the command line.
        """
        self.names = header["snakes"]
        if not header["map"] or header["solo"] != (len(self.names) == 1):
            raise UnsupportedGameError("games need a map, and solo games need one snake")
        named = {"width": "w", "height": "h", "gametype": "ruleset", "map": "map", "seed": "seed"}
        options = {key: header[name] for key, name in named.items()} | header["settings"]
        words = [f"--{key}={value}" for key, value in options.items()]
        words += [word for name in self.names for word in (f"--name={name}", f"--url={url}/{name}")]
        command = [sys.argv[1], "play", "--timeout=60000", *words]
        while True:
            if self.process:
                self.process.kill()
                self.process.wait()
            boards.queue.clear()
            scripted_moves.update((name, Queue()) for name in self.names)
            self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            first = boards.get()
            if [snake["name"] for snake in first["board"]["snakes"]] == self.names:
                return self._format_line(first)

    def play_turn(self, moves: list[str | None]) -> Json:
        """Play one turn.

        With an invalid move, the command line would repeat the snake's last move.
        """
        for name, move in zip(self.names, moves, strict=True):
            if move:
                scripted_moves[name].put(move)
        return self._format_line(boards.get())

    def _format_line(self, body: Json) -> Json:
        """Convert the body of a request to a line of the protocol."""
        board = body["board"]
        living = {s["name"]: {"hp": s["health"], "b": _flatten(s["body"])} for s in board["snakes"]}
        # After the last elimination, the request arrives one turn late and contains the food of
        # that turn.
        late = {} if living else {"t": body["turn"] - 1, "f": None, "hz": None}
        f, hz = _flatten(board["food"]), _flatten(board["hazards"])
        return {"t": body["turn"], "s": list(map(living.get, self.names)), "f": f, "hz": hz, **late}


def _flatten(cells: Iterable[Json]) -> list[int]:
    """Convert cells of the Battlesnake API to a flat list of the protocol."""
    return flatten_cells(cell.values() for cell in cells)


if __name__ == "__main__":
    url = start_server()
    serve("official command line", _CommandLineGame(), "x", "by", "on", "dead", "over")
