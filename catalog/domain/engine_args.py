"""Vetting of what a profile says to an engine, and the engine's command line. Pure.

Allowlist only: nothing that runs code, reads or writes files, opens sockets or names credentials can pass, because
only what `engine_flags` lists can. The catalogue vets when a profile is saved, the node again before it starts one.

`--flag value`, `--flag=value` and short forms mean the same; abbreviations do not exist; a flag may stand once.
A `LLAMA_ARG_*` variable is read as the flag it sets and becomes that flag.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.domain.engine_flags import ALLOWED, DANGEROUS, SET_BY_LLMGW, Flag, ValueKind

MAX_ARGS, MAX_ENV, MAX_LENGTH = 128, 64, 4096
_INT, _FLOAT = re.compile(r"-?[0-9]{1,12}"), re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,12})?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,127}")
_ENV_VALUE = re.compile(r"[A-Za-z0-9_.,:=+-]{0,256}")
_TRUE, _FALSE = ("1", "true", "on"), ("0", "false", "off")

ENV_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "llama.cpp": ("GGML_CUDA_",),
    "vllm": ("VLLM_ATTENTION", "VLLM_USE_", "NCCL_IB_", "NCCL_P2P_"),
}
ENV_NAMES = frozenset(
    {"OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_SCHEDULE", "OMP_DYNAMIC", "OMP_WAIT_POLICY",
     "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}
)  # fmt: skip
"""Allowed for every engine, beside its families. Whole names, because OMP_TOOL_LIBRARIES loads a library."""
ENV_NEVER = frozenset(
    {"PATH", "PLUGIN", "PLUGINS", "LIB", "LIBRARY", "LIBRARIES", "FILE", "DIR", "FOLDER", "ADDR", "ADDRESS", "HOST",
     "PORT", "URL", "URI", "KEY", "TOKEN", "SECRET", "PASSWORD", "CONFIG", "MODELSCOPE", "DUMP", "DEBUG", "SERVER",
     "PROXY", "TOPO", "TUNER", "PRELOAD", "INJECTION"}
)  # fmt: skip
"""A variable of an allowed family with one of these words between its underscores is refused all the same."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why an argument or variable is not passed on. `message` says what, why and what instead."""

    code: str
    argument: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Vetted:
    """`flags` in their long form with text values (None: none), `env` what stays a variable."""

    flags: tuple[tuple[str, str | None], ...] = ()
    env: Mapping[str, str]
    refusals: tuple[Refusal, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(part for name, value in self.flags for part in ((name,) if value is None else (name, value)))


def refusals(engine: str, args: Sequence[str], env: Mapping[str, str]) -> tuple[Refusal, ...]:
    """What of a profile's args and env an engine of this kind may not be given; empty: all of it may pass."""
    return vet(engine, args, env).refusals


def vet(engine: str, args: Sequence[str], env: Mapping[str, str]) -> Vetted:
    """Read a profile's args and env.

    1. `engine_unknown`        no such engine
    2. `too_many_args`         more than 128 args or 64 variables
    3. `arg_malformed`         no flag where one must be, a control character, longer than 4096 characters
    4. `arg_set_by_llmgw`      llmgw sets it; the message names the field of the profile
    5. `arg_not_allowed`       not on the list, and why if that is known
    6. `arg_missing_value`     the flag's value is missing, or it has one and takes none
    7. `arg_bad_value`         the value has the wrong type or is out of bounds
    8. `arg_repeated`          the flag stands twice, in any of its forms
    9. `env_not_allowed`       the variable is on no list
    10. `env_bad_value`        the variable's value is not plain text
    """
    if engine not in ALLOWED:  # 1
        known = ", ".join(sorted(ALLOWED))
        message = f"There is no engine {_shown(engine)}: use one of {known}."
        return Vetted(env={}, refusals=(Refusal(code="engine_unknown", argument=engine, message=message),))
    if len(args) > MAX_ARGS or len(env) > MAX_ENV:  # 2
        message = f"A profile may have at most {MAX_ARGS} arguments and {MAX_ENV} variables: remove some."
        return Vetted(env={}, refusals=(Refusal(code="too_many_args", argument="", message=message),))
    reader = _Reader(engine)
    reader.read_args(list(args))
    reader.read_env(env)
    return Vetted(flags=tuple(reader.flags.items()), env=reader.env, refusals=tuple(reader.refusals))


class _Reader:
    """One pass over args, then env; collects flags, variables and refusals."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.flags: dict[str, str | None] = {}
        self.env: dict[str, str] = {}
        self.refusals: list[Refusal] = []
        self._by_name: dict[str, tuple[Flag, bool]] = {}
        self._by_env = {flag.env: flag for flag in ALLOWED[engine] if flag.env}
        self._seen: set[str] = set()
        for flag in ALLOWED[engine]:
            for name in (flag.name, *flag.aliases):
                self._by_name[name] = (flag, True)
            if flag.kind is ValueKind.PAIR:
                self._by_name["--no-" + flag.name[2:]] = (flag, False)

    def refuse(self, code: str, argument: str, message: str) -> None:
        self.refusals.append(Refusal(code=code, argument=argument[:80], message=message))

    def read_args(self, args: list[str]) -> None:
        at = 0
        while at < len(args):
            text = args[at]
            at += 1
            if not isinstance(text, str) or len(text) > MAX_LENGTH or not text.isprintable():  # 3
                self.refuse(
                    "arg_malformed", str(text), "An argument must be printable text of at most 4096 characters."
                )
                continue
            if not text.startswith("-") or text in ("-", "--"):  # 3
                self.refuse(
                    "arg_malformed",
                    text,
                    f"{_shown(text)} is no flag: write a flag with its dashes, its value after it.",
                )
                continue
            name, equals, value = text.partition("=")
            found = self._by_name.get(name)
            if found is None:
                self._refuse_name(name)
                if not equals and at < len(args) and isinstance(args[at], str) and not args[at].startswith("-"):
                    at += 1  # its value, which would only be refused a second time
                continue
            flag, positive = found
            if not flag.takes_value:
                if equals:  # 6
                    self.refuse("arg_missing_value", name, f"{name} takes no value: write {name} alone.")
                else:
                    self._keep(flag, name, name if not positive else flag.name, None)
                continue
            if not equals:
                if at == len(args):  # 6
                    self.refuse("arg_missing_value", name, f"{name} needs a value: write {name} and {_wanted(flag)}.")
                    continue
                value = args[at]
                at += 1
            self._keep(flag, name, flag.name, value)

    def _refuse_name(self, name: str) -> None:
        spelled = name.replace("_", "-")
        field = SET_BY_LLMGW[self.engine].get(spelled)
        if field is not None:  # 4
            instead = f"set {field} instead" if field else "leave it out"
            self.refuse("arg_set_by_llmgw", name, f"{_shown(name)} is set by llmgw itself: {instead}.")
            return
        reason = DANGEROUS[self.engine].get(spelled)  # 5
        if reason is None and spelled.endswith("-default"):
            reason = "it downloads"
        why = f": {reason}" if reason else f": it is not on the list of allowed {self.engine} flags, written in full"
        self.refuse("arg_not_allowed", name, f"{_shown(name)} was refused{why}. Remove it.")

    def _keep(self, flag: Flag, written: str, name: str, value: Any) -> None:
        problem = _problem(flag, value) if flag.takes_value else None
        if problem:  # 7
            self.refuse(
                "arg_bad_value", written, f"The value of {written} was refused: {problem}; write {_wanted(flag)}."
            )
            return
        if flag.name in self._seen:  # 8
            self.refuse("arg_repeated", written, f"{written} sets {flag.name} a second time: keep one of them.")
            return
        self._seen.add(flag.name)
        self.flags[name] = value

    def read_env(self, env: Mapping[str, str]) -> None:
        for name, value in env.items():
            flag = self._by_env.get(name)
            if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):  # 9
                self.refuse("env_not_allowed", str(name), "A variable's name must be capitals, digits and underscores.")
            elif flag is not None:
                self._read_flag_variable(flag, name, value)
            elif not self._env_allowed(name):  # 9
                hint = (
                    " Its flag, if it is allowed, can stand in the arguments." if name.startswith("LLAMA_ARG_") else ""
                )
                self.refuse(
                    "env_not_allowed",
                    name,
                    f"The variable {_shown(name)} was refused: it is on no list. Remove it.{hint}",
                )
            elif not isinstance(value, str) or not _ENV_VALUE.fullmatch(value):  # 10
                self.refuse(
                    "env_bad_value",
                    name,
                    f"The value of {name} was refused: write letters, digits and _ . , : = + - only.",
                )
            else:
                self.env[name] = value

    def _env_allowed(self, name: str) -> bool:
        if name in ENV_NAMES:
            return True
        return name.startswith(ENV_FAMILIES[self.engine]) and not ENV_NEVER & set(name.split("_"))

    def _read_flag_variable(self, flag: Flag, name: str, value: Any) -> None:
        if flag.takes_value:
            self._keep(flag, name, flag.name, value)
            return
        word = value.strip().lower() if isinstance(value, str) else ""
        if word in _TRUE:
            self._keep(flag, name, flag.name, None)
        elif word in _FALSE:
            if flag.kind is ValueKind.PAIR:
                self._keep(flag, name, "--no-" + flag.name[2:], None)
        else:  # 10
            self.refuse("env_bad_value", name, f"The value of {name} was refused: write 1 or 0.")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _wanted(flag: Flag) -> str:
    if flag.kind in (ValueKind.INT, ValueKind.FLOAT):
        number = "a whole number" if flag.kind is ValueKind.INT else "a number"
        return f"{number} from {flag.low:.12g} to {flag.high:.12g}"
    if flag.kind is ValueKind.CHOICE:
        return f"one of {', '.join(flag.choices)}"
    if flag.kind is ValueKind.NAME:
        return "the name of a built-in one (letters, digits, - _ .)"
    keys = f" with the keys {', '.join(flag.choices)}" if flag.choices else ""
    return f"a flat JSON object{keys}"


def _problem(flag: Flag, value: Any) -> str | None:
    """Why this value does not fit; None if it does."""
    if not isinstance(value, str) or len(value) > MAX_LENGTH or not value.isprintable():
        return "it is no printable text of at most 4096 characters"
    if flag.kind in (ValueKind.INT, ValueKind.FLOAT):
        pattern = _INT if flag.kind is ValueKind.INT else _FLOAT
        if not pattern.fullmatch(value):
            return f"{_shown(value)} is no {'whole ' if flag.kind is ValueKind.INT else ''}number"
        return None if flag.low <= float(value) <= flag.high else f"{value} is out of bounds"
    if flag.kind is ValueKind.CHOICE:
        return None if value in flag.choices else f"{_shown(value)} is none of the choices"
    if flag.kind is ValueKind.NAME:
        return None if _NAME.fullmatch(value) else f"{_shown(value)} is no plain name"
    return _json_problem(flag, value)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _json_problem(flag: Flag, value: str) -> str | None:
    try:
        data = json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return "it is no JSON"
    if not isinstance(data, dict) or not all(_NAME.fullmatch(key) for key in data):
        return "it is no JSON object with plain names as keys"
    if flag.choices and not set(data) <= set(flag.choices):
        return f"it has the key {_shown(sorted(set(data) - set(flag.choices))[0])}"
    for item in data.values():
        plain = (
            item is None
            or isinstance(item, (bool, int))
            or (isinstance(item, float) and math.isfinite(item))  # 1e999 is read as infinity, which is no JSON
            or (isinstance(item, str) and _NAME.fullmatch(item))
        )
        if not plain:
            return "its values must be numbers, true, false, null or plain names"
    return None
