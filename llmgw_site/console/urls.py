"""Paths of the console's own pages, under the admin's."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from llmgw_site.console import (
    adapters,
    aliases,
    budgets,
    chat,
    costs,
    jobs,
    joining,
    keys,
    limits,
    mirror,
    models,
    nodes,
    oidc,
    overview,
    quotas,
    registry,
    setup,
    updates,
    users,
)

__all__ = ["app_name", "urlpatterns", "users"]

app_name = "console"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/overview/parts", overview.live, name="overview-parts"),
    path("admin/oidc/start", oidc.start, name="oidc-start"),
    path("admin/oidc/callback", oidc.callback, name="oidc-callback"),
    path("admin/oidc/backchannel-logout", oidc.backchannel_logout, name="oidc-backchannel-logout"),
    path("admin/logout/", oidc.sign_out, name="sign-out"),
    path("admin/aliases", aliases.index, name="aliases"),
    path("admin/aliases/<str:alias_id>/remove", aliases.remove, name="alias-remove"),
    path("admin/jobs", jobs.index, name="jobs"),
    path("admin/jobs/<str:job_id>", jobs.detail, name="job"),
    path("admin/jobs/<str:job_id>/cancel", jobs.act, {"verb": "cancel"}, name="job-cancel"),
    path("admin/jobs/<str:job_id>/retry", jobs.act, {"verb": "retry"}, name="job-retry"),
    path("admin/keys/<str:key_id>/rotate", keys.rotate, name="key-rotate"),
    *(
        path(f"admin/{pages.noun}s{rest}", view, name=f"{pages.noun}{name}")
        for pages in (limits.PAGES, quotas.PAGES, budgets.PAGES)
        for rest, name, view in (
            ("", "s", pages.index_view),
            ("/set", "-set", pages.set_view),
            ("/remove", "-remove", pages.remove_view),
        )
    ),
    path("admin/model/<str:model_id>", models.card, name="model"),
    path("admin/model/<str:model_id>/adapter", adapters.add, name="adapter-add"),
    path("admin/model/<str:model_id>/adapter/<str:adapter_id>/remove", adapters.remove, name="adapter-remove"),
    path("admin/model/<str:model_id>/adapter/<str:adapter_id>/<str:verb>", adapters.order, name="adapter-order"),
    *(
        path(f"admin/model/<str:model_id>/{verb}", models.order, {"verb": verb}, name=f"model-{verb}")
        for verb in models.ORDERS
    ),
    path("admin/model/<str:model_id>/weights/<str:verb>", updates.act, name="model-weights"),
    path("admin/nodes", nodes.index, name="nodes"),
    path("admin/nodes/add", joining.add, name="node-add"),
    path("admin/nodes/tokens/<str:token_id>/revoke", joining.revoke, name="node-token-revoke"),
    path("admin/nodes/<str:node_id>/maintenance", nodes.maintain, name="node-maintain"),
    path("admin/nodes/<str:node_id>/remove", nodes.remove, name="node-remove"),
    path("admin/registry", registry.index, name="registry"),
    path("admin/registry/<path:ref>", registry.repository, name="registry-model"),
    path("admin/mirror", mirror.index, name="mirror"),
    path("admin/mirror/add", mirror.add, name="mirror-add"),
    path("admin/mirror/<str:version_id>/origin", mirror.origin, name="mirror-origin"),
    path("admin/mirror/<str:version_id>/remove", mirror.remove, name="mirror-remove"),
    path("admin/setup", setup.page, name="setup"),
    path("admin/setup/save", setup.save, name="setup-save"),
    path("admin/setup/clear", setup.clear, name="setup-clear"),
    path("admin/usage", costs.usage, name="costs"),
    path("admin/requests/<str:ref>", costs.one, name="request"),
    path("admin/chat", chat.page, name="chat"),
    path("admin/chat/models", chat.models, name="chat-models"),
    path("admin/chat/key", chat.key, name="chat-key"),
]
