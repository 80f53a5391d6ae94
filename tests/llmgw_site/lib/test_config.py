"""llmgw_site.lib.config: what is taken, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_site.lib import django_config
from llmgw_site.lib.config import ConfigError, load


def test_an_empty_environment_gives_the_defaults() -> None:
    it = load({})
    assert (it.port, it.node_port, it.metrics_port) == (8800, 8880, 8890)
    assert it.client_url == "http://127.0.0.1:8800"
    assert it.controller_urls == ("http://127.0.0.1:8880",)
    assert it.data.is_absolute()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LLMGW_PORT", "http", "a port number"),
        ("LLMGW_PORT", "0", "a port number"),
        ("LLMGW_OIDC_ROLES", "devs", "GROUP=ROLE@SCOPE"),
        ("LLMGW_OIDC_ROLES", "devs=king", "GROUP=ROLE@SCOPE"),
        ("LLMGW_OIDC_ROLES", "=admin", "GROUP=ROLE@SCOPE"),
        ("LLMGW_OIDC_ISSUER", "ftp://x", "begins with http"),
        ("LLMGW_PORT", "65536", "a port number"),
        ("LLMGW_MAX_BODY", "much", "is no size"),
        ("LLMGW_IDLE_TIMEOUT", "-1", "seconds above 0"),
        ("LLMGW_IDLE_TIMEOUT", "nan", "seconds above 0"),
        ("LLMGW_LOG_STYLE", "xml", "json, text"),
        ("LLMGW_USAGE_DAYS", "-1", "0 for ever"),
        ("LLMGW_USAGE_DAYS", "nan", "0 for ever"),
        ("LLMGW_ACCESS_LOG", "perhaps", "1 or 0"),
        ("LLMGW_REDIS_URL", "http://x", "begins with redis://"),
        ("DATABASE_URL", "mysql://x", "begins with postgresql://"),
        ("LLMGW_NODE_ADDRESS", "http://10.0.0.5:99999", "a port from 1 to 65535"),
        ("LLMGW_NODE_ADDRESS", "https://[::1", "a port from 1 to 65535"),
        ("LLMGW_CONTROLLERS", "http://10.0.0.5:8880,http://10.0.0.6:99999", "write node addresses"),
        ("LLMGW_CONTROLLERS", "ftp://10.0.0.5", "write node addresses"),
        ("LLMGW_CONTROLLERS", "http://:8880", "write node addresses"),
        ("LLMGW_CORS_ORIGINS", "https://a.example/", "write origins"),
        ("LLMGW_CORS_ORIGINS", "https://*.example", "write origins"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({name: value})
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(name)
    assert words in caught.value.problems[0]


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"LLMGW_PORT": "x", "LLMGW_MAX_BODY": "y"})
    assert len(caught.value.problems) == 2


def test_two_listeners_on_one_port_are_refused() -> None:
    with pytest.raises(ConfigError, match="must differ"):
        load({"LLMGW_PORT": "8880"})


def test_a_secret_is_never_shown_in_a_refusal() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"DATABASE_URL": "mysql://user:hush@host/x"})
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError, match="%2F") as caught:
        load({"DATABASE_URL": "postgresql://user:hush/hush@host/x"})
    assert "hush" not in str(caught.value)


def test_a_secret_may_come_from_a_file_and_the_variable_wins(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from the file\n")
    assert load({"LLMGW_SECRET_KEY_FILE": str(file)}).secret_key == "from the file"
    assert load({"LLMGW_SECRET_KEY_FILE": str(file), "LLMGW_SECRET_KEY": "mine"}).secret_key == "mine"
    with pytest.raises(ConfigError, match="cannot be read"):
        load({"LLMGW_SECRET_KEY_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8800"), ("10.0.0.5", "http://10.0.0.5:8800"), ("::1", "http://[::1]:8800")],
)
def test_the_address_for_people_can_be_reached(host: str, url: str) -> None:
    assert load({"LLMGW_HOST": host}).client_url == url
    assert load({"LLMGW_HOST": host, "LLMGW_PUBLIC_URL": "https://llm.example/"}).client_url == "https://llm.example"


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, "http://127.0.0.1:8880"),
        ({"LLMGW_NODE_HOST": "0.0.0.0"}, "http://127.0.0.1:8880"),
        ({"LLMGW_NODE_HOST": "::"}, "http://[::1]:8880"),
        ({"LLMGW_NODE_HOST": "10.0.0.5", "LLMGW_NODE_PORT": "8881"}, "http://10.0.0.5:8881"),
        ({"LLMGW_NODE_HOST": "0.0.0.0", "LLMGW_NODE_ADDRESS": "https://n1.example:443"}, "https://127.0.0.1:8880"),
        ({"LLMGW_CONTROLLERS": "10.0.0.9:8880/"}, "http://10.0.0.9:8880"),
    ],
)
def test_without_other_controllers_the_own_node_listener_is_asked_as_it_listens(
    tmp_path: Path, environ: dict[str, str], url: str
) -> None:
    assert load({"LLMGW_DATA": str(tmp_path), **environ}).controller_urls == (url,)


def test_sqlite_takes_its_lock_at_the_beginning_and_waits_for_it(tmp_path: Path) -> None:
    entry = django_config.database(load({"LLMGW_DATA": str(tmp_path)}))
    assert entry["NAME"] == str(tmp_path / "llmgw.sqlite3")
    assert entry["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in entry["OPTIONS"]["init_command"]


def test_a_postgresql_address_is_taken_apart() -> None:
    entry = django_config.database(
        load({"DATABASE_URL": "postgresql://us%40er:p%2Fw@db:5433/name?host=/run/pg&sslmode=require"})
    )
    assert (entry["USER"], entry["PASSWORD"], entry["NAME"], entry["PORT"]) == ("us@er", "p/w", "name", "5433")
    assert entry["HOST"] == "/run/pg"
    assert entry["OPTIONS"]["sslmode"] == "require"
    assert entry["OPTIONS"]["pool"]


def test_nobody_waits_for_ever_for_a_database_or_for_who_holds_a_lock_there() -> None:
    own = "options=-c%20work_mem%3D8MB&connect_timeout=3"
    for query, told in (("", ""), (f"?{own}", " -c work_mem=8MB")):
        options = django_config.database(load({"DATABASE_URL": f"postgresql://a@db/name{query}"}))["OPTIONS"]
        assert options["options"] == "-c lock_timeout=20s -c idle_in_transaction_session_timeout=60s" + told
        assert str(options["connect_timeout"]) == ("3" if query else "10")
        assert options["keepalives_idle"]


def test_a_public_address_narrows_the_names_that_are_answered_to_but_not_our_own_calls() -> None:
    assert django_config.allowed_hosts(load({})) == ["*"]
    hosts = django_config.allowed_hosts(load({"LLMGW_PUBLIC_URL": "https://llm.example.com/"}))
    assert {"llm.example.com", "localhost", "web"} <= set(hosts)
    assert "*" not in hosts


def test_no_secret_is_in_what_a_log_or_a_debug_page_shows_of_the_settings() -> None:
    names = ("LLMGW_SECRET_KEY", "LLMGW_REDIS_URL", "DATABASE_URL")
    values = ("hidden-1", "redis://:hidden-2@h/0", "postgresql://u:hidden-3@h/d")
    assert "hidden" not in repr(load(dict(zip(names, values, strict=True))))


def test_roles_of_single_sign_on_take_groups_with_any_character_but_the_semicolon() -> None:
    it = load({"LLMGW_OIDC_ROLES": "cn=a,dc=b = admin ; devs=operator@team:search;"})
    assert it.oidc_roles == (("cn=a,dc=b", "admin", ""), ("devs", "operator", "team:search"))
    assert load({}).oidc_roles == ()


def test_a_provider_without_a_client_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        load({"LLMGW_OIDC_ISSUER": "https://login.example.com"})
    assert "LLMGW_OIDC_CLIENT_ID" in str(refused.value)
