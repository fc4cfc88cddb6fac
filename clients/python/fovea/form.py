"""Forms of answers: what a fleet holds an answer to, whatever its model is.

    client.ask("Which color?", images=[picture], choice=["red", "blue"])
    json.loads(client.ask("What is it?", images=[picture], json_schema=Shape.model_json_schema(), max_tokens=200).text)

An answer that max_tokens cuts is the beginning of one of its form."""
from __future__ import annotations

import json
from typing import Any, Mapping, Optional, Sequence, Union

from .inference.v1 import inference_pb2 as pb


def json_text(value: Optional[Mapping[str, Any]]) -> str:
    """JSON as messages have it; empty for nothing."""
    return json.dumps(value, ensure_ascii=False) if value else ""


def constraint(*, json_schema: Union[str, bool, Mapping[str, Any], None] = None, json_object: bool = False,
               regex: Optional[str] = None, choice: Sequence[str] = (), grammar: Optional[str] = None,
               structural_tag: Union[str, Mapping[str, Any], None] = None, after_reasoning: bool = False) -> Any:
    """The message Constraint, or None where no form is asked for. A schema and structural tags may be text or objects.
    ValueError: several forms."""
    forms = {
        "json_schema": json_schema if json_schema is None or isinstance(json_schema, str) else json.dumps(json_schema),
        "json_object": json_object or None,
        "regex": regex,
        "choice": pb.Choice(text=_texts(choice)) if choice else None,
        "grammar": grammar,
        "structural_tag": structural_tag if structural_tag is None or isinstance(structural_tag, str) else json.dumps(structural_tag),
    }
    given = {name: value for name, value in forms.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"an answer has one form; {' and '.join(given)} are given")
    return pb.Constraint(**given, after_reasoning=after_reasoning) if given else None


def _texts(choice: Sequence[str]) -> Sequence[str]:
    if isinstance(choice, str):
        raise ValueError("choice is a list of texts")
    return list(choice)
