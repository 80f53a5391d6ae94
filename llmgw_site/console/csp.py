"""The Content-Security-Policy of the console: only our own files, no inline script, no foreign frame.

`unsafe-eval` is what the theme's Alpine.js needs (it compiles the expressions of its attributes); `unsafe-inline` for
styles is what the theme's colour sheet, htmx's indicator rule and `style=` attributes need. No inline script is allowed,
so a page that were made to carry one would not run it. The API's own documentation page is not under /admin/.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)


class ConsolePolicy:
    """Middleware: sends POLICY with every page under /admin."""

    sync_capable, async_capable = True, False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if request.path.startswith("/admin"):
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
