"""Files for container hosts follow the references of the hosts; the server uses their ports."""

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from battlesnake_server.commands import serve_command
from battlesnake_server.live.app import DEFAULT_CONFIG, ENVIRONMENT_PREFIX, create_app

jsonschema = pytest.importorskip("jsonschema", reason="needs the extra dev")
pytest.importorskip("googleapiclient", reason="needs the extra dev")

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "deployment/hosts"

FLY = {  # fly.io/docs/reference/configuration, its source at commit 8f45520; regions at 10b252c
    "primary_region": "ams arn bom cdg dfw ewr fra gru iad jnb lax lhr nrt ord sin sjc syd yyz",
    "env": dict,
    "http_service": {
        **dict.fromkeys(("internal_port", "min_machines_running"), int),
        **dict.fromkeys(("force_https", "auto_start_machines"), bool),
        "auto_stop_machines": "off stop suspend",
        "concurrency": {"type": "connections requests", "soft_limit": int, "hard_limit": int},
        "checks": [
            {**dict.fromkeys(("path", "grace_period", "interval", "timeout"), str), "method": "GET"}
        ],
    },
    "vm": [{"size": "shared-cpu-1x shared-cpu-2x performance-1x performance-2x", "memory": str}],
}
RENDER = {  # render.com/docs/blueprint-spec, as stored in 2026
    "services": [
        {
            "type": "web pserv worker cron keyvalue",
            "runtime": "docker image python node go ruby rust elixir static",
            "region": "oregon ohio virginia frankfurt singapore",
            "plan": "free starter standard pro",
            **dict.fromkeys(("name", "dockerfilePath", "dockerContext", "healthCheckPath"), str),
            "envVars": [{"key": str, "value": str}],
        }
    ]
}
COLOURS = "red yellow green blue indigo purple pink gray"
SPACE = {  # huggingface.co/docs/hub/spaces-config-reference, its source at commit 01cb26c
    **dict.fromkeys(("title", "emoji"), str),
    **dict.fromkeys(("colorFrom", "colorTo"), COLOURS),
    "sdk": "gradio streamlit docker static",
    "app_port": int,
    "pinned": bool,
}


def check(found: Any, allowed: Any, where: str = "") -> None:
    """Check that a file has only keys, types and values of the reference."""
    if isinstance(allowed, dict):
        assert set(found) <= set(allowed), where
        for key, value in found.items():
            check(value, allowed[key], f"{where}.{key}")
    elif isinstance(allowed, list):
        for value in found:
            check(value, allowed[0], where)
    else:
        right = found in allowed.split() if isinstance(allowed, str) else type(found) is allowed
        assert right, f"{where}: {found}"


def strict(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of Google's schema to JSON Schema without additional keys."""
    if "$ref" in part:
        return {"$ref": f"#/schemas/{part['$ref']}"}
    return {"additionalProperties": False, **part} if "properties" in part else part


def fly() -> tuple[int | None, str, dict[str, Any]]:
    file = tomllib.loads((HOSTS / "fly.toml").read_text())
    check(file, FLY)
    service = file["http_service"]
    return service["internal_port"], service["checks"][0]["path"], file["env"]


def render() -> tuple[int | None, str, dict[str, Any]]:
    file = yaml.safe_load((HOSTS / "render.yaml").read_text())
    check(file, RENDER)
    (service,) = file["services"]
    assert (ROOT / service["dockerfilePath"]).is_file()
    variables = {one["key"]: one["value"] for one in service["envVars"]}
    return None, service["healthCheckPath"], variables  # the port is passed in PORT


def cloud_run() -> tuple[int | None, str, dict[str, Any]]:
    file = yaml.safe_load((HOSTS / "cloudrun.yaml").read_text())
    published = resources.files("googleapiclient") / "discovery_cache/documents/run.v1.json"
    schema = json.loads(published.read_text(), object_hook=strict)
    jsonschema.Draft7Validator({**schema, "$ref": "#/schemas/Service"}).validate(file)
    (container,) = file["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    return None, container["startupProbe"]["httpGet"]["path"], variables


def space() -> tuple[int | None, str, dict[str, Any]]:
    _, facts, _ = (HOSTS / "space/README.md").read_text().split("---\n", 2)
    file = yaml.safe_load(facts)
    check(file, SPACE)
    assert file["sdk"] == "docker"
    return file["app_port"], "/", {}


@pytest.mark.parametrize("host", [fly, render, cloud_run, space])
def test_the_image_listens_where_its_host_asks(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, health, variables = host()
    monkeypatch.delenv("PORT", raising=False)
    if port is None:
        monkeypatch.setenv("PORT", "10000")
    assert serve_command._environment_port() == (port or 10000)
    assert {name.removeprefix(ENVIRONMENT_PREFIX) for name in variables} <= set(DEFAULT_CONFIG)
    app = create_app({"SNAKE": variables.get(f"{ENVIRONMENT_PREFIX}SNAKE")})
    assert app.test_client().get(health).status_code == 200
