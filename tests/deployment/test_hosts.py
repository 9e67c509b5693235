"""The files for hosts of containers: what they name is there, and answers as they say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from battlesnake_server.commands import serve
from battlesnake_server.live.app import DEFAULTS, PREFIX, create_app

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "deployment/hosts"


def fly() -> tuple[int | None, str, dict[str, Any]]:
    file = tomllib.loads((HOSTS / "fly.toml").read_text())
    service = file["http_service"]
    return service["internal_port"], service["checks"][0]["path"], file["env"]


def render() -> tuple[int | None, str, dict[str, Any]]:
    (service,) = yaml.safe_load((HOSTS / "render.yaml").read_text())["services"]
    assert (ROOT / service["dockerfilePath"]).is_file()
    variables = {one["key"]: one["value"] for one in service["envVars"]}
    return None, service["healthCheckPath"], variables  # it names a port in PORT


def cloud_run() -> tuple[int | None, str, dict[str, Any]]:
    file = yaml.safe_load((HOSTS / "cloudrun.yaml").read_text())
    (container,) = file["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    return None, container["startupProbe"]["httpGet"]["path"], variables


def space() -> tuple[int | None, str, dict[str, Any]]:
    _, facts, _ = (HOSTS / "space.md").read_text().split("---\n", 2)
    file = yaml.safe_load(facts)
    assert file["sdk"] == "docker"
    return file["app_port"], "/", {}


@pytest.mark.parametrize("host", [fly, render, cloud_run, space])
def test_the_image_listens_where_its_host_asks(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, health, variables = host()
    monkeypatch.delenv("PORT", raising=False)
    if port is None:
        monkeypatch.setenv("PORT", "10000")
    assert serve.parser().parse_args([]).port == (port or 10000)
    assert {name.removeprefix(PREFIX) for name in variables} <= set(DEFAULTS)
    app = create_app({"SNAKE": variables.get(f"{PREFIX}SNAKE")})
    assert app.test_client().get(health).status_code == 200
