"""The keys of a config.json, read one by one; what nobody read is remembered."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

from planner.errors import InvalidRequest
from planner.names import nearest_names
from planner.workload.sizes import (
    MAX_COUNT,
    MAX_SIZE,
    UnfitValue,
    is_number,
    require_flag,
    require_probability,
    require_size,
    shown,
)

Value = TypeVar("Value")

WITHOUT_COST: Final = frozenset(
    {
        "model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "use_cache",
        "initializer_range", "rms_norm_eps", "layer_norm_epsilon", "output_hidden_states",
        "output_attentions", "return_dict", "id2label", "label2id", "problem_type", "chunk_size_feed_forward",
        "pretraining_tp", "rope_theta", "rope_scaling", "rope_parameters", "task_specific_params",
        "gradient_checkpointing", "_attn_implementation", "attn_implementation", "tokenizer_class",
        "norm_eps", "norm_epsilon", "layer_norm_eps", "initializer_factor", "init_std", "num_labels",
        "auto_map", "pad_token", "quantize", "rope_interleave", "partial_rotary_factor", "rotary_pct",
        "rotary_emb_base", "rotary_dim", "original_max_position_embeddings", "attn_implementation_internal",
    }
)  # fmt: skip
"""Keys that change neither shapes nor bytes; any ``..._token_id`` is one more."""


class ConfigKeys:
    """Reads a config's keys with the class defaults of their family.

    ``other_names`` maps a key to a second spelling that a file may use for it. Every reading raises
    InvalidRequest for a value that the key cannot have, with the JSON pointer of the spelling used.
    """

    def __init__(
        self, config: Mapping[str, object], *, pointer: str, other_names: Mapping[str, str] | None = None
    ) -> None:
        self._config = config
        self._pointer = pointer
        self._other_names = other_names or {}
        self._read: set[str] = set()
        self._implied: list[str] = []
        self._sections: dict[str, ConfigKeys] = {}
        for key, other in self._other_names.items():
            if key in config and other in config and config[key] != config[other]:
                self.refuse(key, f"{key} ({shown(config[key])}) and {other} ({shown(config[other])}) differ")

    @property
    def not_understood(self) -> tuple[str, ...]:
        """The keys that no reading asked for and that are not known to be without cost.

        Those of a section follow its name and a dot.
        """
        unread = (key for key in self._config if key not in self._read and not _is_without_cost(key))
        within = (f"{name}.{key}" for name, keys in self._sections.items() for key in keys.not_understood)
        return (*unread, *self._implied, *within)

    def has(self, key: str) -> bool:
        """Tell whether the file gives a key a value other than null."""
        return self._config.get(self._spelling(key)) is not None

    def size(self, key: str, default: int, *, null: int | None = None, largest: int = MAX_SIZE) -> int:
        """Return a whole number of at least one; ``null`` is what null means, where it means anything."""

        def check(name: str, value: object) -> int:
            return require_size(name, null if value is None else value, largest=largest)

        return self._checked(key, default, check)

    def side(self, key: str, default: int, *, largest: int) -> int:
        """Return the side of square images, which a list may give twice."""
        value = self._value(key, default)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return self.size(key, default, largest=largest)
        sides = self.sizes(key, (default, default), largest=largest)
        if len(set(sides)) > 1:
            self.refuse(key, f"{key} ({shown(list(sides))}) must be square", nearest_legal=(min(sides),))
        return sides[0]

    def times(self, key: str, default: int, width: int) -> int:
        """Return a width that a key says as a multiple of another one, which is not beyond all sizes."""
        multiple = self.size(key, default)
        if multiple * width > MAX_SIZE:
            self.refuse(key, f"{key} ({multiple}) times {width} must be at most {MAX_SIZE}")
        return multiple * width

    def size_or_none(self, key: str, default: int | None) -> int | None:
        """Return a whole number of at least one, or None where it is null."""
        return None if self._value(key, default) is None else self.size(key, default or 1)

    def size_or_auto(self, key: str, automatic: int) -> int:
        """Return a whole number of at least one; "auto", or nothing at all, is what follows from others."""
        is_automatic = self._value(key, "auto") == "auto"
        return automatic if is_automatic else self.size(key, automatic)

    def count(self, key: str, default: int, *, largest: int = MAX_COUNT) -> int:
        """Return a whole number of at least zero; null is zero."""

        def check(name: str, value: object) -> int:
            return require_size(name, 0 if value is None else value, smallest=0, largest=largest)

        return self._checked(key, default, check)

    def words(self, key: str, default: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
        """Return as many known names as the default has; null means the default."""
        value = self.free_words(key, default, known)
        if len(value) != len(default):
            self.refuse(key, f"{key} must name {len(default)} layers, not {len(value)}")
        return value

    def free_words(self, key: str, default: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
        """Return known names, any number of them but none; null means the default."""
        value = self._list(key, default)
        for place, word in enumerate(value):
            if not isinstance(word, str) or word not in known:
                message = f"{key} has {shown(word)} at {place}, which is not known"
                self.refuse(key, message, nearest_legal=tuple(sorted(known)))
        if not 0 < len(value) <= MAX_COUNT:
            self.refuse(key, f"{key} must name from 1 to {MAX_COUNT} layers, not {len(value)}")
        return tuple(value)

    def places(self, key: str, default: Collection[int]) -> frozenset[int]:
        """Return the numbers of some layers, counted from zero; null means the default."""

        def check(name: str, value: object) -> int:
            return require_size(name, value, smallest=0, largest=MAX_COUNT)

        try:
            return frozenset(check(self._spelling(key), place) for place in self._list(key, default))
        except UnfitValue as error:
            self.refuse(key, str(error))

    def marks(self, key: str, default: Sequence[bool]) -> tuple[bool, ...]:
        """Return as many marks (0 or 1, false or true) as the default has; null or none mean the default."""
        value = self._list(key, default) or tuple(default)
        if any(mark not in (0, 1) for mark in value):
            self.refuse(key, f"{key} must hold only 0 and 1")
        if len(value) != len(default):
            self.refuse(key, f"{key} must mark {len(default)} layers, not {len(value)}")
        return tuple(map(bool, value))

    def sizes(self, key: str, default: Sequence[int], *, largest: int = MAX_SIZE) -> tuple[int, ...]:
        """Return one whole number of at least one for each part of a model; null means the default."""
        value = self._list(key, default)
        if not 0 < len(value) <= MAX_COUNT:
            self.refuse(key, f"{key} must hold from 1 to {MAX_COUNT} numbers, not {len(value)}")
        try:
            return tuple(require_size(self._spelling(key), size, largest=largest) for size in value)
        except UnfitValue as error:
            self.refuse(key, str(error))

    def how_many(self, key: str) -> int:
        """Return how many values a key has that holds one or a list of them; one where it is missing."""
        value = self._value(key, None)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return 1
        if not value:
            self.refuse(key, f"{key} must hold at least one value")
        return len(value)

    def fraction(self, key: str, default: float) -> float:
        """Return a number above zero and at most one."""
        return self.multiple(key, default, largest=1)

    def multiple(self, key: str, default: float, *, largest: float) -> float:
        """Return a number above zero and at most ``largest``."""

        def check(name: str, value: object) -> float:
            if not is_number(value) or not 0 < value <= largest:
                raise UnfitValue(name, f"({shown(value)}) must be above 0 and at most {largest:g}")
            return float(value)

        return self._checked(key, default, check)

    def section(self, key: str, *, other_names: Mapping[str, str] | None = None) -> "ConfigKeys":
        """Return the keys of an object within the config; empty where it is missing or null."""
        value = self._value(key, None)
        if not isinstance(value, Mapping | None):
            self.refuse(key, f"{key} ({shown(value)}) must be an object")
        keys = ConfigKeys(value or {}, pointer=f"{self._pointer}/{key}", other_names=other_names)
        self._sections[key] = keys
        return keys

    def probability(self, key: str, default: float) -> float:
        """Return a dropout; null means none."""
        return 0.0 if self._value(key, default) is None else self._checked(key, default, require_probability)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a switch."""
        return self._checked(key, default, require_flag)

    def choice(self, key: str, default: str, known: Collection[str]) -> str:
        """Return one of the known names; others are refused with the nearest."""
        value = self._value(key, default)
        if not isinstance(value, str) or value not in known:
            nearest = nearest_names(value, known) if isinstance(value, str) else tuple(sorted(known))
            self.refuse(key, f"{key} ({shown(value)}) is not known", nearest_legal=nearest)
        return value

    def expect(self, key: str, *harmless: object, default: object = None) -> None:
        """Take a key as understood only where it is null or has a value that changes nothing.

        ``default`` is what its absence means; one that does change something is not understood either.
        """
        value = self._config.get(key, default)
        if value is None or value in harmless:
            self._read.add(key)
        elif key not in self._config:
            self._implied.append(key)

    def text(self, key: str) -> str | None:
        """Return a name, or None where there is none; what is no text is left to be not understood."""
        value = self._config.get(key)
        if not isinstance(value, str | None):
            return None
        self._read.add(key)
        return value

    def architecture(self, known: Collection[str]) -> str | None:
        """Return the class that the file was made for where it is a known one, else None.

        An unknown one counts as not understood.
        """
        value = self._config.get("architectures")
        if value is None or value == []:
            self._read.add("architectures")
            return None
        first = value[0] if isinstance(value, Sequence) and not isinstance(value, str) else value
        if not isinstance(first, str) or first not in known:
            return None
        self._read.add("architectures")
        return first

    def classes(self) -> int:
        """Return how many classes a classifier tells apart; two where the file says nothing."""
        labels = self._config.get("id2label")
        return len(labels) if isinstance(labels, Mapping) and labels else self.size("num_labels", 2)

    def assume(self, key: str) -> None:
        """Say that a key which the file leaves open was given a value that nobody stated."""
        self._implied.append(key)

    def ignore(self, *keys: str) -> None:
        """Take keys as understood whatever they say."""
        self._read.update(keys)

    def refuse(self, key: str, message: str, *, nearest_legal: Collection[object] = ()) -> NoReturn:
        """Raise InvalidRequest at a key, under the spelling that the file used."""
        pointer = f"{self._pointer}/{self._spelling(key)}"
        raise InvalidRequest(message, pointer=pointer, nearest_legal=tuple(nearest_legal))

    def _checked(self, key: str, default: object, check: Callable[[str, object], Value]) -> Value:
        try:
            return check(self._spelling(key), self._value(key, default))
        except UnfitValue as error:
            self.refuse(key, str(error))

    def _list(self, key: str, default: Collection[Any]) -> Sequence[Any]:
        value = self._value(key, None)
        if value is None:
            return tuple(default)
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.refuse(key, f"{key} ({shown(value)}) must be a list")
        return value

    def _value(self, key: str, default: object) -> object:
        self._read.update({key, self._other_names.get(key, key)})
        return self._config.get(self._spelling(key), default)

    def _spelling(self, key: str) -> str:
        other = self._other_names.get(key, key)
        return other if key not in self._config and other in self._config else key


def _is_without_cost(key: str) -> bool:
    return key in WITHOUT_COST or key.endswith("_token_id")
