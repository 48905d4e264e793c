"""Synonyms of statuses and fields that agents write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deputy.core.contract.return_types import Status

STATUS_SYNONYMS: dict[Status, str] = {
    "completed": """
        complete done success successful succeeded finished ok okay passed resolved fixed
        researched planned implemented revised reviewed documented tested fulfilled
        report_ready plan_ready research_complete research_completed plan_complete plan_completed
        implementation_complete implementation_completed review_complete review_completed
        task_complete task_completed all_done successfully_completed completed_successfully
    """,
    "partial": """
        in_progress partially_complete partially_completed partial_success partially_done incomplete
        ongoing working continuing started timeout timed_out interrupted unfinished
        completed_with_errors partially_implemented
    """,
    "failed": "fail failure error errored unsuccessful aborted crashed",
    "blocked": """
        waiting needs_input needs_information needs_clarification needs_human awaiting_input
        awaiting_human_input input_required on_hold pending_input waiting_for_input requires_input
    """,
}

ARTIFACT_FIELDS = {
    "file": "path",
    "file_path": "path",
    "filepath": "path",
    "filename": "path",
    "location": "path",
    "kind": "type",
    "description": "summary",
}

ERROR_FIELDS = {
    "error": "message",
    "description": "message",
    "details": "message",
    "suggestion": "recommendation",
    "kind": "type",
    "error_type": "type",
    "error_code": "code",
}

ARTIFACT_TYPE = "file"
ERROR_TYPE = "execution"
AGENT_TYPE = "unknown"
RECOMMENDATION = "Read the report, then decide whether to run the delegation again."
