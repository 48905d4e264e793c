from deputy.core.progress import Progress
from deputy.interfaces.view.progress_table import ProgressTable
from deputy.interfaces.view.renderers import LinesView, LiveView


def test_what_is_handed_on_has_one_line_though_it_is_told_again_by_who_is_taken_up(capsys):
    view = LinesView(ProgressTable(("a",)))
    for event, fields in (
        ("started", {}),
        ("tool_call", {"tool": "Delegate", "args": "x"}),
        ("tool_call", {"tool": "Delegate", "args": "x"}),
        ("tool_call", {"tool": "Read", "args": "y"}),
        ("tool_call", {"tool": "Read", "args": "y"}),
        ("tool_call", {"tool": "Delegate", "args": "z"}),
    ):
        view.emit(Progress(event=event, label="a", session_id="sess_a", **fields))
    shown = [line.split(" → ")[1].split()[0:2] for line in capsys.readouterr().err.splitlines()[2:]]
    assert shown == [["Delegate", "x"], ["Read", "y"], ["Read", "y"], ["Delegate", "z"]]


def test_who_gives_the_terminal_back_does_not_take_it_from_who_still_asks(capsys):
    view = LiveView(ProgressTable(("a",)))
    view.emit(Progress(event="started", label="a", session_id="sess_a"))
    view.pause("a question")
    view.pause("an aside")
    capsys.readouterr()
    view.unpause("an aside")
    view.finish()
    assert capsys.readouterr().err == ""
    view.unpause("a question")
    view.finish()
    assert "[a]" in capsys.readouterr().err
