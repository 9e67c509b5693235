"""Official command line, which plays whole games: ``official_cli.py PATH``."""

import subprocess
import sys
from queue import Queue

from scripted_snakes import boards, listen, scripted_moves
from server_loop import Json, RefusedError, flat, serve


class Cli:
    """One game of the command line.

    The next game stops this game.
    """

    process: subprocess.Popen[bytes] | None = None

    def start(self, header: Json) -> Json:
        """Start the game until its snakes have the recorded order.

        The order varies between starts.
        """
        self.names = header["snakes"]
        if not header["map"] or header["solo"] != (len(self.names) == 1):
            raise RefusedError("games need a map, and solo games need one snake")
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
                return self._line(first)

    def step(self, moves: list[str | None]) -> Json:
        """Play one turn.

        The command line would replace an unknown move with the snake's last move.
        """
        if any(move not in (None, "up", "down", "left", "right") for move in moves):
            raise RefusedError("the command line supports only the four moves")
        for name, move in zip(self.names, moves, strict=True):
            if move:
                scripted_moves[name].put(move)
        return self._line(boards.get())

    def _line(self, body: Json) -> Json:
        board = body["board"]
        living = {
            snake["name"]: {"hp": snake["health"], "b": flat(c.values() for c in snake["body"])}
            for snake in board["snakes"]
        }
        # After the last elimination, the request arrives one turn late, with the food of that turn.
        late = {} if living else {"t": body["turn"] - 1, "f": None, "hz": None}
        f, hz = (flat(c.values() for c in board[key]) for key in ("food", "hazards"))
        return {"t": body["turn"], "s": list(map(living.get, self.names)), "f": f, "hz": hz, **late}


if __name__ == "__main__":
    url = listen()
    serve("official command line", Cli(), "x", "by", "on", "dead", "over")
