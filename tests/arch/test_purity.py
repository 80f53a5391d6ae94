"""What imports cannot show: no clock, no dice, no files and no printing in the pure rooms."""

from __future__ import annotations

import ast
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PURE = sorted(
    [p for app in ("catalog", "cluster", "guard", "routing") for p in (TOP / app / "domain").rglob("*.py")]
    + [
        TOP / "cluster/wire.py",
        TOP / "workers/agent/machine.py",
        *(TOP / "llmgw_site/lib" / f"{n}.py" for n in ("errors", "ids", "units")),
    ]
)
FORBIDDEN = {"now", "utcnow", "today", "time", "monotonic", "perf_counter", "time_ns", "uuid1", "uuid4", "urandom",
             "token_bytes", "token_hex", "token_urlsafe", "open", "print", "input", "getenv", "sleep"}  # fmt: skip


def calls(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            owner = getattr(getattr(node.func, "value", None), "id", "")
            if name in FORBIDDEN and not (isinstance(node.func, ast.Attribute) and owner in ("self", "clock")):
                found.append((node.lineno, name))
    return found


def test_pure_rooms_call_no_clock_no_dice_no_files() -> None:
    found = {str(path.relative_to(TOP)): calls(ast.parse(path.read_text())) for path in PURE}
    assert {path: called for path, called in found.items() if called} == {}


def test_the_check_sees_what_it_looks_for() -> None:
    tree = ast.parse("import datetime, uuid\ndatetime.datetime.now()\nuuid.uuid4()\nopen('x')\n")
    assert [name for _, name in calls(tree)] == ["now", "uuid4", "open"]
