"""Tiny, valid llama-architecture GGUF files that a real llama.cpp loads and runs (some 300 KB, made in 0.3 s).

The attention and feed-forward weights are small random numbers, so the whole graph really runs. The output matrix is
a bigram table written in a near-orthogonal embedding: after any prompt the most likely next token is the first piece
of `text`, then the next piece, and after the last piece the end token. So at temperature 0 the model answers exactly
`text` and stops by itself; with `"ignore_eos": true` it goes round for ever.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np

TEXT = "Hello from a tiny model that runs inside the real engine."
TOOL_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
"""A `text` that llama.cpp reads back as a tool call when the file was made with `tools=True`."""
Pooling = Literal["none", "mean", "cls", "last", "rank"]

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# The Hermes form: what llama.cpp reads back as tool calls is <tool_call>{"name":..,"arguments":{..}}</tool_call>
CHATML_TOOLS = (
    "{% if tools %}{{ '<|im_start|>system\n# Tools\n<tools>' }}{% for t in tools %}{{ '\n' + (t | tojson) }}{% endfor %}"
    '{{ \'\n</tools>\nReturn <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    "<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + m.content + "
    "'\n</tool_response><|im_end|>\n' }}{% elif m.tool_calls %}{{ '<|im_start|>assistant' }}{% for c in m.tool_calls %}"
    '{{ \'\n<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' + (c.function.arguments | tojson) + '
    "'}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% else %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '')"
    " + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BOS, EOS, FIRST_NORMAL = 1, 260, 261  # <s>, <|im_end|>, first token after the control and byte tokens
LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 2, 4, 2, 128
LOUD = 0.75  # share of an embedding row's energy outside dimension 0


def pieces(text: str) -> list[str]:
    """Cut into words with their leading blank; a word seen before is glued to the one after it, so all differ."""
    out: list[str] = []
    pending = ""
    for word in re.findall(r"\s*\S+\s*?", text):
        pending += word
        if pending not in out and len(pending.encode()) > 1:
            out.append(pending)
            pending = ""
    if pending:
        out[-1] += pending
    return out


class _Vocabulary:
    """Tokens in the order of their ids: control, bytes, printable characters, then the pieces of the text."""

    def __init__(self) -> None:
        kind = gguf.TokenType
        self.tokens: list[tuple[str, float, int]] = [
            ("<unk>", 0.0, kind.UNKNOWN),
            ("<s>", 0.0, kind.CONTROL),
            ("</s>", 0.0, kind.CONTROL),
            *((f"<0x{byte:02X}>", 0.0, kind.BYTE) for byte in range(256)),
            ("<|im_start|>", 0.0, kind.CONTROL),
            ("<|im_end|>", 0.0, kind.CONTROL),
        ]
        self._ids = {text: number for number, (text, _, _) in enumerate(self.tokens)}
        for char in " " + "".join(map(chr, range(33, 127))):
            self.add(char)

    def add(self, piece: str) -> int:
        piece = piece.replace(" ", "\u2581")
        if piece not in self._ids:
            self._ids[piece] = len(self.tokens)
            self.tokens.append((piece, -float(len(self.tokens)), gguf.TokenType.NORMAL))
        return self._ids[piece]

    def pad(self, multiple: int) -> None:
        while len(self.tokens) % multiple:
            self.tokens.append((f"<extra{len(self.tokens)}>", 0.0, gguf.TokenType.UNUSED))


def _embedding(rng: np.random.Generator, size: int, width: int, own: dict[int, int]) -> Any:
    """Dimension 0 is the same for every token; each piece has a dimension of its own; the rest is a random mix.

    Each row has RMS 1, so the norm before the output changes little.
    """
    rest = 1 + len(own)
    rows = np.zeros((size, width), np.float32)
    rows[:, rest:] = rng.standard_normal((size, width - rest))
    for token, dimension in own.items():
        rows[token] = 0
        rows[token, dimension] = 1
    rows *= np.sqrt(LOUD * width) / np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:, 0] = np.sqrt((1 - LOUD) * width)
    return rows


def _table(noise: Any, embedding: Any, chain: list[int], own: dict[int, int]) -> Any:
    """Row j, column k: how much dimension k wishes for token j next."""
    matrix = noise.copy()
    matrix[chain[0], 0] = 16 / embedding[0, 0]  # after any token: begin the text
    for token, following in itertools.pairwise([*chain, EOS]):
        matrix[following, own[token]] = 56 / np.sqrt(LOUD * embedding.shape[1])
    return matrix


def make_tiny_gguf(
    path: Path,
    *,
    text: str = TEXT,
    tools: bool = False,
    pooling: Pooling | None = None,
    name: str = "tiny",
    context: int = 4096,
    random: bool = False,
    loras: Sequence[tuple[Path, str]] = (),
    seed: int = 1,
    part: int = 0,
) -> Path:
    """Write a model to `path` that answers exactly `text` at temperature 0; returns `path`.

    tools     its chat template knows tools (see TOOL_CALL)
    pooling   write it as an embedding model; `rank`: as one that ranks, which it does without sense
    context   the context length that its header states
    random    leave the table out: noise, no fixed text
    loras     also write adapters, each (file, text): applied, the model answers that text instead
    part      tensors of one file: it becomes several beside `path`, NAME-00001-of-0000N.gguf and so on
    """
    rng = np.random.default_rng(seed)
    made = _Vocabulary()
    base = [made.add(piece) for piece in pieces(text)]
    chains = [[made.add(piece) for piece in pieces(other)] for _, other in loras]
    made.pad(256)
    own = {token: 1 + k for k, token in enumerate(dict.fromkeys(itertools.chain(base, *chains)))}
    size, width = len(made.tokens), -(-(len(own) + 9) // 64) * 64
    embedding = _embedding(rng, size, width, own)
    noise = rng.standard_normal((size, width)).astype(np.float32) * (0.3 if random else 0.01)
    output = noise if random else _table(noise, embedding, base, own)

    writer = gguf.GGUFWriter(str(path), "llama", split_max_tensors=part)
    writer.add_name(name)
    writer.add_type("model")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // HEADS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    if pooling:
        writer.add_pooling_type(gguf.PoolingType[pooling.upper()])
    _add_vocabulary(writer, made)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHATML_TOOLS if tools else CHATML)
    _add_tensors(writer, rng, width, embedding, output)
    finish(writer)

    for (file, _), chain in zip(loras, chains, strict=True):
        _write_lora(file, _table(noise, embedding, chain, own) - output)
    return path


def _add_vocabulary(writer: Any, made: _Vocabulary) -> None:
    writer.add_vocab_size(len(made.tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _, _ in made.tokens])
    writer.add_token_scores([score for _, score, _ in made.tokens])
    writer.add_token_types([int(kind) for _, _, kind in made.tokens])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(0)


def vocabulary(writer: Any) -> int:
    """Write a vocabulary without words of a text. Gives its size."""
    made = _Vocabulary()
    made.pad(256)
    _add_vocabulary(writer, made)
    return len(made.tokens)


def _add_tensors(writer: Any, rng: np.random.Generator, width: int, embedding: Any, output: Any) -> None:
    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name, (rng.standard_normal((rows, columns)) * 0.02).astype(np.float16))

    key_width = KV_HEADS * width // HEADS
    writer.add_tensor("token_embd.weight", embedding.astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    writer.add_tensor("output.weight", output.astype(np.float16))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        writer.add_tensor(block + "attn_norm.weight", np.ones(width, np.float32))
        matrix(block + "attn_q.weight", width, width)
        matrix(block + "attn_k.weight", key_width, width)
        matrix(block + "attn_v.weight", key_width, width)
        matrix(block + "attn_output.weight", width, width)
        writer.add_tensor(block + "ffn_norm.weight", np.ones(width, np.float32))
        matrix(block + "ffn_gate.weight", FEED_FORWARD, width)
        matrix(block + "ffn_up.weight", FEED_FORWARD, width)
        matrix(block + "ffn_down.weight", width, FEED_FORWARD)


def _write_lora(path: Path, difference: Any) -> None:
    """An adapter that adds `difference` to the output matrix, factored as B @ A."""
    u, weights, vt = np.linalg.svd(difference, full_matrices=False)
    rank = int((weights > 1e-3 * weights[0]).sum())
    root = np.sqrt(weights[:rank])
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_type("adapter")
    writer.add_name(path.stem)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))  # alpha / rank = 1
    writer.add_tensor("output.weight.lora_a", (root[:, None] * vt[:rank]).astype(np.float32))
    writer.add_tensor("output.weight.lora_b", (u[:, :rank] * root).astype(np.float32))
    finish(writer)


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="llmgw-tiny-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def tiny_gguf(
    *, text: str = TEXT, tools: bool = False, pooling: Pooling | None = None, name: str = "tiny", context: int = 4096
) -> Path:
    """`make_tiny_gguf` once per process and choice; the file goes when the process ends. Do not write to it."""
    number = sum(1 for _ in _folder().iterdir())
    return make_tiny_gguf(
        _folder() / f"{name}-{number}.gguf", text=text, tools=tools, pooling=pooling, name=name, context=context
    )
