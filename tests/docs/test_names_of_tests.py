"""A test file is found by the name of the source file: `tests/engine/test_turn.py` tests `engine/turn.py`."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "deputy"
OF_MANY_FILES = {
    "backends/test_backend_loop.py": "one script through the whole flow, on every backend",
    "backends/test_backend_suite.py": "testing/backend_suite.py on every backend",
    "engine/test_questions.py": "questions of subagents, from the model to the person and back",
    "interfaces/cli/test_main.py": "the program `deputy`",
    "interfaces/cli/test_start_up.py": "what commands import",
    "interfaces/test_client.py": "client.py, with the house of the interfaces",
    "interfaces/test_client_recover.py": "client.py, with the house of the interfaces",
    "interfaces/test_hostile_texts.py": "hostile texts in every output",
    "interfaces/test_one_call.py": "one_call.py, with the house of the interfaces",
    "interfaces/test_outgoing.py": "processes/outgoing.py, in every output",
    "interfaces/web/test_page.py": "assets of the page, in a browser",
    "interfaces/web/test_page_at_work.py": "assets of the page, in a browser",
    "interfaces/web/test_page_keys.py": "assets of the page, in a browser",
    "interfaces/web/test_page_states.py": "assets of the page, in a browser",
    "interfaces/web/test_page_waiting.py": "assets of the page, in a browser",
    "journal/postgres/test_role_rules.py": "roles.sql",
    "journal/postgres/test_roles.py": "roles.sql",
    "journal/test_recorded.py": "recorded journals of earlier versions",
    "models/test_model_suite.py": "testing/model_suite.py on every protocol",
    "test_rules.py": "rules of the specification without a proof",
}
"""Test files that are not named after one source file of their folder, and what they test."""


def test_every_test_file_of_a_package_is_named_after_a_source_file():
    others = set[str]()
    for file in (ROOT / "tests").rglob("test_*.py"):
        place = file.relative_to(ROOT / "tests")
        folder, name = SOURCE / place.parent, place.stem.removeprefix("test_")
        if not folder.is_dir():
            continue
        sources = {one.stem for one in folder.iterdir() if one.is_dir() or one.suffix == ".py"}
        if not any(name == source or name.startswith(f"{source}_") for source in sources):
            others.add(place.as_posix())
    assert others == OF_MANY_FILES.keys()
