"""Completion scripts for bash, zsh and fish. Run folders are looked up when Tab is pressed; all else is in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TOP = ("--help", "--version")
SHORT = 70  # letters of a description


@dataclass(frozen=True)
class Argument:
    """An option with its flags, or a positional without any."""

    flags: tuple[str, ...]
    help: str
    name: str  # of its value
    takes_value: bool
    words: tuple[str, ...] = ()  # values it may have
    place: str = ""  # "run", "file" or "folder", where its value is one
    repeats: bool = False


@dataclass(frozen=True)
class Command:
    name: str
    help: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.flags]

    @property
    def positionals(self) -> list[Argument]:
        return [argument for argument in self.arguments if not argument.flags]


def bash(commands: Sequence[Command]) -> str:
    names = " ".join([*(command.name for command in commands), *TOP])
    cases: dict[str, list[str]] = {"VALUED": [], "VALUES": [], "FLAGS": [], "POSITIONALS": []}
    cases["FLAGS"].append(f'"") words="{names}" ;;')
    cases["POSITIONALS"].append(f'" 0") words="{names}" ;;')
    for command in commands:
        name, valued = command.name, [option for option in command.options if option.takes_value]
        cases["VALUED"].append(f'{name}) valued=" {" ".join(_flags(valued))} " ;;')
        cases["FLAGS"].append(f'{name}) words="{" ".join(_flags(command.options))}" ;;')
        cases["VALUES"] += [f'"{name} {flag}") {_bash_value(one)} ;;' for one in valued for flag in one.flags]
        for place, argument in enumerate(command.positionals):
            where = f'"{name} "*' if argument.repeats else f'"{name} {place}"'
            cases["POSITIONALS"].append(f"{where}) {_bash_value(argument)} ;;")
    return _fill(_BASH, cases)


def _fill(script: str, blocks: dict[str, list[str]]) -> str:
    """Each line @NAME@ becomes the lines of that block, indented as it is."""
    for name, lines in blocks.items():
        indent = script[: script.index(f"@{name}@")].rpartition("\n")[2]
        script = script.replace(f"@{name}@", f"\n{indent}".join(lines))
    return script


def _bash_value(argument: Argument) -> str:
    words = f'words="{" ".join(argument.words)}"' if argument.words else ""
    place = f"place={_place(argument)}" if _place(argument) else ""
    return " ".join(part for part in (words, place) if part) or ":"


def _flags(options: Sequence[Argument]) -> list[str]:
    return [flag for option in options for flag in option.flags]


def _place(argument: Argument) -> str:
    return "file" if argument.name == "PRESET" else argument.place  # a preset may be a file of one's own


_BASH = """\
# afedpg completion for bash: `source` it, or put it where bash-completion finds it.
_afedpg() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local command="" valued="" words="" place="" skip="" at=0 i word
    if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ -n $skip ]]; then skip=""
        elif [[ $word == -* ]]; then [[ $valued == *" $word "* ]] && skip=1
        elif [[ -n $command ]]; then at=$((at + 1))
        else
            command=$word
            case $command in
                @VALUED@
            esac
        fi
    done
    case "$command $prev" in
        @VALUES@
        *)
            if [[ $cur == -* ]]; then
                case $command in
                    @FLAGS@
                esac
            else
                case "$command $at" in
                    @POSITIONALS@
                esac
            fi ;;
    esac
    COMPREPLY=()
    _afedpg_add < <(compgen -W "$words" -- "$cur")
    [[ ${#COMPREPLY[@]} -gt 0 ]] && return
    [[ -n $place ]] && compopt -o filenames 2>/dev/null
    if [[ $place == run ]]; then
        _afedpg_add < <(compgen -G "${cur:-runs/}*/run.toml"; compgen -G "${cur:-runs/}*/*/run.toml")
        [[ ${#COMPREPLY[@]} -eq 0 ]] && place=folder
    fi
    case $place in
        file) _afedpg_add < <(compgen -f -- "$cur") ;;
        folder) _afedpg_add < <(compgen -d -- "$cur") ;;
    esac
}
_afedpg_add() {
    local found
    while IFS= read -r found; do COMPREPLY+=("${found%/run.toml}"); done
}
complete -F _afedpg afedpg
"""


def zsh(commands: Sequence[Command]) -> str:
    names = [_quote(f"{command.name}:{_brief(command.help)}") for command in commands]
    return _fill(_ZSH, {"NAMES": names, "CASES": [_zsh_case(command) for command in commands]})


def _zsh_case(command: Command) -> str:
    lines = []
    for option in command.options:
        for flag in option.flags:
            value = f":{option.name.lower()}:{_zsh_value(option)}" if option.takes_value else ""
            lines.append(_quote(f"{flag}[{_zsh_text(option.help)}]{value}"))
    for argument in command.positionals:
        start = "*" if argument.repeats else ""
        lines.append(_quote(f"{start}:{_zsh_text(argument.name.lower())}:{_zsh_value(argument)}"))
    body = " \\\n                ".join(lines)
    return f"({command.name}) _arguments \\\n                {body} ;;"


def _zsh_value(argument: Argument) -> str:
    place, words = _place(argument), " ".join(argument.words)
    if words:
        return f"_afedpg_or_file {words}" if place else f"({words})"
    return {"run": "_afedpg_runs", "file": "_files", "folder": "_files -/"}.get(place, " ")


def _zsh_text(text: str) -> str:
    for letter in "\\[]:":
        text = text.replace(letter, f"\\{letter}")
    return _brief(text)


_ZSH = """\
#compdef afedpg
# afedpg completion for zsh: put it as _afedpg into a folder of $fpath, or `source` it after compinit.
_afedpg_runs() {
    local -a found
    local start=${PREFIX:-runs/}
    found=(${start}*/run.toml(N:h) ${start}*/*/run.toml(N:h))
    if (( $#found )); then compadd -f -U -- $found; else _files -/; fi
}
_afedpg_or_file() {
    compadd "$@" || _files
}
_afedpg() {
    local context state state_descr line
    local -A opt_args
    local -a commands=(
        @NAMES@
    )
    _arguments -C '--help[show a help message]' '--version[show the version]' '1:command:->command' '*::argument:->rest'
    case $state in
        (command) _describe command commands ;;
        (rest) case $words[1] in
            @CASES@
        esac ;;
    esac
}
if [[ ${funcstack[1]} == _afedpg ]]; then _afedpg "$@"; else compdef _afedpg afedpg; fi
"""


def fish(commands: Sequence[Command]) -> str:
    lines = [
        f"complete -c afedpg -n __fish_use_subcommand -xa {command.name} -d {_fish_quote(command.help)}"
        for command in commands
    ]
    for command in commands:
        seen = f'-n "__fish_seen_subcommand_from {command.name}"'
        for option in command.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            value = _fish_value(option) if option.takes_value else ""
            lines.append(f"complete -c afedpg {seen} {flags} {value} -d {_fish_quote(option.help)}")
        lines += [f"complete -c afedpg {seen} {_fish_value(argument)}" for argument in command.positionals]
    return _FISH + "\n".join(lines) + "\n"


def _fish_value(argument: Argument) -> str:
    place = _place(argument)
    if argument.words:
        return f"{'-r' if place else '-x'} -a {_fish_quote(' '.join(argument.words), short=False)}"
    values = {"run": '-x -a "(__afedpg_runs)"', "folder": '-x -a "(__fish_complete_directories)"', "file": "-r -F"}
    return values.get(place, "-x")


_FISH = """\
# afedpg completion for fish: put it as afedpg.fish into ~/.config/fish/completions, or `source` it.
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
complete -c afedpg -f
complete -c afedpg -n __fish_use_subcommand -l help -d 'show a help message'
complete -c afedpg -n __fish_use_subcommand -l version -d 'show the version'
"""


def _brief(text: str) -> str:
    return text if len(text) <= SHORT else text[: SHORT - 3].rstrip("\\ ") + "..."


def _quote(text: str) -> str:
    """As one word of sh and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quote(text: str, short: bool = True) -> str:
    text = (_brief(text) if short else text).replace("\\", "\\\\")
    return "'" + text.replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
