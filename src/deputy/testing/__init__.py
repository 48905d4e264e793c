"""Fakes for tests of agents: a scripted, strict provider on a real socket with many faults, and virtual time."""

from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn, script_of
from deputy.testing.provider import ProviderServer
from deputy.testing.virtual_clock import run_in_virtual_time

__all__ = [
    "ModelScript",
    "ProviderServer",
    "ScriptedCall",
    "ScriptedConversation",
    "ScriptedTurn",
    "run_in_virtual_time",
    "script_of",
]
