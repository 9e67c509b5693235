"""Address policy of the referee: the IP addresses to which it may connect.

A snake's URL is untrusted: its host name may resolve to a machine of the operator's network, and to
another machine a second later. The policy therefore ignores names. The policy checks the IP address
after the name is resolved, immediately before the connection. Every address belongs to one class.
The class ``public`` is always allowed. Other classes are allowed if the operator named them
(``--allow-networks``) or typed a URL that contains such an address.
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
"""Class of addresses that no snake can have, such as multicast addresses.

The class also contains the addresses reserved for documentation, and unassigned addresses.
"""

_ALLOWABLE_CLASSES = (LOOPBACK, PRIVATE, LINK_LOCAL)
"""Classes that ``--allow-networks`` accepts."""

_NETWORKS = {
    PRIVATE: ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
              "fec0::/10"),
    LINK_LOCAL: ("169.254.0.0/16", "fe80::/10"),
    # A connection to the unspecified address reaches this machine.
    LOOPBACK: ("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128"),
}  # fmt: skip
"""Networks by class (RFC 1122, 1918, 3879, 3927, 4193, 4291 and 6598)."""

_CLASSES = [
    (ipaddress.ip_network(network), name) for name, all_ in _NETWORKS.items() for network in all_
]
_ASSIGNED = IPv6Network("2000::/3")
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""IPv6 networks that embed an IPv4 address: NAT64 (RFC 6052) and IPv4-compatible."""


class AddressError(OSError):
    """Error raised if the address policy does not allow the class of an address."""


def classify(address: str) -> str:
    """Return the class of an IP address.

    An address may embed another address (IPv4-mapped, NAT64, 6to4, Teredo), which then determines
    the class.

    Args:
        address: IP address as returned by ``getaddrinfo``, with or without a scope id.

    >>> [classify(a) for a in ("127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "0.0.0.0")]
    ['loopback', 'private', 'link-local', 'loopback']
    >>> [classify(a) for a in ("1.1.1.1", "2606:4700::1111", "224.0.0.1", "192.0.2.1")]
    ['public', 'public', 'reserved', 'reserved']
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    for network, name in _CLASSES:
        if ip in network:
            return name
    embedded = _embedded_ipv4(ip)
    if embedded is not None:
        return classify(str(embedded))
    if isinstance(ip, IPv6Address) and ip not in _ASSIGNED:
        return RESERVED
    return PUBLIC if ip.is_global and not ip.is_multicast else RESERVED


def _embedded_ipv4(ip: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address embeds, or None."""
    if isinstance(ip, IPv4Address):
        return None
    if any(ip in network for network in _TRANSLATED):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Rules for the connections of one snake's requests.

    Attributes:
        classes: Allowed classes of addresses.
        redirects: Whether redirects to the same host and port are followed.
    """

    classes: frozenset[str] = frozenset({PUBLIC})
    redirects: bool = False

    def allowing_typed_address(self, url: str) -> AddressPolicy:
        """Return a policy that also allows the class of the IP address in a typed URL.

        Host names except ``localhost`` count as public.
        """
        try:
            host = urlsplit(url).hostname or ""
            name = LOOPBACK if host == "localhost" else classify(host)
        except ValueError:
            return self
        return replace(self, classes=self.classes | {name})

    def open_socket(self, found: tuple[Any, ...]) -> socket.socket:
        """Create a socket for a resolved address.

        Args:
            found: Result tuple of ``getaddrinfo``.

        Raises:
            AddressError: If the class of the address is not allowed.
        """
        family, kind, protocol, _, address = found
        name = classify(address[0])
        if name not in self.classes:
            remedy = f"; --allow-networks {name} permits it" if name in _ALLOWABLE_CLASSES else ""
            raise AddressError(errno.EACCES, f"{address[0]} is a {name} address{remedy}")
        return socket.socket(family, kind, protocol)


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening TCP socket.

    Raises:
        ValueError: If the port is invalid or in use; the message contains the remedy.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be between 0 and {2**16 - 1}, got {port}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
        message = f"cannot listen on {host}, port {port}: {reason}"
        raise ValueError(f"{message}; give another --port or --host") from None


def host(text: str) -> str:
    """Return the host to listen on, without the brackets of an IPv6 address.

    >>> host("[::1]"), host("0.0.0.0")
    ('::1', '0.0.0.0')
    """
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def url_host(host: str) -> str:
    """Return a host in URL syntax, with brackets around an IPv6 address.

    >>> url_host("::1"), url_host("localhost")
    ('[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host else host


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `from_options` reads, for commands that play against URLs."""
    parser.add_argument(
        "--allow-networks",
        type=_networks,
        default=frozenset(),
        metavar="NETWORKS",
        help="comma-separated networks to contact in addition: "
        f"{', '.join(_ALLOWABLE_CLASSES)} (default: only public addresses and those typed in URLs)",
    )
    parser.add_argument(
        "--follow-redirects",
        action="store_true",
        help="follow redirects to the same host and port (otherwise a redirect loses the move)",
    )


def add_page_options(parser: argparse.ArgumentParser, default_port: int) -> None:
    """Add the options of commands that serve pages."""
    add = parser.add_argument
    add("--host", type=host, default="127.0.0.1", help="address to serve the pages on")
    add("--allow-host", action="append", default=[], metavar="NAME",
        help="host name under which the pages may be requested, in addition to IP addresses and "
        "this machine's name")  # fmt: skip
    add(
        "--port",
        type=port,
        default=default_port,
        help="port to serve the pages on; 0: any free port",
    )


def from_options(options: argparse.Namespace) -> AddressPolicy:
    """Return the policy for the parsed options of `add_options`."""
    return AddressPolicy(frozenset({PUBLIC, *options.allow_networks}), options.follow_redirects)


def _networks(text: str) -> frozenset[str]:
    names: Iterable[str] = filter(None, text.split(","))
    networks = frozenset(names)
    if unknown := sorted(networks - set(_ALLOWABLE_CLASSES)):
        raise argparse.ArgumentTypeError(
            f"unknown network {', '.join(unknown)}; choose from {', '.join(_ALLOWABLE_CLASSES)}"
        )
    return networks
