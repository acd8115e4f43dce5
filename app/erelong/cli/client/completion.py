"""The command that prints completion scripts. They know every command and option and start no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.cli.commands import COMMANDS, SERVICE, parser_of

if TYPE_CHECKING:
    import argparse

BASH = """\
_erelong() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [ "${{#COMPREPLY[@]}}" -eq 0 ]; then COMPREPLY=($(compgen -f -- "$current")); fi
}}
complete -o filenames -F _erelong erelong
"""
ZSH = "autoload -Uz bashcompinit && bashcompinit\n"


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(call=complete)


def complete(options: argparse.Namespace) -> int:
    words = {name: _words(name) for name, command in COMMANDS.items() if command.module != SERVICE}
    print({"bash": _bash, "zsh": lambda words: ZSH + _bash(words), "fish": _fish}[options.shell](words), end="")
    return 0


def _words(name: str) -> list[str]:
    """Return the options of a command, and the words that it takes as an argument."""
    actions = parser_of(name)._actions  # no public way lists them
    options = [option for action in actions for option in action.option_strings if option.startswith("--")]
    choices = [str(choice) for action in actions if not action.option_strings for choice in action.choices or ()]
    return choices + options


def _bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(f'            {name}) words="{" ".join(known)}" ;;' for name, known in words.items())
    return BASH.format(commands=" ".join(COMMANDS), cases=cases)


def _fish(words: dict[str, list[str]]) -> str:
    lines = [
        f"complete -c erelong -n __fish_use_subcommand -a {name} -d '{command.summary}'"
        for name, command in COMMANDS.items()
    ]
    for name, known in words.items():
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c erelong {seen} -l {word.removeprefix('--')}" for word in known if word.startswith("--")]
        lines += [f"complete -c erelong {seen} -a {word}" for word in known if not word.startswith("--")]
    return "\n".join(lines) + "\n"
