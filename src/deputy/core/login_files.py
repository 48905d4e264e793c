"""Login files of other agents' programs: paths below the user's home directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN_FILES: Mapping[str, tuple[str, ...]] = {
    "claude": (".claude/.credentials.json",),
    "codex": (".codex/auth.json",),
    "copilot": (),
    "cursor-agent": (".config/cursor/auth.json", ".cursor/cli-config.json"),
    "gemini": (".gemini/oauth_creds.json",),
    "opencode": (".local/share/opencode/auth.json",),
    "qwen": (".qwen/oauth_creds.json",),
}
"""Files that exist when a program is logged in."""

OTHER_CREDENTIAL_FILES = (
    ".config/deputy/config.toml",
    ".copilot/config.json",
    ".config/github-copilot/hosts.json",
    ".config/github-copilot/apps.json",
    ".gemini/google_accounts.json",
    ".local/share/opencode/mcp-auth.json",
)
"""Other files with keys or tokens, which do not show a login; Deputy's configuration is one."""
