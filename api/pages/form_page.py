"""The form as a page: fields with what was typed, what is wrong, and what may be chosen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.pages.choices import Option, OptionGroup, cluster_options, model_groups, word_options
from api.pages.examples import EXAMPLES, Example
from api.pages.form_fields import (
    FIELDS,
    FIXED_FIELDS,
    GROUP_FIELDS,
    SAMPLE_FIELDS,
    TRAINED,
    TRAINED_FIELDS,
    Field,
    Verb,
)
from api.pages.form_request import WHOLE_FORM, Faults, FieldFault
from api.pages.form_values import FORBID, FormValues


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldView:
    """One field as it is shown."""

    name: str
    label: str
    hint: str
    placeholder: str
    value: str
    faults: tuple[FieldFault, ...]
    options: tuple[Option, ...]

    @property
    def described_by(self) -> str:
        """Return the ids of what explains the field, for those who hear the page."""
        parts = (f"{self.name}-faults" if self.faults else "", f"{self.name}-hint" if self.hint else "")
        return " ".join(filter(None, parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class FormPage:
    """The whole form."""

    verb: Verb
    fields: Mapping[str, FieldView]
    fixed: tuple[FieldView, ...]
    group: tuple[FieldView, ...]
    samples: tuple[FieldView, ...]
    trained: tuple[FieldView, ...]
    model_source: str
    cluster_source: str
    model_groups: tuple[OptionGroup, ...]
    forbid: tuple[str, ...]
    whole_form: tuple[FieldFault, ...]
    examples: tuple[Example, ...]

    @property
    def faulty(self) -> tuple[FieldView, ...]:
        """Return the fields with faults, in the order of the page."""
        return tuple(field for field in self.fields.values() if field.faults)

    @property
    def is_special(self) -> bool:
        """Whether anything but the usual stands in the fields of images and of what is trained."""
        special = (*self.samples, *self.trained)
        usual = {TRAINED: FIELDS[TRAINED].default}
        return any(field.faults or field.value != usual.get(field.name, "") for field in special)

    @property
    def has_constraints(self) -> bool:
        """Whether anything stands in the part of the form that is folded away."""
        folded = (*(field.name for field in FIXED_FIELDS), "memory_fraction", "time_limit_seconds", "more")
        shown = (self.fields[name] for name in (*folded, FORBID))
        return bool(self.forbid) or any(field.value or field.faults for field in shown)


def form_page(values: FormValues, *, verb: Verb, faults: Faults, machines: Iterable[str]) -> FormPage:
    """Return the page of a form; ``machines`` are the measured ones that a plan can be made for."""
    options = word_options() | {"cluster_preset": cluster_options(machines)}
    fields = {
        field.name: _field_view(field, values, faults, options.get(field.name, ()))
        for field in FIELDS.values()
    }
    return FormPage(
        verb=verb,
        fields=fields,
        fixed=tuple(fields[field.name] for field in FIXED_FIELDS),
        group=tuple(fields[field.name] for field in GROUP_FIELDS),
        samples=tuple(fields[field.name] for field in SAMPLE_FIELDS),
        trained=tuple(fields[field.name] for field in TRAINED_FIELDS),
        model_source=values.model_source,
        cluster_source=values.cluster_source,
        model_groups=model_groups(),
        forbid=values.forbid,
        whole_form=faults.get(WHOLE_FORM, ()),
        examples=tuple(EXAMPLES.values()),
    )


def _field_view(field: Field, values: FormValues, faults: Faults, options: tuple[Option, ...]) -> FieldView:
    return FieldView(
        name=field.name,
        label=field.label,
        hint=field.hint,
        placeholder=field.placeholder,
        value=values.texts.get(field.name) or field.default,
        faults=faults.get(field.name, ()),
        options=options,
    )
