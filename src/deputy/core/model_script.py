"""Scripted models: the turns of a conversation, and a check that all of them were requested."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from deputy.core.conversation import StopReason, TokenUsage
from deputy.core.errors import UsageError

SESSION_ID = "{session_id}"


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call to make."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    namespace: str = ""
    """The namespace of the tool; only OpenAI's Responses protocol has namespaces."""


class ScriptedTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer. Its faults are played first, one per request."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    usage: TokenUsage = TokenUsage(input_tokens=100, output_tokens=20)
    stop: StopReason = "end"
    delay_seconds: float = 0.0
    pace_seconds: float = 0.0
    faults: tuple[str, ...] = ()


class ScriptedConversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answers for `times` conversations whose system prompt or first message contains `when`."""

    turns: tuple[ScriptedTurn, ...]
    when: str = ""
    times: int = 1


class ModelScript(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conversations; the first match is played."""

    conversations: tuple[ScriptedConversation, ...]


class _TurnsOnly(Struct, frozen=True, forbid_unknown_fields=True):
    turns: tuple[ScriptedTurn, ...]


def script_of(*turns: ScriptedTurn) -> ModelScript:
    """A script of a single conversation."""
    return ModelScript(conversations=(ScriptedConversation(turns=turns),))


def read_script(data: bytes, source: str) -> ModelScript:
    """A script from JSON: `{"conversations": [...]}`, or for a single one `{"turns": [...]}`."""
    try:
        if b'"conversations"' in data:
            return msgspec.json.decode(data, type=ModelScript)
        return script_of(*msgspec.json.decode(data, type=_TurnsOnly).turns)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError("script", source, f"the script cannot be read: {error}") from error


def words(text: str) -> list[str]:
    """The text in pieces of about a word, as models stream it."""
    first, *rest = text.split(" ")
    return [piece for piece in (first, *(f" {word}" for word in rest)) if piece]


def _addressed(turn: ScriptedTurn, opening: str) -> ScriptedTurn:
    if SESSION_ID not in turn.text:
        return turn
    # The last one is of this session; an error in the prompt may name another.
    _, found, text = opening.rpartition('"session_id":')
    text = text.lstrip(' "') if found else ""
    return msgspec.structs.replace(turn, text=turn.text.replace(SESSION_ID, text.partition('"')[0]))


class ScriptPlayer:
    """Plays a script: the next answer, and the requests without an answer."""

    def __init__(self, script: ModelScript) -> None:
        self._script = script
        self._asked: dict[tuple[int, int], int] = {}
        self.over_asked: list[str] = []

    def ask(self, opening: str, answered: int) -> tuple[ScriptedTurn, str | None] | None:
        """The turn for a conversation with this opening and number of answers, and the fault to play instead.

        None, and a line in `over_asked`, if the script has no such turn or it was requested too often.
        """
        fitting = (pair for pair in enumerate(self._script.conversations) if pair[1].when in opening)
        number, conversation = next(fitting, (0, None))
        if conversation is None:
            return self._refuse(f"no conversation matches the opening {opening[:80]!r}")
        if answered >= len(conversation.turns):
            return self._refuse(
                f"turn {answered + 1} of {len(conversation.turns)} was requested ({conversation.when!r})"
            )
        turn = conversation.turns[answered]
        asked = self._asked.get((number, answered), 0)
        if asked >= conversation.times * (len(turn.faults) + 1):
            return self._refuse(f"turn {answered + 1} was requested too often ({conversation.when!r})")
        self._asked[number, answered] = asked + 1
        round_number = asked // conversation.times
        return _addressed(turn, opening), turn.faults[round_number] if round_number < len(turn.faults) else None

    def unasked(self) -> list[str]:
        """The turns that were requested less often than the script says."""
        return [
            f"turn {index + 1} was requested {asked} of {wanted} times ({conversation.when!r})"
            for number, conversation in enumerate(self._script.conversations)
            for index, turn in enumerate(conversation.turns)
            if (asked := self._asked.get((number, index), 0)) < (wanted := conversation.times * (len(turn.faults) + 1))
        ]

    def _refuse(self, reason: str) -> None:
        self.over_asked.append(reason)
