"""`llmgw quota` and `llmgw model owner` against a real server."""

from __future__ import annotations

import pytest

from catalog.models import Event, Model, Quota
from catalog.services import scopes, served
from llmgw_site.cli.client import CliError
from llmgw_site.cli.quotas import read, words
from tests.cluster.rows import Machine, a_model_row, a_ready_replica
from tests.llmgw_site.cli.conftest import Llmgw

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_quota_from_setting_to_removing(llmgw: Llmgw) -> None:
    _, row = a_ready_replica()
    acme = scopes.create_organisation(actor="t", name="acme")
    scopes.create_team(actor="t", organisation=acme, name="search / web")
    served.update(actor="t", model=row.model, organisation=acme)
    assert "No quotas yet" in llmgw("quota", "list").out
    done = llmgw("quota", "set", "acme", "--guarantee", "memory=512MiB", "--guarantee", "cores=1", "--limit", "cores=4",
                 "--limit", "cards:NVIDIA L4=2", "--why", "as agreed")  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "The organisation acme: guaranteed 1 core, 512.0 MiB; at most 2 NVIDIA L4, 4 cores; holds 1.0 GiB.\n"
    )
    assert llmgw("quota", "set", "team:search / web", "--limit", "memory=1GiB").code == 0
    listed = llmgw("quota", "list").out
    for text in ("acme / search / web", "2 NVIDIA L4, 4 cores", "1.0 GiB", "small"):
        assert text in listed
    assert [item["name"] for item in llmgw("quota", "list", "--json").json] == ["acme", "search / web"]
    assert llmgw("quota", "remove", "search / web").code == 0
    assert Quota.objects.get().organisation == acme
    assert Event.objects.filter(kind="quota_removed").count() == 1
    assert llmgw("quota", "remove", "search / web").code == 4


def test_what_is_refused_is_said_with_its_sums(llmgw: Llmgw) -> None:
    Machine().heartbeat()
    scopes.create_organisation(actor="t", name="acme")
    done = llmgw("quota", "set", "acme", "--guarantee", "cores=5")
    assert done.code == 1
    assert "add up to 5 cores (acme 5), and the fleet has 4" in done.err
    assert llmgw("quota", "set", "acme").code == 1
    assert llmgw("quota", "set", "nobody", "--limit", "cores=1").code == 4
    assert llmgw("quota", "set", "acme", "--limit", "gpus=1").code == 2


def test_a_model_gets_an_owner_and_loses_it(llmgw: Llmgw) -> None:
    model = a_model_row("tiny")
    acme = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=acme, name="web")
    project = scopes.create_project(actor="t", team=team, name="web")
    for scope, said, columns in (
        ("acme", "the organisation acme", (acme.pk, None, None)),
        ("team:web", "the team web", (None, team.pk, None)),
        (project.pk, "the project web", (None, None, project.pk)),
        ("none", "nobody", (None, None, None)),
    ):
        done = llmgw("model", "owner", "tiny", scope)
        assert llmgw("model", "owner", "tiny").out == done.out  # who only asks changes nothing
        assert (done.code, done.out) == (0, f"tiny belongs to {said}.\n")
        row = Model.objects.get(pk=model.pk)
        assert (row.organisation_id, row.team_id, row.project_id) == columns
    done = llmgw("model", "owner", "tiny", "web")
    assert done.code == 1
    assert f"acme/web ({team.pk}) or acme/web/web ({project.pk})" in done.err
    done = llmgw("model", "owner", "tiny", "nobody")
    assert (done.code, "there is no scope 'nobody'; `llmgw scope list` shows them" in done.err) == (4, True)


@pytest.mark.parametrize(
    ("options", "amount"),
    [
        ([], {}),
        (["cores=8", "memory=64GiB"], {"cores": 8, "memory": 64 << 30}),
        (["cards:NVIDIA L4=2", "cards:A=B=3"], {"cards": {"NVIDIA L4": 2, "A=B": 3}}),
    ],
)
def test_amounts_as_options(options: list[str], amount: object) -> None:
    assert read(options, "--limit") == amount


@pytest.mark.parametrize(
    "text",
    [
        "cores",
        "cores=",
        "cores=x",
        "cores=-1",
        "cards:=1",
        "cards:L4=1.5",
        "memory=much",
        "=1",
        f"cores={'9' * 5000}",
        "cards:L4=9007199254740992",
        "memory=99999999TiB",
    ],
)
def test_an_option_that_is_no_amount_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(CliError, match=f"--limit {text}"):
        read([text], "--limit")


def test_amounts_in_words() -> None:
    assert words({"cards": {"L4": 1.5, "": 2.0}, "cores": 1, "memory": 1 << 30}) == [
        "1.5 L4",
        "2 unknown",
        "1 core",
        "1.0 GiB",
    ]
