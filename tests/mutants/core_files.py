"""The files on which safety rests, each with the tests nearest to it."""

_CONTRACT = "tests/core/contract"
_WRITER = [
    "tests/journal/sql/test_group_writer.py",
    "tests/journal/sql/test_transaction.py",
    "tests/journal/sqlite/test_sqlite_writer.py",
    "tests/journal/sqlite/test_sqlite_journal.py",
]

FILES = {
    "src/deputy/core/guard.py": ["tests/core/test_guard.py"],
    "src/deputy/core/limits.py": ["tests/core/test_limits.py", "tests/core/test_guard.py"],
    "src/deputy/core/state.py": ["tests/core/test_state.py"],
    "src/deputy/core/approval.py": ["tests/core/test_approval.py", "tests/core/test_approval_text.py"],
    "src/deputy/core/approval_text.py": ["tests/core/test_approval_text.py"],
    "src/deputy/engine/approvals.py": ["tests/engine/test_approvals.py", "tests/engine/test_tool_calls_approval.py"],
    "src/deputy/core/contract/evidence.py": [f"{_CONTRACT}/test_evidence.py"],
    "src/deputy/core/contract/instruction.py": [f"{_CONTRACT}/test_instruction.py"],
    "src/deputy/core/contract/leniency.py": [f"{_CONTRACT}/test_leniency.py", f"{_CONTRACT}/test_return_check.py"],
    "src/deputy/core/contract/quote.py": [f"{_CONTRACT}/test_quote.py", f"{_CONTRACT}/test_return_check.py"],
    "src/deputy/core/contract/return_check.py": [
        f"{_CONTRACT}/test_return_check.py",
        f"{_CONTRACT}/test_leniency.py",
        f"{_CONTRACT}/test_instruction.py",
    ],
    "src/deputy/core/contract/return_parser.py": [
        f"{_CONTRACT}/test_return_parser.py",
        f"{_CONTRACT}/test_return_check.py",
    ],
    "src/deputy/core/contract/return_types.py": [
        f"{_CONTRACT}/test_return_check.py",
        f"{_CONTRACT}/test_instruction.py",
    ],
    "src/deputy/core/contract/user_schema.py": [f"{_CONTRACT}/test_user_schema.py"],
    "src/deputy/core/redaction/forms.py": ["tests/core/redaction"],
    "src/deputy/core/redaction/known.py": ["tests/core/redaction"],
    "src/deputy/core/redaction/names.py": ["tests/core/redaction"],
    "src/deputy/core/redaction/redactor.py": ["tests/core/redaction"],
    "src/deputy/core/redaction/scan.py": ["tests/core/redaction"],
    "src/deputy/core/redaction/vendors.py": ["tests/core/redaction"],
    "src/deputy/journal/sql/group_writer.py": _WRITER,
    "src/deputy/journal/sql/transaction.py": _WRITER,
    "src/deputy/journal/sqlite/sqlite_writer.py": _WRITER,
    "src/deputy/tools/workspace.py": ["tests/tools/test_workspace.py", "tests/tools/test_workspace_folder.py"],
    "src/deputy/tools/urls.py": ["tests/tools/test_urls.py", "tests/tools/test_web_fetch.py"],
    "src/deputy/tools/web.py": ["tests/tools/test_web_fetch.py"],
}
