"""What passes the vetting, what does not, and that nothing dangerous can be spelled in a way that passes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.engine_args import ENV_NEVER, refusals, vet
from catalog.domain.engine_flags import ALLOWED, DANGEROUS, SET_BY_LLMGW, Flag, ValueKind
from tests.examples import few

ACCEPTED = [
    ("llama.cpp", ("-b", "512", "--ubatch-size=256"), ("--batch-size", "512", "--ubatch-size", "256")),
    ("llama.cpp", ("-fa", "on", "-ctk", "q8_0"), ("--flash-attn", "on", "--cache-type-k", "q8_0")),
    ("llama.cpp", ("--no-jinja",), ("--no-jinja",)),
    ("llama.cpp", ("--jinja", "--reasoning-budget", "-1"), ("--jinja", "--reasoning-budget", "-1")),
    ("llama.cpp", ("--temperature", "0.7", "-n", "128"), ("--temp", "0.7", "--predict", "128")),
    ("llama.cpp", ("--chat-template", "chatml"), ("--chat-template", "chatml")),
    (
        "llama.cpp",
        ('--chat-template-kwargs={"enable_thinking": false}',),
        ("--chat-template-kwargs", '{"enable_thinking": false}'),
    ),
    ("vllm", ("--max-num-seqs", "64", "-q", "awq"), ("--max-num-seqs", "64", "--quantization", "awq")),
    ("vllm", ("--generation-config", "vllm"), ("--generation-config", "vllm")),
]
REFUSED = [
    ("sglang", (), "engine_unknown"),
    ("llama.cpp", ("-b", "1") * 70, "too_many_args"),
    ("llama.cpp", ("model.gguf",), "arg_malformed"),
    ("llama.cpp", ("--",), "arg_malformed"),
    ("llama.cpp", ("-",), "arg_malformed"),
    ("llama.cpp", ("--temp\x00", "1"), "arg_malformed"),
    ("llama.cpp", ("",), "arg_malformed"),
    ("llama.cpp", ("--port", "1"), "arg_set_by_llmgw"),
    ("llama.cpp", ("--ctx-size=1",), "arg_set_by_llmgw"),
    ("llama.cpp", ("--ctx_size", "1"), "arg_set_by_llmgw"),
    ("llama.cpp", ("--tools", "all"), "arg_not_allowed"),
    ("llama.cpp", ("--log-file=/tmp/x",), "arg_not_allowed"),
    ("llama.cpp", ("--gpt-oss-20b-default",), "arg_not_allowed"),
    ("llama.cpp", ("--chat-template-f", "/etc/passwd"), "arg_not_allowed"),
    ("llama.cpp", ("--batch", "1"), "arg_not_allowed"),
    ("llama.cpp", ("-b1",), "arg_not_allowed"),
    ("llama.cpp", ("--JINJA",), "arg_not_allowed"),
    ("llama.cpp", ("--batch-size",), "arg_missing_value"),
    ("llama.cpp", ("--jinja=1",), "arg_missing_value"),
    ("llama.cpp", ("-b", "0"), "arg_bad_value"),
    ("llama.cpp", ("-b", "1e3"), "arg_bad_value"),
    ("llama.cpp", ("-b", "--jinja"), "arg_bad_value"),
    ("llama.cpp", ("-b", "\u0661"), "arg_bad_value"),  # a digit, but not one that C reads
    ("llama.cpp", ("--temp", "nan"), "arg_bad_value"),
    ("llama.cpp", ("--top-p", "1.5"), "arg_bad_value"),
    ("llama.cpp", ("-fa", "yes"), "arg_bad_value"),
    ("llama.cpp", ("--load-mode", "mlock"), "arg_bad_value"),
    ("llama.cpp", ("--chat-template", "../x"), "arg_bad_value"),
    ("llama.cpp", ("--chat-template", "{{ 1 }}"), "arg_bad_value"),
    ("llama.cpp", ("--chat-template-kwargs", "[1]"), "arg_bad_value"),
    ("llama.cpp", ("--chat-template-kwargs", '{"a": {"b": 1}}'), "arg_bad_value"),
    ("llama.cpp", ("--chat-template-kwargs", '{"a": NaN}'), "arg_bad_value"),
    ("llama.cpp", ("--chat-template-kwargs", '{"a": 1e999}'), "arg_bad_value"),
    ("llama.cpp", ("--chat-template-kwargs", "[" * 4000), "arg_bad_value"),
    ("llama.cpp", ("-b", "1", "--batch-size=2"), "arg_repeated"),
    ("llama.cpp", ("--jinja", "--no-jinja"), "arg_repeated"),
    ("vllm", ("--trust-remote-code",), "arg_not_allowed"),
    ("vllm", ("--trust_remote_code",), "arg_not_allowed"),
    ("vllm", ("--max_num_seqs", "1"), "arg_not_allowed"),
    ("vllm", ("--load-format", "pt"), "arg_bad_value"),
    ("vllm", ("--tool-call-parser", "/tmp/x.py"), "arg_bad_value"),
    ("vllm", ("--speculative-config", '{"model": "evil/repo"}'), "arg_bad_value"),
    ("vllm", ("--api-key", "x"), "arg_set_by_llmgw"),
]


@pytest.mark.parametrize(("engine", "args", "argv"), ACCEPTED)
def test_an_allowed_argument_passes_in_its_long_form(engine: str, args: tuple[str, ...], argv: tuple[str, ...]) -> None:
    vetted = vet(engine, args, {})
    assert vetted.refusals == ()
    assert vetted.argv == argv


@pytest.mark.parametrize(("engine", "args", "code"), REFUSED)
def test_everything_else_is_refused_with_a_code_and_a_way_out(engine: str, args: tuple[str, ...], code: str) -> None:
    found = refusals(engine, args, {})
    assert found[0].code == code
    assert all(refusal.message.endswith((".", "'", "}")) and len(refusal.message) < 600 for refusal in found)


@pytest.mark.parametrize("engine", ALLOWED)
def test_the_three_lists_do_not_overlap(engine: str) -> None:
    allowed = {name for flag in ALLOWED[engine] for name in (flag.name, *flag.aliases)}
    assert len(allowed) == sum(1 + len(flag.aliases) for flag in ALLOWED[engine])
    assert not allowed & set(SET_BY_LLMGW[engine])
    assert not allowed & set(DANGEROUS[engine])
    assert not set(SET_BY_LLMGW[engine]) & set(DANGEROUS[engine])


@pytest.mark.parametrize(
    ("engine", "name"), [(engine, name) for engine in DANGEROUS for name in (*DANGEROUS[engine], *SET_BY_LLMGW[engine])]
)
def test_no_spelling_of_a_dangerous_flag_passes(engine: str, name: str) -> None:
    spellings = {
        name,
        name.replace("-", "_", 0),
        name[:-1],
        name.upper(),
        f"{name}=x",
        f"-{name}",
        f"{name} x",
        f" {name}",
    }
    allowed = {n for flag in ALLOWED[engine] for n in (flag.name, *flag.aliases)}
    for spelling in spellings - allowed - {"-", "--"}:
        assert refusals(engine, (spelling, "x"), {}), spelling


def test_llama_arg_variables_are_the_flags_that_they_set() -> None:
    env = {"LLAMA_ARG_BATCH": "64", "LLAMA_ARG_JINJA": "off", "LLAMA_ARG_SWA_FULL": "1", "LLAMA_ARG_TOP_K": "5"}
    vetted = vet("llama.cpp", (), env)
    assert vetted.refusals == ()
    assert vetted.argv == ("--batch-size", "64", "--no-jinja", "--swa-full", "--top-k", "5")
    assert vetted.env == {}


@pytest.mark.parametrize(
    ("engine", "name", "value", "code"),
    [
        ("llama.cpp", "LLAMA_ARG_MODEL", "/etc/passwd", "env_not_allowed"),
        ("llama.cpp", "LLAMA_ARG_TOOLS", "all", "env_not_allowed"),
        ("llama.cpp", "LLAMA_ARG_LOG_FILE", "/x", "env_not_allowed"),
        ("llama.cpp", "LLAMA_ARG_BATCH", "0", "arg_bad_value"),
        ("llama.cpp", "LLAMA_ARG_JINJA", "maybe", "env_bad_value"),
        ("llama.cpp", "LLAMA_API_KEY", "k", "env_not_allowed"),
        ("llama.cpp", "LD_PRELOAD", "/x.so", "env_not_allowed"),
        ("llama.cpp", "PYTHONPATH", "/x", "env_not_allowed"),
        ("llama.cpp", "OMP_TOOL_LIBRARIES", "x.so", "env_not_allowed"),
        ("llama.cpp", "GGML_BACKEND_PATH", "/x.so", "env_not_allowed"),
        ("llama.cpp", "GGML_CUDA_LOG_FILE", "x", "env_not_allowed"),
        ("llama.cpp", "OMP_NUM_THREADS", "$(id)", "env_bad_value"),
        ("llama.cpp", "omp_num_threads", "1", "env_not_allowed"),
        ("llama.cpp", "LLMGW_ENGINE_KEY", "x", "env_not_allowed"),
        ("vllm", "VLLM_SERVER_DEV_MODE", "1", "env_not_allowed"),
        ("vllm", "VLLM_ALLOW_INSECURE_SERIALIZATION", "1", "env_not_allowed"),
        ("vllm", "VLLM_USE_MODELSCOPE", "1", "env_not_allowed"),
        ("vllm", "NCCL_NET_PLUGIN", "x", "env_not_allowed"),
        ("vllm", "HF_TOKEN", "x", "env_not_allowed"),
        ("vllm", "HTTPS_PROXY", "x", "env_not_allowed"),
    ],
)
def test_a_variable_on_no_list_is_refused(engine: str, name: str, value: str, code: str) -> None:
    assert [refusal.code for refusal in refusals(engine, (), {name: value})] == [code]


def test_tuning_variables_of_an_allowed_family_stay_variables() -> None:
    env = {"GGML_CUDA_FORCE_MMQ": "1", "OMP_NUM_THREADS": "2"}
    assert vet("llama.cpp", (), env).env == env
    assert vet("vllm", (), {"VLLM_ATTENTION_BACKEND": "FLASHINFER", "NCCL_IB_HCA": "mlx5_0:1"}).refusals == ()


def test_a_flag_in_args_and_as_a_variable_is_refused() -> None:
    assert refusals("llama.cpp", ("-b", "1"), {"LLAMA_ARG_BATCH": "2"})[0].code == "arg_repeated"


def value_of(flag: Flag) -> st.SearchStrategy[str]:
    if flag.kind is ValueKind.INT:
        return st.integers(int(flag.low), int(flag.high)).map(str)
    if flag.kind is ValueKind.FLOAT:
        return st.floats(flag.low, flag.high).map(lambda x: f"{min(max(round(x, 6), flag.low), flag.high):.6f}")
    if flag.kind is ValueKind.CHOICE:
        return st.sampled_from(flag.choices)
    if flag.kind is ValueKind.NAME:
        return st.just("chatml")
    keys = st.sampled_from(flag.choices or ("enable_thinking", "n"))
    return st.dictionaries(keys, st.integers(0, 9) | st.booleans()).map(json.dumps)


@few()
@given(st.data())
def test_each_allowed_flag_passes_with_each_value_it_takes(data: st.DataObject) -> None:
    engine = data.draw(st.sampled_from(sorted(ALLOWED)))
    flag = data.draw(st.sampled_from(ALLOWED[engine]))
    name = data.draw(st.sampled_from((flag.name, *flag.aliases)))
    if not flag.takes_value:
        args: tuple[str, ...] = (name,)
    else:
        value = data.draw(value_of(flag))
        args = data.draw(st.sampled_from([(name, value), (f"{name}={value}",)]))
    assert refusals(engine, args, {}) == ()


@given(st.lists(st.text(max_size=30) | st.sampled_from(["--jinja", "-b", "--temp", "1", "="]), max_size=8))
def test_whatever_comes_in_only_listed_flags_come_out(args: list[str]) -> None:
    vetted = vet("llama.cpp", args, {})
    names = {flag.name for flag in ALLOWED["llama.cpp"]}
    assert all(name in names or name.startswith("--no-") for name, _ in vetted.flags)
    assert all(value is None or "/" not in value for _, value in vetted.flags)


@few()
@given(st.from_regex(r"(VLLM_USE|NCCL_IB|VLLM_ATTENTION)(_[A-Z]{1,8}){0,3}", fullmatch=True))
def test_a_family_never_lets_a_telling_word_pass(name: str) -> None:
    if ENV_NEVER & set(name.split("_")):
        assert refusals("vllm", (), {name: "1"})
