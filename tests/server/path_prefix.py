"""A proxy that serves a site below a path and strips the path, as Jupyter's does."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PREFIX = "/user/ann/proxy/8793"
_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "date", "server")


@dataclass
class Proxy:
    """The address of the site behind the proxy, and the paths outside it that were requested."""

    address: str
    outside: list[str] = field(default_factory=list)


@contextlib.contextmanager
def proxied(site: str) -> Iterator[Proxy]:
    """Serve the site at ``site`` below `PREFIX` while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                proxy.outside.append(self.path)
                self.send_error(404)
                return
            connection = http.client.HTTPConnection(urlsplit(site).netloc, timeout=120)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection.request(
                self.command, self.path.removeprefix(PREFIX), body, dict(self.headers)
            )
            response = connection.getresponse()
            content = response.read()
            connection.close()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = forward  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        proxy = Proxy(f"http://127.0.0.1:{server.server_port}{PREFIX}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
