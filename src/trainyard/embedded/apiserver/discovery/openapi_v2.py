"""OpenAPI version 2 ("Swagger"), converted from documents of version 3.

https://swagger.io/specification/v2/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.embedded.resources.resource import SCHEMAS, Object

_JSON = "application/json"
_DEFINITIONS = "#/definitions/"
_LACKING = {"oneOf", "anyOf", "allOf", "not", "nullable"}
"""What version 2 cannot express."""


def document(info: Mapping[str, Any], documents: Iterable[Mapping[str, Any]]) -> Object:
    """One document with the contents of several of version 3."""
    paths: Object = {}
    definitions: Object = {}
    for each in documents:
        paths |= {where: _path(found) for where, found in each["paths"].items()}
        definitions |= _schemas(each["components"]["schemas"])
    return {"swagger": "2.0", "info": dict(info), "paths": paths, "definitions": definitions}


def _path(found: Mapping[str, Any]) -> Object:
    operations = {key: _operation(each) for key, each in found.items() if key != "parameters"}
    return {"parameters": [_parameter(each) for each in found["parameters"]], **operations}


def _operation(found: Mapping[str, Any]) -> Object:
    kept = {key: value for key, value in found.items() if key.startswith("x-")}
    parameters = [_parameter(each) for each in found["parameters"]]
    answer = found["responses"]["200"]
    takes: Object = {}
    if "requestBody" in found:
        content = found["requestBody"]["content"]
        schema = next(iter(content.values()))["schema"] if len(content) == 1 else {"type": "object"}
        body = {"name": "body", "in": "body", "required": True, "schema": _schema(schema)}
        parameters.append(body)
        takes = {"consumes": list(content)}
    schema = _schema(answer["content"][_JSON]["schema"])
    response = {"description": answer["description"], "schema": schema}
    return {
        **kept,
        **takes,
        "produces": [_JSON],
        "parameters": parameters,
        "responses": {"200": response},
    }


def _parameter(found: Mapping[str, Any]) -> Object:
    return {**{key: each for key, each in found.items() if key != "schema"}, **found["schema"]}


def _schema(found: Any) -> Any:
    """A schema without what version 2 lacks, its references rewritten."""
    if not isinstance(found, dict):
        return found
    if "$ref" in found:
        return {"$ref": found["$ref"].replace(SCHEMAS, _DEFINITIONS)}
    return {key: _below(key, value) for key, value in found.items() if key not in _LACKING}


def _below(key: str, value: Any) -> Any:
    if key in ("items", "additionalProperties"):
        return _schema(value)
    return _schemas(value) if key == "properties" else value


def _schemas(named: Mapping[str, Any]) -> Object:
    return {name: _schema(each) for name, each in named.items()}
