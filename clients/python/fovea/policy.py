"""Policies: text, objects, and what a model's table of methods (GetModel) allows."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Tuple, Union

from .inference.v1 import inference_pb2 as pb

Value = Union[int, float, str]


@dataclasses.dataclass(frozen=True)
class Stage:
    """One method with its parameters; those that are not given have the model's defaults."""

    stage: str
    method: str
    params: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join([f"{self.stage}={self.method}", *(f"{name}={value}" for name, value in self.params.items())])


@dataclasses.dataclass(frozen=True)
class Policy:
    """A preset, and methods that differ from it. Policy() is `exact`; `a | b` has b's methods where both have one."""

    preset: str = ""
    stages: Tuple[Stage, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Of the text form, such as "quality" or "prune=vtw,layer=16;select=none". The router checks names and values."""
        preset, stages = "", []
        for part in filter(None, (p.strip() for p in text.split(";"))):
            head, *rest = (p.strip() for p in part.split(","))
            stage, equals, method = (s.strip() for s in head.partition("="))
            if not equals or stage == "preset":
                preset = method or stage
                continue
            pairs = [p.partition("=") for p in rest]
            stages.append(Stage(stage, method, {name.strip(): value.strip() for name, _, value in pairs}))
        return cls(preset, tuple(stages))

    def __or__(self, other: Policy) -> Policy:
        stages = {s.stage: s for s in self.stages + other.stages}
        return Policy(other.preset or self.preset, tuple(stages.values()))

    def __str__(self) -> str:
        parts = [f"preset={self.preset}"] if self.preset else []
        return ";".join(parts + [str(s) for s in self.stages]) or "exact"

    def message(self) -> Any:
        stages = [pb.StagePolicy(stage=s.stage, method=s.method, params=[_param(n, v) for n, v in s.params.items()]) for s in self.stages]
        return pb.Policy(preset=self.preset, stages=stages)


def _param(name: str, value: Value) -> Any:
    try:
        return pb.Param(name=name, value=float(value))
    except ValueError:
        return pb.Param(name=name, text=str(value))


class Methods:
    """What policies of a model can be made of:

    methods = client.methods()
    policy = methods.presets["quality"] | methods("prune", "vtw", layer=6)

    A name that the model does not have, and a number out of range, is a ValueError that lists what there is."""

    def __init__(self, model: Any):
        self.presets: Dict[str, Policy] = {p.name: Policy(p.name) for p in model.presets}
        self.table: Dict[str, Dict[str, Any]] = {}  # stage -> name -> Method of inference.proto
        self.conflicts: List[Tuple[str, str, str]] = [(c.a, c.b, c.why) for c in model.conflicts]
        for m in model.methods:
            self.table.setdefault(m.stage, {})[m.name] = m

    def __call__(self, stage: str, method: str, **params: Value) -> Policy:
        found = _pick("stage", stage, self.table)
        if method != "none":
            known = {p.name: p for p in _pick(f"method of {stage}", method, found).params}
            for name, value in params.items():
                _check(_pick(f"parameter of {stage}={method}", name, known), value)
        return Policy("", (Stage(stage, method, params),))


def _pick(what: str, name: str, among: Mapping[str, Any]) -> Any:
    if name not in among:
        raise ValueError(f"{name} is not a {what}; use one of {', '.join(among)}")
    return among[name]


def _check(p: Any, value: Value) -> None:
    if p.type == "choice" and value not in p.words:
        raise ValueError(f"{p.name} is {value}; it must be one of {', '.join(p.words)}")
    if p.type in ("int", "float") and not (isinstance(value, (int, float)) and p.min <= value <= p.max):
        raise ValueError(f"{p.name} is {value}; it must be {p.min:g}..{p.max:g}")
