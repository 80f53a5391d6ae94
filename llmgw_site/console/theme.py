"""How the console looks and what its sidebar offers: the theme's settings (django-unfold, `UNFOLD`).

Read by settings, so it imports nothing that needs Django set up; links are resolved on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy

MAY_SEE_JOBS = ("cluster.view_job",)
MAY_CHANGE_JOBS = ("cluster.change_job",)
MAY_SEE_NODES = ("cluster.view_node",)
MAY_CHANGE_NODES = ("cluster.change_node",)
MAY_REMOVE_NODES = ("cluster.delete_node",)
MAY_SEE_JOIN_TOKENS = ("cluster.view_jointoken",)
MAY_ADD_JOIN_TOKENS = ("cluster.add_jointoken",)
MAY_REVOKE_JOIN_TOKENS = ("cluster.delete_jointoken",)
MAY_SEE_SETUP = ("cluster.view_clustersetup", "cluster.view_node")
MAY_CHANGE_SETUP = ("cluster.change_clustersetup",)
MAY_SEE_MODEL = ("catalog.view_model", "cluster.view_replica", "cluster.view_node")
MAY_CHANGE_MODEL = ("catalog.change_model",)
MAY_SEE_ALIASES = ("catalog.view_alias", "catalog.view_model")
MAY_FIND_MODELS = ("catalog.add_model", "cluster.view_node")
MAY_SERVE_MODELS = (*MAY_FIND_MODELS, "catalog.change_model", "cluster.add_job", "cluster.view_job")
MAY_SEE_WEIGHTS = ("catalog.view_version", "cluster.view_node")
MAY_ADD_WEIGHTS = ("catalog.add_version",)
MAY_CHANGE_WEIGHTS = ("catalog.change_version",)
MAY_REMOVE_WEIGHTS = ("catalog.delete_version",)
MAY_UPDATE_MODELS = ("catalog.change_model", "cluster.add_job", "cluster.view_job")
MAY_SEE_QUOTAS = ("catalog.view_quota",)
MAY_CHANGE_QUOTAS = ("catalog.add_quota", "catalog.change_quota", "catalog.delete_quota")
MAY_SEE_LIMITS = ("catalog.view_limit",)
MAY_CHANGE_LIMITS = ("catalog.add_limit", "catalog.change_limit", "catalog.delete_limit")
MAY_SEE_BUDGETS = ("catalog.view_budget",)
MAY_CHANGE_BUDGETS = ("catalog.add_budget", "catalog.change_budget", "catalog.delete_budget")
MAY_ROTATE_KEYS = ("catalog.view_apikey", "catalog.change_apikey")
MAY_SEE_USAGE = ("routing.view_usagerecord",)
MAY_CHAT = ("catalog.view_model", "catalog.add_apikey")
"""Chatting issues a key of the OpenAI endpoint, so it asks for the permission to issue keys."""


def _file(path: str) -> Callable[[HttpRequest], str]:
    return lambda request: static(path)


def _can(*permissions: str) -> Callable[[HttpRequest], bool]:
    """Shown to whoever holds these permissions."""
    return lambda request: request.user.has_perms(permissions)  # type: ignore[union-attr]


def _can_somewhere(permission: str) -> Callable[[HttpRequest], bool]:
    """Shown to whoever holds this permission of some scope, too."""

    def may(request: HttpRequest) -> bool:
        from catalog.services import access

        return access.anywhere(request.user, [permission])

    return may


IN_SCOPES = frozenset(
    {
        "catalog.model",
        "catalog.apikey",
        "catalog.project",
        "catalog.team",
        "catalog.organisation",
        "catalog.rolegrant",
        "routing.usagerecord",
    }
)
"""Tables whose pages show to each what is in their scopes."""


def _rows(title: str, icon: str, label: str) -> dict[str, Any]:
    """The admin's list of a table, `label` being `app.model`."""
    app, model = label.split(".")
    permission = f"{app}.view_{model}"
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{app}_{model}_changelist"),
        "permission": _can_somewhere(permission) if label in IN_SCOPES else _can(permission),
    }


def _page(title: str, icon: str, name: str, *permissions: str) -> dict[str, Any]:
    """A page of the console's own."""
    return {"title": title, "icon": icon, "link": reverse_lazy(name), "permission": _can(*permissions)}


def _scoped_page(title: str, icon: str, name: str, permission: str) -> dict[str, Any]:
    """The same of one that shows to each what is in their scopes."""
    return {"title": title, "icon": icon, "link": reverse_lazy(name), "permission": _can_somewhere(permission)}


_NAVIGATION: list[dict[str, Any]] = [
    {
        "items": [
            {"title": "Overview", "icon": "monitoring", "link": reverse_lazy("admin:index")},
            _page("Chat", "forum", "console:chat", *MAY_CHAT),
            {
                **_page("Jobs", "checklist", "console:jobs", *MAY_SEE_JOBS),
                "badge": "llmgw_site.console.jobs.open_count",
            },
        ]
    },
    {
        "title": "Catalogue",
        "separator": True,
        "items": [
            _rows("Models", "deployed_code", "catalog.model"),
            _page("Aliases", "alt_route", "console:aliases", *MAY_SEE_ALIASES),
            _page("Find a model", "travel_explore", "console:registry", *MAY_FIND_MODELS),
            _page("Mirror", "hard_drive", "console:mirror", *MAY_SEE_WEIGHTS),
            _rows("Providers", "cloud", "catalog.provider"),
            _rows("API keys", "key", "catalog.apikey"),
            _rows("Projects", "folder_open", "catalog.project"),
            _rows("Teams", "group", "catalog.team"),
            _rows("Organisations", "corporate_fare", "catalog.organisation"),
            _scoped_page("Quotas", "pie_chart", "console:quotas", *MAY_SEE_QUOTAS),
            _scoped_page("Limits", "speed", "console:limits", *MAY_SEE_LIMITS),
            _scoped_page("Budgets", "account_balance_wallet", "console:budgets", *MAY_SEE_BUDGETS),
            _rows("Admin tokens", "badge", "catalog.admintoken"),
        ],
    },
    {
        "title": "Cluster",
        "separator": True,
        "items": [
            _page("Nodes", "dns", "console:nodes", *MAY_SEE_NODES),
            _page("Cluster setup", "account_tree", "console:setup", *MAY_SEE_SETUP),
            _rows("Replicas", "stacks", "cluster.replica"),
            _rows("Events", "history", "catalog.event"),
        ],
    },
    {
        "title": "Requests",
        "separator": True,
        "items": [
            _scoped_page("Usage and costs", "payments", "console:costs", *MAY_SEE_USAGE),
            _rows("Usage", "bar_chart", "routing.usagerecord"),
        ],
    },
    {
        "title": "Access",
        "separator": True,
        "items": [
            _rows("Users", "person", "auth.user"),
            _rows("Groups", "groups", "auth.group"),
            _rows("Roles", "shield_person", "catalog.rolegrant"),
        ],
    },
]

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "llmgw",
    "SITE_HEADER": "llmgw",
    "SITE_SUBHEADER": "LLM cluster console",
    "SITE_URL": None,
    "SITE_ICON": _file("img/icon.svg"),
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _file("img/icon.svg")}],
    "SHOW_VIEW_ON_SITE": False,
    "LOGIN": {"form": "llmgw_site.console.signin.SignIn"},
    "STYLES": [_file("css/console.css")],
    "DASHBOARD_CALLBACK": "llmgw_site.console.overview.dashboard",
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": _NAVIGATION},
    "COLORS": {
        "primary": {
            "50": "oklch(97.6% 0.014 220)",
            "100": "oklch(94.5% 0.032 219)",
            "200": "oklch(89.4% 0.058 218)",
            "300": "oklch(82.5% 0.090 218)",
            "400": "oklch(74.0% 0.115 220)",
            "500": "oklch(62.5% 0.112 222)",
            "600": "oklch(51.5% 0.096 224)",
            "700": "oklch(44.5% 0.082 225)",
            "800": "oklch(38.5% 0.068 226)",
            "900": "oklch(33.0% 0.055 227)",
            "950": "oklch(24.5% 0.042 229)",
        },
    },
}
