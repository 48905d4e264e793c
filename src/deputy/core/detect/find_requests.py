"""Find delegation requests in three patterns; what the first pattern finds is not read by the next."""

from __future__ import annotations

from functools import partial
from itertools import islice

from deputy.core.detect.delegate_tags import find_blocks
from deputy.core.detect.folded_text import FoldedText
from deputy.core.detect.found_request import FoundRequest, RequestDraft, normalize
from deputy.core.detect.inference import infer_context, infer_output
from deputy.core.detect.model_routing import route
from deputy.core.detect.natural_language import find_asked
from deputy.core.detect.phrase_tables import SHIPPED, PhraseTables
from deputy.core.detect.quoted_prompt import find_quoted

LIMIT_REQUESTS = 256
"""The most requests that are read from one text: more than a tree of delegations may spawn."""

_JUDGED = 8_000


def detect(text: str, tables: PhraseTables = SHIPPED, *, limit: int = LIMIT_REQUESTS) -> tuple[FoundRequest, ...]:
    """The requests of a text in order, up to the limit; none if the text is only about delegation."""
    found: list[RequestDraft] = []
    rest = text
    for find in (find_blocks, partial(find_quoted, tables=tables), partial(find_asked, tables=tables)):
        # Beside a request that is clear, "delegate this" only introduces it.
        more = [one for one in islice(find(FoldedText(rest)), limit) if not (found and one.is_unclear)]
        if more:
            found += more
            rest = _without(rest, more)
    found.sort(key=lambda one: one.span)
    return tuple(complete(one, tables) for one in found[:limit])


def _without(text: str, found: list[RequestDraft]) -> str:
    """The text with spaces in place of these requests, so that no other pattern finds anything in them."""
    pieces: list[str] = []
    at = 0
    for start, end in (one.span for one in found):
        blank = "\n".join(" " * len(line) for line in text[start:end].split("\n"))
        pieces += [text[at:start], blank]
        at = end
    return "".join((*pieces, text[at:]))


def complete(finding: RequestDraft, tables: PhraseTables) -> FoundRequest:
    """The request with its model, context and output; what the text does not say is inferred from the task."""
    judged = _ends_of(finding.prompt)
    model, source = route(finding.model, finding.prompt, tables)
    context = infer_context(judged, finding.context)
    output = finding.output or infer_output(judged)
    return FoundRequest(
        pattern=finding.pattern,
        model=finding.model,
        model_source=source,
        resolved_model=model,
        prompt=finding.prompt,
        system=finding.system,
        context=context,
        output=output,
        agent=finding.agent,
        tools=finding.tools,
        timeout=finding.timeout,
        warnings=finding.warnings,
        degradation=finding.degradation,
        span=finding.span,
        normalized=normalize(system=finding.system, task=finding.prompt, context=context, output=output),
        is_unclear=finding.is_unclear,
    )


def _ends_of(prompt: str) -> str:
    """The prompt, or only its start and end when it is very long."""
    return prompt if len(prompt) <= 2 * _JUDGED else f"{prompt[:_JUDGED]}\n\n{prompt[-_JUDGED:]}"
