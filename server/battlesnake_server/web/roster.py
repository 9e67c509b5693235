"""Which snakes the pages may play against and ask: no other is run or fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.players import request_single_move
from battlesnake_server.arena.tournament import Entrant, local_factory, parse_entrants
from battlesnake_server.bundle import Bundle


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One snake of the roster: its name on the pages, and a line about it."""

    name: str
    description: str
    entrant: Entrant


class Roster:
    """The registered snakes, those that the operator named, and any URL where that is allowed.

    ``extra_snakes`` are as the arena's command takes them: a URL, a name, or a policy's path, maybe with
    ``LABEL=`` before it; ``reach`` is where the URLs that people type may lead. Raises
    ``ValueError`` where one of the invited is unknown.
    """

    def __init__(
        self,
        extra_snakes: Iterable[str] = (),
        *,
        allow_urls: bool = False,
        reach: AddressPolicy = AddressPolicy(),  # noqa: B008
    ) -> None:
        self.allow_urls = allow_urls
        self._reach = reach
        self._guests: dict[str, RosterEntry] = {}
        for entrant in parse_entrants(list(extra_snakes), reach):
            self._add(RosterEntry(entrant.label, _about(entrant), entrant))
        for name in snakes.names():
            self._add(RosterEntry(name, snakes.description(name), Entrant(name, name)))

    def _add(self, guest: RosterEntry) -> None:
        self._guests.setdefault(guest.name, guest)

    @property
    def guests(self) -> list[RosterEntry]:
        """All snakes that are known by name."""
        return list(self._guests.values())

    def find(self, name: object, field: str) -> Entrant:
        """The snake that a request calls ``name``; raises `BoardError` naming ``field``."""
        if isinstance(name, str) and name in self._guests:
            return self._guests[name].entrant
        if isinstance(name, str) and name.startswith(("http://", "https://")):
            return self._url(name, field)
        known = ", ".join(self._guests)
        raise BoardError(f"{field}: unknown snake {format_value(name)}; choose one of {known}")

    def _url(self, url: str, field: str) -> Entrant:
        if not self.allow_urls:
            raise BoardError(
                f"{field}: {format_value(url)} may not be fetched; start the arena with "
                "--allow-visitor-urls, or name the snake on the command line"
            )
        try:
            host = urlsplit(url).hostname
        except ValueError:
            host = None
        if not host or len(url) > 500 or not url.isprintable():
            raise BoardError(
                f"{field}: {format_value(url)} is not a URL; give one like http://host:8000"
            )
        return Entrant(url, url, self._reach)


def _about(entrant: Entrant) -> str:
    """A line about one who is invited; raises ``ValueError`` where it cannot play."""
    if entrant.remote:
        return "over the network"
    if snakes.is_bundle(entrant.source):
        Bundle.open(entrant.source)  # its rules are run when a visitor chooses it
        return "a bundle"
    local_factory(entrant)
    return "a policy" if entrant.is_policy else snakes.description(entrant.source)


def request_decision(entrant: Entrant, board: Board, seconds: float) -> Decision:
    """What a snake does on ``board``.

    Raises ``ValueError`` where it gives no move, or cannot play such a board.
    """
    if entrant.remote:
        decision = asyncio.run(
            request_single_move(board.to_api(), entrant.source, entrant.address_policy)
        )
    else:
        strategy = local_factory(entrant)(board.game.seed)
        try:
            decision = strategy(board.copy(), seconds)
        except Exception as error:  # a user's snake may raise anything
            raise ValueError(f"{entrant.label} cannot play this: {error}") from error
    if decision.move not in MOVES:
        why = decision.reasons[0].rule if decision.reasons else format_value(decision.move)
        raise ValueError(f"{entrant.label} gave no move ({why})")
    return decision
