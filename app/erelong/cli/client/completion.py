"""The command that prints completion scripts, and completes words for them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.commands import COMMANDS, SERVICE, TOPICS, parser_of
from erelong.client.errors import ErelongError
from erelong.client.profile import profile_file
from erelong.client.sync.client import Client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

PATIENCE: Final = 0.3  # seconds for the service to name queues, kinds and ids: nobody waits longer for a Tab
IDS: Final = 20
BASH: Final = """\
_erelong() {
    local IFS=$'\\n'
    COMPREPLY=($(erelong completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [ "${#COMPREPLY[@]}" -eq 0 ]; then COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")); fi
}
complete -o filenames -F _erelong erelong
"""
ZSH: Final = """\
#compdef erelong
_erelong() {
    local -a found
    found=("${(@f)$(erelong completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -Q -- "${found[@]}"; else _files; fi
}
if [ "$funcstack[1]" = _erelong ]; then _erelong "$@"; else compdef _erelong erelong; fi
"""
FISH: Final = """\
function __erelong_words
    set -l words (commandline -opc) (commandline -ct)
    set -l found (erelong completion --words $words[2..-1] 2>/dev/null)
    if test -n "$found"
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c erelong -f -a '(__erelong_words)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}
HINT: Final = {
    "bash": 'bash: add to ~/.bashrc: eval "$(erelong completion bash)"',
    "zsh": 'zsh: add to ~/.zshrc, after compinit: eval "$(erelong completion zsh)"',
    "fish": "fish: erelong completion fish > ~/.config/fish/completions/erelong.fish",
}
"""What to do with each script."""


def add(_: str, parser: argparse.ArgumentParser) -> None:
    import argparse

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(HINT.values())
    parser.add_argument("shell", nargs="?", choices=SCRIPTS)
    parser.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # of the scripts
    parser.set_defaults(call=complete)


def complete(options: argparse.Namespace) -> int:
    if options.words is not None:
        print("\n".join(candidates(options.words)))
    elif options.shell is None:
        raise ValueError(f"name the shell: {', '.join(SCRIPTS)}")
    else:
        print(SCRIPTS[options.shell], end="")
    return 0


def candidates(words: list[str]) -> list[str]:
    """Return what the last word can become, given those before it."""
    *before, current = words or [""]
    return sorted({word for word in _known(before, current) if word.startswith(current)})


def _known(before: list[str], current: str) -> Iterable[str]:
    if not before:
        return [*COMMANDS, "--help", "--version"]
    name = before[0]
    if name == "help":
        return [*COMMANDS, *TOPICS] if len(before) == 1 else []
    if name not in COMMANDS or COMMANDS[name].module == SERVICE:
        return []
    parser = parser_of(name)
    if current.startswith("-"):
        return [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    option = _option_before(parser, before)
    if option is not None:
        return _values(option.dest, option, before)
    position = len([word for word in before[1:] if not word.startswith("-")])
    positional = [action for action in parser._actions if not action.option_strings]
    action = positional[min(position, len(positional) - 1)] if positional else None
    return [] if action is None else _values(_subject(name, action.dest), action, before)


def _option_before(parser: argparse.ArgumentParser, before: list[str]) -> argparse.Action | None:
    """Return the option whose value comes next, if the word before the current one is such an option."""
    options = {option: action for action in parser._actions for option in action.option_strings}
    action = options.get(before[-1])
    return action if action is not None and action.nargs != 0 else None


def _subject(command: str, dest: str) -> str:
    """Return what an argument names: a queue, a schedule, the id of an operation or of a job."""
    if dest == "name":
        return command
    return {"id": "operation" if command == "operations" else "ids"}.get(dest, dest)


def _values(subject: str, action: argparse.Action, before: list[str]) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if subject == "profile":
        return _profiles()
    with (
        suppress(ErelongError, ValueError, OSError, KeyError),
        Client(timeout=PATIENCE, retries=False, **_of(before)) as client,
    ):
        return _asked(subject, client)
    return []


def _of(before: list[str]) -> dict[str, Any]:
    """Return the address or profile that the words name."""
    found = {}
    for option in ("--url", "--profile"):
        if option in before[:-1]:
            found[option.removeprefix("--")] = before[before.index(option) + 1]
    return found


def _asked(subject: str, client: Client) -> list[str]:
    match subject:
        case "queue":
            return [queue.name for queue in client.queues()]
        case "kind":
            return [kind.name for kind in client.kinds()]
        case "schedule":
            return [schedule.name for schedule in client.schedules.list()]
        case "operation":
            return [operation.id for operation, _ in zip(client.operations.list(), range(IDS), strict=False)]
        case "ids":
            return [job.id for job, _ in zip(client.list(limit=IDS), range(IDS), strict=False)]
        case _:
            return []


def _profiles() -> list[str]:
    import tomllib

    try:
        return [*tomllib.loads(profile_file().read_text(encoding="utf-8")).get("profiles", {})]
    except (OSError, tomllib.TOMLDecodeError):
        return []
