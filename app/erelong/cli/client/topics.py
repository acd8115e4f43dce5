"""The command that explains commands and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from erelong.cli.commands import COMMANDS, SERVICE, TOPICS, parser_of, serve
from erelong.cli.console.running import Usage

if TYPE_CHECKING:
    import argparse

TEXTS: Final = {
    "environment": """\
Commands find the service in this order:

  1  --url and --key-file
  2  --profile NAME
  3  ERELONG_URL, and ERELONG_KEY or ERELONG_KEY_FILE
  4  the profile that ERELONG_PROFILE names, or the one named default
  5  http://127.0.0.1:8080, without a key

A key is sent only to the address that is stored with it. Profiles are in $XDG_CONFIG_HOME/erelong/cli.toml, or else in
~/.config/erelong/cli.toml. erelong login writes them, and you can edit them:

  [profiles.prod]
  url = "https://erelong.example"
  key_file = "/run/secrets/erelong"          # or key = "erl_…", or key_command = ["pass", "erelong"]
  confirm = true                             # ask before each command that changes something

Other variables: NO_COLOR and CLICOLOR_FORCE (see: erelong help output), BROWSER for erelong open.""",
    "exit-codes": """\
    0  success
    1  refused; lines of an import were rejected; a check of status fails
    2  the arguments are wrong
    3  the job ended, but without success: wait, submit --wait
    4  no key, a wrong key, or a missing scope
    5  not found
    6  changed meanwhile, in the wrong state, or more jobs match than --at-most
   69  no response, or the service takes no work now
   74  the output cannot be written, such as on a full disk
  124  the --timeout of wait, or the time of submit --wait, is over
  130  Ctrl-C
  141  the reader of a pipe has left

The commands of the service itself have codes of their own: docs/operating.md lists them.""",
    "filters": """\
All conditions must hold. --state, --queue, --kind and --label can be repeated: several states, queues or kinds are
alternatives, several labels must all match.

  erelong list --state failed --queue mail
  erelong list --label tenant=t1 --due-before 2026-12-01T00:00:00Z
  erelong retry --state failed --cause 5b2c…           # a cause of: erelong errors
  erelong list -q --state failed | erelong retry -

A command that changes jobs counts those that match, shows three of them, and asks. Without a terminal, confirm with
--yes --at-most N: if more than N match, none is changed. --check only counts.""",
    "output": """\
Results go to standard output, everything else to standard error.

  terminal   aligned tables, relative times, colours
  pipe       tab-separated lines without a header, absolute times, nothing shortened
  --json     the objects of the API, one per line
  --fields   only these fields, such as --fields id,state,error.message
  -q         only ids or names: erelong list -q --state failed | erelong retry -
  --utc      times in UTC instead of local time
  --verbose  each request and its answer, on standard error, without the key

submit prints only the id into a pipe, so id=$(erelong submit …) works. NO_COLOR turns colours off, CLICOLOR_FORCE=1
keeps them in a pipe.""",
    "times": """\
An instant has an offset:             --at 2026-12-01T09:00:00+01:00     --at 2026-12-01T08:00:00Z
A local time needs its zone:          --at 2026-12-01T09:00:00 --zone Europe/Berlin
A duration is a number with a unit:   --in 90s, 5m, 2h, 1h30m, 7d, PT5M; a number alone is seconds

submit without --in and --at is due now. erelong never starts a job before it is due. With a zone, a job keeps its local
time when the rules of the zone change. Tables show how far away an instant is; --utc shows it in UTC.""",
}


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("about", metavar="COMMAND or TOPIC", help=f"a command, or one of {', '.join(TOPICS)}")
    parser.set_defaults(call=explain)


def explain(options: argparse.Namespace) -> int:
    about = options.about
    if about in TEXTS:
        print(TEXTS[about])
    elif about not in COMMANDS:
        raise Usage(f"no command and no topic {about!r}; topics: {', '.join(TOPICS)}; erelong --help lists commands")
    elif COMMANDS[about].module == SERVICE:
        return serve([about, "--help"])
    else:
        parser_of(about).print_help()
    return 0
