"""Adapter for hisss for turns with given food and hazards.

Install the package with ``pip install hisss``. The package requires Python 3.12 or newer.
"""

from __future__ import annotations

from hisss import BattleSnakeConfig, BattleSnakeGame
from server_loop import Json, UnsupportedGameError, flatten_cells, parse_cells, serve

_MOVES = ("up", "right", "down", "left")
_MAX_SNAKES = 6
"""Maximum number of snakes.

The engine lists all 4**n joint moves of n living snakes.
"""


class _HisssGame:
    """One position in a game of hisss."""

    def load(self, header: Json, state: Json) -> Json:
        """Load a position."""
        snakes, hazards = state["s"], parse_cells(state["hz"])
        bodies = {i: [list(cell) for cell in parse_cells(s["b"])] for i, s in enumerate(snakes)}
        alone = header["solo"] or header["ruleset"] == "solo"
        if "constrictor" in header["ruleset"] or header["map"] in ("", "solo_maze"):
            raise UnsupportedGameError("no constrictor, no solo_maze, no synthetic boards")
        if len(snakes) > _MAX_SNAKES or (hazards and header["w"] != header["h"]):
            raise UnsupportedGameError(
                f"at most {_MAX_SNAKES} snakes, and hazards only on square boards"
            )
        if len(set(hazards)) < len(hazards) or alone != (len(snakes) == 1):
            raise UnsupportedGameError("no stacked hazards, and solo only with one snake")
        config = BattleSnakeConfig(
            num_players=len(snakes), w=header["w"], h=header["h"], all_actions_legal=True,
            min_food=0, food_spawn_chance=0, init_turns_played=state["t"], init_snake_pos=bodies,
            init_snakes_alive=["x" not in s for s in snakes],
            init_food_pos=[list(cell) for cell in parse_cells(state["f"])],
            init_snake_health=[max(s["hp"], 0) for s in snakes],
            init_snake_len=[len(s["b"]) // 2 for s in snakes],
            wrapped="wrapped" in header["ruleset"], royale=bool(hazards), shrink_n_turns=10**6,
            hazard_damage=header["settings"]["hazardDamagePerTurn"],
            init_hazards=[[x, y] for x, y in hazards if x < header["w"] and y < header["h"]],
        )  # fmt: skip
        # hisss rejects the default, True, on a board without borders.
        config.ec.include_board = False
        self.game = BattleSnakeGame(config)
        return state

    def play_turn(self, moves: list[str | None]) -> Json:
        """Play one turn."""
        self.game.step(tuple(_MOVES.index(move) for move in moves if move))
        lengths, health = self.game.player_lengths(), self.game.player_healths()
        alive, found = self.game.players_alive(), []
        for i, length in enumerate(lengths):
            body = self.game.player_pos(i)
            body = [*body, *[body[-1]] * (int(length) - len(body))][: int(length)]
            found.append({"hp": int(health[i]), "b": flatten_cells(body)} if i in alive else None)
        return {"t": self.game.turns_played, "s": found, "over": bool(self.game.is_terminal())}


if __name__ == "__main__":
    serve("hisss", _HisssGame(), "start", "f", "hz", "x", "by", "on", "dead")
