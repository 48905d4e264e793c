"""What tests of agents need: a scripted, strict provider on a real socket with every fault, and time that flies."""

from deputy.core.script import Script, ScriptedCall, ScriptedConversation, ScriptedTurn, script_of
from deputy.testing.clock import run_in_virtual_time
from deputy.testing.programs import FakePrograms, install_fake_programs
from deputy.testing.provider import ProviderServer

__all__ = [
    "FakePrograms",
    "ProviderServer",
    "Script",
    "ScriptedCall",
    "ScriptedConversation",
    "ScriptedTurn",
    "install_fake_programs",
    "run_in_virtual_time",
    "script_of",
]
