"""Access to the studio: from this machine, this browser, a page of the studio itself. Checked before anything else.

A page of another site can make a browser send requests to 127.0.0.1, and can make its own name point there (DNS
rebinding). So the order is: the Host header, which such a page cannot choose; then the Origin; then the secret of this
start, which no other page knows.

The secret is not a cookie, since a browser sends a host's cookies to every port, whichever program listens. It stands
in the printed address after "#", which no request carries; the page's script keeps it for its own tab and sends it in a
header. What a browser fetches without a script (a picture, a download, a report's frame) has a key of its one path in
its address. Views and scripts hold no user data, and are sent without the secret.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Set
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
"""The one address that the studio listens on."""
NAMES = (LOOPBACK, "localhost")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of every page: nothing inline, nothing from other hosts, not in any frame."""
REPORT_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'; base-uri 'none'"
)
"""Content-Security-Policy of a report from a run folder, which may come from a stranger: no script runs."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
NO_KEY = (
    "dpose studio: this tab is not let in. Open in it the address that `dpose studio` printed when it was started; "
    "one of an earlier start does not open this one.\n"
)
HEADER = "x-dpose-studio"
"""A script's requests have the secret in it."""


@dataclass(frozen=True)
class Door:
    """Port and secret that open the studio.

    Attributes:
        port: Port that the studio listens on.
        secret: Secret of this start.
    """

    port: int
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def address(self) -> str:
        """Address that the user opens."""
        return f"http://{LOOPBACK}:{self.port}/#{self.secret}"

    @property
    def hosts(self) -> frozenset[str]:
        """Host headers of a browser on this machine."""
        return frozenset(f"{name}:{self.port}" for name in NAMES)

    def refusal(self, scope: Scope) -> Response | None:
        """Reason to refuse a request before its secret is checked; None if there is none.

        Args:
            scope: ASGI scope of an HTTP request.
        """
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return PlainTextResponse("dpose studio: this is not the host that was asked for.\n", 421)
        own = f"http://{hosts[0].lower()}"
        origins = headers.getlist("origin")
        reads = scope["method"] in ("GET", "HEAD")
        if any(origin.lower() != own for origin in origins) or (not reads and len(origins) != 1):
            return PlainTextResponse("dpose studio: a page of another site asks; it gets no answer.\n", 403)
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not self._visits(scope):
            return PlainTextResponse("dpose studio: a page of another site asks; it gets no answer.\n", 403)
        return None

    def knows(self, scope: Scope) -> bool:
        """True if the request has the secret of this start, or a key for exactly its path."""
        given = Headers(scope=scope).getlist(HEADER)
        if len(given) == 1 and hmac.compare_digest(given[0].encode(), self.secret.encode()):
            return True
        keys = parse_qs(scope["query_string"].decode("latin-1")).get("key", [])
        return len(keys) == 1 and hmac.compare_digest(keys[0].encode(), self._key(scope["path"]).encode())

    def keyed(self, path: str) -> str:
        """Address of a path with a key, so that a browser may fetch it without the header."""
        return f"{quote(path, errors='surrogateescape')}?key={self._key(path)}"

    def _key(self, path: str) -> str:
        return hmac.digest(self.secret.encode(), path.encode(errors="surrogateescape"), "sha256").hex()

    def _visits(self, scope: Scope) -> bool:
        """True if a browser opens the first page, from a link in a terminal or from a file."""
        whither = Headers(scope=scope).get("sec-fetch-dest")
        return bool(scope["path"] == "/" and scope["method"] == "GET" and whither == "document")


class Guard:
    """Middleware that passes requests allowed by `door` on to `app`, and sets `HEADERS` on every answer.

    Args:
        app: The studio's application.
        door: Decides which requests are allowed.
        views: Paths of pages without user data, which are sent without the secret.
    """

    def __init__(self, app: ASGIApp, door: Door, views: Set[str]) -> None:
        self.app, self.door, self.views = app, door, views

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection; only HTTP is served."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self.door.refusal(scope)
        path, open_to_all = scope["path"], scope["method"] in ("GET", "HEAD")
        open_to_all = open_to_all and (path in self.views or path.startswith("/static/"))
        if answer is None and not open_to_all and not self.door.knows(scope):
            answer = PlainTextResponse(NO_KEY, 403)
        await (answer or self.app)(scope, receive, guarded)
