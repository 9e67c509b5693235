"""Roster: the snakes that visitors may play against and query."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from battlesnake_gym import snakes
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.tournament import Entrant
from battlesnake_server.bundle import Bundle
from battlesnake_server.strategy_loader import PolicyFactory


class Roster:
    """Roster of the snakes that visitors may select.

    The roster contains the registered snakes, the operator's snakes and, if allowed, snakes at any
    URL.

    Args:
        extra_snakes: The operator's snakes (`SnakeSpec`).
        allow_urls: Whether visitors may name snakes by URL.
        address_policy: Policy for the addresses of visitors' URLs.

    Raises:
        ValueError: If an extra snake is unknown.
    """

    def __init__(
        self,
        extra_snakes: Iterable[str] = (),
        *,
        allow_urls: bool = False,
        address_policy: AddressPolicy = AddressPolicy(),  # noqa: B008
    ) -> None:
        self.allow_urls = allow_urls
        self._address_policy = address_policy
        self._entrants: dict[str, Entrant] = {}
        self.descriptions: dict[str, str] = {}
        """Description of each snake by name."""
        for entrant in Entrant.parse_all(extra_snakes, address_policy):
            self._entrants[entrant.label] = entrant
            self.descriptions[entrant.label] = _describe(entrant)
        for name in snakes.names():
            if name not in self._entrants:
                self._entrants[name] = Entrant(name, label=name)
                self.descriptions[name] = snakes.description(name)

    def find(self, name: object, field: str) -> Entrant:
        """Return the snake with this name or URL.

        Args:
            name: Value from the request.
            field: Name of the request's field, for error messages.

        Raises:
            BoardError: If the snake is unknown or its URL is not allowed.
        """
        if isinstance(name, str) and name in self._entrants:
            return self._entrants[name]
        if isinstance(name, str) and Entrant(name).is_remote:
            return self._entrant_at_url(name, field)
        known = ", ".join(self._entrants)
        raise BoardError(f"{field}: unknown snake {format_value(name)}; choose one of {known}")

    def _entrant_at_url(self, url: str, field: str) -> Entrant:
        """Return the snake at a visitor's URL, and check the URL."""
        if not self.allow_urls:
            raise BoardError(
                f"{field}: {format_value(url)} is not allowed; start the arena with "
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
        return Entrant(url, label=url, address_policy=self._address_policy)


def _describe(entrant: Entrant) -> str:
    """Return the description of an extra snake.

    Raises:
        ValueError: If the snake cannot play.
    """
    if entrant.is_remote:
        return "remote"
    if entrant.is_bundle:
        Bundle.load(entrant.source)  # Policy rules are loaded when a visitor selects the snake.
        return "bundle"
    factory = entrant.strategy_factory()
    is_policy = isinstance(factory, PolicyFactory)
    return "policy" if is_policy else snakes.description(str(entrant))
