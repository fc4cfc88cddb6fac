"""Reports as dataclasses: the messages of inference.proto, which says what each field means."""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Type, TypeVar

T = TypeVar("T")


@dataclass
class MappedLayer:
    stage: str = ""
    parameter: str = ""
    written: str = ""
    layer: int = 0
    mapping: str = ""


@dataclass
class Recompressed:
    tokens: int = 0
    n_layer: int = 0
    bytes_freed: int = 0
    error: float = 0.0
    seconds: float = 0.0


@dataclass
class PackedLayer:
    rank_k: int = 0
    rank_v: int = 0
    error_k: float = 0.0
    error_v: float = 0.0
    rank_text: int = 0
    error_text: float = 0.0
    code_bits: int = 0
    merged: bool = False
    row_bits: int = 0
    own_directions: int = 0
    text_bits: int = 0
    key_bits: int = 0


@dataclass
class StageStats:
    stage: str = ""
    method: str = ""
    entries_in: int = 0
    entries_out: int = 0
    n_layer: int = 0


@dataclass
class KeptTokens:
    layer: int = 0
    n_layer: int = 0
    heads: bytes = b""
    score: bytes = b""


@dataclass
class StageNote:
    stage: str = ""
    text: str = ""
    decided: bool = False


@dataclass
class Transfer:
    transport: str = ""
    bytes_sent: int = 0
    n_frames: int = 0
    seconds_open: float = 0.0
    seconds_send: float = 0.0
    seconds_exposed: float = 0.0
    seconds_commit: float = 0.0
    seconds_attach: float = 0.0
    bytes_pair: int = 0
    n_fallback: int = 0
    tokens_kept: int = 0
    bytes_kept: int = 0


@dataclass
class Report:
    policy: str = ""
    notes: List[StageNote] = field(default_factory=list)
    n_prompt: int = 0
    n_visual: int = 0
    n_encoded: int = 0
    n_text: int = 0
    n_images: int = 0
    n_images_cached: int = 0
    n_prompt_cached: int = 0
    cache_tier: str = ""
    seconds_saved: float = 0.0
    n_prompt_fetched: int = 0
    n_drafted: int = 0
    n_drafts_kept: int = 0
    seconds_drafts_saved: float = 0.0
    n_generated: int = 0
    visual_tokens: List[int] = field(default_factory=list)
    visual_tokens_held: List[int] = field(default_factory=list)
    bytes_raw: int = 0
    bytes_bound: int = 0
    bytes_visual: int = 0
    bytes_text: int = 0
    bytes_visual_end: int = 0
    bytes_text_end: int = 0
    bytes_tables_end: int = 0
    entries_evicted: int = 0
    seconds_preprocess: float = 0.0
    seconds_vision: float = 0.0
    seconds_prefill: float = 0.0
    seconds_first_token: float = 0.0
    seconds_decode: float = 0.0
    seconds_queued: float = 0.0
    transfer: Optional[Transfer] = None
    digests: List[int] = field(default_factory=list)
    prefill_worker: str = ""
    decode_worker: str = ""
    n_replays: int = 0
    kept: List[KeptTokens] = field(default_factory=list)
    stages: List[StageStats] = field(default_factory=list)
    packed: List[PackedLayer] = field(default_factory=list)
    bytes_packed_raw: int = 0
    bytes_packed: int = 0
    bytes_unsent: int = 0
    seconds_pack: float = 0.0
    mapped: List[MappedLayer] = field(default_factory=list)
    recompressed: Optional[Recompressed] = None

    @classmethod
    def of(cls, message: Any) -> Report:
        """Of the message."""
        return _read(cls, message)

    def layers(self) -> Any:
        """A DataFrame (pandas) with a row per layer: visual tokens computed and held, and how they were compressed."""
        import pandas

        rows = [{"layer": i, "visual_tokens": n, "visual_tokens_held": self.visual_tokens_held[i],
                 **(dataclasses.asdict(self.packed[i]) if self.packed else {})} for i, n in enumerate(self.visual_tokens)]
        return pandas.DataFrame(rows)


_NESTED = {c.__name__: c for c in (MappedLayer, Recompressed, PackedLayer, StageStats, KeptTokens, StageNote, Transfer)}


def _read(cls: Type[T], message: Any) -> T:
    values: Dict[str, Any] = {}
    for f in dataclasses.fields(cls):  # type: ignore[arg-type]
        value = getattr(message, f.name)
        kind = str(f.type)
        inner = _NESTED.get(kind[kind.find("[") + 1 : -1])
        if kind.startswith("List["):
            values[f.name] = [_read(inner, v) for v in value] if inner else list(value)
        elif inner:
            values[f.name] = _read(inner, value) if message.HasField(f.name) else None
        else:
            values[f.name] = value
    return cls(**values)


def to_pandas(reports: Iterable[Report]) -> Any:
    """A DataFrame (pandas) with a row per report: its numbers and texts, and those of its transfer as transfer_..."""
    import pandas

    rows = []
    for report in reports:
        flat = dataclasses.asdict(report)
        transfer = flat.pop("transfer") or {}
        row = {name: value for name, value in flat.items() if isinstance(value, (int, float, str))}
        rows.append({**row, **{f"transfer_{name}": value for name, value in transfer.items()}})
    return pandas.DataFrame(rows)
