"""The console's admin site: title, and the theme's look. Pages are registered by each app's `admin` room."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from unfold.sites import UnfoldAdminSite


class ConsoleSite(UnfoldAdminSite):
    """Django's admin as llmgw's console."""

    site_title = "llmgw"
    site_header = "llmgw"
    index_title = "Console"
    enable_nav_sidebar = True

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """One's own; the session is the same under another key from then on."""
        from catalog.services import identities  # the site is made before there are tables

        with identities.kept(request.session):
            return super().password_change(request, extra_context)
