"""A review in a pipeline: subagents within a budget, a JSON result, a summary in Markdown, and an exit code by policy.

    python examples/ci/review.py --tasks examples/ci/review.json --model sonnet --budget 1.00

It needs `deputy` and nothing else. The summary goes to $GITHUB_STEP_SUMMARY, or to review.md.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

POLICIES = {"strict": {0}, "partial": {0, 4}, "never": set(range(256)) - {2, 130}}
"""The exit codes of `deputy delegate` that pass. 2 (a wrong call) and 130 (cancelled) never do."""
MEANINGS = {1: "failed", 2: "usage", 4: "partial", 5: "a question is open", 6: "not approved", 130: "cancelled"}
MOST_REPORT = 20_000


def delegate(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run the tasks; the exit code and the result. Progress goes to the log of the job."""
    command = ["deputy", "delegate", "--tasks", options.tasks, "--budget", options.budget, "--timeout", options.timeout]
    model = ["--model", options.model] if options.model else []
    # Subagents only read, and there is no person to ask.
    ran = subprocess.run([*command, *model, "--yes", "--json"], stdout=subprocess.PIPE, check=False)
    try:
        return ran.returncode, json.loads(ran.stdout)
    except ValueError:
        return ran.returncode or 1, {"error": {"message": "deputy printed no JSON; read the log of this job."}}


def summary(code: int, result: dict[str, Any], *, passes: bool) -> str:
    """The result as Markdown. What models wrote is shown as text: no HTML, no images, no links of theirs."""
    verdict = "passed" if passes else f"failed: {MEANINGS.get(code, code)}"
    lines = [f"## Review {verdict}", ""]
    if "error" in result:
        return "\n".join([*lines, _text(result["error"]["message"]), ""])
    lines += ["| task | outcome | tokens | cost |", "|---|---|---|---|"]
    for one in [*result["results"], {"label": "total", "outcome": "", "usage": result["usage"]}]:
        used = one["usage"]
        cost = "unknown" if used["cost"] is None else f"${used['cost']:.4f}" if used["cost"] else "free"
        lines.append(f"| {_text(one['label'])} | {one['outcome']} | {used['input'] + used['output']:,} | {cost} |")
    for one in result["results"]:
        problems = [one.get("error", {}).get("message"), one.get("question"), *one.get("warnings", ())]
        report = "\n\n".join(filter(None, [*problems, one.get("report")]))
        lines += ["", f"### {_text(one['label'])}", "", f"<pre>{html.escape(report[:MOST_REPORT])}</pre>"]
    return "\n".join([*lines, "", f"`deputy show {result['session_id']}` has the details.", ""])


def _text(text: str) -> str:
    plain = html.escape(" ".join(text.split()))
    return "".join(f"\\{letter}" if letter in "|[]!*_`\\" else letter for letter in plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", required=True, help="the tasks, as a JSON file of the repository")
    parser.add_argument("--model", default="", help="the model; without it DEPUTY_MODEL, or the provider with a key")
    parser.add_argument("--budget", default="1.00", help="the most that all tasks may cost, in dollars")
    parser.add_argument("--timeout", default="600", help="the time limit of each task in seconds")
    parser.add_argument("--pass-on", choices=POLICIES, default="partial", help="which outcomes let the job pass")
    parser.add_argument("--result", default="review.json", help="where the result is written")
    options = parser.parse_args()
    code, result = delegate(options)
    passes = code in POLICIES[options.pass_on]
    Path(options.result).write_text(json.dumps(result, indent=2))
    page = os.environ.get("GITHUB_STEP_SUMMARY") or "review.md"
    with Path(page).open("a") as file:
        file.write(summary(code, result, passes=passes))
    return 0 if passes else code


if __name__ == "__main__":
    sys.exit(main())
