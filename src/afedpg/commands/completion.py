"""`afedpg completion`: a script for the shell, made from the parsers by shtab. Pressing Tab starts no Python."""

from __future__ import annotations

import argparse
from typing import Any

from afedpg import config as configuration
from afedpg.commands.export import FORMATS
from afedpg.commands.parser import command
from afedpg.experiments.choices import EXPERIMENTS, SCALES
from afedpg.preset import presets
from afedpg.sampling.native.tasks import GYMNASIUM

# Run folders are looked up when Tab is pressed, and a preset may be a file. From the names of its functions, *_dirs and
# *_files, shtab's bash knows that they print paths.
RUNS = {"bash": "_afedpg_run_dirs", "zsh": "_afedpg_runs", "fish": "(__afedpg_runs)"}
PRESETS = {"bash": "_afedpg_preset_files", "zsh": "_afedpg_presets", "fish": "(__afedpg_presets)"}

# What goes into each shell's script before shtab's last lines, with the presets for @PRESETS@.
FUNCTIONS = {
    "bash": """\
_afedpg_run_dirs() {
    local found=$(compgen -G "${1:-runs/}*/run.toml"; compgen -G "${1:-runs/}*/*/run.toml")
    if [[ -n $found ]]; then echo "${found//\\/run.toml}"; else compgen -d -- "$1"; fi
}
_afedpg_preset_files() {
    compgen -W "@PRESETS@" -- "$1"
    compgen -f -- "$1"
}
""",
    # shtab tells `eval` from autoloading, and takes `source` for the latter.
    "zsh": """\
_afedpg_runs() {
    local -a found
    local start=${PREFIX:-runs/}
    found=(${start}*/run.toml(N:h) ${start}*/*/run.toml(N:h))
    if (( $#found )); then compadd -f -U -- $found; else _files -/; fi
}
_afedpg_presets() {
    compadd -- @PRESETS@
    _files
}
if [[ $zsh_eval_context[-1] == file ]]; then
    typeset -gA opt_args
    compdef _shtab_afedpg afedpg
    return
fi
""",
    "fish": """\
function __afedpg_runs
    set -l start (commandline -ct)
    test -n "$start"; or set start runs/
    set -l found $start*/run.toml $start*/*/run.toml
    if set -q found[1]
        string replace -r '/run.toml$' '' -- $found
    else
        __fish_complete_directories $start
    end
end
function __afedpg_presets
    string split ' ' '@PRESETS@'
    __fish_complete_path (commandline -ct)
end
""",
}

# bash makes three words of --method=a3c; shtab expects two.
BASH_EQUALS = """
_afedpg() {
    local i typed=()
    for ((i = 0; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == "=" ]] || typed+=("${COMP_WORDS[i]}")
    done
    typed+=("${COMP_WORDS[COMP_CWORD]#=}")
    local COMP_WORDS=("${typed[@]}") COMP_CWORD=$((${#typed[@]} - 1))
    _shtab_afedpg
}
complete -F _afedpg afedpg
"""


def add_commands(commands: Any) -> None:
    help = "print a completion script for your shell"
    example = "afedpg completion bash > ~/.local/share/bash-completion/completions/afedpg"
    parser = command(commands, "completion", help, example, _completion, json=False)
    parser.add_argument("shell", choices=tuple(FUNCTIONS), help="the shell it is for")
    parser.set_defaults(commands=commands)


def _completion(options: argparse.Namespace) -> int:
    import shtab

    places = {"RUN": RUNS, "RUN|HOST:PORT": RUNS, "PRESET": PRESETS, "FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    words = _words()
    for parser in options.commands.choices.values():
        for action in parser._actions:
            name = (action.metavar or action.dest).upper()
            if name in places:
                action.complete = places[name]
            elif not action.choices:
                action.choices = words.get(action.dest)
            action.metavar = None  # shtab's zsh does not escape the colon of HOST:PORT
    functions = FUNCTIONS[options.shell].replace("@PRESETS@", " ".join(words["preset"]))
    print(shtab.complete(options.parser, options.shell, preamble=functions))
    if options.shell == "bash":
        print(BASH_EQUALS)
    return 0


def _words() -> dict[str, tuple[str, ...]]:
    """Values of settings, and of what commands check for themselves; by the name argparse stores them under."""
    settings = {
        entry.name: entry.metadata["choices"] or entry.metadata["parts"] for _, entry in configuration.options()
    }
    names = dict.fromkeys(name.split(".", 1)[1] for name in presets())
    own = {"task": _tasks(), "preset": tuple(names), "id": (*EXPERIMENTS, "all"), "scale": SCALES, "to": FORMATS}
    return {**settings, **own}


def _tasks() -> tuple[str, ...]:
    """Short names, problems and native tasks: all that is known without loading Gymnasium."""
    native = []
    for name in GYMNASIUM:  # "half_cheetah_v4:HalfCheetahEnv" is HalfCheetah-v4
        module, _, kind = name.partition(":")
        native.append(f"{kind.removesuffix('Env')}-{module.rpartition('_')[2]}")
    return (*configuration.SHORT_NAMES, *configuration.PROBLEMS, *native)
