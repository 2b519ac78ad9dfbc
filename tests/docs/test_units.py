"""The systemd units of the deployment page: systemd understands them, and they know the exit codes."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from afedpg.engine.process import DeadEnd, Interrupted
from afedpg.errors import BrokenPart, ConfigError, Unwelcome

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
UNITS = {Path(name).name: text for name, text in re.findall(r"```ini\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)}


def test_there_is_one_for_the_server_and_one_for_an_agent() -> None:
    assert sorted(UNITS) == ["afedpg-agent.service", "afedpg-server.service"]


@pytest.mark.parametrize("name", UNITS)
def test_a_stop_is_a_success_and_what_cannot_heal_is_not_started_again(name: str) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(UNITS[name])
    service = parser["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["SuccessExitStatus"]) == Interrupted.exit_code
    never = {int(code) for code in service["RestartPreventExitStatus"].split()}
    hopeless = {ConfigError, Unwelcome, BrokenPart, DeadEnd}
    assert never == {error.exit_code for error in hopeless}


@pytest.mark.parametrize("name", UNITS)
def test_compiled_code_is_kept_where_the_service_may_write(name: str) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(UNITS[name])
    service = parser["Service"]
    variable, _, folder = service["Environment"].partition("=")
    assert variable == "XDG_CACHE_HOME"
    assert Path(folder).is_relative_to(service.get("ReadWritePaths", service["WorkingDirectory"]))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_it(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name
    unit.write_text(UNITS[name].replace("/srv/afedpg/venv/bin/afedpg", sys.executable))  # which must exist
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    about = [line for line in (done.stdout + done.stderr).splitlines() if name in line]
    assert (done.returncode, about) == (0, []), done.stderr
