"""What a customer may send to hold or buy a seat; the page and the JSON address share it, so that both refuse the same things."""

from typing import Any
from unicodedata import category

from django import forms

from ticketing.seat_map import legible
from ticketing.seats import split_label

NOBODY = "holder must be given: who is the seat for?"


class NameField(forms.CharField):
    """Text alone: a list or a number in JSON would be held for as Python writes it."""

    def to_python(self, value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise forms.ValidationError('holder must be text, such as "Ada"')
        return super().to_python(value)


class HoldForm(forms.Form):
    seat = forms.CharField(
        max_length=4,
        error_messages={
            "required": "seat must be given, such as B12",
            "max_length": "seat must be a row letter and a number, such as B12",
        },
    )
    holder = NameField(
        max_length=100,
        error_messages={
            "required": NOBODY,
            "max_length": "holder must have at most 100 characters",
        },
    )

    def clean_seat(self) -> str:
        try:
            row, number = split_label(self.cleaned_data["seat"])
        except ValueError as fault:
            raise forms.ValidationError(str(fault)) from fault
        return f"{row}{number}"

    def clean_holder(self) -> str:
        holder = str(self.cleaned_data["holder"])
        # Half of a character, which JSON can carry, has no place in a database.
        if legible(holder) != holder:
            raise forms.ValidationError("holder must be a name, without control characters")
        # Zero-width and bidi marks are characters that nobody sees.
        if all(category(character)[0] in "CZ" for character in holder):
            raise forms.ValidationError(NOBODY)
        return holder

    def first_error(self) -> str:
        return str(next(iter(self.errors.values()))[0])
