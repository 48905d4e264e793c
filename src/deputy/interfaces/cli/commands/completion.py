"""`deputy completion`: print the script with which a shell completes commands, options, ids, agents and models."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    ShellComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from deputy.interfaces.cli import COMPLETE_VARIABLE, deputy
from deputy.interfaces.cli.console import Console, with_console

EXAMPLES = """\b
Examples:
  deputy completion bash > ~/.local/share/bash-completion/completions/deputy
  deputy completion zsh > ~/.zfunc/_deputy
  deputy completion fish > ~/.config/fish/completions/deputy.fish

\b
bash reads the file when you press Tab, with the package bash-completion.
Without it, put this line into ~/.bashrc:  eval "$(deputy completion bash)"
zsh needs these lines in ~/.zshrc:  fpath+=~/.zfunc; autoload -U compinit;
compinit. Start a new shell then."""

# Bash splits words at colons and equals signs: Python gets the line up to the cursor, and what stands before the last
# such sign of the word is cut from its answers.
_BASH = r"""%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} current skip="" type value
    current=${line##*[[:space:]]}
    current=${current##*=}
    if [[ $COMP_WORDBREAKS == *:* && $current == *:* ]]; then
        skip=${current%%"${current##*:}"}
    fi
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$skip"}") ;;
        esac
    done < <(COMP_LINE="$line" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class BashCompletion(BashComplete):
    """Completion for bash, also of words with colons."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The complete words before the cursor, and the word at the cursor."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        return (words[1:], "") if line[-1:].isspace() else (words[1:-1], words[-1])


def register() -> None:
    """Use our completion for bash."""
    add_completion_class(BashCompletion, "bash")


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@with_console()
def command(console: Console, shell: str) -> None:
    """Print the completion script of a shell.

    With it the Tab key completes commands, options, ids and labels of runs, agents and models.
    """
    register()
    kind = get_completion_class(shell)
    if kind is None:
        raise TypeError(f"click has no completion for {shell}")
    # Not the `source` of bash, which starts bash to look at its version.
    script = ShellComplete.source(kind(deputy, {}, "deputy", COMPLETE_VARIABLE))
    # click's script for fish ends labels and descriptions at their first comma.
    script = script.replace('string split ","', 'string split --max 1 ","')
    console.show({"shell": shell, "script": script}, script.rstrip("\n"))
