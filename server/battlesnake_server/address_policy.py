"""Address policy: the IP addresses to which the referee may connect.

A snake's URL is untrusted. The host name of the URL may resolve to a machine of the operator's
network, and to another machine a second later. The policy therefore ignores host names. The policy
checks each resolved IP address immediately before the connection. Every IP address belongs to one
class. The class ``public`` is always allowed. Another class is allowed if the operator named the
class (``--allow-networks``) or typed a URL that contains an address of the class.
"""

from __future__ import annotations

import argparse
import errno
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Any
from urllib.parse import urlsplit

from battlesnake_gym.common.command_line import Parser, port
from battlesnake_gym.snake_spec import SnakeSpec

PUBLIC, PRIVATE, LINK_LOCAL, LOOPBACK = "public", "private", "link-local", "loopback"

RESERVED = "reserved"
"""Class of addresses that no snake can have, such as multicast addresses.

The class also contains the addresses reserved for documentation, and unassigned addresses.
"""

_ALLOWABLE_CLASSES = (LOOPBACK, PRIVATE, LINK_LOCAL)
"""Address classes that ``--allow-networks`` accepts."""

_NETWORKS_BY_CLASS = {
    PRIVATE: ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
              "fec0::/10"),
    LINK_LOCAL: ("169.254.0.0/16", "fe80::/10"),
    # A connection to the unspecified address (0.0.0.0 or ::) reaches this machine.
    LOOPBACK: ("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128"),
}  # fmt: skip
"""IP networks by address class (RFC 1122, 1918, 3879, 3927, 4193, 4291 and 6598)."""

_CLASSIFIED_NETWORKS = [
    (ipaddress.ip_network(network), name)
    for name, all_ in _NETWORKS_BY_CLASS.items()
    for network in all_
]
_GLOBAL_UNICAST_NETWORK = IPv6Network("2000::/3")
_IPV4_EMBEDDING_NETWORKS = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""IPv6 networks that embed an IPv4 address: NAT64 (RFC 6052) and IPv4-compatible."""


def _classify(address: str) -> str:
    """Return the class of an IP address.

    An IPv6 address may embed an IPv4 address (IPv4-mapped, NAT64, 6to4, Teredo). The embedded
    address then determines the class.

    Args:
        address: IP address as returned by ``getaddrinfo``, with or without a scope id.

    >>> [_classify(a) for a in ("127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "0.0.0.0")]
    ['loopback', 'private', 'link-local', 'loopback']
    >>> [_classify(a) for a in ("1.1.1.1", "2606:4700::1111", "224.0.0.1", "192.0.2.1")]
    ['public', 'public', 'reserved', 'reserved']
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    for network, name in _CLASSIFIED_NETWORKS:
        if ip in network:
            return name
    embedded = _embedded_ipv4(ip)
    if embedded is not None:
        return _classify(str(embedded))
    if isinstance(ip, IPv6Address) and ip not in _GLOBAL_UNICAST_NETWORK:
        return RESERVED
    return PUBLIC if ip.is_global and not ip.is_multicast else RESERVED


def _embedded_ipv4(ip: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address embeds, or None."""
    if isinstance(ip, IPv4Address):
        return None
    if any(ip in network for network in _IPV4_EMBEDDING_NETWORKS):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Rules for the connections over which the referee sends requests to one snake.

    Attributes:
        classes: Allowed address classes.
        redirects: Whether to follow redirects to the same host and port.
    """

    classes: frozenset[str] = frozenset({PUBLIC})
    redirects: bool = False

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> AddressPolicy:
        """Return the address policy for the parsed options of `add_options`."""
        return cls(frozenset({PUBLIC, *options.allow_networks}), options.follow_redirects)

    def with_typed_address(self, url: str) -> AddressPolicy:
        """Return a policy that also allows the address class of a typed URL.

        The class of every host name except ``localhost`` is ``public``.
        """
        try:
            host = urlsplit(url).hostname or ""
            name = LOOPBACK if host == "localhost" else _classify(host)
        except ValueError:
            return self
        return replace(self, classes=self.classes | {name})

    def open_socket(self, address_info: tuple[Any, ...]) -> socket.socket:
        """Create a socket for a resolved address.

        Args:
            address_info: Result tuple of ``getaddrinfo``.

        Raises:
            PermissionError: If the class of the address is not allowed.
        """
        family, kind, protocol, _, address = address_info
        name = _classify(address[0])
        if name not in self.classes:
            remedy = f"; --allow-networks {name} permits it" if name in _ALLOWABLE_CLASSES else ""
            raise PermissionError(errno.EACCES, f"{address[0]} is a {name} address{remedy}")
        return socket.socket(family, kind, protocol)


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening TCP socket.

    Raises:
        ValueError: If the port is in use; the message contains the remedy.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
        message = f"cannot listen on {host}, port {port}: {reason}"
        raise ValueError(f"{message}; give another --port or --host") from None


def parse_host(text: str) -> str:
    """Remove the brackets around an IPv6 address from the host to listen on.

    >>> parse_host("[::1]"), parse_host("0.0.0.0")
    ('::1', '0.0.0.0')
    """
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def url_host(host: str) -> str:
    """Return a host in URL syntax, with brackets around an IPv6 address.

    >>> url_host("::1"), url_host("localhost")
    ('[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host else host


def add_options(parser: argparse.ArgumentParser, *, redirects: bool = True) -> None:
    """Add the options that `AddressPolicy` reads.

    Args:
        parser: Parser of a command that connects to snakes or fetches games.
        redirects: Whether to add ``--follow-redirects``. Downloads of games never follow redirects.
    """
    parser.add_argument(
        "--allow-networks",
        type=_parse_networks,
        default=frozenset(),
        metavar="NETWORKS",
        help="comma-separated classes of addresses to allow in addition: "
        f"{', '.join(_ALLOWABLE_CLASSES)} (default: only public addresses, "
        "and addresses typed in URLs)",
    )
    parser.set_defaults(follow_redirects=False)
    if redirects:
        parser.add_argument("--follow-redirects", action="store_true", help="follow redirects to "
            "the same host and port (by default, a redirect is a failed move)")  # fmt: skip


OPTIONS = ("allow_networks", "follow_redirects")
"""Attributes of the options of `add_options`."""


def reject_unused_options(
    command: Parser,
    options: argparse.Namespace,
    sources: Iterable[str],
    names: Iterable[str] = OPTIONS,
) -> None:
    """Reject the options ``names`` of `add_options` if none of the snakes ``sources`` is a URL."""
    if not any(SnakeSpec.parse(source).is_remote for source in sources):
        command.reject_given(options, names, "without URLs")


PAGE_OPTIONS = ("host", "allow_host", "port")
"""Attributes of the options of `add_page_options`."""


def add_page_options(parser: argparse.ArgumentParser, default_port: int) -> None:
    """Add the listening options of commands that serve web pages."""
    add = parser.add_argument
    add("--host", type=parse_host, default="127.0.0.1", help="address to serve the pages on")
    add("--allow-host", action="append", default=[], metavar="NAME",
        help="host name under which the pages may be requested, in addition to IP addresses and "
        "this machine's name")  # fmt: skip
    add(
        "--port",
        type=port,
        default=default_port,
        help="port to serve the pages on; 0 selects a free port",
    )


def _parse_networks(text: str) -> frozenset[str]:
    networks = frozenset(name for name in text.split(",") if name)
    if unknown := sorted(networks - set(_ALLOWABLE_CLASSES)):
        raise argparse.ArgumentTypeError(
            f"unknown network {', '.join(unknown)}; choose from {', '.join(_ALLOWABLE_CLASSES)}"
        )
    return networks
