"""Whether the files of a version changed at their origin, and which files of a newer commit would follow them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.domain.cards import RepoCard, same_commit
from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import FileSet, Format, RepoFile
from llmgw_site.lib.errors import Kind, Refused


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a registry has now instead of a version. `files`: paths of those that differ; () where none does."""

    commit: str
    files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files)


def change(manifest: Manifest, card: RepoCard) -> Change:
    """Compare a version with its repository now. A new commit alone is no change: only files that the version uses count.

    1. the same commit, one of them maybe shortened: nothing changed
    2. a file that is gone, or has another size or checksum, changed; of one whose checksums are of two kinds, the size counts
    """
    if manifest.commit and card.commit and same_commit(manifest.commit, card.commit):  # 1
        return Change(commit=card.commit)
    now = {file.path: file for file in card.files}
    return Change(
        commit=card.commit, files=tuple(file.path for file in manifest.files if _differs(file, now.get(file.path)))
    )


def carried(serves: Manifest, newest: str, left: Manifest) -> tuple[str, ...] | None:
    """What the last look at a registry, which had the commit `newest`, still tells when `serves` has taken the place of `left`:
    files of it that are others there. None: it tells nothing, so it has to be asked anew.

    1. it is of that commit: none is
    2. what it took the place of is: those in which the two differ
    """
    if not newest or serves.repository != left.repository:
        return None
    if serves.commit and same_commit(serves.commit, newest):  # 1
        return ()
    if left.commit and same_commit(left.commit, newest):  # 2
        return tuple(file.path for file in serves.files if _differs(file, left.file(file.path)))
    return None


def _differs(before: ManifestFile, now: RepoFile | ManifestFile | None) -> bool:
    if now is None or now.size != before.size:  # 2
        return True
    if before.sha256 and now.sha256:
        return before.sha256 != now.sha256
    return bool(before.blob and now.blob) and not before.sha256 and before.blob != now.blob


def successor(
    sets: Sequence[FileSet], *, format: Format, first: str, quantization: str, repository: str = "the repository"
) -> FileSet:
    """The files of a newer commit that take the place of a version's. Raises Refused `update_gone`, `weights_incomplete`.

    1. the set of the same format that begins with the same file
    2. else the only one of the same format and quantisation: a set that was divided anew has other names
    """
    same = [item for item in sets if item.format is format]
    found = [item for item in same if first and item.first.path == first] or [
        item for item in same if item.quantization == quantization
    ]
    if len(found) != 1:
        there = ", ".join(item.first.path for item in same[:8]) or "no model of that format"
        what = quantization or first or format.value
        text = f"{repository} has no files of {what} any more (it has {there}): serve one of these under another name"
        raise Refused(Kind.CONFLICT, "update_gone", text)
    if found[0].missing:
        text = f"{found[0].first.path} is not whole at the newest commit, {', '.join(found[0].missing[:5])} missing: try later"
        raise Refused(Kind.CONFLICT, "weights_incomplete", text)
    return found[0]
