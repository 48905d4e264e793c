from deputy.core.conversation import estimated_tokens, text_size
from deputy.core.project_notes import NOTES_TOKENS, chosen_notes, shortened_notes
from deputy.core.subtask.context_passing import PassedFile


def test_the_first_file_with_text_is_chosen():
    missing, blank = PassedFile(path="AGENTS.md", problem="no such file"), PassedFile(path="AGENTS.md", text=" \n")
    notes = PassedFile(path="CLAUDE.md", text="Use tabs.")
    assert chosen_notes([missing, notes]) == notes
    assert chosen_notes([blank, notes]) == notes
    assert chosen_notes([missing]) is None


def test_notes_are_cut_at_a_line_within_their_tokens():
    assert shortened_notes("\nUse tabs.\n\n") == ("Use tabs.", False)
    whole = "\n".join(f"Rule {number}: é" for number in range(5000))
    kept, is_cut = shortened_notes(whole)
    assert is_cut
    assert whole.startswith(f"{kept}\nRule")
    assert NOTES_TOKENS - 10 < estimated_tokens(text_size(kept)) <= NOTES_TOKENS
    assert shortened_notes("x" * 100_000) == ("", True)
