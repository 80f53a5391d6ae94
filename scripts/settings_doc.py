"""Print docs/settings.md from the settings object: `python scripts/settings_doc.py > docs/settings.md`."""

from dataclasses import fields

from llmgw_site.lib.config import Config

HEAD = """# Settings

Every process reads these from its environment at start; a wrong value is refused with all other wrong values at once.
`llmgw check` says what is wrong and how to mend it. Sizes are bytes and may be written `16MiB`; spans are seconds.
A secret (marked *) may also come from a file: set `NAME_FILE` to its path instead of `NAME`.

| setting | default | what it is |
| --- | --- | --- |"""

lines = [HEAD]
for item in fields(Config):
    meta = item.metadata
    lines.append(f"| `{meta['env']}` | `{meta['default']}` | {meta['doc']}{' *' if meta['secret'] else ''} |")
print("\n".join(lines))  # noqa: T201
