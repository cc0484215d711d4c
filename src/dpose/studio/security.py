"""Who may talk to the studio: this machine, this browser, a page of the studio itself. Checked before anything else.

A page of another site can make a browser send requests to 127.0.0.1, and can make its own name point there (DNS
rebinding). So the order is: the Host header, which such a page cannot choose; then the Origin; then the secret of this
start, which no other page knows.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
"""The one address that the studio listens on."""
NAMES = (LOOPBACK, "localhost")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of every page: nothing inline, nothing from elsewhere, in nobody's frame."""
REPORT_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'; "
    "base-uri 'none'"
)
"""Of a report from a run folder, which may be a stranger's: it runs nothing, whatever it holds."""
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
    "dpose studio: this browser is not let in. Open the address that `dpose studio` printed when it was started; "
    "one of an earlier start does not open this one.\n"
)
ENTRY = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">'
    '<link rel="icon" href="data:,">'
    '<title>dpose studio</title></head><body><p><a href="/">dpose studio</a></p></body></html>'
)
"""Shown where the token was right. The page goes on by itself: a redirect that begins at another program or site would
not carry a SameSite=Strict cookie."""


@dataclass(frozen=True)
class Door:
    """What opens the studio.

    Attributes:
        port: That it listens on.
        token: Stands in the address, once.
        session: Stands in the cookie afterwards.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def address(self) -> str:
        """What the person opens."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """Its name: cookies do not tell ports apart, and two studios may run."""
        return f"dpose-studio-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """What a browser on this machine calls the studio."""
        return frozenset(f"{name}:{self.port}" for name in NAMES)

    def refusal(self, scope: Scope) -> Response | None:
        """Why a request is not answered; None where it may go on to have its secret looked at.

        Args:
            scope: Of an HTTP request.
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
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not self.knocks(scope):
            return PlainTextResponse("dpose studio: a page of another site asks; it gets no answer.\n", 403)
        return None

    def knocks(self, scope: Scope) -> bool:
        """Whether the request is the printed address, with the token of this start."""
        if scope["path"] != "/" or scope["method"] != "GET":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return len(given) == 1 and secrets.compare_digest(given[0].encode(), self.token.encode())

    def knows(self, scope: Scope) -> bool:
        """Whether the request has the cookie of this start."""
        try:
            found = SimpleCookie(Headers(scope=scope).get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self.session.encode())


class Guard:
    """Lets requests through to `app` that `door` allows, and puts `HEADERS` on every answer."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it. Of other kinds of connection there are none."""
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
        if answer is None and self.door.knocks(scope):
            answer = HTMLResponse(ENTRY)
            answer.set_cookie(self.door.cookie, self.door.session, httponly=True, samesite="strict", path="/")
        elif answer is None and not self.door.knows(scope):
            answer = PlainTextResponse(NO_KEY, 403)
        await (answer or self.app)(scope, receive, guarded)
