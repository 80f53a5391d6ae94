"""The console's admin site: title, and the theme's look. Pages are registered by each app's `admin` room."""

from __future__ import annotations

from unfold.sites import UnfoldAdminSite


class ConsoleSite(UnfoldAdminSite):
    """Django's admin as llmgw's console."""

    site_title = "llmgw"
    site_header = "llmgw"
    index_title = "Console"
    enable_nav_sidebar = True
