from deputy.client import Deputy as Deputy
from deputy.client import run_sync as run_sync
from deputy.core.approval import ApprovalRequest as ApprovalRequest
from deputy.core.approval import Decision as Decision
from deputy.core.approval import Question as Question
from deputy.core.guard import Policy as Policy
from deputy.core.limits import Budget as Budget
from deputy.core.outcome import Blocked as Blocked
from deputy.core.outcome import Cancelled as Cancelled
from deputy.core.outcome import Completed as Completed
from deputy.core.outcome import Failed as Failed
from deputy.core.outcome import Outcome as Outcome
from deputy.core.outcome import Partial as Partial
from deputy.core.outcome import Rejected as Rejected
from deputy.core.progress import Progress as Progress
from deputy.core.refinement import AgentEvaluator as AgentEvaluator
from deputy.core.refinement import ScriptEvaluator as ScriptEvaluator
from deputy.core.task import Task as Task
from deputy.engine.ports import ToolTraits as ToolTraits
from deputy.interfaces.call_results import Refined as Refined
from deputy.tools.function_tool import tool as tool

__version__: str
