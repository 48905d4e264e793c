"""One delegation from a script: no loop, no key; the offline scout finds the place and says where it is."""

from pathlib import Path
from tempfile import TemporaryDirectory

import deputy

ROOT = Path(__file__).resolve().parent.parent

with TemporaryDirectory() as home:
    [outcome] = deputy.run_sync(
        "Where is MAX_DEPTH_EXCEEDED decided?", model="offline:scout", workspace=ROOT / "src", home=Path(home)
    )

print(outcome.report)
assert outcome.status == "completed"
assert "deputy/core/guard.py:" in outcome.report
