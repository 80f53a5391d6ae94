"""The policy that a console page is sent with."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from tests.llmgw_site.console.conftest import Cluster


def test_scripts_come_from_our_own_files_only(admin: Client) -> None:
    policy = admin.get("/admin/").headers["Content-Security-Policy"]
    assert "script-src 'self' 'unsafe-eval';" in policy  # the theme's Alpine.js compiles its attributes
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "path",
    ["/admin/", "/admin/jobs", "/admin/chat", "/admin/catalog/model/", "/admin/catalog/model/add/", "/admin/login/"],
)
def test_no_page_carries_what_its_policy_would_refuse(path: str, admin: Client, cluster: Cluster) -> None:
    cluster.model("tiny")
    html = (Client() if "login" in path else admin).get(path).content.decode()
    inline = [
        tag for tag in re.findall(r"<script\b[^>]*>", html) if "src=" not in tag and "application/json" not in tag
    ]
    assert inline == []
    assert re.findall(r"\son(click|load|error|submit|change)=", html) == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', html) == []


def test_other_paths_are_left_alone(admin: Client) -> None:
    assert "Content-Security-Policy" not in admin.get("/api/v1/schema").headers
