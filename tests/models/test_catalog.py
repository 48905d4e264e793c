"""The catalog: names stand for real models, the user's tables win, and what is unknown says so."""

import pytest

from deputy.core.conversation import TokenUsage
from deputy.core.detect import SHIPPED
from deputy.core.detect.model_routing import resolve
from deputy.core.errors import UsageError
from deputy.core.outcome import NO_USAGE
from deputy.models.catalog import ModelPrices, ResolvedName, priced, read_catalog
from deputy.models.factory import ModelFactory
from deputy.models.openai_chat import QUIRKS
from deputy.models.wire_model import was_cut_silently
from deputy.testing import ProviderServer, ScriptedTurn
from deputy.testing.model_suite import asking, heard

CATALOG = read_catalog()


@pytest.mark.rule("text.model")
@pytest.mark.parametrize(
    ("name", "model", "thinking"),
    [
        ("fast", "cursor:composer-1", None),
        ("review", "google:gemini-3.1-pro-preview", None),
        ("gemini-3.0-pro", "google:gemini-3.1-pro-preview", None),
        ("analysis", "openai:gpt-5.2", None),
        ("reasoning", "anthropic:claude-opus-4-6", "high"),
        ("planning", "anthropic:claude-opus-4-6", "high"),
        ("opus-4.6-thinking", "anthropic:claude-opus-4-6", "high"),
        ("sonnet-4.5-thinking", "anthropic:claude-sonnet-4-5", "high"),
        ("sonnet-4.5", "anthropic:claude-sonnet-4-5", None),
        ("sonnet", "anthropic:claude-sonnet-5-5", None),
        ("sonnet-thinking", "anthropic:claude-sonnet-5-5", "high"),
        ("opus", "anthropic:claude-opus-5-5", None),
        ("haiku", "anthropic:claude-haiku-5-5", None),
        ("claude-opus-4-6", "anthropic:claude-opus-4-6", None),
        ("ollama:qwen3:8b", "ollama:qwen3:8b", None),
        ("openrouter:z-ai/glm-5", "openrouter:z-ai/glm-5", None),
    ],
)
def test_names_stand_for_models(name, model, thinking):
    named = CATALOG.resolve(name, "2026-11-17")
    assert (str(named), named.thinking) == (model, thinking)


@pytest.mark.rule("model.alias")
def test_an_alias_of_a_text_means_what_it_means_everywhere():
    for alias in SHIPPED.aliases:
        in_text = resolve(alias.upper(), SHIPPED)
        assert CATALOG.resolve(in_text) == CATALOG.resolve(alias) == CATALOG.resolve(alias.upper())
    current = {name: str(CATALOG.resolve(name)) for name in ("sonnet", "opus", "haiku")}
    assert current == {name: f"anthropic:claude-{name}-5-5" for name in current}


@pytest.mark.rule("model.alias")
@pytest.mark.parametrize("today", ["2026-11-29", "2026-11-30"])
def test_a_name_means_its_version_until_that_is_retired_and_then_its_successor(today):
    names = ("sonnet-4.5", "sonnet-4.5-thinking", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929")
    found = {name: CATALOG.resolve(name, today) for name in names}
    if today < "2026-11-30":
        assert {one.model.removesuffix("-20250929") for one in found.values()} == {"claude-sonnet-4-5"}
        assert {one.instead_of for one in found.values()} == {""}
    else:
        assert {str(one) for one in found.values()} == {"anthropic:claude-sonnet-5-5"}
        assert all(one.instead_of.startswith("claude-sonnet-4-5") for one in found.values())
    assert found["sonnet-4.5-thinking"].thinking == "high"
    exact = CATALOG.resolve("anthropic:claude-sonnet-4-5", today)
    assert (exact.model, exact.instead_of) == ("claude-sonnet-4-5", ""), "a gateway may still serve it"


@pytest.mark.rule("model.alias")
def test_every_successor_is_a_model_that_is_not_retired():
    for provider in CATALOG.providers.values():
        for entry in provider.models.values():
            assert bool(entry.retires) == bool(entry.successor)
            assert not entry.successor or not provider.models[entry.successor].retires


@pytest.mark.parametrize("name", ["", "nonsense", "nowhere:model", "anthropic:", ":x"])
def test_an_unknown_name_is_a_usage_error(name):
    with pytest.raises(UsageError):
        CATALOG.resolve(name)


def test_an_unknown_name_is_answered_with_similar_ones_not_with_every_alias():
    mine = read_catalog({"providers": {"gpu": {"base_url": "http://gpu-box:8000/v1"}}})
    with pytest.raises(UsageError, match=r"did you mean gpu:qwen3\? Otherwise write provider:model") as raised:
        mine.resolve("gpux:qwen3")
    assert len(str(raised.value)) < 400
    assert "`deputy models` lists models" in str(raised.value)


def test_names_that_go_in_a_circle_are_a_usage_error():
    catalog = read_catalog({"names": {"a": {"model": "b"}, "b": {"model": "a"}}})
    with pytest.raises(UsageError, match="circle"):
        catalog.resolve("a")
    models = {"one": {"successor": "two"}, "two": {"successor": "one"}}
    catalog = read_catalog({"providers": {"ollama": {"models": models}}})
    with pytest.raises(UsageError, match="circle"):
        catalog.resolve("one")


def test_a_dated_version_shares_the_entry_of_its_name():
    dated = CATALOG.entry(ResolvedName(provider="anthropic", model="claude-sonnet-4-5-20250929"))
    assert dated == CATALOG.entry(ResolvedName(provider="anthropic", model="claude-sonnet-4-5"))
    assert CATALOG.entry(ResolvedName(provider="openai", model="gpt-5-2025-08-07")).window == 400_000
    assert CATALOG.entry(ResolvedName(provider="openai", model="gpt-5-mystery")).window is None


def test_the_users_tables_are_laid_over_field_by_field():
    mine = {
        "names": {"fast": {"model": "local:qwen"}},
        "providers": {
            "local": {"protocol": "openai-chat", "base_url": "http://localhost:1234/v1"},
            "anthropic": {"models": {"claude-opus-4-6": {"window": 5, "prices": {"input": 0.5}}}},
        },
    }
    catalog = read_catalog(mine)
    assert str(catalog.resolve("fast")) == "local:qwen"
    entry = catalog.entry(ResolvedName(provider="anthropic", model="claude-opus-4-6"))
    assert (entry.window, entry.max_output) == (5, 128_000)
    assert (entry.prices.input, entry.prices.output) == (0.5, 25)
    assert catalog.providers["anthropic"].base_url == "https://api.anthropic.com"
    assert read_catalog() == CATALOG


@pytest.mark.parametrize("bad", [{"providers": {"x": {"protocol": "smoke"}}}, {"nonsense": 1}, {"names": {"a": 3}}])
def test_a_table_that_makes_no_sense_is_a_usage_error(bad):
    with pytest.raises(UsageError):
        read_catalog(bad)


def test_what_the_catalog_says_is_consistent():
    for name, provider in CATALOG.providers.items():
        assert provider.quirks <= QUIRKS, name
        for model, entry in provider.models.items():
            assert entry.window is None or entry.max_output is None or entry.max_output < entry.window, model
            if entry.prices is not None:
                assert 0 < entry.prices.input < entry.prices.output, model
                assert entry.prices.cached is None or entry.prices.cached < entry.prices.input, model
                assert (entry.prices.long is None) == (entry.prices.long_above is None), model


def test_every_provider_can_be_opened_without_a_key_or_a_connection():
    models = ModelFactory(environ={})
    for name, provider in CATALOG.providers.items():
        if provider.protocol is not None:
            assert models.open(f"{name}:any").name == f"{name}:any"
    with pytest.raises(UsageError, match="own program"):
        models.open("composer-1")
    assert models.has_key("ollama")
    assert not models.has_key("anthropic")
    assert not models.has_key("cursor")


# --- cost ---

PRICES = ModelPrices(
    input=3.0,
    output=15.0,
    cached=0.3,
    cache_write=3.75,
    long_above=200_000,
    long=ModelPrices(input=6.0, output=22.5),
)


@pytest.mark.rule("budget")
def test_cost_is_usage_times_price():
    usage = TokenUsage(input_tokens=1000, cached_tokens=600, cache_write_tokens=100, output_tokens=10)
    assert priced(usage, PRICES).cost == 0.0009 + 0.00018 + 0.000375 + 0.00015
    assert priced(TokenUsage(input_tokens=1), ModelPrices(input=0.0376, output=1)).cost == 0.000000038


@pytest.mark.rule("budget")
def test_long_prompts_have_their_own_price():
    assert priced(TokenUsage(input_tokens=200_000), PRICES).cost == 0.6
    assert priced(TokenUsage(input_tokens=200_001), PRICES).cost == 1.200006


@pytest.mark.rule("cost.unit")
def test_local_models_are_free_unless_the_user_gives_a_price():
    def cost(model: str, **mine: object) -> float | None:
        return ModelFactory(catalog=read_catalog({"providers": mine}), environ={}).max_cost(model, 1_000_000, 1)

    assert cost("ollama:qwen3:8b") == cost("llamacpp:any") == cost("vllm:any") == cost("lmstudio:any") == 0
    assert cost("openai:gpt-mystery") is None
    assert cost("ollama:q", ollama={"models": {"q": {"window": 9}}}) == 0
    assert cost("ollama:q", ollama={"models": {"q": {"prices": {"input": 0.5, "output": 1}}}}) == 0.500001


@pytest.mark.rule("budget")
def test_an_unknown_price_is_none_never_zero_and_stays_so_in_a_sum():
    assert priced(TokenUsage(input_tokens=5), None).cost is None
    assert priced(TokenUsage(is_reported=False), PRICES).cost is None
    known = priced(TokenUsage(input_tokens=5), PRICES)
    assert (known.usage + TokenUsage(input_tokens=1).usage).cost is None
    total = NO_USAGE + known.usage + known.usage
    assert (total.cost, total.requests, total.input) == (2 * known.cost, 2, 10)


@pytest.mark.rule("context.window")
@pytest.mark.parametrize(
    ("usage", "reason", "window", "sent", "is_cut"),
    [
        (TokenUsage(input_tokens=4000, output_tokens=9), "end", 4096, 100_000, True),
        (TokenUsage(input_tokens=5000, output_tokens=9), "end", 4096, 20_000, True),
        (TokenUsage(input_tokens=4000, output_tokens=0), "length", None, 100, True),
        (TokenUsage(input_tokens=4000, output_tokens=9), "end", 4096, 16_000, False),
        (TokenUsage(input_tokens=2000, output_tokens=9), "end", 4096, 100_000, False),
        (TokenUsage(input_tokens=4000, output_tokens=9), "end", None, 100_000, False),
        (TokenUsage(input_tokens=4000, output_tokens=9), "length", 8192, 16_000, False),
        (TokenUsage(is_reported=False), "length", 4096, 100_000, False),
    ],
)
def test_a_prompt_that_was_cut_without_a_word_is_noticed(usage, reason, window, sent, is_cut):
    assert was_cut_silently(usage, reason, window=window, sent_bytes=sent) is is_cut


# --- providers of the user ---


async def test_one_setting_is_enough_for_a_server_of_the_user():
    async with ProviderServer(ScriptedTurn(text="Yes.")) as provider:
        catalog = read_catalog({"providers": {"mine": {"base_url": provider.url}}})
        async with ModelFactory(environ={}, catalog=catalog) as models:
            assert (await heard(models.open("mine:any"), asking()))[1].message.text == "Yes."
    assert provider.asked[0].path == "/v1/chat/completions"
    assert "authorization" not in provider.asked[0].headers


async def test_a_key_variable_is_all_that_a_server_with_a_key_needs():
    async with ProviderServer(ScriptedTurn(text="Yes.")) as provider:
        mine = {"base_url": f"{provider.url}/v1", "key_variable": "MY_KEY"}
        catalog = read_catalog({"providers": {"mine": mine}})
        assert ModelFactory(environ={}, catalog=catalog).missing_key("mine:any") == "mine"
        async with ModelFactory(environ={"MY_KEY": "secret"}, catalog=catalog) as models:
            await heard(models.open("mine:any"), asking())
    assert provider.asked[0].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("name", "table", "said"),
    [
        ("mine", {}, "providers.mine.base_url"),
        ("mine", {"base_url": "localhost:8000"}, "providers.mine.base_url"),
        ("mine", {"base_url": "http://x/v1", "url": "http://x"}, "providers.mine.url"),
        ("mine", {"base_url": "http://x/v1", "key_variable": "sk-a key"}, "providers.mine.key_variable"),
        ("script", {"base_url": "http://x/v1"}, "providers.script"),
        ("my server", {"base_url": "http://x/v1"}, "providers.my server"),
        ("mine", "http://x/v1", "providers.mine"),
    ],
)
def test_a_mistake_in_a_provider_of_the_user_is_named(name, table, said):
    with pytest.raises(UsageError) as caught:
        read_catalog({"providers": {name: table}})
    assert caught.value.field == f"~/.config/deputy/config.toml: {said}"
    assert "sk-a key" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"baseurl": "x"}, ".baseurl: found a string; unknown key; did you mean 'base_url'? the keys are: protocol"),
        ({"base_url": 3}, ".base_url: found a whole number; must be a string"),
        ({"protocol": "openai"}, ".protocol: found another value; must be one of anthropic, openai-responses"),
        ({"models": {"a": {"windo": 1}}}, ".models.*.windo: found a value; unknown key; did you mean 'window'?"),
        ({"models": {"a": {"top_p": 2}}}, ".models.*.top_p: found a value; must be a number <= 1"),
    ],
)
def test_a_mistake_in_a_table_of_a_provider_is_explained_in_words(table, said):
    with pytest.raises(UsageError) as caught:
        read_catalog({"providers": {"mine": table}})
    assert f"providers.mine{said}" in str(caught.value)


async def quirks_at(url: str, **mine: object) -> dict:
    catalog = read_catalog({"providers": {"openai-chat": mine}})
    async with ProviderServer(ScriptedTurn(text="ok")) as provider:
        environ = {**provider.environ, "OPENAI_BASE_URL": url.format(port=provider.url.rpartition(":")[2])}
        async with ModelFactory(environ=environ, catalog=catalog) as models:
            await heard(models.open("openai-chat:m"), asking())
    return provider.asked[0].body


async def test_quirks_of_openai_are_not_assumed_at_another_address():
    assert "max_tokens" in await quirks_at("http://127.0.0.1:{port}/v1")
    set_by_user = await quirks_at("http://127.0.0.1:{port}/v1", quirks=["max_completion_tokens"])
    assert "max_completion_tokens" in set_by_user


def test_the_settings_of_a_model_are_checked():
    for field, value in (("temperature", 3), ("top_p", 0), ("seed", "x"), ("profile", "tiny")):
        with pytest.raises(UsageError):
            read_catalog({"providers": {"groq": {"models": {"m": {field: value}}}}})
