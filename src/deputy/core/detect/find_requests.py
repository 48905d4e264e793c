"""Find delegation requests: the first of three patterns that matches counts."""

from __future__ import annotations

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
    page = FoldedText(text)
    for findings in (find_blocks(page), find_quoted(page, tables), find_asked(page, tables)):
        if found := tuple(complete(finding, tables) for finding in islice(findings, limit)):
            return found
    return ()


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
        degradation=finding.degradation,
        span=finding.span,
        normalized=normalize(system=finding.system, task=finding.prompt, context=context, output=output),
        is_unclear=finding.is_unclear,
    )


def _ends_of(prompt: str) -> str:
    """The prompt, or only its start and end when it is very long."""
    return prompt if len(prompt) <= 2 * _JUDGED else f"{prompt[:_JUDGED]}\n\n{prompt[-_JUDGED:]}"
