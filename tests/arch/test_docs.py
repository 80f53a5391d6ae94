"""The docs are complete: every setting and every error code stands in them, and nothing stands there that is gone."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

from cluster.domain.refusals import _WORDS as REFUSALS
from llmgw_site.lib.config import Config

TOP = Path(__file__).resolve().parents[2]
PACKAGES = ("llmgw_site", "catalog", "cluster", "routing", "guard", "workers")
CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
CARRIERS = {"Refused", "Refusal", "_refused", "refuse", "BadGguf", "Verdict", "NoPlace", "Wait", "Close"}


def test_every_setting_is_documented_with_its_default() -> None:
    page = (TOP / "docs/settings.md").read_text()
    wanted = {f"| `{f.metadata['env']}` | `{f.metadata['default']}` |" for f in fields(Config)}
    assert [row for row in sorted(wanted) if row not in page] == []
    assert set(re.findall(r"^\| `([A-Z_]+)`", page, re.M)) == {f.metadata["env"] for f in fields(Config)}


def codes_in_the_source() -> set[str]:
    found = set()
    for package in PACKAGES:
        for path in (TOP / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                    texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                    texts += [
                        k.value.value for k in node.keywords if k.arg == "code" and isinstance(k.value, ast.Constant)
                    ]
                    if name in CARRIERS:
                        found |= {t for t in texts if CODE.fullmatch(t)}
    return found


def test_every_error_code_is_documented() -> None:
    page = (TOP / "docs/errors.md").read_text()
    cells = re.findall(r"^\| (`[^|]+) \|", page, re.M)  # some have two codes
    listed = {code for cell in cells for code in re.findall(r"`([a-z0-9_]+)`", cell)}
    assert sorted((codes_in_the_source() | set(REFUSALS)) - listed) == []
