"""What the shells complete, asked as a Tab would."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.terminal import OnTerminal

PATIENCE = 20.0
# zsh completes only in an interactive shell. This one writes what compadd is given to a file, instead of a menu.
ZSHRC = """\
PROMPT=
autoload -Uz compinit && compinit -u -D
{script}
compadd() {{
    local -a hits
    builtin compadd -O hits "$@"
    builtin print -rl -- "${{(@)hits}}" done > {found}.new
    command mv {found}.new {found}
}}
zle -C probe complete-word _erelong
bindkey "^I" probe
builtin print -r -- ready
"""


def complete(shell: str, line: str, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return what a shell offers for the last word of a line; `folder` has the program `erelong`."""
    variables = {**environment, "PATH": f"{folder}{os.pathsep}{environment['PATH']}"}
    script = subprocess.run(
        [folder / "erelong", "completion", shell], env=variables, capture_output=True, text=True, check=True
    ).stdout
    if shell == "zsh":
        return _zsh(script, line, variables)
    words = shlex.split(line)
    if shell == "fish":
        command = ["fish", "--no-config", "-c", f"{script}\ncomplete -C {shlex.quote(line)}"]
    else:
        probe = f'COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _erelong; printf "%s\\n" "${{COMPREPLY[@]}}"'
        command = ["bash", "--norc", "-c", f"{script}\n{probe}"]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return sorted(found.split("\t")[0] for found in ended.stdout.splitlines() if found)


def _zsh(script: str, line: str, variables: Mapping[str, str]) -> list[str]:
    with TemporaryDirectory() as home:
        found = Path(home) / "found"
        (Path(home) / ".zshrc").write_text(ZSHRC.format(script=script, found=found))
        environment = {**variables, "ZDOTDIR": home}
        with OnTerminal(["zsh", "-i"], folder=Path(home), environment=environment) as terminal:
            terminal.wait_for("ready")
            terminal.press(f"{line}\t")
            terminal.wait_for(lambda _: found.exists())
        return sorted(found.read_text().split()[:-1])
