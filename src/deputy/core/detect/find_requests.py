"""What requests for delegation a text holds: the first of three patterns that finds any is the one that counts."""

from __future__ import annotations

from itertools import islice

from deputy.core.detect.delegate_tags import find_blocks
from deputy.core.detect.folded_text import FoldedText
from deputy.core.detect.found_request import FoundRequest, RequestDraft
from deputy.core.detect.model_routing import route
from deputy.core.detect.natural_language import find_asked
from deputy.core.detect.normalize import normalize
from deputy.core.detect.output_format import infer_output
from deputy.core.detect.phrase_tables import SHIPPED, PhraseTables
from deputy.core.detect.quoted_prompt import find_quoted
from deputy.core.detect.referenced_context import infer_context

LIMIT_REQUESTS = 256
"""The most requests that one text is read for: far more than a tree of delegations may spawn."""

_JUDGED = 8_000


def detect(text: str, tables: PhraseTables = SHIPPED, *, limit: int = LIMIT_REQUESTS) -> tuple[FoundRequest, ...]:
    """The first requests that a text holds, in their order; none if it only talks about delegation."""
    page = FoldedText(text)
    for findings in (find_blocks(page), find_quoted(page, tables), find_asked(page, tables)):
        if found := tuple(complete(finding, tables) for finding in islice(findings, limit)):
            return found
    return ()


def complete(finding: RequestDraft, tables: PhraseTables) -> FoundRequest:
    """The request with its model, and with what its task implies about context and output."""
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
        degradation=finding.degradation,
        span=finding.span,
        normalized=normalize(system=finding.system, task=finding.prompt, context=context, output=output),
        is_unclear=finding.is_unclear,
    )


def _ends_of(prompt: str) -> str:
    """A prompt, or both ends of one that is longer than any person writes."""
    return prompt if len(prompt) <= 2 * _JUDGED else f"{prompt[:_JUDGED]}\n\n{prompt[-_JUDGED:]}"
