"""What scripted models say: conversations, turns and tool calls, and the file that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from deputy.core.model_script import ScriptedCall, ScriptedConversation, ScriptedTurn

if TYPE_CHECKING:
    from pathlib import Path


def turn(text: str = "", *calls: ScriptedCall, **more: Any) -> ScriptedTurn:
    return ScriptedTurn(text=text, calls=calls, **more)


def call(name: str, **arguments: Any) -> ScriptedCall:
    return ScriptedCall(name=name, arguments=arguments)


def talk(*turns: ScriptedTurn, when: str = "", times: int = 1) -> ScriptedConversation:
    return ScriptedConversation(turns=turns, when=when, times=times)


def write_script(path: Path, *conversations: ScriptedConversation | dict[str, Any]) -> str:
    """Write a script; the name of the model that says it."""
    path.write_bytes(msgspec.json.encode({"conversations": conversations}))
    return f"script:{path}"
