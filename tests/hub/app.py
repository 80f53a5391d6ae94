"""The hub's answers: API and files on one host, the bodies of large files on another (as the hub's CDN is).

Shapes and headers are those that `huggingface_hub` reads: `hf_api.py`, `file_download.py`, `utils/_http.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from tests.hub.faults import Faults
from tests.hub.repos import File, Repo

PIECE = 64 << 10
PAGE = 2
"""Entries of a tree in one page: small, so that pages are met."""
TOKENS = {"hf_reader": "reader", "hf_other": "other"}
GONE = {
    "RepoNotFound": "Repository not found",
    "RevisionNotFound": "Invalid rev id",
    "EntryNotFound": "Entry not found",
}


class Answered(Exception):
    """An answer that ends the handling of a request."""

    def __init__(self, status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, dict(headers or {})


async def _gone(receive: Any) -> None:
    """Until the client has closed the connection: what is sent after that is neither received nor refused."""
    while (await receive())["type"] != "http.disconnect":
        pass


def refuse(status: int, code: str, message: str) -> Answered:
    return Answered(status, {"error": message}, {"X-Error-Code": code, "X-Error-Message": message})


class Hub:
    """ASGI application. `base` and `files` are the addresses of its two hosts, set by who runs it."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults = Faults()
        self.base = self.files = ""
        self.seen: list[dict[str, Any]] = []
        """Every request: method, path, query, range, whether a token came, and bytes of body that were sent."""
        self.signed: Counter[str] = Counter()

    def add(self, repo: Repo) -> Repo:
        self.repos[repo.id] = repo
        return repo

    def sent(self, *, method: str = "GET") -> int:
        """Bytes of files that were sent."""
        return sum(item["sent"] for item in self.seen if item["method"] == method)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        path = unquote(scope["raw_path"].decode(), errors="replace") if "raw_path" in scope else scope["path"]
        entry = {
            "method": scope["method"],
            "path": path,
            "query": scope["query_string"].decode(),
            "range": headers.get("range", ""),
            "token": headers.get("authorization", "").removeprefix("Bearer "),
            "host": headers.get("host", ""),
            "encoding": headers.get("accept-encoding", ""),
            "sent": 0,
        }
        self.seen.append(entry)
        body = b""
        if scope["method"] == "POST":
            while True:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
        try:
            self._spoil()
            file, extra, name = self._route(scope, entry, headers, body)
        except Answered as answer:
            await self._answer(send, scope["method"], answer)
            return
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await self._file(send, scope["method"], file, extra, headers, entry, name, gone)
        finally:
            gone.cancel()

    def _spoil(self) -> None:
        faults = self.faults
        if faults.login_page:
            raise Answered(
                200, b"<html><body>Please sign in to this network</body></html>", {"Content-Type": "text/html"}
            )
        if faults.rate_limits > 0:
            faults.rate_limits -= 1
            wait = str(faults.rate_wait)
            told = {"Retry-After": wait} if faults.rate_style == "retry-after" else {
                "RateLimit": f'"api";r=0;t={wait}',
                "RateLimit-Policy": '"fixed window";"api";q=500;w=300',
            }  # fmt: skip
            raise Answered(429, {"error": "Too many requests"}, told)
        if faults.server_errors > 0:
            faults.server_errors -= 1
            raise Answered(503, {"error": "Service unavailable"})

    def _route(
        self, scope: Any, entry: dict[str, Any], headers: Mapping[str, str], body: bytes
    ) -> tuple[File, dict[str, str], str]:
        path, query = entry["path"], parse_qs(entry["query"])
        if entry["token"] and entry["token"] not in TOKENS and not path.startswith("/cdn/"):
            raise Answered(401, {"error": "Invalid credentials in Authorization header"}, {"X-Error-Message": "Invalid credentials in Authorization header"})  # fmt: skip
        if path.startswith("/cdn/"):
            return self._signed(path, query, entry)
        if path == "/api/models":
            raise self._search(query)
        if path.startswith("/api/models/"):
            raise self._api(path.removeprefix("/api/models/"), scope["method"], query, entry, body)
        owner, _, rest = path.strip("/").partition("/")
        name, found, rest = rest.partition("/resolve/")
        repo = self._repo(f"{owner}/{name}", entry["token"])
        if not found:
            raise Answered(200, b"<html><body>a repository's page</body></html>", {"Content-Type": "text/html"})
        commit, file_path = self._revision(repo, rest, files=True)
        self._access(repo, entry["token"])
        return self._resolve(repo, commit, file_path)

    # --- files ------------------------------------------------------------------------------------------------------

    def _resolve(self, repo: Repo, commit: str, path: str) -> tuple[File, dict[str, str], str]:
        file = repo.commits[commit].get(path)
        if file is None:
            raise refuse(404, "EntryNotFound", GONE["EntryNotFound"])
        own = {} if self.faults.bare else {"X-Repo-Commit": commit}
        if not file.lfs:
            return file, {**own, "ETag": f'"{file.blob}"'}, path
        if not self.faults.bare:
            own |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        to = (
            self.faults.redirect_to
            or f"{self.files}/cdn/{repo.id}/{commit}/{path}?{urlencode({'Signature': file.sha256[:16]})}"
        )
        raise Answered(302, b"", {**own, "Location": to, "ETag": f'W/"{file.sha256}"'})

    def _signed(
        self, path: str, query: Mapping[str, list[str]], entry: dict[str, Any]
    ) -> tuple[File, dict[str, str], str]:
        """The file host: it knows signatures, no tokens, and refuses whoever sends one."""
        if entry["token"]:
            raise Answered(400, {"error": "Only one auth mechanism allowed"})
        owner, name, commit, file_path = path.removeprefix("/cdn/").split("/", 3)
        file = self.repos[f"{owner}/{name}"].commits[commit][file_path]
        self.signed[path] += 1
        if query.get("Signature") != [file.sha256[:16]]:
            raise Answered(403, {"error": "Request has expired"})
        if self.faults.expire_after is not None and self.signed[path] > self.faults.expire_after:
            self.signed[path] = 0
            raise Answered(403, {"error": "Request has expired"})
        return file, {"ETag": f'"{hashlib.md5(file.sha256.encode()).hexdigest()}"'}, file_path

    async def _file(
        self,
        send: Any,
        method: str,
        file: File,
        extra: dict[str, str],
        headers: Mapping[str, str],
        entry: dict[str, Any],
        path: str,
        gone: asyncio.Future[None],
    ) -> None:
        start, end, status = 0, file.size, 200
        asked = headers.get("range", "")
        if asked.startswith("bytes=") and not self.faults.ignore_range:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first or 0), min(file.size, int(last) + 1 if last else file.size)
            status = 206
            start = 0 if self.faults.other_range else start
            if start >= file.size:
                raw = {"Content-Range": f"bytes */{file.size}"}
                await self._answer(send, method, Answered(416, b"", raw))
                return
            extra = {**extra, "Content-Range": f"bytes {start}-{end - 1}/{file.size}"}
        length = end - start + self.faults.wrong_length
        kind = {"Content-Type": "application/octet-stream", "Content-Length": str(length), "Accept-Ranges": "bytes"}
        await self._start(send, status, {**kind, **extra})
        if method == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        at = start
        while at < end and not gone.done():
            if self._held(at):
                await asyncio.sleep(0.01)
                continue
            piece = file.read(at, min(PIECE, end - at))
            if self.faults.wrong_bytes and at <= file.size // 2 < at + len(piece):
                spot = file.size // 2 - at
                piece = piece[:spot] + bytes([piece[spot] ^ 1]) + piece[spot + 1 :]
            left = (
                None if self.faults.cut_after is None or self.faults.cuts <= 0 else self.faults.cut_after - (at - start)
            )
            if left is not None and left < len(piece):
                self.faults.cuts -= 1
                entry["sent"] += left
                await send({"type": "http.response.body", "body": piece[:left], "more_body": True})
                raise ConnectionError("cut on purpose")
            entry["sent"] += len(piece)
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": at < end})
            if self.faults.stall_after is not None and at - start >= self.faults.stall_after:
                await asyncio.sleep(3600)
            if self.faults.chunk_pause:
                await asyncio.sleep(self.faults.chunk_pause)

    def _held(self, at: int) -> bool:
        """Whether a piece of this place in its file has to wait."""
        place, count = self.faults.hold_from, self.faults.hold_after
        return (place is not None and at >= place) or (count is not None and self.sent() >= count)

    # --- the API ----------------------------------------------------------------------------------------------------

    def _repo(self, repo_id: str, token: str) -> Repo:
        repo = self.repos.get(repo_id)
        if repo is None or (repo.private and token not in repo.granted):
            raise refuse(404 if token else 401, "RepoNotFound", GONE["RepoNotFound"])
        if repo.disabled:
            raise Answered(403, {"error": "disabled"}, {"X-Error-Message": "Access to this resource is disabled."})
        return repo

    def _access(self, repo: Repo, token: str) -> None:
        if repo.gated and token not in repo.granted:
            words = f"Access to model {repo.id} is restricted. You must have access to it and be authenticated to access it."
            raise refuse(403 if token else 401, "GatedRepo", words)

    def _revision(self, repo: Repo, rest: str, *, files: bool = False) -> tuple[str, str]:
        """`rest` is REVISION/PATH, with a slash in the revision where it is a branch that has one."""
        for branch in sorted([*repo.branches, "main"], key=len, reverse=True):
            if rest == branch or rest.startswith(branch + "/"):
                return str(repo.resolve(branch)), rest[len(branch) + 1 :]
        revision, _, path = rest.partition("/")
        commit = repo.resolve(revision)
        if commit is None:
            raise refuse(404, "RevisionNotFound", f"{GONE['RevisionNotFound']}: {revision}")
        return commit, path

    def _api(
        self, path: str, method: str, query: Mapping[str, list[str]], entry: dict[str, Any], body: bytes
    ) -> Answered:
        owner, _, rest = path.partition("/")
        name, _, rest = rest.partition("/")
        repo, token = self._repo(f"{owner}/{name}", entry["token"]), entry["token"]
        what, _, rest = rest.partition("/")
        if what == "auth-check" and not self.faults.bare:
            self._access(repo, token)
            return Answered(200, {})
        if what == "tree" and not self.faults.bare:
            return self._tree(repo, rest, query)
        if what == "paths-info" and method == "POST" and not self.faults.bare:
            commit, _ = self._revision(repo, rest)
            wanted = json.loads(body)["paths"] if body[:1] == b"{" else parse_qs(body.decode()).get("paths", [])
            files = repo.commits[commit]
            return Answered(200, [self._entry(item, files[item]) for item in wanted if item in files])
        if what in ("", "revision"):
            commit = self._revision(repo, rest)[0] if what else repo.head
            return Answered(200, self._info(repo, commit, blobs=query.get("blobs", [""])[0] in ("true", "True", "1")))
        return Answered(404, {"error": "Sorry, we can't find the page you are looking for."})

    def _info(self, repo: Repo, commit: str, *, blobs: bool = False, siblings: bool = True) -> dict[str, Any]:
        info: dict[str, Any] = {
            "_id": hashlib.sha1(repo.id.encode()).hexdigest()[:24],
            "id": repo.id,
            "modelId": repo.id,
            "author": repo.id.partition("/")[0],
            "sha": commit,
            "private": repo.private,
            "gated": repo.gated,
            "disabled": repo.disabled,
            "downloads": repo.downloads,
            "likes": repo.likes,
            "tags": repo.all_tags,
            "pipeline_tag": repo.pipeline_tag,
            "library_name": repo.library_name or None,
            "lastModified": repo.last_modified,
            "createdAt": repo.last_modified,
            "cardData": {"license": repo.license, **({"base_model": repo.base_model} if repo.base_model else {})},
        }
        if siblings:
            files = repo.commits[commit]
            info["siblings"] = [self._sibling(path, file, blobs) for path, file in sorted(files.items())]
        return info

    @staticmethod
    def _sibling(path: str, file: File, blobs: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"rfilename": path}
        if blobs:
            found |= {"size": file.size, "blobId": file.blob}
            if file.lfs:
                found["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": len(file.pointer)}
        return found

    @staticmethod
    def _entry(path: str, file: File) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "file", "oid": file.blob, "size": file.size, "path": path}
        if file.lfs:
            found["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": len(file.pointer)}
        return found

    def _tree(self, repo: Repo, rest: str, query: Mapping[str, list[str]]) -> Answered:
        commit, folder = self._revision(repo, rest)
        prefix = f"{folder}/" if folder else ""
        deep = query.get("recursive", ["false"])[0].lower() in ("true", "1")
        entries: dict[str, dict[str, Any]] = {}
        for path, file in sorted(repo.commits[commit].items()):
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts)):
                if deep or depth == 1:
                    sub = prefix + "/".join(parts[:depth])
                    oid = hashlib.sha1(f"tree {sub}".encode()).hexdigest()
                    entries.setdefault(sub, {"type": "directory", "oid": oid, "size": 0, "path": sub})
            if deep or len(parts) == 1:
                entries[path] = self._entry(path, file)
        if folder and not entries:
            raise refuse(404, "EntryNotFound", f"{folder} does not exist on {rest}")
        return self._page(list(entries.values()), query, f"/api/models/{repo.id}/tree/{rest}", PAGE)

    def _search(self, query: Mapping[str, list[str]]) -> Answered:
        if self.faults.huge_json:
            return Answered(200, b"[" + b'{"id":"a/b"},' * 4_000_000)
        words = query.get("search", [""])[0].lower()
        author, filters = query.get("author", [""])[0], query.get("filter", [])
        found = [
            repo
            for repo in self.repos.values()
            if not repo.private
            and words in repo.id.lower()
            and (not author or repo.id.startswith(author + "/"))
            and all(tag in repo.all_tags for item in filters for tag in item.split(","))
        ]
        keys = {
            "downloads": lambda repo: -repo.downloads,
            "likes": lambda repo: -repo.likes,
            "lastModified": lambda repo: repo.last_modified,
        }
        sort = query.get("sort", ["downloads"])[0]
        if sort not in keys:
            return Answered(400, {"error": f"Invalid sort parameter: {sort}"})
        found.sort(key=keys[sort])
        full = query.get("full", [""])[0].lower() == "true"
        entries = [self._info(repo, repo.head, siblings=full) for repo in found]
        return self._page(entries, query, "/api/models", int(query.get("limit", ["1000"])[0]))

    def _page(self, entries: list[Any], query: Mapping[str, list[str]], path: str, size: int) -> Answered:
        at = int(query.get("cursor", ["0"])[0])
        more = {}
        if at + size < len(entries):
            rest = [(name, value) for name, values in query.items() for value in values if name != "cursor"]
            more = {"Link": f'<{self.base}{path}?{urlencode([*rest, ("cursor", at + size)])}>; rel="next"'}
        return Answered(200, entries[at : at + size], more)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _answer(self, send: Any, method: str, answer: Answered) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        kind = {"Content-Type": "application/json; charset=utf-8"} if not isinstance(answer.body, bytes) else {}
        await self._start(send, answer.status, {**kind, **answer.headers, "Content-Length": str(len(body))})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    @staticmethod
    async def _start(send: Any, status: int, headers: Mapping[str, str]) -> None:
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
