import pytest
from tests.support.every_case import every_case

from deputy.models.factory import ModelFactory
from deputy.models.server_address import address_of_host, with_version


@every_case(
    ("value", "address"),
    [
        ("10.0.0.5", "http://10.0.0.5:11434"),
        ("10.0.0.5:9000", "http://10.0.0.5:9000"),
        (":9000", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("[::]:9000", "http://127.0.0.1:9000"),
        ("::1", "http://[::1]:11434"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("box.example", "http://box.example:11434"),
        ("http://box.example:9000", "http://box.example:9000"),
        ("http://box.example", "http://box.example:80"),
        ("https://box.example", "https://box.example:443"),
        ("https://box.example/ollama", "https://box.example:443/ollama"),
        (' "box.example" ', "http://box.example:11434"),
    ],
)
def test_a_host_is_read_as_the_server_itself_reads_it(value, address):
    assert address_of_host(value, "11434") == address


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://box:1234", "http://box:1234/v1"),
        ("http://box:1234/", "http://box:1234/v1"),
        ("http://box:1234/v1", "http://box:1234/v1"),
        ("http://box:1234/api/openai", "http://box:1234/api/openai"),
        ("http://[broken", "http://[broken"),
    ],
)
def test_an_address_without_a_path_gets_the_version(given, address):
    assert with_version(given) == address


def test_the_variable_of_deputy_wins_over_that_of_the_server():
    assert ModelFactory(environ={"OLLAMA_HOST": ":9000"}).address("ollama") == "http://127.0.0.1:9000/v1"
    both = {"OLLAMA_HOST": ":9000", "OLLAMA_BASE_URL": "http://box:1"}
    assert ModelFactory(environ=both).address("ollama") == "http://box:1/v1"
    assert ModelFactory(environ={}).address("ollama") == "http://localhost:11434/v1"


def test_the_address_of_a_provider_with_a_key_is_taken_as_it_is():
    assert ModelFactory(environ={"OPENAI_BASE_URL": "https://box.example"}).address("openai") == "https://box.example"
