"""Where the referee may connect to: checked on the very address, after its name was resolved.

A snake's URL may lead anywhere: a name may stand for a machine of the operator's own network, and
for another one a second later. So nothing is decided by names. Every address falls into one class,
and a connection is opened only to a class that is allowed: ``public`` always is, the others where
the operator named them (``--allow-addresses``), or typed a URL with such an address in it.
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

from battlesnake_gym.common.command_line import port

PUBLIC, PRIVATE, LINK_LOCAL, LOOPBACK = "public", "private", "link-local", "loopback"

RESERVED = "reserved"
"""Addresses that no snake can have: multicast, examples, what is not yet given out."""

_ALLOWABLE_CLASSES = (LOOPBACK, PRIVATE, LINK_LOCAL)
"""What ``--allow-addresses`` may name."""

_NETWORKS = {
    PRIVATE: ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
              "fec0::/10"),
    LINK_LOCAL: ("169.254.0.0/16", "fe80::/10"),
    # A connection to the unspecified address arrives at this machine.
    LOOPBACK: ("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128"),
}  # fmt: skip
"""The classes that are not public (RFC 1918, 6598, 4193, 3879; 3927, 4291; 1122)."""

_CLASSES = [
    (ipaddress.ip_network(network), name) for name, all_ in _NETWORKS.items() for network in all_
]
_ASSIGNED = IPv6Network("2000::/3")
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""IPv6 that ends in the IPv4 address it stands for: NAT64 (RFC 6052), and IPv4-compatible."""


class AddressError(OSError):
    """A connection that was not opened: its address is of a class that is not allowed."""


def classify(address: str) -> str:
    """The class of an address as a socket takes it.

    What stands for another address (IPv4-mapped, NAT64, 6to4, Teredo) is of that one's class.

    >>> [classify(a) for a in ("127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "0.0.0.0")]
    ['loopback', 'private', 'link-local', 'loopback']
    >>> [classify(a) for a in ("1.1.1.1", "2606:4700::1111", "224.0.0.1", "192.0.2.1")]
    ['public', 'public', 'reserved', 'reserved']
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    for network, name in _CLASSES:
        if ip in network:
            return name
    behind = _embedded_ipv4(ip)
    if behind is not None:
        return classify(str(behind))
    if isinstance(ip, IPv6Address) and ip not in _ASSIGNED:
        return RESERVED
    return PUBLIC if ip.is_global and not ip.is_multicast else RESERVED


def _embedded_ipv4(ip: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(ip, IPv4Address):
        return None
    if any(ip in network for network in _TRANSLATED):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Where a snake's requests may go.

    ``classes`` of addresses, and with ``redirects`` also where the snake sends them, as long as
    that is the same host and port.
    """

    classes: frozenset[str] = frozenset({PUBLIC})
    redirects: bool = False

    def allowing_typed_address(self, url: str) -> AddressPolicy:
        """This, and the class of the address that the operator typed within ``url``.

        A name is not an address: it counts as public, whatever it leads to, except ``localhost``.
        """
        try:
            host = urlsplit(url).hostname or ""
            name = LOOPBACK if host == "localhost" else classify(host)
        except ValueError:
            return self
        return replace(self, classes=self.classes | {name})

    def open_socket(self, found: tuple[Any, ...]) -> socket.socket:
        """A socket for an address that was resolved (an answer of ``getaddrinfo``).

        Raises `AddressError` where its class is not allowed.
        """
        family, kind, protocol, _, address = found
        name = classify(address[0])
        if name not in self.classes:
            remedy = (
                f"; --allow-addresses {name} would allow it" if name in _ALLOWABLE_CLASSES else ""
            )
            raise AddressError(errno.EACCES, f"{address[0]} is a {name} address{remedy}")
        return socket.socket(family, kind, protocol)


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens there; raises ``ValueError`` with the remedy where it cannot."""
    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be between 0 and {2**16 - 1}, got {port}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
        where = f"cannot listen on {host}, port {port}: {why}"
        raise ValueError(f"{where}; give another --port or --host") from None


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of commands that play against URLs; read by `from_options`."""
    parser.add_argument(
        "--allow-addresses",
        type=_classes,
        default=frozenset(),
        metavar="CLASSES",
        help=f"also connect to names and typed URLs that lead to {', '.join(_ALLOWABLE_CLASSES)} addresses; "
        "several with commas (default: public ones, and the addresses in this command)",
    )
    parser.add_argument(
        "--follow-redirects",
        action="store_true",
        help="follow redirects on the same host and port (else a redirect is a lost move)",
    )


def add_page_options(parser: argparse.ArgumentParser, usual: int) -> None:
    """The options of commands with pages that others may be shown."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address of the pages")
    add("--allow-host", action="append", default=[], metavar="NAME",
        help="a host name by which the pages may be asked for, besides addresses and this "
        "machine's own")  # fmt: skip
    add("--port", type=port, default=usual, help="port of the pages; 0: any free one")


def from_options(options: argparse.Namespace) -> AddressPolicy:
    """The options of `add_options` as a `AddressPolicy`."""
    return AddressPolicy(frozenset({PUBLIC, *options.allow_addresses}), options.follow_redirects)


def _classes(text: str) -> frozenset[str]:
    names: Iterable[str] = filter(None, text.split(","))
    wanted = frozenset(names)
    if unknown := sorted(wanted - set(_ALLOWABLE_CLASSES)):
        raise argparse.ArgumentTypeError(
            f"unknown class {', '.join(unknown)}; name some of {', '.join(_ALLOWABLE_CLASSES)}"
        )
    return wanted
