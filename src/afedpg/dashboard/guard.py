"""Who may look. On loopback: whoever calls this machine by one of its own names, so that no page of the web can have a
browser read it under a name that leads here (DNS rebinding). Elsewhere: whoever knows the token, for every route.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "media-src 'self'",
    "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
))  # fmt: skip
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80  # browsers leave it out


class Guard:
    """Around the whole application: nothing is answered past it."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None) -> None:
        self._app = app
        self._token = token
        self._cookie = f"afedpg-{port}"  # cookies do not know ports
        names = {*LOOPBACK_NAMES, bracketed(host)}
        self._hosts = {f"{name}:{port}" for name in names} | (names if port == HTTP_PORT else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refusal(scope) or self._app
        await answer(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("read-only\n", 405, {"Allow": "GET, HEAD"})
        if self._token is None:
            known = headers.get("host", "").lower() in self._hosts
            return None if known else PlainTextResponse("unknown Host\n", 421)
        return self._admit(scope, headers)

    def _admit(self, scope: Scope, headers: Headers) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and self._is_token(given[-1]):
            if scope["path"] != "/":
                return None
            # The token moves from the address, which people copy and browsers remember, into a cookie.
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            answer = RedirectResponse(f"/?{rest}" if rest else "/", 303)
            # Lax: a link in somebody's mail or chat leads here, too; what is embedded elsewhere is sent no cookie.
            answer.set_cookie(self._cookie, given[-1], httponly=True, samesite="lax")
            return answer
        if self._is_token(_cookie(headers.get("cookie", ""), self._cookie)):
            return None
        return PlainTextResponse("open the address that `afedpg dashboard` printed, with its token\n", 403)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def bracketed(host: str) -> str:
    """As an address and a Host header have it."""
    return f"[{host}]" if ":" in host else host


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
